"""Two connections spliced: the bytes of each go to the other, with back-pressure and half-close."""

import asyncio
from typing import cast


class SpliceEnd(asyncio.Protocol):
    """One end of a spliced connection. `other` is set once both ends are connected."""

    def __init__(self, other: "SpliceEnd | None" = None) -> None:
        self.transport: asyncio.Transport | None = None
        self.other = other
        self.ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        # uvloop's transports are not subclasses of asyncio's.
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Forward the bytes."""
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def eof_received(self) -> bool:
        """Forward the half-close. Answers may still come the other way.

        TLS has no half-close, so the other end is closed once its buffer is sent.
        """
        self.ended = True
        other = self.other
        if other is None or other.transport is None or other.transport.is_closing():
            return self.other is None
        if other.ended or not other.transport.can_write_eof():
            # Both directions are closed. `close` flushes first.
            other.transport.close()
            return False
        other.transport.write_eof()
        return True

    def pause_writing(self) -> None:
        """Stop reading from the other end while this one cannot write."""
        other = None if self.other is None else self.other.transport
        if other is not None and not other.is_closing():
            other.pause_reading()

    def resume_writing(self) -> None:
        """Read from the other end again."""
        other = None if self.other is None else self.other.transport
        if other is not None and not other.is_closing():
            other.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        """Abort the other end after an error, otherwise close it after a flush."""
        other = self.other.transport if self.other is not None else None
        if other is None or other.is_closing():
            return
        if error is None:
            other.close()
        else:
            other.abort()
