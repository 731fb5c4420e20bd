"""Queues of requests that wait for a copy: order, bounds and limits, without a clock."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import case, cases

from hostelry.domain.load import LoadKey
from hostelry.domain.scope import Scope
from hostelry.gateway.queueing.request_queues import (
    SPARE_DEADLINES,
    QueuedRequest,
    QueueFullError,
    QueueLimits,
    RequestQueues,
)
from hostelry.routing.no_copy import num_to_release

SCOPE = Scope("111122223333", "us-west-2")


def key(name: str = "llm") -> LoadKey:
    return LoadKey(scope=SCOPE, endpoint_name="ep", variant_name="v", component_name=name)


class Clients:
    """Joins queues and remembers in which order the requests left them."""

    def __init__(self, **limits: int) -> None:
        self.queues = RequestQueues(QueueLimits(**limits))
        self.released: list[str] = []
        self.expired: list[str] = []
        self.places: dict[str, QueuedRequest] = {}

    def join(
        self, who: str, name: str = "llm", num_bytes: int = 1, until_s: float = 60.0
    ) -> QueuedRequest:
        self.places[who] = self.queues.join(key(name), num_bytes, (0.0, until_s))
        return self.places[who]

    def release(self, count: int, name: str = "llm") -> int:
        return self._left(self.queues.release(key(name), count), self.released)

    def expire(self, now_s: float) -> int:
        return self._left(self.queues.expire(now_s), self.expired)

    def _left(self, ended: list[QueuedRequest], into: list[str]) -> int:
        names = {queued: who for who, queued in self.places.items()}
        into.extend(names[queued] for queued in ended)
        return len(ended)


def test_the_first_to_come_is_the_first_to_go_in_each_line() -> None:
    clients = Clients()
    for who in "abcd":
        clients.join(who)
    clients.join("other", "another")
    assert clients.release(2) == 2
    assert clients.release(9) == 2
    assert clients.released == ["a", "b", "c", "d"]
    assert clients.queues.num_waiting(key("another")) == 1


def test_who_was_let_go_for_nothing_is_before_all_that_came_later() -> None:
    clients = Clients()
    for who in "abcd":
        clients.join(who)
    clients.release(3)
    for who in "cab":  # in whatever order they come back
        clients.queues.rejoin(clients.places[who])
    clients.released.clear()
    clients.release(4)
    assert clients.released == ["a", "b", "c", "d"]


def test_a_request_that_leaves_frees_its_room_at_once() -> None:
    clients = Clients(max_requests_each=2)
    clients.join("a", num_bytes=10)
    clients.join("b", num_bytes=20)
    clients.queues.leave(clients.places["a"])
    clients.queues.leave(clients.places["a"])
    assert (clients.queues.num_held, clients.queues.num_bytes) == (1, 20)
    clients.join("c")
    clients.release(9)
    assert clients.released == ["b", "c"]
    assert not clients.queues


def test_requests_expire_at_their_limit_whatever_their_place() -> None:
    clients = Clients()
    clients.join("long", until_s=480.0)
    clients.join("short", until_s=60.0)
    clients.join("gone", until_s=50.0)
    clients.queues.leave(clients.places["gone"])
    assert clients.expire(59.9) == 0
    assert clients.expire(60.0) == 1
    assert clients.expired == ["short"]
    assert clients.expire(1e9) == 1
    assert clients.expire(1e9) == 0
    assert clients.expired == ["short", "long"]


@cases(
    "limits, before, text",
    case("as many as may wait for one name", {"max_requests_each": 2}, ["llm", "llm"],
        "2 requests wait for it already"),
    case("as many as may wait in all", {"max_requests": 2}, ["llm", "x"],
        "2 requests wait for copies already"),
    case("as many bytes", {"max_bytes": 8}, ["x"], "they would be more than 8"),
)  # fmt: skip
def test_a_full_queue_names_the_limit(limits: dict[str, int], before: list[str], text: str) -> None:
    clients = Clients(**limits)
    for number, name in enumerate(before):
        clients.join(f"{number}", name, num_bytes=5)
    with pytest.raises(QueueFullError, match=text):
        clients.join("one more", num_bytes=5)
    clients.queues.leave(clients.places["0"])
    clients.join("one more", num_bytes=5)


def test_one_request_may_wait_however_large_it_is() -> None:
    clients = Clients(max_bytes=8)
    clients.join("large", num_bytes=100)
    with pytest.raises(QueueFullError):
        clients.join("small")


def test_limits_that_let_nothing_wait_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        QueueLimits(max_requests=0)


def test_workers_share_the_limits_and_each_may_hold_something() -> None:
    share = QueueLimits(max_requests=10, max_requests_each=3, max_bytes=1, limit_s=5.0).share(4)
    assert (share.max_requests, share.max_requests_each) == (3, 1)
    assert (share.max_bytes, share.limit_s) == (1, 5.0)


def test_a_flood_of_names_leaves_nothing_behind() -> None:
    clients = Clients(max_requests=1000)
    names = [f"name-{number}" for number in range(5000)]
    refused = 0
    for name in names:
        try:
            clients.join(name, name)
        except QueueFullError:
            refused += 1
    assert refused == 4000
    assert len(list(clients.queues.names())) == 1000
    assert clients.expire(60.0) == 1000
    assert not clients.queues
    assert (clients.queues.num_held, clients.queues.num_bytes) == (0, 0)


def test_deadlines_of_those_who_left_are_not_kept_for_ever() -> None:
    clients = Clients()
    stays = clients.join("stays", until_s=1e6)
    for number in range(10_000):
        queued = clients.join(str(number), until_s=1e5)
        clients.queues.leave(queued)
    assert clients.queues.num_deadlines <= 2 * SPARE_DEADLINES
    assert clients.queues.first(key()) is stays


@given(seed=st.integers(0, 2**32), num_steps=st.integers(1, 200))
def test_every_request_ends_once_and_the_sums_are_right(seed: int, num_steps: int) -> None:
    draw = random.Random(seed)
    clients = Clients(max_requests=8, max_requests_each=4, max_bytes=30)
    left: set[str] = set()
    now_s = 0.0
    for number in range(num_steps):
        match draw.randrange(4):
            case 0 | 1:
                try:
                    until_s = now_s + draw.uniform(0, 5)
                    clients.join(f"{number}", draw.choice("ab"), draw.randrange(9), until_s)
                except QueueFullError:
                    left.add(f"{number}")
            case 2:
                clients.release(draw.randrange(3), draw.choice("ab"))
            case _:
                now_s += draw.uniform(0, 3)
                clients.expire(now_s)
        waiting = [it for it in clients.places.values() if it.is_waiting]
        assert clients.queues.num_held == len(waiting) <= 8
        assert clients.queues.num_bytes == sum(it.num_bytes for it in waiting)
        assert all(clients.queues.num_waiting(key(name)) <= 4 for name in "ab")
    ended = clients.released + clients.expired
    assert len(ended) == len(set(ended))
    for name in "ab":
        gone = [int(who) for who in clients.released if clients.places[who].key == key(name)]
        assert gone == sorted(gone)


@cases(
    "outstanding, expected",
    case("as many as a copy takes at once", [0], 4),
    case("what there is room for", [3], 1),
    case("one even where there is none: the copy has a queue", [4], 1),
    case("however long that is", [400], 1),
    case("for all copies together", [0, 0, 4], 9),
)
def test_how_many_go_at_once(outstanding: list[int], expected: int) -> None:
    assert num_to_release(outstanding, 4) == expected
