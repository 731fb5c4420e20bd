"""Filling of copies with requests of batches."""

import pytest

from hostelry.jobs.rules.batch_fill import (
    HELD,
    UNKNOWN_AT_ONCE,
    ModelQueue,
    next_models,
    room_for_batch,
    wanted_at_once,
)


@pytest.mark.parametrize(
    ("reported", "wanted"),
    [
        pytest.param(None, UNKNOWN_AT_ONCE, id="a copy that does not say"),
        pytest.param(0, UNKNOWN_AT_ONCE, id="a copy that says nothing of use"),
        pytest.param(9, 9, id="a copy that says how many"),
        pytest.param(10**6, 1024, id="a copy that says too many"),
    ],
)
def test_what_keeps_a_copy_full(reported: int | None, wanted: int) -> None:
    assert wanted_at_once(reported) == wanted


@pytest.mark.parametrize(
    ("wanted", "batches", "in_flight", "room"),
    [
        pytest.param([], 1, 0, 0, id="no copy"),
        pytest.param([36], 1, 0, 36, id="one copy, one batch"),
        pytest.param([36, 18], 1, 4, 50, id="two copies, a few under way"),
        pytest.param([36], 1, 40, 0, id="a copy that has gone left too many under way"),
        pytest.param([9], 2, 0, 5, id="two batches share, rounded up"),
        pytest.param([4], 9, 0, 1, id="each of many batches has one"),
        pytest.param([4], 9, 1, 0, id="and no more than that"),
    ],
)
def test_the_room_of_a_batch(wanted: list[int], batches: int, in_flight: int, room: int) -> None:
    assert room_for_batch(wanted, batches, in_flight) == room


def queue(model: str, pool: str | None, waiting: list[int], in_flight: int = 0) -> ModelQueue:
    return ModelQueue(model=model, pool=pool, waiting=waiting, in_flight=in_flight)


@pytest.mark.parametrize(
    ("queues", "room", "chosen"),
    [
        pytest.param([], {}, "", id="nothing waits"),
        pytest.param([queue("a", "p", [1, 2, 3])], {"p": 2}, "a a", id="as many as there is room"),
        pytest.param([queue("a", "p", [1, 4]), queue("b", "p", [2, 3])], {"p": 3}, "a b b",
                     id="adapters of a base share its room, in the order of the file"),
        pytest.param([queue("a", "p", [1, 2]), queue("b", "q", [3])], {"p": 1, "q": 1}, "a b",
                     id="a full model holds up no other"),
        pytest.param([queue("zero", None, [1, 2, 3, 4, 5, 6]), queue("b", "p", [7])], {"p": 1},
                     "zero zero zero zero b", id="of a model without a copy a few lines wait"),
        pytest.param([queue("zero", None, [5, 6], in_flight=HELD - 1)], {}, "zero",
                     id="and no more than those"),
        pytest.param([queue("a", "gone", [1])], {}, "", id="a pool of which nothing is known"),
    ],
)  # fmt: skip
def test_which_lines_are_next(queues: list[ModelQueue], room: dict[str, int], chosen: str) -> None:
    assert next_models(queues, room) == chosen.split()
