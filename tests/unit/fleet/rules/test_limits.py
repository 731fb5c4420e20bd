import pytest
from tests.cases import case, cases

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
    compute_limits,
    describe_disk_cause,
    describe_memory_cause,
    disk_budget_bytes,
    is_over_limit,
    megabytes,
    num_sharing,
    thread_variables,
)

LIMIT = 512 * MIB


@cases(
    "evidence, exit_code, cause",
    case(
        "the agent killed it for its limit",
        MemoryEvidence(over_limit_bytes=612 * MIB),
        -9,
        "used 612 MB, over its limit of 512 MB (MaxMemoryRequiredInMb, or a serverless"
        " variant's MemorySizeInMB)"
        "; killed",
    ),
    case(
        "a byte over is told as more",
        MemoryEvidence(over_limit_bytes=LIMIT + 1),
        None,
        "used 513 MB, over its limit of 512 MB",
    ),
    case(
        "the kernel killed a part, and the rest ended by itself",
        MemoryEvidence(group_kills=1),
        1,
        "reached its limit of 512 MB (MaxMemoryRequiredInMb, or a serverless variant's"
        " MemorySizeInMB); the kernel killed it",
    ),
    case(
        "the kernel killed it, or a neighbour, for memory",
        MemoryEvidence(machine_kills=1, peak_bytes=100 * MIB),
        -9,
        "was ended by signal 9. The kernel killed 1 of the machine's processes at that time,"
        " because the machine or a limit ran out of memory; it held up to 100 MB.",
    ),
    case("an adopted one", MemoryEvidence(machine_kills=1), None, "process is gone. The kernel"),
    case("it exited by itself", MemoryEvidence(machine_kills=3), 1, None),
    case("it crashed by itself", MemoryEvidence(machine_kills=3), -11, None),
    case("somebody killed it", MemoryEvidence(peak_bytes=LIMIT), -9, None),
    case("nothing happened", MemoryEvidence(), 0, None),
)
def test_an_end_by_memory_is_explained(
    evidence: MemoryEvidence, exit_code: int | None, cause: str | None
) -> None:
    cause = describe_memory_cause(evidence, exit_code, LIMIT)
    if cause is None:
        assert cause is None
    else:
        assert cause is not None
        assert cause in cause


@cases(
    "held, limit, over",
    case("all of it is allowed", LIMIT, LIMIT, False),
    case("a byte more is not", LIMIT + 1, LIMIT, True),
    case("without a limit it may grow", LIMIT, None, False),
)
def test_what_is_over_the_limit(held: int, limit: int | None, over: bool) -> None:
    assert is_over_limit(held, limit) is over


def test_megabytes_are_rounded_up() -> None:
    assert [megabytes(it) for it in (0, 1, MIB, MIB + 1)] == [0, 1, 1, 2]


LAPTOP, SERVER = 2, 192  # CPUs
GPUS = Shape(cpus=48, memory_bytes=1, accelerators=4)  # as ml.g5.12xlarge declares


def asks(cpus: float = 0.0, accelerators: int = 0) -> Requirements:
    return Requirements(min_memory_bytes=1, cpus=cpus, accelerators=accelerators)


@cases(
    "requirements, machine_cpus, reserved, num_threads, weight",
    case("a part of a CPU is a thread", asks(0.1), LAPTOP, 0.1, 1, 0.1),
    case("a reservation is rounded up", asks(1.1), LAPTOP, 1.1, 2, 1.1),
    case("no more threads than the machine has CPUs", asks(12), LAPTOP, 48, 2, 12),
    case("no more threads than it reserves", asks(12), SERVER, 48, 12, 12),
    case("who reserves none may use all", asks(), LAPTOP, 0, 2, 1),
    case("no more CPUs than the instance declares", asks(), SERVER, 0, 48, 1),
    case("what nobody else reserved", asks(), SERVER, 40, 8, 1),
    case("the last part of a CPU is a thread too", asks(), SERVER, 7.5, 41, 1),
    case("a sixth reserved leaves parts of both CPUs", asks(), LAPTOP, 8, 2, 1),
    case("half the declared CPUs are half the real ones", asks(), LAPTOP, 24, 1, 1),
    case("a thread where everything is reserved", asks(), LAPTOP, 48, 1, 1),
    case("and where more is reserved than there is", asks(), LAPTOP, 99, 1, 1),
    case("one of four accelerators, alone: all", asks(0, 1), LAPTOP, 0, 2, 12),
    case("two weigh twice as much", asks(0, 2), LAPTOP, 0, 2, 24),
    case("its share is of what nobody reserved", asks(0, 1), SERVER, 8, 40, 10),
    case("an accelerator and no CPU left", asks(0, 1), SERVER, 48, 1, 1),
    case("a reservation counts before accelerators", asks(4, 1), SERVER, 4, 4, 4),
    case("without requirements the instance is its own", None, LAPTOP, 0, 2, 48),
    case("and no more than the instance", None, SERVER, 0, 48, 48),
)
def test_threads_and_weight_of_a_copy(
    requirements: Requirements | None,
    machine_cpus: int,
    reserved: float,
    num_threads: int,
    weight: float,
) -> None:
    limits = compute_limits(requirements, GPUS, machine_cpus, reserved)
    assert (limits.num_threads, limits.cpus) == (num_threads, weight)


def test_an_instance_without_accelerators_has_no_shares_of_them() -> None:
    limits = compute_limits(asks(), Shape(cpus=2, memory_bytes=1), LAPTOP, 0.0)
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


@cases(
    "specs, sharing",
    case("a lone container has all", of_model(None), 1),
    case("containers of a pipeline share", of_model("one", "two", "three"), 3),
    case("its successor has an ended one's part", of_model("one", "two", "two"), 2),
    case("components reserve theirs", of_model(None, None, requirements=asks()), 1),
    case("none yet", [], 1),
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


@cases(
    "asked_mb, num_bytes",
    case("nothing is asked", "", MAX_DISK_BYTES),
    case("less than others", "64", 64 * MIB),
    case("never more than others", "99999999", MAX_DISK_BYTES),
    case("a number without end", "9" * 5000, MAX_DISK_BYTES),
    case("a negative number is none", "-1", MAX_DISK_BYTES),
    case("a fraction is none", "64.5", MAX_DISK_BYTES),
)
def test_a_disk_budget_may_be_asked_to_be_less(asked_mb: str, num_bytes: int) -> None:
    assert asked_disk_bytes(asked_mb) == num_bytes


def test_an_environment_may_write_five_gigabytes_and_ask_for_less() -> None:
    environment = ServerlessConfig(memory_mb=1024, max_concurrency=1).environment
    limits = compute_limits(environment, Shape(cpus=1, memory_bytes=1), 2, 0.0)
    assert limits.max_disk_bytes == 5 * 1024**3
    assert asked_disk_bytes("6000", limits.max_disk_bytes) == 5 * 1024**3
    assert asked_disk_bytes("64", limits.max_disk_bytes) == 64 * MIB


def test_a_copy_may_write_half_of_what_is_free_at_most() -> None:
    limits = CopyLimits(cpus=1, max_disk_bytes=64 * MIB)
    assert disk_budget_bytes(limits, 1000 * MIB) == 64 * MIB
    assert disk_budget_bytes(limits, 100 * MIB) == 50 * MIB


def test_an_end_by_disk_is_explained() -> None:
    assert "wrote 70 MB into its folder, over its disk budget of 64 MB" in describe_disk_cause(
        70 * MIB, 64 * MIB
    )
