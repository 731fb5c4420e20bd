"""uvicorn's HTTP protocol with a limit on the size of a head."""

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 64 * 1024
TOO_LONG = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


class BoundedHeadProtocol(HttpToolsProtocol):
    """Responds 431 and closes once more than `MAX_HEAD_BYTES` arrived after a head began."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_head = False
        self._head_bytes = 0

    def on_message_begin(self) -> None:
        """Called at a request's first byte."""
        self._in_head = True
        self._head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Called when the head is complete."""
        self._in_head = False
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Feed bytes; those that arrive within a head are counted."""
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.transport.write(TOO_LONG)
                self.transport.close()
                return
        super().data_received(data)
