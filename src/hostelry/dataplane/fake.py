"""Fakes of the network: a transport and a client that record, copies with set answers."""

import asyncio
from collections.abc import Iterable
from typing import Any

from hostelry.http1.reply import Reply, UpstreamError
from hostelry.http1.upstream import Timeouts


class FakeTransport(asyncio.Transport):
    """Keeps written bytes. `unsent_bytes` counts bytes that the peer has not taken yet."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.unsent_bytes = 0
        self.closed = False
        self.aborted = False
        self.eof_written = False
        self.reading = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Keep the bytes."""
        self.written += bytes(data)

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """Keep the bytes."""
        self.written += b"".join(list_of_data)

    def can_write_eof(self) -> bool:
        """As a TCP transport answers."""
        return True

    def write_eof(self) -> None:
        """Note that nothing more will be sent."""
        self.eof_written = True

    def close(self) -> None:
        """Note it."""
        self.closed = True

    def abort(self) -> None:
        """Note it."""
        self.closed = self.aborted = True

    def is_closing(self) -> bool:
        """Whether it was closed."""
        return self.closed

    def pause_reading(self) -> None:
        """Note it."""
        self.reading = False

    def resume_reading(self) -> None:
        """Note it."""
        self.reading = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Limits mean nothing here."""

    def get_write_buffer_size(self) -> int:
        """What the peer has not taken."""
        return self.unsent_bytes


class WrittenAnswer:
    """A client that keeps an answer's bytes, and always has room."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, *parts: bytes) -> bool:
        """Keep the bytes."""
        self.written += b"".join(parts)
        return False

    async def wait_for_room(self) -> None:
        """Return at once."""


class FakeReplyConnection:
    """The connection of a reply. It records calls."""

    may_repeat = False

    def __init__(self) -> None:
        self.reading = True
        self.released: list[bool] = []

    def pause_reading(self) -> None:
        """Note it."""
        self.reading = False

    def resume_reading(self) -> None:
        """Note it."""
        self.reading = True

    def release(self, reusable: bool) -> None:
        """Note it."""
        self.released.append(reusable)


class FakeUpstream:
    """Copies without processes: each address answers 200 ``ok``, or fails as `failures` has it."""

    def __init__(self, failures: dict[str, UpstreamError] | None = None) -> None:
        self.failures = failures or {}
        self.asked: list[str] = []

    def send_now(
        self, address: str, parts: tuple[bytes, bytes], timeouts: Timeouts
    ) -> Reply | None:
        """No connection is kept."""
        return None

    async def send(
        self,
        address: str,
        parts: tuple[bytes, bytes],
        timeouts: Timeouts,
        whole_below_bytes: int | None = None,
    ) -> Reply:
        """A whole reply, or the failure of `address`."""
        self.asked.append(address)
        if address in self.failures:
            raise self.failures[address]
        reply = Reply(FakeReplyConnection())
        reply.set_head(200, {})
        reply.add_chunk(b"ok")
        reply.end(reusable=True)
        return reply
