from hypothesis import given
from hypothesis import strategies as st
from tests.cases import case, cases

from hostelry.routing.adapter_choice import FORGOTTEN_AFTER_S, Assignments


def sent(adapters: str, capacity: int = 2) -> Assignments:
    """A copy that was sent those adapters, one a second from second 0."""
    assignments = Assignments(capacity)
    for second, adapter in enumerate(adapters):
        assignments.assigned(adapter, float(second))
    return assignments


@cases(
    "history, held",
    case("nothing was sent", "", ""),
    case("as many as it can have", "ab", "ab"),
    case("the one asked for longest ago goes", "abc", "bc"),
    case("asked for again is kept", "abac", "ac"),
    case("the same one takes one place", "aaaa", "a"),
)
def test_what_a_copy_has_at_hand(history: str, held: str) -> None:
    assignments = sent(history)
    assert [it for it in "abc" if assignments.holds(it, 10.0)] == list(held)
    assert assignments.held == len(held)


def test_what_was_not_asked_for_in_a_long_time_is_forgotten() -> None:
    assignments = sent("ab")
    assert not assignments.holds("a", FORGOTTEN_AFTER_S)
    assert assignments.holds("b", FORGOTTEN_AFTER_S)
    assignments.assigned("b", FORGOTTEN_AFTER_S)
    assert assignments.held == 1


def test_what_the_copy_did_not_take_is_not_there() -> None:
    assignments = sent("ab")
    assignments.dropped("a")
    assignments.dropped("never there")
    assert not assignments.holds("a", 2.0)
    assert assignments.holds("b", 2.0)


def test_an_assignment_returns_the_instant_of_the_last_one() -> None:
    assignments = sent("ab")
    assert assignments.assigned("a", 7.0) == 0.0
    assert assignments.assigned("c", 8.0) is None


@cases(
    "history, elsewhere_at_s, held",
    case("another router sent it, and there is room", "a", 0.5, True),
    case("later than the oldest that is there", "ab", 0.5, True),
    case("before all that are there: dropped by now", "bca", 0.5, False),
    case("too long ago", "a", 10.0 - FORGOTTEN_AFTER_S, False),
    case("nobody sent it", "a", None, False),
)
def test_what_another_router_sent_counts_while_it_lasts(
    history: str, elsewhere_at_s: float | None, held: bool
) -> None:
    assert sent(history).holds("x", 10.0, elsewhere_at_s) is held


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.floats(0, 2000)), max_size=60))
def test_it_never_has_more_than_its_capacity_and_always_the_last_one(
    history: list[tuple[str, float]],
) -> None:
    assignments = Assignments(3)
    now_s = 0.0
    for adapter, later_s in history:
        now_s += later_s
        assignments.assigned(adapter, now_s)
        assert 1 <= assignments.held <= 3
        assert assignments.holds(adapter, now_s)
