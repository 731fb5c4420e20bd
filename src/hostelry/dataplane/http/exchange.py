"""A request with its answer, which is sent whole or in chunks."""

from collections.abc import Callable, Mapping
from typing import Protocol

from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest, HttpResponse
from hostelry.dataplane.http.reader import Received
from hostelry.dataplane.tracing.call_trace import NO_TRACE, CallTrace
from hostelry.http1.heads import build_header_lines, build_status_line
from hostelry.permissions.authorization import Authorization
from hostelry.principals.caller import Caller

BODILESS_STATUSES = frozenset({204, 304})
JOIN_BELOW_BYTES = 16 * 1024  # one write and one copy beat two writes for small bodies


class Sink(Protocol):
    """The receiver of an answer's bytes."""

    def write(self, *parts: bytes) -> bool:
        """Send `parts`. True if the receiver has no room for more now."""
        ...

    async def wait_for_room(self) -> None:
        """Return once the receiver has room."""
        ...


class Exchange:
    """One request with its answer. `finished` is True once the whole answer was written.

    If an answer is `started` and never finished, the connection is cut. `keep_alive` turns False if
    the connection cannot carry another request. `verified` is called once the sender of the request
    is known. `body` is set if the request is served while its body arrives. `trace` notes the way
    of a call, and is set once its sender is known. `address` is the client's address. `caller` and
    `region` are set for an invocation, once its sender is known, and `decision` once its policies
    were asked. `status` is the answer's, and `error` the failure that it reports. `notes` are
    further headers of any answer.
    """

    __slots__ = (
        "_chunked",
        "_common_head",
        "_sink",
        "address",
        "body",
        "caller",
        "decision",
        "error",
        "finished",
        "keep_alive",
        "notes",
        "region",
        "request",
        "started",
        "status",
        "trace",
        "verified",
    )

    def __init__(
        self,
        sink: Sink,
        received: Received,
        common_head: bytes,
        draining: bool = False,
        verified: Callable[[], None] = lambda: None,
        address: str = "",
    ) -> None:
        self.address = address
        self.request: HttpRequest = received.request
        self.body = received.body
        self.keep_alive = received.keep_alive and not draining
        self.started = False
        self.finished = False
        self.verified = verified
        self.trace: CallTrace = NO_TRACE
        self.notes: Mapping[str, str] | None = None
        self.caller: Caller | None = None
        self.region = ""
        self.decision: Authorization | None = None
        self.status = 0
        self.error: ServiceError | None = None
        self._sink = sink
        self._chunked = received.chunked_answer
        self._common_head = common_head

    def note_caller(self, caller: Caller, region: str) -> None:
        """Note the caller of an invocation."""
        self.caller, self.region = caller, region

    def note_decision(self, decision: Authorization) -> None:
        """Note the decision on a permission of the caller."""
        self.decision = decision

    def respond(self, response: HttpResponse) -> None:
        """Send a whole answer."""
        self.status = response.status
        body = b"" if self._bodiless(response.status) else response.body
        head = b"%b%b%bContent-Length: %d\r\n%b\r\n" % (
            build_status_line(response.status),
            self._build_lines(response.headers),
            self._common_head,
            len(response.body),
            self._connection_line(),
        )
        if len(body) < JOIN_BELOW_BYTES:
            self._sink.write(head + body)
        else:
            self._sink.write(head, body)
        self.started = self.finished = True

    def start(self, status: int, headers: Mapping[str, str]) -> None:
        """Begin an answer of unknown length. `send` its chunks, then call `finish`."""
        if not self._chunked:
            self.keep_alive = False
        self.started = True
        self.status = status
        coding = b"Transfer-Encoding: chunked\r\n" if self._chunked else b""
        self._sink.write(
            b"%b%b%b%b%b\r\n"
            % (
                build_status_line(status),
                self._build_lines(headers),
                self._common_head,
                coding,
                self._connection_line(),
            )
        )

    def send_now(self, chunk: bytes) -> bool:
        """Send one chunk. True if the client has no room for more now."""
        if not chunk:  # an empty chunk would end the answer
            return False
        return self._sink.write(b"%x\r\n%b\r\n" % (len(chunk), chunk) if self._chunked else chunk)

    async def send(self, chunk: bytes) -> None:
        """Send one chunk, and return once the client has room for more."""
        if self.send_now(chunk):
            await self.wait_for_room()

    async def wait_for_room(self) -> None:
        """Return once the client has room for more."""
        await self._sink.wait_for_room()

    def finish(self) -> None:
        """End a started answer."""
        if self._chunked:
            self._sink.write(b"0\r\n\r\n")
        self.finished = True

    def _build_lines(self, headers: Mapping[str, str]) -> bytes:
        return build_header_lines({**headers, **self.notes} if self.notes else headers)

    def _bodiless(self, status: int) -> bool:
        return self.request.method == "HEAD" or status in BODILESS_STATUSES

    def _connection_line(self) -> bytes:
        return b"" if self.keep_alive else b"Connection: close\r\n"
