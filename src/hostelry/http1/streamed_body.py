"""Body of a request that is sent in pieces, as fast as the copy takes them."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import msgspec

from hostelry.http1.reply import BrokenError


class StreamedBody(msgspec.Struct, frozen=True):
    """A body of `length_bytes`, in pieces. It can be sent once."""

    chunks: AsyncGenerator[bytes, None]
    length_bytes: int


class BodyBrokenError(BrokenError):
    """The source of a request's body broke off. `cause` is the error that it raised, if any."""

    def __init__(self, message: str, cause: BaseException | None = None) -> None:
        super().__init__(message)
        self.cause = cause


class BodyFeed:
    """Writes a streamed body of at most `length_bytes`, and waits while it is paused.

    Args:
        body: the body.
        write: sends bytes to the copy.
        broke: is called once with the error if the body ends early or is too long.
    """

    def __init__(
        self,
        body: StreamedBody,
        write: Callable[[bytes], None],
        broke: Callable[[BodyBrokenError], None],
    ) -> None:
        self._body = body
        self._write = write
        self._broke = broke
        self._may_write = asyncio.Event()
        self._may_write.set()
        self.is_whole = False
        self._task = asyncio.get_running_loop().create_task(self._write_all())
        self._task.add_done_callback(self._end)

    def pause(self) -> None:
        """Stop writing, because the transport's buffer is full."""
        self._may_write.clear()

    def resume(self) -> None:
        """Write again."""
        self._may_write.set()

    def stop(self) -> None:
        """Stop, and close the source."""
        self._task.cancel()

    async def _write_all(self) -> None:
        left = self._body.length_bytes
        async with aclosing(self._body.chunks) as chunks:
            async for chunk in chunks:
                left -= len(chunk)
                if left < 0:
                    break
                await self._may_write.wait()
                self._write(chunk)
        if left:
            stated = self._body.length_bytes
            found = "has more than" if left < 0 else f"ended {left} bytes before"
            raise BodyBrokenError(f"The body {found} the {stated} bytes that were announced.")
        self.is_whole = True

    def _end(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, BodyBrokenError):
            self._broke(error)
        elif error is not None:
            self._broke(BodyBrokenError(f"The body broke off: {error}", error))
