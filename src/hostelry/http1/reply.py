"""The answer of a copy, as it arrives: its head, then its body whole or in chunks."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, Protocol

from hostelry.base.clock import monotonic_ns
from hostelry.base.errors import HostelryError

PAUSE_ABOVE_BYTES = 256 * 1024
RESUME_BELOW_BYTES = 64 * 1024

Take = Callable[[bytes], bool]


class UpstreamError(HostelryError):
    """A server did not give a valid answer. `copy` is the `CopyRoute` of a copy, if it is known."""

    def __init__(self, message: str, copy: Any = None) -> None:
        super().__init__(message)
        self.copy = copy


class ConnectError(UpstreamError):
    """No connection could be made: the request was not processed."""


class BrokenError(UpstreamError):
    """The connection ended, or sent no valid HTTP, before the answer was whole."""


class ContainerDownError(BrokenError):
    """No connection to a further container of a pipeline, after earlier ones had answered."""


class DeadlineError(UpstreamError):
    """The time limit passed before the answer was whole."""


class TooLargeError(UpstreamError):
    """The answer is larger than the limit."""


class ControlAwayError(UpstreamError):
    """None of several controls answered. The text has the addresses that were tried, and why."""


class ReplyConnection(Protocol):
    """The connection an answer comes over.

    `may_repeat` is True if it ended before the copy read any of the request.
    """

    may_repeat: bool

    def pause_reading(self) -> None:
        """Take no more bytes from the copy."""
        ...

    def resume_reading(self) -> None:
        """Take bytes again."""
        ...

    def release(self, reusable: bool) -> None:
        """Keep the connection for another request, or cut it."""
        ...


class ReplyPhase(Enum):
    """How much of an answer has arrived."""

    AWAITED = "awaited"
    HEAD = "head"  # the head is whole, the body is not
    WHOLE = "whole"
    FAILED = "failed"


ENDED = (ReplyPhase.WHOLE, ReplyPhase.FAILED)


class Reply:
    """One answer. Its connection fills it, and one task reads it.

    `close` must always be called. It releases the connection, or cuts it so that the copy stops.
    """

    __slots__ = (
        "_buffered_bytes",
        "_chunks",
        "_closed",
        "_limit_bytes",
        "_line",
        "_listener",
        "_paused",
        "_take",
        "_waiter",
        "bytes_seen",
        "error",
        "head_ns",
        "headers",
        "phase",
        "reusable",
        "status",
    )

    def __init__(self, line: ReplyConnection) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.head_ns = 0  # when its head was whole
        self.bytes_seen = 0
        self.phase = ReplyPhase.AWAITED
        self.reusable = False
        self.error: UpstreamError | None = None
        self._line = line
        self._chunks: deque[bytes] = deque()
        self._buffered_bytes = 0
        self._limit_bytes: int | None = None
        self._paused = False
        self._take: Take | None = None  # of `pass_on`, while it waits
        self._waiter: asyncio.Future[None] | None = None
        self._listener: Callable[[], None] | None = None
        self._closed = False

    async def head(self) -> None:
        """Return once status and headers have arrived. Raises UpstreamError."""
        while self.phase is ReplyPhase.AWAITED:
            await self._wait()
        if self.phase is ReplyPhase.FAILED and self.status == 0:
            raise self._failure()

    async def body(self, limit_bytes: int) -> bytes:
        """Read the whole body. Raises UpstreamError, and TooLargeError above `limit_bytes`."""
        self._limit_bytes = limit_bytes
        while self.phase in (ReplyPhase.AWAITED, ReplyPhase.HEAD):
            self._check_limit()
            self._resume()
            await self._wait()
        if self.phase is ReplyPhase.FAILED:
            raise self._failure()
        self._check_limit()
        return self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)

    async def next_chunk(self) -> bytes | None:
        """Read the next piece of the body. None after the last piece. Raises UpstreamError."""
        await self.arrive()
        return self._take_chunk() if self._chunks else None

    async def arrive(self) -> None:
        """Return once a piece of the body has arrived, or its end. Raises UpstreamError."""
        while not self._chunks:
            if self.phase is ReplyPhase.FAILED:
                raise self._failure()
            if self.phase is ReplyPhase.WHOLE:
                return
            self._resume()
            await self._wait()

    async def pass_on(self, take: Take, room: Callable[[], Awaitable[None]]) -> None:
        """Call `take` with every piece of the body as it arrives, until the last piece.

        The connection calls `take` itself, because a wake of this task costs more than the rest.
        Once `take` returns True, its receiver is full, and the next piece waits for `room`. Raises
        UpstreamError, and the error of `take`.
        """
        while True:
            await room()
            while self._chunks:
                if take(self._take_chunk()):
                    await room()
            if self.phase is ReplyPhase.FAILED:
                raise self._failure()
            if self.phase is ReplyPhase.WHOLE:
                return
            self._resume()
            self._take = take
            try:
                await self._wait()
            finally:
                self._take = None

    def listen(self, came: Callable[[], None]) -> None:
        """Call `came` soon after the body is whole, has failed, or is too large to be kept.

        This saves a task that waits.
        """
        self._listener = came

    @property
    def num_buffered(self) -> int:
        """Bytes of the body that have arrived and are not read."""
        return self._buffered_bytes

    @property
    def may_repeat(self) -> bool:
        """True if the request failed before the copy read any of it."""
        return self._line.may_repeat

    def take_chunks(self) -> list[bytes]:
        """Remove and return the pieces of the body that have arrived."""
        chunks = list(self._chunks)
        self._chunks.clear()
        self._buffered_bytes = 0
        return chunks

    def close(self) -> None:
        """Release the connection and the unread pieces. A second call does nothing."""
        if not self._closed:
            self._closed = True
            self._chunks.clear()
            self._line.release(self.phase is ReplyPhase.WHOLE and self.reusable)

    def set_head(self, status: int, headers: dict[str, str]) -> None:
        """Set the status and the headers."""
        self.status = status
        self.headers = headers
        self.head_ns = monotonic_ns()
        self.phase = ReplyPhase.HEAD
        if self._limit_bytes is None:
            self._wake()

    def add_chunk(self, chunk: bytes) -> None:
        """Add a piece of the body."""
        if self._take is not None:
            self._pass(chunk, self._take)
            return
        self._chunks.append(chunk)
        self._buffered_bytes += len(chunk)
        if self._limit_bytes is None:
            if self._buffered_bytes > PAUSE_ABOVE_BYTES and not self._paused:
                self._paused = True
                self._line.pause_reading()
            self._wake()
        elif self._buffered_bytes > self._limit_bytes:
            self._wake()

    def end(self, reusable: bool) -> None:
        """End the body. `reusable` is True if the connection may carry another request."""
        self.phase = ReplyPhase.WHOLE
        self.reusable = reusable
        self._wake()

    def fail(self, error: UpstreamError) -> None:
        """End the answer with `error`."""
        if self.phase in (ReplyPhase.AWAITED, ReplyPhase.HEAD):
            self.phase = ReplyPhase.FAILED
            self.error = error
            self._wake()

    def expect_whole(self, limit_bytes: int) -> None:
        """Wake the reader only once the body is whole, because it will call `body`."""
        self._limit_bytes = limit_bytes

    def _take_chunk(self) -> bytes:
        chunk = self._chunks.popleft()
        self._buffered_bytes -= len(chunk)
        return chunk

    def _pass(self, chunk: bytes, take: Take) -> None:
        """Pass a piece on. The task of `pass_on` is woken if the receiver is full or fails."""
        try:
            if not take(chunk):
                return
        except Exception as error:  # noqa: BLE001 - the task raises it
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_exception(error)
        self._take = None
        self._wake()

    def _check_limit(self) -> None:
        if self._limit_bytes is not None and self._buffered_bytes > self._limit_bytes:
            raise TooLargeError(
                f"The answer is larger than the limit of {self._limit_bytes} bytes."
            )

    def _failure(self) -> UpstreamError:
        return self.error or BrokenError("The answer broke off.")

    def _resume(self) -> None:
        wants_all = self._limit_bytes is not None  # `body` takes no piece before the last arrives
        if self._paused and (wants_all or self._buffered_bytes < RESUME_BELOW_BYTES):
            self._paused = False
            self._line.resume_reading()

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None:
            if not self._waiter.done():
                self._waiter.set_result(None)
        elif self._listener is not None and (self._paused or self.phase in ENDED):
            asyncio.get_running_loop().call_soon(self._listener)
            self._listener = None
