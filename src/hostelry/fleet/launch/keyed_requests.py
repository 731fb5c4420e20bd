"""Filter of the requests on one connection: forwards those with the copy's key, without the key.

Bytes in, bytes out. Accepts the platform's own requests: HTTP/1.1 with bodies of known length.
"""

import httptools

from hostelry.base.copy_key import HEADER, NOT_SHOWN
from hostelry.base.key_guard import is_shown

NAME = HEADER.lower().encode()
MAX_HEAD_BYTES = 64 * 1024


class KeyRefusedError(Exception):
    """The connection must be closed after sending `answer`."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nConnection: close\r\n"
        self.answer = f"{head}Content-Length: {len(text) + 1}\r\n\r\n{text}\n".encode()


class KeyedRequests:
    """Parser of a client's bytes that returns those that may be forwarded."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0
        self._in_head = True
        self._passed: list[bytes] = []
        self._refusal: KeyRefusedError | None = None

    def feed(self, data: bytes) -> bytes:
        """The bytes to pass on; after KeyRefusedError the connection is of no more use."""
        if self._in_head:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise self._refusal or KeyRefusedError("400 Bad Request", str(error)) from None
        if self._in_head and self._head_bytes > MAX_HEAD_BYTES:
            text = f"the head has more than {MAX_HEAD_BYTES} bytes"
            raise KeyRefusedError("431 Request Header Fields Too Large", text)
        passed, self._passed = b"".join(self._passed), []
        return passed

    def on_message_begin(self) -> None:
        """Start a request."""
        self._url, self._headers = b"", []

    def on_url(self, url: bytes) -> None:
        """Add a piece of its target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add one of its headers."""
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Check the key and forward the head without it; otherwise refuse the request."""
        self._in_head = False
        given = [value.decode("latin-1") for name, value in self._headers if name.lower() == NAME]
        if not is_shown(self._key, given):
            self._refuse("403 Forbidden", NOT_SHOWN)
        if any(name.lower() == b"transfer-encoding" for name, _ in self._headers):
            self._refuse("411 Length Required", "send the body's length in Content-Length")
        version = self._parser.get_http_version().encode()
        first = b"%b %b HTTP/%b\r\n" % (self._parser.get_method(), self._url, version)
        lines = [b"%b: %b\r\n" % it for it in self._headers if it[0].lower() != NAME]
        self._passed.append(b"%b%b\r\n" % (first, b"".join(lines)))

    def on_body(self, part: bytes) -> None:
        """Forward a piece of its body."""
        self._passed.append(part)

    def on_message_complete(self) -> None:
        """End the request; the head of the next one follows."""
        self._head_bytes, self._in_head = 0, True

    def _refuse(self, status: str, text: str) -> None:
        self._refusal = KeyRefusedError(status, text)
        raise self._refusal
