import pytest

from hostelry.fleet.limits import (
    MIB,
    MemoryEvidence,
    megabytes,
    memory_cause,
    num_threads,
    over_limit,
    thread_variables,
)

LIMIT = 512 * MIB


@pytest.mark.parametrize(
    ("evidence", "exit_code", "told"),
    [
        pytest.param(
            MemoryEvidence(over_limit_bytes=612 * MIB),
            -9,
            "used 612 MB, over its MaxMemoryRequiredInMb of 512; killed",
            id="the agent killed it for its limit",
        ),
        pytest.param(
            MemoryEvidence(over_limit_bytes=LIMIT + 1),
            None,
            "used 513 MB, over its MaxMemoryRequiredInMb of 512",
            id="a byte over is told as more",
        ),
        pytest.param(
            MemoryEvidence(group_kills=1),
            1,
            "reached its MaxMemoryRequiredInMb of 512; the kernel killed it",
            id="the kernel killed a part, and the rest ended by itself",
        ),
        pytest.param(
            MemoryEvidence(machine_kills=1, peak_bytes=100 * MIB),
            -9,
            "the machine ran out of memory (it held up to 100 MB)",
            id="the kernel killed it for the machine",
        ),
        pytest.param(
            MemoryEvidence(machine_kills=1), None, "ran out of memory", id="an adopted one"
        ),
        pytest.param(MemoryEvidence(machine_kills=3), 1, None, id="it exited by itself"),
        pytest.param(MemoryEvidence(machine_kills=3), -11, None, id="it crashed by itself"),
        pytest.param(MemoryEvidence(peak_bytes=LIMIT), -9, None, id="somebody killed it"),
        pytest.param(MemoryEvidence(), 0, None, id="nothing happened"),
    ],
)
def test_an_end_by_memory_is_told(
    evidence: MemoryEvidence, exit_code: int | None, told: str | None
) -> None:
    cause = memory_cause(evidence, exit_code, LIMIT)
    if told is None:
        assert cause is None
    else:
        assert cause is not None
        assert told in cause


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


def test_threads_are_at_least_one_and_exist() -> None:
    assert [num_threads(it, 2) for it in (0, 0.1, 1, 1.1, 2, 192)] == [1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("nonsense", ["", "0", "-3", "many", "2,2"])
def test_an_operators_limit_that_is_none_does_not_count(nonsense: str) -> None:
    assert set(thread_variables(2, 8, nonsense).values()) == {"2"}
