"""Filling of copies with requests of batches."""

from tests.cases import case, cases

from hostelry.jobs.rules.copy_slots import (
    HELD,
    UNKNOWN_AT_ONCE,
    ModelQueue,
    choose_models,
    compute_room,
    limit_wanted,
)


@cases(
    "reported, wanted",
    case("a copy that does not say", None, UNKNOWN_AT_ONCE),
    case("a copy that says nothing of use", 0, UNKNOWN_AT_ONCE),
    case("a copy that says how many", 9, 9),
    case("a copy that says too many", 10**6, 1024),
)
def test_what_keeps_a_copy_full(reported: int | None, wanted: int) -> None:
    assert limit_wanted(reported) == wanted


@cases(
    "wanted, batches, in_flight, room",
    case("no copy", [], 1, 0, 0),
    case("one copy, one batch", [36], 1, 0, 36),
    case("two copies, a few under way", [36, 18], 1, 4, 50),
    case("a copy that has gone left too many under way", [36], 1, 40, 0),
    case("two batches share, rounded up", [9], 2, 0, 5),
    case("each of many batches has one", [4], 9, 0, 1),
    case("and no more than that", [4], 9, 1, 0),
)
def test_the_room_of_a_batch(wanted: list[int], batches: int, in_flight: int, room: int) -> None:
    assert compute_room(wanted, batches, in_flight) == room


def queue(model: str, pool: str | None, waiting: list[int], in_flight: int = 0) -> ModelQueue:
    return ModelQueue(model=model, pool=pool, waiting=waiting, in_flight=in_flight)


@cases(
    "queues, room, chosen",
    case("nothing waits", [], {}, ""),
    case("as many as there is room", [queue("a", "p", [1, 2, 3])], {"p": 2}, "a a"),
    case("adapters of a base share its room, in the order of the file",
        [queue("a", "p", [1, 4]), queue("b", "p", [2, 3])], {"p": 3}, "a b b"),
    case("a full model holds up no other", [queue("a", "p", [1, 2]), queue("b", "q", [3])],
        {"p": 1, "q": 1}, "a b"),
    case("of a model without a copy a few lines wait",
        [queue("zero", None, [1, 2, 3, 4, 5, 6]), queue("b", "p", [7])], {"p": 1},
        "zero zero zero zero b"),
    case("and no more than those", [queue("zero", None, [5, 6], in_flight=HELD - 1)], {}, "zero"),
    case("a pool of which nothing is known", [queue("a", "gone", [1])], {}, ""),
)  # fmt: skip
def test_which_lines_are_next(queues: list[ModelQueue], room: dict[str, int], chosen: str) -> None:
    assert choose_models(queues, room) == chosen.split()
