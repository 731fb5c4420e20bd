"""Body of a request that is served while it arrives, so that it is never held whole."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable

from hostelry.base.errors import HostelryError

PAUSE_ABOVE_BYTES = 1024 * 1024
RESUME_BELOW_BYTES = 256 * 1024


class BodyLostError(HostelryError):
    """The body ended before it was whole."""


class RequestBody:
    """One body. Its connection fills it and pauses, and one task reads it.

    `length_bytes` is the length in the head, or None. A body that makes no progress for `stall_s`
    is lost.
    """

    def __init__(self, length_bytes: int | None, stall_s: float) -> None:
        self.length_bytes = length_bytes
        self.is_whole = False
        self._stall_s = stall_s
        self._chunks: deque[bytes] = deque()
        self._buffered_bytes = 0
        self._lost: str | None = None
        self._arrival: asyncio.Future[None] | None = None
        self._pause: Callable[[], None] = lambda: None
        self._resume: Callable[[], None] = lambda: None

    def attach(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        """Set the functions that make the client pause and resume."""
        self._pause = pause
        self._resume = resume

    def add(self, part: bytes) -> None:
        """Add a piece of the body."""
        self._chunks.append(part)
        self._buffered_bytes += len(part)
        if self._buffered_bytes > PAUSE_ABOVE_BYTES:
            self._pause()
        self._wake()

    def end(self) -> None:
        """Mark the body as whole."""
        self.is_whole = True
        self._wake()

    def abort(self, reason: str) -> None:
        """Mark the body as aborted."""
        self._lost = reason
        self._wake()

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the bytes as they arrive. Raises BodyLostError."""
        while True:
            while self._chunks:
                chunk = self._chunks.popleft()
                self._buffered_bytes -= len(chunk)
                yield chunk
            if self.is_whole:
                return
            if self._lost is not None:
                raise BodyLostError(self._lost)
            if self._buffered_bytes < RESUME_BELOW_BYTES:
                self._resume()
            await self._more()

    async def _more(self) -> None:
        self._arrival = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(self._stall_s):
                await self._arrival
        except TimeoutError:
            raise BodyLostError(f"no byte of the body came for {self._stall_s:g} s") from None

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)
