"""The lines of requests that wait for a copy: order, bounds and limits, without a clock."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostelry.domain.load import LoadKey
from hostelry.domain.scope import Scope
from hostelry.gateway.queueing.request_queues import (
    SPARE_DEADLINES,
    QueuedRequest,
    QueueFullError,
    QueueLimits,
    RequestQueues,
    WaitOutcome,
)
from hostelry.routing.letting_go import num_let_go

SCOPE = Scope("111122223333", "us-west-2")


def key(name: str = "llm") -> LoadKey:
    return LoadKey(scope=SCOPE, endpoint_name="ep", variant_name="v", component_name=name)


class Visitors:
    """Joins lines and remembers what each was told, in order."""

    def __init__(self, **limits: int) -> None:
        self.lines = RequestQueues(QueueLimits(**limits))
        self.told: list[tuple[str, WaitOutcome]] = []
        self.places: dict[str, QueuedRequest] = {}

    def join(
        self, who: str, name: str = "llm", num_bytes: int = 1, until_s: float = 60.0
    ) -> QueuedRequest:
        def tell(outcome: WaitOutcome) -> None:
            self.told.append((who, outcome))

        self.places[who] = self.lines.join(key(name), num_bytes, (0.0, until_s), tell)
        return self.places[who]

    @property
    def gone(self) -> list[str]:
        return [who for who, outcome in self.told if outcome is WaitOutcome.RELEASED]

    @property
    def late(self) -> list[str]:
        return [who for who, outcome in self.told if outcome is WaitOutcome.EXPIRED]


def test_the_first_to_come_is_the_first_to_go_in_each_line() -> None:
    visitors = Visitors()
    for who in "abcd":
        visitors.join(who)
    visitors.join("other", "another")
    assert visitors.lines.release(key(), 2) == 2
    assert visitors.lines.release(key(), 9) == 2
    assert visitors.gone == ["a", "b", "c", "d"]
    assert visitors.lines.num_waiting(key("another")) == 1


def test_who_was_let_go_for_nothing_is_before_all_that_came_later() -> None:
    visitors = Visitors()
    for who in "abcd":
        visitors.join(who)
    visitors.lines.release(key(), 3)
    for who in "cab":  # in whatever order they come back
        visitors.lines.rejoin(visitors.places[who])
    visitors.told.clear()
    visitors.lines.release(key(), 4)
    assert visitors.gone == ["a", "b", "c", "d"]


def test_who_leaves_is_not_told_and_gives_the_room_back_at_once() -> None:
    visitors = Visitors(max_requests_each=2)
    visitors.join("a", num_bytes=10)
    visitors.join("b", num_bytes=20)
    visitors.lines.leave(visitors.places["a"])
    visitors.lines.leave(visitors.places["a"])
    assert (visitors.lines.num_held, visitors.lines.num_bytes) == (1, 20)
    visitors.join("c")
    visitors.lines.release(key(), 9)
    assert visitors.gone == ["b", "c"]
    assert not visitors.lines


def test_who_has_waited_long_enough_is_told_so_whatever_the_place() -> None:
    visitors = Visitors()
    visitors.join("long", until_s=480.0)
    visitors.join("short", until_s=60.0)
    visitors.join("gone", until_s=50.0)
    visitors.lines.leave(visitors.places["gone"])
    assert visitors.lines.expire(59.9) == 0
    assert visitors.lines.expire(60.0) == 1
    assert visitors.late == ["short"]
    assert visitors.lines.expire(1e9) == 1
    assert visitors.lines.expire(1e9) == 0
    assert visitors.late == ["short", "long"]


@pytest.mark.parametrize(
    ("limits", "before", "says"),
    [
        pytest.param({"max_requests_each": 2}, ["llm", "llm"], "2 requests wait for it already",
                     id="as many as may wait for one name"),
        pytest.param({"max_requests": 2}, ["llm", "x"], "2 requests wait for copies already",
                     id="as many as may wait in all"),
        pytest.param({"max_bytes": 8}, ["x"], "they would be more than 8", id="as many bytes"),
    ],
)  # fmt: skip
def test_a_full_line_says_which_limit_is_reached(
    limits: dict[str, int], before: list[str], says: str
) -> None:
    visitors = Visitors(**limits)
    for number, name in enumerate(before):
        visitors.join(f"{number}", name, num_bytes=5)
    with pytest.raises(QueueFullError, match=says):
        visitors.join("one more", num_bytes=5)
    visitors.lines.leave(visitors.places["0"])
    visitors.join("one more", num_bytes=5)


def test_one_request_may_wait_however_large_it_is() -> None:
    visitors = Visitors(max_bytes=8)
    visitors.join("large", num_bytes=100)
    with pytest.raises(QueueFullError):
        visitors.join("small")


def test_limits_that_let_nothing_wait_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        QueueLimits(max_requests=0)


def test_workers_share_the_limits_and_each_may_hold_something() -> None:
    share = QueueLimits(max_requests=10, max_requests_each=3, max_bytes=1, limit_s=5.0).share(4)
    assert (share.max_requests, share.max_requests_each) == (3, 1)
    assert (share.max_bytes, share.limit_s) == (1, 5.0)


def test_a_flood_of_names_leaves_nothing_behind() -> None:
    visitors = Visitors(max_requests=1000)
    names = [f"name-{number}" for number in range(5000)]
    refused = 0
    for name in names:
        try:
            visitors.join(name, name)
        except QueueFullError:
            refused += 1
    assert refused == 4000
    assert len(list(visitors.lines.names())) == 1000
    assert visitors.lines.expire(60.0) == 1000
    assert not visitors.lines
    assert (visitors.lines.num_held, visitors.lines.num_bytes) == (0, 0)


def test_deadlines_of_those_who_left_are_not_kept_for_ever() -> None:
    visitors = Visitors()
    stays = visitors.join("stays", until_s=1e6)
    for number in range(10_000):
        queued = visitors.join(str(number), until_s=1e5)
        visitors.lines.leave(queued)
    assert visitors.lines.num_deadlines <= 2 * SPARE_DEADLINES
    assert visitors.lines.first(key()) is stays


@given(seed=st.integers(0, 2**32), num_steps=st.integers(1, 200))
def test_whatever_happens_everyone_is_told_once_and_the_sums_are_right(
    seed: int, num_steps: int
) -> None:
    draw = random.Random(seed)
    visitors = Visitors(max_requests=8, max_requests_each=4, max_bytes=30)
    left: set[str] = set()
    now_s = 0.0
    for number in range(num_steps):
        match draw.randrange(4):
            case 0 | 1:
                try:
                    until_s = now_s + draw.uniform(0, 5)
                    visitors.join(f"{number}", draw.choice("ab"), draw.randrange(9), until_s)
                except QueueFullError:
                    left.add(f"{number}")
            case 2:
                visitors.lines.release(key(draw.choice("ab")), draw.randrange(3))
            case _:
                now_s += draw.uniform(0, 3)
                visitors.lines.expire(now_s)
        waiting = [it for it in visitors.places.values() if it.is_waiting]
        assert visitors.lines.num_held == len(waiting) <= 8
        assert visitors.lines.num_bytes == sum(it.num_bytes for it in waiting)
        assert all(visitors.lines.num_waiting(key(name)) <= 4 for name in "ab")
    told = [who for who, _ in visitors.told]
    assert len(told) == len(set(told))
    for name in "ab":
        gone = [int(who) for who in visitors.gone if visitors.places[who].key == key(name)]
        assert gone == sorted(gone)


@pytest.mark.parametrize(
    ("outstanding", "expected"),
    [
        pytest.param([0], 4, id="as many as a copy takes at once"),
        pytest.param([3], 1, id="what there is room for"),
        pytest.param([4], 1, id="one even where there is none: the copy has a queue"),
        pytest.param([400], 1, id="however long that is"),
        pytest.param([0, 0, 4], 9, id="for all copies together"),
    ],
)
def test_how_many_go_at_once(outstanding: list[int], expected: int) -> None:
    assert num_let_go(outstanding, 4) == expected
