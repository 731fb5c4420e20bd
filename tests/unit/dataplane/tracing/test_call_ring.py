from collections.abc import Iterable
from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.base.http import HttpRequest
from hostelry.dataplane.tracing.call_ring import MINUTE_NS, CallRing, RingLimits, SlowLimits
from hostelry.dataplane.tracing.call_trace import CLIENT_LEFT, MAX_EVENTS, CallTrace

ASKED = HttpRequest("POST", "/", body=b"1234567")
OURS, THEIRS = "111122223333", "444455556666"
SLOW = SlowLimits(num_minutes=2, each=2, num_calls=5, max_bytes=10_000)
LIMITS = RingLimits(num_calls=3, num_failed=2, max_bytes=10_000, slow=SLOW)


class Rig:
    """A ring with a manual clock. Calls are named by their ids."""

    def __init__(self, limits: RingLimits = LIMITS) -> None:
        self.now_ns = 100 * MINUTE_NS
        self.ring = CallRing(lambda: self.now_ns / 1e9, lambda: self.now_ns, limits)

    def call(self, id: str, took_ms: float = 1.0, *, is_whole: bool = True, **given: Any) -> None:
        """A call of an endpoint with `status`, and other members of its trace."""
        account, endpoint = given.pop("account", OURS), given.pop("endpoint", "wine")
        trace = self.ring.begin(id, account, ASKED)
        if endpoint is not None:
            trace.endpoint, trace.found_ns = endpoint, self.now_ns
        for name, value in given.items():
            setattr(trace, name, value)
        self.now_ns += int(took_ms * 1e6)
        self.ring.end(trace, is_whole=is_whole)

    def kept(self, account: str | None = None, ids: Iterable[str] = "abcdefghijkl") -> str:
        return "".join(sorted(ids_of(self.ring.find(account=account, ids=frozenset(ids)))))

    def slowest(self, since_s: float = 3600, **given: Any) -> list[str]:
        asked = {"account": None, "endpoint": None, "limit": 10, **given}
        return ids_of(self.ring.find_slowest(since_s=since_s, **asked))


def ids_of(calls: list[CallTrace]) -> list[str]:
    return [it.request_id for it in calls]


def test_the_last_calls_are_kept_and_the_oldest_leave_first() -> None:
    rig = Rig()
    for id in "abcdef":
        rig.call(id, took_ms=10 if id in "ab" else 1)
    assert rig.kept() == "abdef", "a and b are the slowest of their minute, c is gone"
    assert rig.ring.num_last == 3
    oldest_at = rig.ring.oldest_at
    assert oldest_at is not None
    assert oldest_at == pytest.approx(100 * 60 + 0.021)


def test_bytes_bound_them_too() -> None:
    rig = Rig()
    for id in "abc":
        rig.call(id, steps="x" * 5000)
    assert rig.ring.num_last == 1


@cases(
    "given, status, is_kept",
    case("an error", {"status": 424, "error": "it died"}, 424, True),
    case("a broken stream", {"status": 200, "error": "broke off"}, 200, True),
    case("a client that left", {"is_whole": False}, CLIENT_LEFT, True),
    case("an answer", {}, 200, False),
)
def test_failed_calls_outlast_good_ones(given: dict[str, Any], status: int, is_kept: bool) -> None:
    rig = Rig()
    rig.call("a", took_ms=0, endpoint=None, **given)
    for id in "bcdefg":
        rig.call(id)
    assert ("a" in rig.kept()) is is_kept
    found = rig.ring.find_failed(account=None, endpoint=None, since_s=60, limit=10)
    assert [it.status for it in found] == ([status] if is_kept else [])


def test_failed_calls_are_bounded_and_the_newest_come_first() -> None:
    rig = Rig()
    for id in "abcde":
        rig.call(id, endpoint=None, status=500, error="no")
    found = rig.ring.find_failed(account=None, endpoint=None, since_s=60, limit=10)
    assert ids_of(found) == ["e", "d", "c"], "the last calls, of which the failed ones are a part"
    rig = Rig()
    for id in "abcdefgh":
        rig.call(id, endpoint=None, error="no" if id in "abc" else "")
    assert rig.kept() == "bcfgh"


def test_the_slowest_of_each_endpoint_and_minute_outlast_faster_ones() -> None:
    rig = Rig()
    for id, took_ms in zip("abcdefgh", (5, 50, 3, 40, 30, 1, 1, 1), strict=True):
        rig.call(id, took_ms, endpoint="a")
    for id in "ijk":
        rig.call(id, 2, endpoint="b")
    assert rig.slowest() == ["b", "d", "i", "j", "k"]
    assert rig.slowest(endpoint="a") == ["b", "d"]
    assert rig.slowest(limit=1) == ["b"]
    rig.now_ns += 90 * 1_000_000_000
    assert rig.slowest(since_s=60) == []
    assert rig.slowest(since_s=120) == ["b", "d", "i", "j", "k"]


def test_slow_calls_leave_with_their_minute_and_beyond_the_number_of_all() -> None:
    rig = Rig()
    rig.call("a", 50)
    rig.now_ns += 3 * MINUTE_NS
    for id in "bcd":
        rig.call(id, 1)
    assert rig.kept() == "bcd", "a minute that is over for long is forgotten"
    rig = Rig()
    for number, id in enumerate("abcdefghijkl"):
        rig.call(id, 5, endpoint=f"e{number}")
    assert rig.kept() == "abcdejkl", "five of all minutes, and the last three"
    rig.now_ns += MINUTE_NS
    rig.call("x", 5, endpoint="new")
    assert "x" in rig.kept(ids="x"), "the oldest minute makes room"
    assert rig.kept() == "kl"


def test_bytes_bound_the_slow_calls_too() -> None:
    rig = Rig()
    for id, took_ms in zip("abc", (5, 6, 7), strict=True):
        rig.call(id, took_ms, steps="x" * 4000)
    for id in "def":
        rig.call(id, 1, endpoint="other")
    assert rig.slowest(endpoint="wine") == ["c", "b"], "two of an endpoint, c took the place of a"
    rig.call("g", 9, endpoint="third", steps="x" * 4000)
    for id in "hij":
        rig.call(id, 0.5, endpoint="other")
    assert rig.slowest(endpoint="third") == [], "there is no room in this minute"
    rig.now_ns += MINUTE_NS
    rig.call("k", 9, endpoint="third", steps="x" * 4000)
    for id in "lmn":
        rig.call(id, 0.5, endpoint="other")
    assert rig.slowest(endpoint="third") == ["k"], "the minute before makes room"
    assert rig.slowest(endpoint="wine") == []


def test_names_that_clients_make_up_take_no_place_among_the_slow() -> None:
    rig = Rig()
    for id in "abcdefgh":
        rig.call(id, 5, endpoint=None, status=400, error="not found")
    assert rig.kept() == "fgh"


def test_an_account_sees_its_own_calls_alone() -> None:
    rig = Rig()
    rig.call("a", 5)
    rig.call("b", 6, account=THEIRS)
    rig.call("c", 7, account=THEIRS, status=500, error="no", parent_id="a")
    assert (rig.kept(OURS), rig.kept(THEIRS), rig.kept()) == ("a", "bc", "abc")
    assert rig.slowest(account=OURS) == ["a"]
    assert rig.ring.find_failed(account=OURS, endpoint=None, since_s=60, limit=9) == []
    assert rig.ring.find(account=OURS, parents=frozenset("a")) == []
    assert ids_of(rig.ring.find(account=THEIRS, parents=frozenset("a"))) == ["c"]


def test_a_call_of_many_events_keeps_the_first_and_the_last() -> None:
    trace = Rig().ring.begin("a", OURS, ASKED)
    for number in range(1000):
        trace.note(0, number)
    events = list(trace.each_event())
    assert len(events) == MAX_EVENTS
    assert (events[0][1], events[-1][1]) == (0, 999)


def test_the_end_of_an_llms_answer_is_kept_however_it_is_cut() -> None:
    trace = Rig().ring.begin("a", OURS, ASKED)
    trace.is_llm = True
    for piece in (b"a" * 1000, b"b" * 500, b"c" * 100):
        trace.add_answer(piece)
    assert trace.tail == b"b" * 412 + b"c" * 100
    assert trace.bytes_out == 1600


def test_a_name_of_half_a_character_is_no_defect() -> None:
    rig = Rig()
    rig.call("a", endpoint="\ud800")
    assert rig.kept() == ""
