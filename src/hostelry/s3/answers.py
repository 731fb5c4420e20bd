"""Passes the object store's answers on. The answer to a write is held until its event is noted."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing

import msgspec

from hostelry.http1.heads import MalformedHeadError, parse_answer_head
from hostelry.s3.head import END, Head

CHUNK_BYTES = 256 * 1024
MAX_HELD_BYTES = 1024 * 1024
BODILESS = (204, 304)
LINE_END = b"\r\n"


class BrokenAnswerError(Exception):
    """The object store's answer is not valid HTTP/1.1, or is too large to be held."""


class StoreAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer: its status, its headers by lower-cased name, and its body if it was held."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


Settle = Callable[[StoreAnswer], Awaitable[bytes | None]]
"""Sees an answer before the client does; bytes that it returns take its place, and end all."""


class PassedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is passed on. With `settle`, its answer is held until `settle` returns.

    `guard` sees the head of the answer, and may return another answer, which ends all.
    """

    head: Head
    settle: Settle | None = None
    guard: Settle | None = None


class Answers:
    """Answers on one connection to the store, in the order of the requests that `note` gets.

    `proven` is called when the store accepts a signed request, which proves that its client has a
    key.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        proven: Callable[[], None] = lambda: None,
    ) -> None:
        self._proven = proven
        self._reader = reader
        self._writer = writer
        self._asked: deque[PassedRequest] = deque()
        self._all_passed = asyncio.Event()
        self._all_passed.set()

    def note(self, asked: PassedRequest) -> None:
        """Note a request that is about to be passed on."""
        self._asked.append(asked)
        self._all_passed.clear()

    async def all_passed(self) -> None:
        """Return once every request has its answer, or the connection has ended."""
        await self._all_passed.wait()

    async def pass_all(self) -> None:
        """Pass answers until either side ends."""
        try:
            while await self._pass_next():
                pass
        except (OSError, ValueError, asyncio.IncompleteReadError, BrokenAnswerError):
            self._writer.close()
        finally:
            self._asked.clear()
            self._all_passed.set()

    async def _pass_next(self) -> bool:
        """Pass one answer. Returns False after the last answer."""
        try:
            raw = await self._reader.readuntil(END)
        except asyncio.IncompleteReadError as ended:
            if ended.partial:
                self._writer.write(ended.partial)
                await self._writer.drain()
            return False
        except asyncio.LimitOverrunError:
            raise BrokenAnswerError from None
        answer = parse_answer(raw)
        if answer.status < 200:  # 100 Continue, which the final answer follows
            self._writer.write(raw)
            await self._writer.drain()
            return True
        asked = self._asked[0] if self._asked else None
        if asked is not None and await self._is_replaced(asked, answer):
            return False
        if asked is not None and asked.settle is not None and 200 <= answer.status < 300:
            goes_on = await self._settle(asked.settle, asked.head, raw, answer)
        else:
            self._writer.write(raw)
            async with aclosing(self._body(asked.head if asked else None, answer)) as parts:
                async for part, _ in parts:
                    self._writer.write(part)
                    await self._writer.drain()
            goes_on = True
        if asked is not None:
            self._asked.popleft()
        if not self._asked:
            self._all_passed.set()
        return goes_on

    async def _is_replaced(self, asked: PassedRequest, answer: StoreAnswer) -> bool:
        """True if another answer took the place of this one, which then is the last.

        An accepted request that is signed is a proof.
        """
        if asked.head.is_signed and answer.status < 400:
            self._proven()
        other = None if asked.guard is None else await asked.guard(answer)
        if other is not None:
            self._writer.write(other)
            await self._writer.drain()
        return other is not None

    async def _settle(self, settle: Settle, head: Head, raw: bytes, answer: StoreAnswer) -> bool:
        """Pass an answer once it is settled. Returns False if another answer took its place."""
        came, content = bytearray(raw), bytearray()
        async with aclosing(self._body(head, answer)) as parts:
            async for part, data in parts:
                came += part
                content += data
                if len(came) > MAX_HELD_BYTES:
                    raise BrokenAnswerError
        held = StoreAnswer(status=answer.status, headers=answer.headers, body=bytes(content))
        other = await settle(held)
        self._writer.write(bytes(came) if other is None else other)
        await self._writer.drain()
        return other is None

    async def _body(
        self, head: Head | None, answer: StoreAnswer
    ) -> AsyncGenerator[tuple[bytes, bytes], None]:
        """Yield the body's bytes as they arrive, with the content in them."""
        if answer.status in BODILESS or (head is not None and head.method == "HEAD"):
            return
        length = answer.headers.get("content-length")
        if "chunked" in answer.headers.get("transfer-encoding", "").lower():
            while size := int((line := await self._line()).partition(b";")[0], 16):
                yield line, b""
                async for part in self._exactly(size):
                    yield part, part
                yield await self._reader.readexactly(len(LINE_END)), b""
            yield line, b""
            while (line := await self._line()) != LINE_END:  # the trailer's fields
                yield line, b""
            yield line, b""
        elif length is not None:
            async for part in self._exactly(int(length)):
                yield part, part
        else:
            while part := await self._reader.read(CHUNK_BYTES):
                yield part, part

    async def _line(self) -> bytes:
        try:
            return await self._reader.readuntil(LINE_END)
        except asyncio.LimitOverrunError:
            raise BrokenAnswerError from None

    async def _exactly(self, num_bytes: int) -> AsyncGenerator[bytes, None]:
        left = num_bytes
        while left > 0:
            part = await self._reader.read(min(left, CHUNK_BYTES))
            if not part:
                raise asyncio.IncompleteReadError(b"", left)
            left -= len(part)
            yield part


def parse_answer(raw: bytes) -> StoreAnswer:
    """Parse the head of an answer. Raises BrokenAnswerError."""
    try:
        status, headers = parse_answer_head(raw)
    except MalformedHeadError:
        raise BrokenAnswerError from None
    return StoreAnswer(status=status, headers=headers)
