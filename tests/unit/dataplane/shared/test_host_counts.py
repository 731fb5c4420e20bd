"""Hosts finally know each other's counts, even if messages are lost, repeated or late."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import case, cases

from hostelry.dataplane.shared.count_table import CountTable, compute_row_key
from hostelry.dataplane.shared.counts import SharedCounts
from hostelry.dataplane.shared.host_counts import (
    EXPIRES_S,
    MAX_TOTAL,
    REFRESH_S,
    HostCounts,
    HostCountsError,
    OtherHosts,
    SentCounts,
    compute_share,
    decode_host_counts,
)
from hostelry.routing.copy_choice import GatewayShare

A, B, C = compute_row_key("c-a"), compute_row_key("c-b"), compute_row_key("c-c")
THERE = "http://there"


def message(number: int, totals: dict[bytes, int], *, is_all: bool = False) -> HostCounts:
    return HostCounts(host_id="h-1", process=7, number=number, is_all=is_all, totals=totals)


def test_a_message_comes_through_its_bytes_whole() -> None:
    sent = message(3, {A: 5, B: 0}, is_all=True)
    assert decode_host_counts(sent.encode()) == sent
    huge = message(4, {A: MAX_TOTAL + 9})
    assert decode_host_counts(huge.encode()).totals == {A: MAX_TOTAL}


@cases(
    "body",
    case("nothing", b""),
    case("half a total", message(1, {A: 5}).encode()[:-1]),
    case("half a name", message(1, {A: 5}).encode()[:20]),
    case("no text as a name", b"\xff" * 60),
    case("a name that is none", message(1, {}).encode().replace(b"h-1", b"\xff\xfe-")),
)
def test_what_is_no_message_is_refused(body: bytes) -> None:
    with pytest.raises(HostCountsError):
        decode_host_counts(body)


@cases(
    "messages, known, taken",
    case("all of a host", [message(1, {A: 2}, is_all=True)], {A: 2}, [True]),
    case("changes of an unknown host", [message(1, {A: 2})], {}, [False]),
    case(
        "changes right after",
        [message(1, {A: 2}, is_all=True), message(2, {A: 0, B: 1})],
        {B: 1},
        [True, True],
    ),
    case(
        "changes after a gap",
        [message(1, {A: 2}, is_all=True), message(3, {A: 0})],
        {A: 2},
        [True, False],
    ),
    case(
        "an older message",
        [message(5, {A: 2}, is_all=True), message(4, {A: 9}, is_all=True)],
        {A: 2},
        [True, True],
    ),
    case(
        "all again, after lost messages",
        [message(1, {A: 2, B: 1}, is_all=True), message(9, {B: 4}, is_all=True)],
        {B: 4},
        [True, True],
    ),
)
def test_what_is_known_of_a_host(
    messages: list[HostCounts], known: dict[bytes, int], taken: list[bool]
) -> None:
    other = OtherHosts()
    assert [other.take(it, 0.0) is not None for it in messages] == taken
    assert other.sums == known


def test_counts_of_a_silent_host_expire_and_those_of_a_restarted_one_replace_its_earlier() -> None:
    other = OtherHosts()
    other.take(message(1, {A: 2, B: 1}, is_all=True), 0.0)
    again = HostCounts(host_id="h-1", process=8, number=1, is_all=True, totals={A: 5})
    assert other.take(again, 1.0) == {A, B}
    other.take(HostCounts(host_id="h-2", process=1, number=1, is_all=True, totals={A: 1}), 2.5)
    assert other.sums == {A: 6}
    assert other.expire(1.0 + EXPIRES_S) == set()
    assert other.expire(1.1 + EXPIRES_S) == {A}
    assert other.sums == {A: 1}


def test_an_idle_host_sends_nothing_and_a_busy_one_what_changed() -> None:
    sent = SentCounts("h-1", 7)
    sent.set_peers([THERE])
    assert sent.due(0.0) == []
    sent.count({A: 1, B: 2})
    [(_, first)] = sent.due(0.1)
    assert (first.is_all, first.totals) == (True, {A: 1, B: 2})
    sent.count({A: 3, B: 2})
    assert sent.due(0.15) == [], "one message at a time"
    sent.note_result(THERE, is_taken=True)
    [(_, second)] = sent.due(0.2)
    assert (second.is_all, second.totals, second.number) == (False, {A: 3}, 2)
    sent.note_result(THERE, is_taken=True)
    assert sent.due(0.2 + REFRESH_S / 2) == []
    [(_, kept)] = sent.due(0.3 + REFRESH_S)
    assert kept.totals == {}, "requests that take long are kept alive"
    sent.note_result(THERE, is_taken=True)
    sent.count({})
    [(_, last)] = sent.due(1.0)
    assert last.totals == {A: 0, B: 0}
    sent.note_result(THERE, is_taken=True)
    assert sent.due(99.0) == []


@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from([A, B, C]), st.integers(1, 9)),
            st.sampled_from(["taken", "lost", "answer lost"]),
        ),
        max_size=25,
    )
)
def test_a_peer_knows_all_once_messages_come_through_again(
    steps: list[tuple[dict[bytes, int], str]],
) -> None:
    sent, other, now = SentCounts("h-1", 7), OtherHosts(), 0.0
    sent.set_peers([THERE])
    last: dict[bytes, int] = {}
    for totals, outcome in [*steps, *[(None, "taken")] * 3]:
        now += REFRESH_S
        last = last if totals is None else totals
        sent.count(last)
        for address, due in sent.due(now):
            is_taken = outcome != "lost" and other.take(due, now) is not None
            sent.note_result(address, is_taken=is_taken and outcome == "taken")
    assert other.sums == last


def test_every_host_finds_the_same_shares() -> None:
    hosts = {"h-b", "h-a", "h-c"}
    assert [compute_share(it, hosts) for it in sorted(hosts)] == [
        GatewayShare(n, 3) for n in range(3)
    ]
    assert compute_share("h-x", set()) == GatewayShare(0, 1)


def test_workers_see_other_hosts_requests_and_report_their_own(tmp_path: Path) -> None:
    tables = [CountTable(tmp_path / "counts", 2, 8, has_others=True) for _ in range(3)]
    one, two, peers = SharedCounts(tables[0], 0), SharedCounts(tables[1], 1), tables[2]
    one.reserve("c-a")
    two.reserve("c-a")
    give_back = two.reserve("c-b")
    assert peers.own_totals() == {A: 2, B: 1}
    for key, total in ((A, 5), (C, 1)):
        row = peers.find_row(key, 2)
        assert row is not None
        peers.set_others(row, total)
    assert (one.of("c-a"), two.of("c-b"), two.of("c-c")) == (7, 1, 1)
    give_back()
    assert peers.own_totals() == {A: 2}, "what other hosts have is not sent on"
    assert [it.share for it in (one, two)] == [None, None]
    peers.set_share(GatewayShare(1, 3))
    assert [it.share for it in (one, two)] == [GatewayShare(1, 3)] * 2
    assert tables[0].presences() == [(0, 0), (0, 0)], "the column of other hosts is no worker"
    peers.clear(2)
    assert (one.of("c-a"), one.share) == (2, None)
