import pytest

from hostelry.domain.copy import CopySpec
from hostelry.domain.model import Container
from hostelry.domain.serverless import ServerlessConfig
from hostelry.domain.shape import Requirements, Shape
from hostelry.fleet.rules.limits import (
    MAX_DISK_BYTES,
    MIB,
    CopyLimits,
    MemoryEvidence,
    asked_disk_bytes,
    disk_budget_bytes,
    disk_cause,
    limits_of,
    megabytes,
    memory_cause,
    num_sharing,
    over_limit,
    thread_variables,
)

LIMIT = 512 * MIB


@pytest.mark.parametrize(
    ("evidence", "exit_code", "cause"),
    [
        pytest.param(
            MemoryEvidence(over_limit_bytes=612 * MIB),
            -9,
            "used 612 MB, over its limit of 512 MB (MaxMemoryRequiredInMb, or a serverless"
            " variant's MemorySizeInMB)"
            "; killed",
            id="the agent killed it for its limit",
        ),
        pytest.param(
            MemoryEvidence(over_limit_bytes=LIMIT + 1),
            None,
            "used 513 MB, over its limit of 512 MB",
            id="a byte over is told as more",
        ),
        pytest.param(
            MemoryEvidence(group_kills=1),
            1,
            "reached its limit of 512 MB (MaxMemoryRequiredInMb, or a serverless variant's"
            " MemorySizeInMB); the kernel killed it",
            id="the kernel killed a part, and the rest ended by itself",
        ),
        pytest.param(
            MemoryEvidence(machine_kills=1, peak_bytes=100 * MIB),
            -9,
            "was ended by signal 9. The kernel killed 1 of the machine's processes at that time,"
            " because the machine or a limit ran out of memory; it held up to 100 MB.",
            id="the kernel killed it, or a neighbour, for memory",
        ),
        pytest.param(
            MemoryEvidence(machine_kills=1),
            None,
            "process is gone. The kernel",
            id="an adopted one",
        ),
        pytest.param(MemoryEvidence(machine_kills=3), 1, None, id="it exited by itself"),
        pytest.param(MemoryEvidence(machine_kills=3), -11, None, id="it crashed by itself"),
        pytest.param(MemoryEvidence(peak_bytes=LIMIT), -9, None, id="somebody killed it"),
        pytest.param(MemoryEvidence(), 0, None, id="nothing happened"),
    ],
)
def test_an_end_by_memory_is_explained(
    evidence: MemoryEvidence, exit_code: int | None, cause: str | None
) -> None:
    cause = memory_cause(evidence, exit_code, LIMIT)
    if cause is None:
        assert cause is None
    else:
        assert cause is not None
        assert cause in cause


@pytest.mark.parametrize(
    ("held", "limit", "over"),
    [
        pytest.param(LIMIT, LIMIT, False, id="all of it is allowed"),
        pytest.param(LIMIT + 1, LIMIT, True, id="a byte more is not"),
        pytest.param(LIMIT, None, False, id="without a limit it may grow"),
    ],
)
def test_what_is_over_the_limit(held: int, limit: int | None, over: bool) -> None:
    assert over_limit(held, limit) is over


def test_megabytes_are_rounded_up() -> None:
    assert [megabytes(it) for it in (0, 1, MIB, MIB + 1)] == [0, 1, 1, 2]


LAPTOP, SERVER = 2, 192  # CPUs
GPUS = Shape(cpus=48, memory_bytes=1, accelerators=4)  # as ml.g5.12xlarge declares


def asks(cpus: float = 0.0, accelerators: int = 0) -> Requirements:
    return Requirements(min_memory_bytes=1, cpus=cpus, accelerators=accelerators)


@pytest.mark.parametrize(
    ("requirements", "machine_cpus", "reserved", "num_threads", "weight"),
    [
        pytest.param(asks(0.1), LAPTOP, 0.1, 1, 0.1, id="a part of a CPU is a thread"),
        pytest.param(asks(1.1), LAPTOP, 1.1, 2, 1.1, id="a reservation is rounded up"),
        pytest.param(asks(12), LAPTOP, 48, 2, 12, id="no more threads than the machine has CPUs"),
        pytest.param(asks(12), SERVER, 48, 12, 12, id="no more threads than it reserves"),
        pytest.param(asks(), LAPTOP, 0, 2, 1, id="who reserves none may use all"),
        pytest.param(asks(), SERVER, 0, 48, 1, id="no more CPUs than the instance declares"),
        pytest.param(asks(), SERVER, 40, 8, 1, id="what nobody else reserved"),
        pytest.param(asks(), SERVER, 7.5, 41, 1, id="the last part of a CPU is a thread too"),
        pytest.param(asks(), LAPTOP, 8, 2, 1, id="a sixth reserved leaves parts of both CPUs"),
        pytest.param(asks(), LAPTOP, 24, 1, 1, id="half the declared CPUs are half the real ones"),
        pytest.param(asks(), LAPTOP, 48, 1, 1, id="a thread where everything is reserved"),
        pytest.param(asks(), LAPTOP, 99, 1, 1, id="and where more is reserved than there is"),
        pytest.param(asks(0, 1), LAPTOP, 0, 2, 12, id="one of four accelerators, alone: all"),
        pytest.param(asks(0, 2), LAPTOP, 0, 2, 24, id="two weigh twice as much"),
        pytest.param(asks(0, 1), SERVER, 8, 40, 10, id="its share is of what nobody reserved"),
        pytest.param(asks(0, 1), SERVER, 48, 1, 1, id="an accelerator and no CPU left"),
        pytest.param(asks(4, 1), SERVER, 4, 4, 4, id="a reservation counts before accelerators"),
        pytest.param(None, LAPTOP, 0, 2, 48, id="without requirements the instance is its own"),
        pytest.param(None, SERVER, 0, 48, 48, id="and no more than the instance"),
    ],
)
def test_threads_and_weight_of_a_copy(
    requirements: Requirements | None,
    machine_cpus: int,
    reserved: float,
    num_threads: int,
    weight: float,
) -> None:
    limits = limits_of(requirements, GPUS, machine_cpus, reserved)
    assert (limits.num_threads, limits.cpus) == (num_threads, weight)


def test_an_instance_without_accelerators_has_no_shares_of_them() -> None:
    limits = limits_of(asks(), Shape(cpus=2, memory_bytes=1), LAPTOP, 0.0)
    assert (limits.num_threads, limits.cpus) == (2, 1)


def of_model(*names: str | None, requirements: Requirements | None = None) -> list[CopySpec]:
    return [
        CopySpec(
            id=f"c-{number}",
            owner="variant/v",
            container=Container(image="echo:1", hostname=name),
            requirements=requirements,
            download_timeout_s=60.0,
            startup_timeout_s=60.0,
        )
        for number, name in enumerate(names)
    ]


@pytest.mark.parametrize(
    ("specs", "sharing"),
    [
        pytest.param(of_model(None), 1, id="a lone container has all"),
        pytest.param(of_model("one", "two", "three"), 3, id="containers of a pipeline share"),
        pytest.param(of_model("one", "two", "two"), 2, id="its successor has an ended one's part"),
        pytest.param(of_model(None, None, requirements=asks()), 1, id="components reserve theirs"),
        pytest.param([], 1, id="none yet"),
    ],
)
def test_containers_of_one_model_share_the_memory(specs: list[CopySpec], sharing: int) -> None:
    assert num_sharing(specs) == sharing


def test_threads_that_wait_do_not_spin_for_long() -> None:
    made = thread_variables(2)
    assert (made["GOMP_SPINCOUNT"], made["KMP_BLOCKTIME"]) == ("5000", "0")


@pytest.mark.parametrize(
    ("operator", "threads"),
    [
        pytest.param("1", "1", id="the operator's limit"),
        pytest.param("3", "2", id="a wider one"),
        *(pytest.param(it, "2", id=f"none: {it!r}") for it in ("", "0", "-3", "many", "2,2")),
    ],
)
def test_the_operators_limit_bounds_threads(operator: str, threads: str) -> None:
    assert thread_variables(2, operator)["OMP_NUM_THREADS"] == threads


@pytest.mark.parametrize(
    ("asked_mb", "num_bytes"),
    [
        pytest.param("", MAX_DISK_BYTES, id="nothing is asked"),
        pytest.param("64", 64 * MIB, id="less than others"),
        pytest.param("99999999", MAX_DISK_BYTES, id="never more than others"),
        pytest.param("9" * 5000, MAX_DISK_BYTES, id="a number without end"),
        pytest.param("-1", MAX_DISK_BYTES, id="a negative number is none"),
        pytest.param("64.5", MAX_DISK_BYTES, id="a fraction is none"),
    ],
)
def test_a_disk_budget_may_be_asked_to_be_less(asked_mb: str, num_bytes: int) -> None:
    assert asked_disk_bytes(asked_mb) == num_bytes


def test_an_environment_may_write_five_gigabytes_and_ask_for_less() -> None:
    environment = ServerlessConfig(memory_mb=1024, max_concurrency=1).environment
    limits = limits_of(environment, Shape(cpus=1, memory_bytes=1), 2, 0.0)
    assert limits.max_disk_bytes == 5 * 1024**3
    assert asked_disk_bytes("6000", limits.max_disk_bytes) == 5 * 1024**3
    assert asked_disk_bytes("64", limits.max_disk_bytes) == 64 * MIB


def test_a_copy_may_write_half_of_what_is_free_at_most() -> None:
    limits = CopyLimits(cpus=1, max_disk_bytes=64 * MIB)
    assert disk_budget_bytes(limits, 1000 * MIB) == 64 * MIB
    assert disk_budget_bytes(limits, 100 * MIB) == 50 * MIB


def test_an_end_by_disk_is_explained() -> None:
    assert "wrote 70 MB into its folder, over its disk budget of 64 MB" in disk_cause(
        70 * MIB, 64 * MIB
    )
