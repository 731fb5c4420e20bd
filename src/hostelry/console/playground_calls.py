"""The playground's calls of models. Answers are passed on as they arrive, and are not kept.

Events of a chat: `request` (with the code that repeats it), OpenAI's own chunks, `failed`, `ended`.
Events of an invocation: `request`, `answer`, `failed`, `ended`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import msgspec

from hostelry.console.live import event
from hostelry.console.platform import (
    ModelAnswer,
    ModelPort,
    NoModelAnswerError,
    PlatformError,
    PlatformPort,
)
from hostelry.console.snippets import chat_snippets, invocation_snippets
from hostelry.console.views.playground import (
    ChatAsked,
    InvocationAsked,
    PlaygroundRefusedError,
    chat_asked,
    invocation_asked,
    targets,
)

EVENTS = "text/event-stream"
MAX_ADAPTERS = "200"  # of each copy, the nearest and busiest
MAX_CALLS = 32
MAX_CHAT_BYTES = 16 * 1024 * 1024  # a chunk with one token has about 300 bytes
MAX_ANSWER_BYTES = 1024 * 1024
MAX_REFUSAL_BYTES = 16 * 1024
MAX_CALL_S = 590.0
ALIVE_EVERY_S = 15.0
KEPT_ALIVE = b": alive\n\n"
QUEUED_EVENTS = 8

Put = Callable[[bytes], Awaitable[None]]


class PlaygroundCall:
    """A call, which runs in a task. `end` cancels it."""

    def __init__(self, produce: Callable[[Put], Awaitable[None]]) -> None:
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue(QUEUED_EVENTS)
        self._task = asyncio.create_task(self._run(produce))

    @property
    def has_ended(self) -> bool:
        """True if the call no longer runs."""
        return self._task.done()

    def end(self) -> None:
        """End the call, if it runs."""
        self._task.cancel()

    async def events(self) -> AsyncIterator[bytes]:
        """Yield the call's events, and comments between them that keep the stream alive.

        Raises the exception of a defect that ended the call.
        """
        while True:
            try:
                async with asyncio.timeout(ALIVE_EVERY_S):
                    found = await self._queue.get()
            except TimeoutError:
                if self._task.done():  # a defect ended it, or `end`: no further event comes
                    self._task.result()
                    return
                yield KEPT_ALIVE
                continue
            if found is None:
                return
            yield found

    async def _run(self, produce: Callable[[Put], Awaitable[None]]) -> None:
        put = self._queue.put
        try:
            async with asyncio.timeout(MAX_CALL_S):
                await produce(put)
        except NoModelAnswerError as error:
            await put(_broken_off(str(error)))
        except TimeoutError:
            await put(_broken_off(f"The answer did not end within {MAX_CALL_S:g} s."))
        await put(event("ended", {}))
        await put(None)


class PlaygroundCalls:
    """All calls that run now. The caller has checked the session and the size of the body."""

    def __init__(self, port: PlatformPort, models: ModelPort) -> None:
        self._port = port
        self._models = models
        self._running: list[PlaygroundCall] = []

    async def targets(self) -> dict[str, Any]:
        """List the models and endpoints that may be asked now. Raises PlatformError."""
        ask = self._port.ask
        try:
            state, caches, llms = await asyncio.gather(
                ask("control", "/internal/state"),
                ask("control", "/internal/copy-caches", {"limit": MAX_ADAPTERS}),
                self._models.models(),
            )
        except NoModelAnswerError as error:
            raise PlatformError(str(error)) from None
        return targets(state["endpoints"], frozenset(llms), caches["copies"])

    def begin(self, kind: str, body: Mapping[str, Any]) -> PlaygroundCall:
        """Begin a chat or an invocation. Raises PlaygroundRefusedError."""
        self._running = [it for it in self._running if not it.has_ended]
        if len(self._running) >= MAX_CALLS:
            raise PlaygroundRefusedError(f"{MAX_CALLS} calls of consoles run; end one of them")
        if kind == "chat":
            chat = chat_asked(body)
            call = PlaygroundCall(lambda put: self._chat(chat, put))
        else:
            invocation = invocation_asked(body)
            call = PlaygroundCall(lambda put: self._invoke(invocation, put))
        self._running.append(call)
        return call

    async def _chat(self, asked: ChatAsked, put: Put) -> None:
        await put(event("request", {"code": chat_snippets(asked.request, asked.endpoint)}))
        num_bytes = 0
        async with self._models.chat(msgspec.json.encode(asked.request)) as answer:
            if answer.status != 200 or not answer.content_type.startswith(EVENTS):
                text, _ = await _text(answer, MAX_REFUSAL_BYTES)
                await put(event("failed", {"status": answer.status, "text": text}))
                return
            async for chunk in answer.chunks():
                num_bytes += len(chunk)
                if num_bytes > MAX_CHAT_BYTES:
                    await put(_broken_off(f"Only {MAX_CHAT_BYTES} bytes of the answer are shown."))
                    return
                await put(chunk)

    async def _invoke(self, asked: InvocationAsked, put: Put) -> None:
        code = invocation_snippets(asked.parameters, asked.body)
        await put(event("request", {"code": code}))
        async with self._models.invoke(asked.parameters, asked.body.encode()) as answer:
            text, is_whole = await _text(answer, MAX_ANSWER_BYTES)
            shown = {"status": answer.status, "type": answer.content_type, "text": text}
            await put(event("answer", {**shown, "whole": is_whole}))


def _broken_off(text: str) -> bytes:
    """Build a `failed` event that may follow an incomplete event of the model."""
    return b"\n\n" + event("failed", {"text": text})


async def _text(answer: ModelAnswer, max_bytes: int) -> tuple[str, bool]:
    """Read the body as text, up to `max_bytes`, and say whether that is the whole body."""
    body = bytearray()
    async for chunk in answer.chunks():
        body += chunk
        if len(body) > max_bytes:
            return bytes(body[:max_bytes]).decode("utf-8", "replace"), False
    return body.decode("utf-8", "replace"), True
