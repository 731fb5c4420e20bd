"""Room for another model in a copy's memory, and what the kernel says of processes."""

import os

import pytest

from hostelry.containers.predictive.model_table import (
    explain_overflow,
    find_most_grown,
    measure_memory,
)


@pytest.mark.parametrize(
    ("limit_bytes", "used_bytes", "model_bytes", "refused"),
    [
        pytest.param(None, 1 << 60, 0, False, id="without a limit there is room"),
        pytest.param(100, 99, 0, False, id="before a load, while memory is left"),
        pytest.param(100, 100, 0, True, id="not in a full memory"),
        pytest.param(100, 60, 39, False, id="beside the others"),
        pytest.param(100, 60, 40, True, id="not where it fills the memory"),
    ],
)
def test_room_for_a_model(
    limit_bytes: int | None, used_bytes: int, model_bytes: int, refused: bool
) -> None:
    reason = explain_overflow(limit_bytes, used_bytes, model_bytes)
    assert (reason is not None) == refused
    assert reason is None or "unload a model first" in reason


@pytest.mark.parametrize(
    ("limit_bytes", "used_bytes", "sizes", "expected"),
    [
        pytest.param(None, 900, [("a", 1, 800)], None, id="there is no limit"),
        pytest.param(100, 99, [("a", 1, 80)], None, id="the limit is kept"),
        pytest.param(
            100, 100, [("a", 60, 70), ("b", 1, 20)], "b", id="the one that has grown most"
        ),
        pytest.param(100, 100, [("a", 60, 50)], None, id="none has grown"),
        pytest.param(100, 100, [], None, id="there is none"),
    ],
)
def test_the_model_that_ends_where_memory_is_exceeded(
    limit_bytes: int | None,
    used_bytes: int,
    sizes: list[tuple[str, int, int]],
    expected: str | None,
) -> None:
    assert find_most_grown(limit_bytes, used_bytes, sizes) == expected


def test_memory_of_processes() -> None:
    one = measure_memory([os.getpid()])
    assert one > 1 << 20
    assert measure_memory([2**22 + 1]) == 0, "one that is not there counts nothing"
