"""The control that a host's processes use: own control, or another one while that is away."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from tests.cases import case, cases
from tests.unit.cluster.test_leader_proxy import (
    Answering,
    Controls,
    answers,
    breaks,
    refuses,
    reply,
)

from hostelry.base.clock import ManualClock
from hostelry.cluster import own_control
from hostelry.cluster.known_controls import list_known_controls
from hostelry.cluster.leader_view import (
    NOT_LEADER,
    ControlAnswer,
    LeaderAnswer,
    LeaderView,
    ask_leader,
)
from hostelry.cluster.own_control import ControlUpstream, OwnControl, choose_control, is_over
from hostelry.home.home import Home, UpConfig
from hostelry.http1.reply import ConnectError, ControlAwayError, Reply
from hostelry.http1.upstream import Timeouts

OWN = "http://own"
OWN_ADDRESS, OTHER, THIRD = (f"https://control@10.0.0.{it}:7443" for it in (2, 3, 4))


def named(address: str, leader: str | None, epoch: int = 5) -> ControlAnswer:
    return ControlAnswer(address=address, answer=LeaderAnswer(leader, epoch, [OWN_ADDRESS]))


def silent(address: str) -> ControlAnswer:
    return ControlAnswer(address=address, failure="refused")


@cases(
    "asked, leader, epoch",
    case("own control leads", [named(OWN, OWN_ADDRESS)], OWN, 5),
    case("own control forwards to another", [named(OWN, THIRD, 6)], OWN, 6),
    case("own control is away", [silent(OWN), named(OTHER, THIRD)], THIRD, 5),
    case("it has lost the database", [named(OWN, None, 0), named(OTHER, THIRD)], THIRD, 5),
    case("it was frozen", [named(OWN, OWN_ADDRESS, 4), named(OTHER, THIRD)], THIRD, 5),
    case("it is away, and leads still", [silent(OWN), named(OTHER, OWN_ADDRESS)], OWN, 5),
    case("none leads", [silent(OWN), named(OTHER, None)], OWN, 5),
    case("none answers", [silent(OWN), silent(OTHER)], OWN, 5),
    case("an older epoch", [silent(OWN), named(OTHER, THIRD, 4)], OWN, 5),
    case("no other is known", [silent(OWN)], OWN, 5),
    case(
        "the key goes to none in clear", [silent(OWN), named(OTHER, "http://10.0.0.9:80")], OWN, 5
    ),
)
def test_where_requests_go(asked: Sequence[ControlAnswer], leader: str, epoch: int) -> None:
    before = LeaderView(leader=OWN, epoch=5)
    found = choose_control((OWN, OWN_ADDRESS), before, asked)
    assert (found.leader, found.epoch) == (leader, epoch)


@cases(
    "before, found, over",
    case("own control is left", (OWN, 5), (THIRD, 5), True),
    case("own control is back, the other leads on", (THIRD, 5), (OWN, 5), False),
    case("own control is back, the other leads no more", (THIRD, 5), (OWN, 6), True),
    case("own control forwards to another one now", (OWN, 5), (OWN, 6), False),
)
def test_when_requests_under_way_are_given_up(
    before: tuple[str, int], found: tuple[str, int], over: bool
) -> None:
    views = [LeaderView(leader=leader, epoch=epoch) for leader, epoch in (before, found)]
    assert is_over(OWN, views[0], views[1]) is over


def test_the_internal_key_is_sent_to_controls_by_mutual_tls_or_on_loopback(tmp_path: Path) -> None:
    home = Home(tmp_path)
    addresses = [
        THIRD,
        "http://127.0.0.1:4",
        "http://10.0.0.9:7443",
        "https://10.0.0.9:7443",
        "https://jobs@10.0.0.9:7443",
        "https://",
    ]
    home.known_controls.write_bytes(msgspec.json.encode(addresses))
    assert list_known_controls(home, UpConfig(control_port=1)) == (THIRD, "http://127.0.0.1:4")
    home.known_controls.write_bytes(b"\xff[")
    assert list_known_controls(home, UpConfig(control_port=1)) == ()


class Rig:
    """Own control and another one. Functions give their answers to calls and about the leader."""

    def __init__(self, own: Answering, other: Answering, *, others: tuple[str, ...] = (OTHER,)):
        self.controls = Controls(own=own)
        self.controls.answering[OTHER] = other
        self.leads: dict[str, Answering] = {OWN: refuses, OTHER: names(OTHER)}

        async def ask(address: str, timeouts: Timeouts) -> ControlAnswer:
            return await ask_leader(self, address, "key", timeouts)

        self.control = OwnControl((OWN, OWN_ADDRESS), lambda: others, ask, ManualClock())
        self.upstream = ControlUpstream(self.controls, self.control)

    async def send(
        self,
        address: str,
        parts: tuple[bytes, bytes],
        timeouts: Timeouts,
        whole_below_bytes: int | None = None,
    ) -> Reply:
        """Answer as a connection pool who leads."""
        return await self.leads[address](parts[0])

    async def call(self, method: str = "POST", total_s: float = 60.0) -> int:
        head = f"{method} /internal/x HTTP/1.1\r\n\r\n".encode()
        sent = await self.upstream.send(OWN, (head, b""), Timeouts(total_s=total_s))
        sent.close()
        return sent.status


def names(leader: str | None, epoch: int = 5) -> Answering:
    async def answering(_: bytes) -> Reply:
        return reply(200, msgspec.json.encode(LeaderAnswer(leader, epoch, [])))

    return answering


async def not_taken(_: bytes) -> Reply:
    return reply(503, b"", {NOT_LEADER: "1"})


async def cannot(_: bytes) -> Reply:
    return reply(503, b"the store is away")


@cases(
    "own, method, status, asked",
    case("own control answers", answers, "POST", 200, {OWN}),
    case("it refuses connections", refuses, "POST", 200, {OWN, OTHER}),
    case("it has no leader", not_taken, "POST", 200, {OWN, OTHER}),
    case("it dies, and the call only reads", breaks, "GET", 200, {OWN, OTHER}),
    case("it dies with a write", breaks, "POST", "may have been executed", {OWN}),
    case("its answer is passed on", cannot, "POST", 503, {OWN}),
)
async def test_a_call_while_another_control_leads(
    own: Answering, method: str, status: int | str, asked: set[str]
) -> None:
    rig = Rig(own, answers)
    if isinstance(status, str):
        with pytest.raises(ControlAwayError, match=status) as caught:
            await rig.call(method)
        assert OWN in str(caught.value)
    else:
        assert await rig.call(method) == status
    assert set(rig.controls.asked) == asked
    if own in (refuses, breaks):
        await rig.control.look()
        assert await rig.call() == 200, "the next call goes there at once"
        assert rig.controls.asked[-1] == OTHER


async def test_own_control_is_used_as_soon_as_it_names_a_leader() -> None:
    rig = Rig(refuses, answers)
    assert await rig.call() == 200
    assert rig.control.view.leader == OTHER
    changed = rig.control.get_change()
    rig.controls.answering[OWN] = answers
    rig.leads[OWN] = names(OTHER)
    assert await rig.control.look()
    assert not changed.done(), "the other one leads on, and finishes what it has"
    assert await rig.call() == 200
    assert rig.controls.asked[-1] == OWN


@cases(
    "method, status",
    case("a call that only reads is sent to the other", "GET", 200),
    case("another may have been executed", "POST", None),
)
async def test_a_call_to_a_frozen_control(
    method: str, status: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_control, "SLOW_S", 0.001)
    monkeypatch.setattr("hostelry.cluster.leader_view.AFTER_CHANGE_S", 0.0)

    async def hangs(_: bytes) -> Reply:
        await asyncio.Event().wait()
        raise AssertionError

    rig = Rig(hangs, answers)
    if status is None:
        with pytest.raises(ControlAwayError, match="may have been executed"):
            await rig.call(method)
    else:
        assert await rig.call(method) == status
    assert await rig.call() == 200, "the next one goes to the other at once"


async def test_each_control_that_was_tried_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_control, "WAIT_S", 0.0)
    rig = Rig(refuses, refuses)
    with pytest.raises(ControlAwayError, match=f"{OWN}: refused"):
        await rig.call()
    await rig.control.look()
    with pytest.raises(ControlAwayError, match=f"{OTHER}: refused"):
        await rig.call()


async def test_a_time_limit_ends_the_tries() -> None:
    rig = Rig(refuses, refuses)
    with pytest.raises(ControlAwayError, match="refused"):
        await rig.call(total_s=0.01)


async def test_a_control_that_is_alone_is_asked_as_ever() -> None:
    rig = Rig(refuses, answers, others=())
    with pytest.raises(ConnectError):
        await rig.call()
    assert rig.controls.asked == [OWN]
    assert rig.control.view.leader == OWN


def test_the_file_is_read_once_a_second_at_the_most(tmp_path: Path) -> None:
    now_s = 0.0
    home, config = Home(tmp_path), UpConfig(control_port=1)
    now: Callable[[], float] = lambda: now_s  # noqa: E731
    others = own_control.OtherControls(home, config, now)
    assert others() == ()
    home.known_controls.write_bytes(msgspec.json.encode([THIRD]))
    assert others() == ()
    now_s = 1.0
    assert others() == (THIRD,)
