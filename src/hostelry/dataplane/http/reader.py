"""Parser of a client connection: it turns bytes into requests, without transport or clock.

llhttp parses in its strict mode. It refuses both framings at once, repeated or odd Content-Length
values, folded header lines, bare line feeds and spaces before a colon. This module checks the rules
that llhttp leaves to its user: sizes, versions, hosts and transfer codings.
"""

from collections import deque
from collections.abc import Mapping

import httptools
import msgspec

from hostelry.base.errors import HostelryError, ServiceError
from hostelry.base.http import HttpRequest
from hostelry.dataplane.http.request_body import RequestBody
from hostelry.dataplane.http.states import ReadEvent, ReadState


class HttpLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one connection, and of all connections of one worker.

    After `body_grace_s`, a body must arrive at `min_body_bytes_per_s` or faster. It must not pause
    for longer than `body_grace_s`. A client that reads nothing of its answer for `write_stall_s` is
    cut off. `max_unverified_bytes` limits all requests whose sender is not verified yet.
    `streamed_bodies` has the paths whose bodies are served while they arrive, with the maximum size
    of each. Such a body may pause for `body_stall_s`.
    """

    max_head_bytes: int = 64 * 1024
    max_headers: int = 100
    max_body_bytes: int = 25 * 1024 * 1024
    header_timeout_s: float = 10.0
    idle_timeout_s: float = 75.0
    body_grace_s: float = 10.0
    min_body_bytes_per_s: float = 1024.0
    write_stall_s: float = 60.0
    linger_s: float = 5.0
    max_waiting_requests: int = 64
    max_connections: int = 10_000
    max_unverified_bytes: int = 512 * 1024 * 1024
    streamed_bodies: Mapping[str, int] = msgspec.field(default_factory=dict)
    body_stall_s: float = 30.0


SMALL_BYTES = 16 * 1024  # taking a request of this size costs less than reading its head twice
JOIN_BELOW_BYTES = 4096  # smaller pieces of a body are joined, so that they fill less memory
HEAD = ReadState.HEAD


class HttpRefusedError(HostelryError):
    """The request is refused. The connection closes after the answer.

    `request` is the part that was read (no body), or None if the head is not whole. `error` is the
    reason in the form of the request's API, if that is known.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        request: HttpRequest | None = None,
        error: ServiceError | None = None,
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.request = request
        self.error = error


class Received(msgspec.Struct, frozen=True):
    """A request, and how its client reads answers. It is whole unless `body` is set."""

    request: HttpRequest
    keep_alive: bool
    chunked_answer: bool  # the client's HTTP version knows chunked transfer coding
    body: RequestBody | None = None  # a body that is still arriving


def head_refusal(version: str, path: str, names: list[str], headers: dict[str, str]) -> str | None:
    """Find the reason to refuse a complete head. None if it is valid."""
    if version not in ("1.1", "1.0"):
        return f"HTTP/{version} is not spoken here; use HTTP/1.1."
    if not path.startswith("/"):
        return "The request target must be a path that starts with '/'."
    if names.count("host") > 1 or (version == "1.1" and "host" not in headers):
        return "An HTTP/1.1 request must carry exactly one Host header."
    coding = headers.get("transfer-encoding")
    if coding is not None and (coding.strip().lower() != "chunked" or version == "1.0"):
        return f"Transfer-Encoding {coding!r} is not spoken here; use chunked with HTTP/1.1."
    return None


class RequestReader:
    """Parses a connection's bytes, and appends whole requests to `requests` in order.

    `state` and `wants_continue` belong to the request that is being read. `wants_continue` is True
    if its client waits for "100 Continue" before it sends the body.
    """

    def __init__(self, limits: HttpLimits) -> None:
        self.requests: deque[Received] = deque()
        self.state = ReadState.IDLE
        self._limits = limits
        self._parser = httptools.HttpRequestParser(self)
        self._refusal: HttpRefusedError | None = None
        self._stream: RequestBody | None = None
        self._reset()

    def feed(self, data: bytes) -> None:
        """Parse the next bytes. After an HttpRefusedError, it must not be called again."""
        if self.state is HEAD:
            self._fed_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise self._refusal or HttpRefusedError(400, f"Malformed HTTP: {error}.") from None
        if self.state is HEAD and self._fed_bytes > self._limits.max_head_bytes:
            raise self._too_long_head()

    @property
    def held_bytes(self) -> int:
        """Approximate memory of the request that is being read."""
        return self._head_bytes + self._fed_bytes + self.body_bytes

    def head(self) -> HttpRequest:
        """The request that is being read, without its body. Its head must be whole."""
        return self._request(b"")

    def note_admission(self, is_verified: bool) -> None:
        """Note that the head was checked, and if it proves who sends the request."""
        self.state = self.state.next["verified" if is_verified else "unverified"]

    def refuse(self) -> None:
        """Drop the request that is being read. `feed` must not be called again."""
        if self._stream is not None:
            self._stream.abort("the request was refused")
        self._reset()
        self.state = self.state.next["refused"]

    def on_message_begin(self) -> None:
        """Begin a request."""
        if len(self.requests) >= self._limits.max_waiting_requests:
            limit = self._limits.max_waiting_requests
            self._refuse(
                HttpRefusedError(429, f"At most {limit} requests may wait on a connection.")
            )
        self.state = self.state.next["begun"]

    def on_url(self, part: bytes) -> None:
        """Add a piece of the request target."""
        self._url += part
        self._head_bytes += len(part)
        if self._head_bytes > self._limits.max_head_bytes:
            self._refuse(self._too_long_head())

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header field. Fields after the body (trailers) are dropped."""
        self._head_bytes += len(name) + len(value) + 4
        if self._head_bytes > self._limits.max_head_bytes:
            self._refuse(self._too_long_head())
        if self.state.in_body:
            return
        key = name.decode("latin-1").lower()
        text = value.decode("latin-1")
        names, headers = self._names, self._headers
        names.append(key)
        if len(names) > self._limits.max_headers:
            most = self._limits.max_headers
            self._refuse(HttpRefusedError(431, f"A request may have at most {most} headers."))
        headers[key] = f"{headers[key]},{text}" if key in headers else text

    def on_headers_complete(self) -> None:
        """End the head, and refuse the request now if its body cannot make it valid."""
        target = self._url.decode("latin-1")
        self._path, _, self._query = target.partition("?")
        version = self._parser.get_http_version()
        reason = head_refusal(version, self._path, self._names, self._headers)
        if self._parser.should_upgrade():
            reason = "Upgrading the connection is not supported."
        if reason is not None:
            self._refuse(HttpRefusedError(400, reason))
        announced_bytes = int(self._headers.get("content-length", "0"))
        is_streamed = self._path in self._limits.streamed_bodies
        if is_streamed and self._parser.get_method() == b"POST":
            self._most_bytes = self._limits.streamed_bodies[self._path]
            self._stream = RequestBody(
                announced_bytes if "content-length" in self._headers else None,
                self._limits.body_stall_s,
            )
        if announced_bytes > self._most_bytes:
            self._refuse(self._too_long_body())
        self.wants_continue = self._headers.get("expect", "").lower() == "100-continue"
        if self._stream is not None:
            self.requests.append(
                Received(self._request(b""), False, version == "1.1", self._stream)
            )
            self.state = self.state.next["streamed"]
            return
        event: ReadEvent = "head"
        if announced_bytes and not self.wants_continue:
            event = "small_head" if self._head_bytes + announced_bytes <= SMALL_BYTES else "head"
        self.state = self.state.next[event]

    def on_body(self, part: bytes) -> None:
        """Add a piece of the body, without its transfer coding."""
        self.body_bytes += len(part)
        if self.body_bytes > self._most_bytes:
            self._refuse(self._too_long_body())
        if self._stream is not None:
            self._stream.add(part)
            return
        parts = self._body
        if parts and len(part) < JOIN_BELOW_BYTES:
            last = parts[-1]
            if isinstance(last, bytes):
                parts.append(last := bytearray())
            last += part
        else:
            parts.append(part)

    def on_message_complete(self) -> None:
        """End the request."""
        if self._stream is not None:
            self._stream.end()
            self._reset()
            self.state = self.state.next["whole"]
            return
        parts = self._body
        single = parts[0] if len(parts) == 1 else None
        body = single if isinstance(single, bytes) else b"".join(parts)
        request = self._request(body)
        version_11 = self._parser.get_http_version() == "1.1"
        self.requests.append(Received(request, self._parser.should_keep_alive(), version_11))
        self._reset()
        self.state = self.state.next["whole"]

    def _request(self, body: bytes) -> HttpRequest:
        method = self._parser.get_method().decode("ascii")
        return HttpRequest(method, self._path, self._query, self._headers, body)

    def _too_long_head(self) -> HttpRefusedError:
        return HttpRefusedError(
            431, f"A request's head may have {self._limits.max_head_bytes} bytes."
        )

    def _too_long_body(self) -> HttpRefusedError:
        return HttpRefusedError(
            413,
            f"The body is larger than the limit of {self._most_bytes} bytes.",
            self._request(b""),
        )

    def _refuse(self, refusal: HttpRefusedError) -> None:
        self._refusal = refusal
        raise refusal

    def _reset(self) -> None:
        self.body_bytes = 0
        self.wants_continue = False
        self._fed_bytes = 0  # of an unfinished head, because the parser hides an unfinished line
        self._head_bytes: int = 0
        self._url: bytes = b""
        self._path = ""
        self._query = ""
        self._names: list[str] = []
        self._headers: dict[str, str] = {}
        self._body: list[bytes | bytearray] = []
        self._stream = None
        self._most_bytes = self._limits.max_body_bytes
