"""Live documents are computed once for all viewers, and not at all without a viewer."""

import asyncio
import gc
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cases import case, cases
from tests.unit.console.console_sample import SampleConsole
from tests.unit.console.fake_platform import FakePlatform

from hostelry.base.clock import ManualClock
from hostelry.console import routes as live_routes
from hostelry.console.delta import apply_patch
from hostelry.console.live import (
    KEPT_PATCHES,
    MAX_PAUSE_S,
    LiveFollower,
    LiveTopic,
    LiveTopics,
    SharedAnswers,
    TopicWatch,
    pause_s,
)
from hostelry.console.platform import ProcessQuery, Query
from hostelry.console.view_table import ConsoleView

STATE = ProcessQuery(process="control", path="/state")
TOPIC = LiveTopic("v")


def sources(params: Mapping[str, str], now: float) -> Mapping[str, Query]:
    return {"state": STATE}


def document(answers: Mapping[str, Any], params: Mapping[str, str], now: float) -> dict[str, Any]:
    return {"state": answers["state"], "params": dict(params)}


VIEW = ConsoleView(sources=sources, document=document, params=frozenset({"a"}))


class TurnClock(ManualClock):
    """A clock whose sleepers wait until the test wakes them."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = asyncio.Event()

    async def sleep(self, delay_s: float) -> None:
        await self.turn.wait()

    def tick(self) -> None:
        """Let a second pass for all sleeping tasks."""
        self.advance(1.0)
        self.turn.set()
        self.turn = asyncio.Event()


class Rig:
    def __init__(self) -> None:
        self.port = FakePlatform({"/state": {"n": 1}})
        self.clock = TurnClock()
        self.topics = LiveTopics({"v": VIEW, "w": VIEW}, self.port, self.clock, self.clock.now)

    def changes(self, **state: Any) -> None:
        """Change the platform, and let the next second begin."""
        self.port.answers["/state"] = state
        self.clock.tick()


def seen(events: bytes | None, before: Any = None) -> Any:
    """The document of a browser that had `before`."""
    assert events is not None
    for text in events.decode().strip().split("\n\n"):
        kind, data = text.split("\n")
        value = msgspec.json.decode(data.removeprefix("data: "))
        before = value if kind == "event: snapshot" else apply_patch(before, value)
    return before


async def test_two_who_look_cost_as_much_as_one() -> None:
    rig = Rig()
    async with AsyncExitStack() as stack:
        followers = [
            await stack.enter_async_context(rig.topics.following(topic))
            for topic in (TOPIC, TOPIC, LiveTopic("w"), LiveTopic("v", (("a", "b"),)))
        ]
        shown = [seen(await it.next_events(5.0)) for it in followers]
        assert [it["state"] for it in shown] == [{"n": 1}] * 4
        assert [it["params"] for it in shown] == [{}, {}, {}, {"a": "b"}]
        assert rig.port.asked == ["/state"]
        assert rig.topics.num_topics == 3
    assert rig.topics.num_topics == 0


async def test_with_no_one_looking_nothing_is_asked() -> None:
    rig = Rig()
    async with rig.topics.following(TOPIC) as follower:
        await follower.next_events(5.0)
    asked = len(rig.port.asked)
    for number in range(5):
        rig.changes(n=number)
        await asyncio.sleep(0)
    assert len(rig.port.asked) == asked


async def test_a_change_is_sent_as_a_patch() -> None:
    rig = Rig()
    async with rig.topics.following(TOPIC) as follower:
        first = seen(await follower.next_events(5.0))
        rig.changes(n=2, m=3)
        events = await follower.next_events(5.0)
        assert events == b'event: patch\ndata: {"state":{"n":2,"m":3}}\n\n'
        assert seen(events, first)["state"] == {"n": 2, "m": 3}
        rig.changes(n=2, m=3)
        assert await follower.next_events(0.01) is None


async def test_one_who_is_slow_gets_the_whole_again_and_nothing_is_queued() -> None:
    watch = TopicWatch(VIEW, {}, SharedAnswers(FakePlatform(), lambda: 0.0), ManualClock())
    watch.publish({"n": 0})
    quick, slow = LiveFollower(watch), LiveFollower(watch)
    for follower in (quick, slow):
        assert seen(await follower.next_events(5.0)) == {"n": 0}
    for number in range(1, KEPT_PATCHES + 1):
        watch.publish({"n": number})
    assert (await quick.next_events(5.0) or b"").count(b"event: patch") == KEPT_PATCHES
    watch.publish({"n": -1})
    late = await slow.next_events(5.0)
    assert late == b'event: snapshot\ndata: {"n":-1}\n\n'
    assert await quick.next_events(5.0) == b'event: patch\ndata: {"n":-1}\n\n'


async def test_what_does_not_answer_is_named_and_its_last_answer_stays() -> None:
    rig = Rig()
    async with rig.topics.following(TOPIC) as follower:
        first = seen(await follower.next_events(5.0))
        assert first["trouble"] == {}
        del rig.port.answers["/state"]
        rig.clock.tick()
        second = seen(await follower.next_events(5.0), first)
        assert second["state"] == {"n": 1}
        assert second["trouble"] == {"state": "control does not answer"}
        rig.changes(n=2)
        third = seen(await follower.next_events(5.0), second)
        assert (third["state"], third["trouble"]) == ({"n": 2}, {})


async def test_what_never_answered_is_no_answer_yet() -> None:
    rig = Rig()
    rig.port.answers.clear()
    async with rig.topics.following(TOPIC) as follower:
        assert "state" not in seen(await follower.next_events(5.0))


async def test_what_holds_is_asked_again_once_records_change_or_it_is_old() -> None:
    port, clock = FakePlatform({"/state": {"n": 1}}), ManualClock()
    answers = SharedAnswers(port, clock.now)
    held = ProcessQuery(process="control", path="/state", holds_s=3.0)
    asked = []
    for revision in (1, 1, 1, 2, 2, 2, 2, 2):
        port.answers["/internal/health"] = {"revision": revision}
        await answers.answer(held)
        asked.append(port.asked.count("/state"))
        clock.advance(1.0)
    assert asked == [1, 1, 1, 2, 2, 2, 3, 3]


async def test_a_view_that_fails_goes_on_with_the_next_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig()

    def failing(answers: Mapping[str, Any], params: Any, now: float) -> dict[str, Any]:
        return {"n": 1 / answers["state"]["n"]}

    topics = LiveTopics(
        {"v": ConsoleView(sources=sources, document=failing)}, rig.port, rig.clock, rig.clock.now
    )
    async with topics.following(TOPIC) as follower:
        first = seen(await follower.next_events(5.0))
        rig.changes(n=0)
        second = seen(await follower.next_events(5.0), first)
        assert (second["n"], list(second["trouble"])) == (1, ["console"])
        rig.changes(n=2)
        assert seen(await follower.next_events(5.0), second) == {"n": 0.5, "trouble": {}}
    assert "ZeroDivisionError" in caplog.text


@cases(
    "took_s, pause",
    case("once a second", 0.01, 0.99),
    case("3 % of its time", 0.03, 0.97),
    case("a large fleet is shown less often", 0.3, 9.7),
    case("but it is shown", 60.0, MAX_PAUSE_S),
)
def test_how_often_a_document_is_computed(took_s: float, pause: float) -> None:
    assert pause_s(took_s) == pytest.approx(pause)


class Tab:
    """A browser's tab that follows a view, as the server sees it."""

    def __init__(self, console: SampleConsole, shown: Mapping[str, str]) -> None:
        self.status = 0
        self.body = b""
        self.came = asyncio.Event()
        headers = {"X-Hostelry-Key": "internal", **shown}
        self._scope = {
            "type": "http",
            "method": "GET",
            "path": "/console/live",
            "raw_path": b"/console/live",
            "root_path": "",
            "scheme": "http",
            "query_string": b"view=fleet",
            "headers": [(k.lower().encode(), v.encode()) for k, v in headers.items()],
            "server": ("127.0.0.1", 8787),
        }
        self._left = asyncio.Event()
        self._task = asyncio.ensure_future(console.app(self._scope, self._receive, self._send))

    async def leave(self) -> None:
        """Close the tab."""
        self._left.set()
        await self._task

    async def ended(self) -> None:
        """Return once the server has ended the stream."""
        async with asyncio.timeout(10):
            await self._task

    async def _receive(self) -> Any:
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.status = message.get("status", self.status)
        self.body += message.get("body", b"")
        if self.body:
            self.came.set()


async def test_a_source_that_hangs_does_not_keep_the_page_blank() -> None:
    rig = Rig()
    rig.port.answers["/other"] = {"n": 2}
    rig.port.hangs["/state"] = asyncio.Event()
    other = ProcessQuery(process="jobs", path="/other")
    view = ConsoleView(
        sources=lambda params, now: {"state": STATE, "other": other},
        document=lambda answers, params, now: dict(answers),
    )
    topics = LiveTopics({"v": view}, rig.port, rig.clock, rig.clock.now)
    async with topics.following(TOPIC) as follower:
        waiting = asyncio.ensure_future(follower.next_events(5.0))
        for _ in range(10):  # turns of the loop, in which the sources are asked
            await asyncio.sleep(0)
        rig.clock.tick()
        shown = seen(await waiting)
        assert shown["other"] == {"n": 2}
        assert shown["trouble"] == {"state": "control has not answered for a while."}
        rig.port.hangs["/state"].set()
        shown = seen(await follower.next_events(5.0), shown)
        assert (shown["state"], shown["trouble"]) == ({"n": 1}, {})


async def test_a_follower_that_leaves_before_the_answer_is_no_failure() -> None:
    rig, failures = Rig(), []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    rig.port.hangs["/state"] = asyncio.Event()
    async with rig.topics.following(TOPIC):
        for _ in range(10):  # turns of the loop, in which the source is asked
            await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(0)
    gc.collect()
    assert not failures


async def test_streams_are_so_many_and_no_more(tmp_path: Path) -> None:
    console = SampleConsole(tmp_path)
    one, other = console.shown(), console.shown()
    tabs = [Tab(console, one) for _ in range(live_routes.MAX_STREAMS_EACH)]
    for tab in tabs:
        await tab.came.wait()
    refused = Tab(console, one)
    await refused.came.wait()
    assert ([it.status for it in tabs], refused.status) == ([200] * len(tabs), 429)
    assert b"Close a tab" in refused.body
    another = Tab(console, other)
    await another.came.wait()
    assert another.status == 200
    await tabs[0].leave()
    instead = Tab(console, one)
    await instead.came.wait()
    assert instead.status == 200
    for tab in (*tabs[1:], another, instead):
        await tab.leave()
    assert console.topics.num_topics == 0


async def test_a_stream_ends_with_its_session(tmp_path: Path) -> None:
    console = SampleConsole(tmp_path)
    shown = console.shown()
    tab = Tab(console, shown)
    await tab.came.wait()
    found = console.sessions.session(shown["cookie"].partition("=")[2], shown["x-hostelry-csrf"])
    assert found is not None
    console.sessions.end(found)
    del console.port.answers["/internal/placement"]
    await tab.ended()
    assert tab.body.endswith(b"event: signed-out\ndata: {}\n\n")
