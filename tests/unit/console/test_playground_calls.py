"""The playground's calls: forwarded parts, ends of calls, and their number."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.cases import case, cases
from tests.unit.console.fake_platform import FakePlatform

from hostelry.console import playground_calls
from hostelry.console.platform import ModelAnswer, NoModelAnswerError, PlatformError
from hostelry.console.playground_calls import PlaygroundCalls
from hostelry.console.views.playground import PlaygroundRefusedError

CHAT = {"endpoint": "ep", "request": {"model": "m", "messages": [{"role": "user", "content": "x"}]}}
INVOKE = {"parameters": {"EndpointName": "ep"}, "body": "1,2"}
EVENTS = "text/event-stream; charset=utf-8"
Event = tuple[str, Any]


class ScriptedModels:
    """Answers with these chunks. An exception is raised in its place, and None hangs."""

    def __init__(
        self, chunks: Sequence[bytes | Exception | None] = (), status: int = 200, kind: str = EVENTS
    ) -> None:
        self.status = status
        self.content_type = kind
        self.sent: list[Any] = []
        self.num_open = 0
        self.closed = asyncio.Event()
        self._chunks = chunks

    async def models(self) -> list[str]:
        return ["m"]

    async def chunks(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            if isinstance(chunk, Exception):
                raise chunk
            if chunk is None:
                await asyncio.Event().wait()
            yield chunk or b""

    @asynccontextmanager
    async def chat(self, content: bytes) -> AsyncIterator[ModelAnswer]:
        self.sent.append(json.loads(content))
        self.num_open += 1
        try:
            yield self
        finally:
            self.num_open -= 1
            if not self.num_open:
                self.closed.set()

    @asynccontextmanager
    async def invoke(
        self, parameters: Mapping[str, str], body: bytes
    ) -> AsyncIterator[ModelAnswer]:
        self.sent.append((dict(parameters), body))
        yield self


def seen(models: ScriptedModels, kind: str, body: Mapping[str, Any]) -> list[Event]:
    """The events of a call: (kind, data), the model's own without a kind."""

    async def play() -> bytes:
        call = PlaygroundCalls(FakePlatform(), models).begin(kind, body)
        return b"".join([it async for it in call.events()])

    found: list[Event] = []
    for part in asyncio.run(play()).decode().split("\n\n"):
        lines = dict(it.split(": ", 1) for it in part.splitlines())
        if "data" in lines:
            found.append((lines.get("event", ""), json.loads(lines["data"])))
    return found


@cases(
    "models, events",
    case(
        "chunks as they come",
        ScriptedModels([b'data: {"a": 1}\n\nda', b'ta: {"a": 2}\n\n']),
        [("", {"a": 1}), ("", {"a": 2})],
    ),
    case(
        "a refusal with its status",
        ScriptedModels([b'{"error": {}}'], 404, "application/json"),
        [("failed", {"status": 404, "text": '{"error": {}}'})],
    ),
    case(
        "no stream",
        ScriptedModels([b"hello"], 200, "text/html"),
        [("failed", {"status": 200, "text": "hello"})],
    ),
    case(
        "an answer that breaks off",
        ScriptedModels([b'data: {"a": 1}\n\n', NoModelAnswerError("it is gone")]),
        [("", {"a": 1}), ("failed", {"text": "it is gone"})],
    ),
)
def test_a_chats_events(models: ScriptedModels, events: list[Event]) -> None:
    first, *rest, last = seen(models, "chat", CHAT)
    assert (first[0], list(first[1]["code"])) == ("request", ["curl", "openai", "boto3"])
    assert rest == events
    assert last == ("ended", {})
    (sent,) = models.sent
    assert sent["stream"] is True
    assert models.num_open == 0


def test_a_defect_ends_the_events_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playground_calls, "ALIVE_EVERY_S", 0.01)
    with pytest.raises(ZeroDivisionError):
        seen(ScriptedModels([b"data: {}", ZeroDivisionError()]), "chat", CHAT)


def test_an_answer_that_is_too_long_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playground_calls, "MAX_CHAT_BYTES", 20)
    found = seen(ScriptedModels([b'data: {"a": 1}\n\n'] * 9), "chat", CHAT)
    assert [kind for kind, _ in found] == ["request", "", "failed", "ended"]
    assert found[2][1]["text"] == "Only 20 bytes of the answer are shown."


@cases(
    "chunks, text, is_whole",
    case("whole", [b"a", b"b"], "ab", True),
    case("no text at all", [b"\xff"], "\ufffd", True),
    case("cut off at its limit", [b"x" * 2**20, b"y"], "x" * 2**20, False),
)
def test_an_invocations_events(chunks: list[bytes], text: str, is_whole: bool) -> None:
    models = ScriptedModels(chunks, 418, "text/csv")
    found = seen(models, "invoke", INVOKE)
    assert found[1:] == [
        ("answer", {"status": 418, "type": "text/csv", "text": text, "whole": is_whole}),
        ("ended", {}),
    ]
    assert models.sent == [({"EndpointName": "ep"}, b"1,2")]


async def test_a_browser_that_leaves_ends_its_call_and_makes_room() -> None:
    models = ScriptedModels([None])
    calls = PlaygroundCalls(FakePlatform(), models)
    running = [calls.begin("chat", CHAT) for _ in range(playground_calls.MAX_CALLS)]
    with pytest.raises(PlaygroundRefusedError, match="32 calls of consoles run"):
        calls.begin("chat", CHAT)
    for call in running:
        await anext(call.events())
    await asyncio.sleep(0)
    assert models.num_open == len(running)
    for call in running:
        call.end()
    await models.closed.wait()
    assert not calls.begin("chat", CHAT).has_ended


def test_a_platform_that_does_not_answer_has_no_targets() -> None:
    with pytest.raises(PlatformError, match="control does not answer"):
        asyncio.run(PlaygroundCalls(FakePlatform(), ScriptedModels()).targets())


def test_what_may_be_asked_is_of_three_sources() -> None:
    component = {"name": "m", "base": None, "status": "InService", "ready_copies": 1}
    endpoint = {"name": "ep", "takes_components": True, "copies": [], "components": [component]}
    port = FakePlatform(
        {"/internal/state": {"endpoints": [endpoint]}, "/internal/copy-caches": {"copies": {}}}
    )
    found = asyncio.run(PlaygroundCalls(port, ScriptedModels()).targets())
    assert (list(found["chats"]), list(found["invocations"])) == (["m"], ["ep/m"])
    assert port.asked == ["/internal/state", "/internal/copy-caches"]
