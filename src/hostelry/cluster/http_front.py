"""Requests that a node proxy answers itself, such as from a joining host."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

import httpx
import msgspec

from hostelry.base.clock import monotonic_s
from hostelry.base.guards import INTERNAL_KEY_HEADER
from hostelry.base.peer_http import peer_client
from hostelry.base.peers import PeerName
from hostelry.base.tls import TlsFolder
from hostelry.cluster.proxy import Front
from hostelry.http1.heads import build_answer, parse_request_head

MAX_HEAD_BYTES = 8 * 1024
MAX_BODY_BYTES = 64 * 1024
READ_S, ANSWER_S = 3.0, 15.0
HEADERS = {"Content-Type": "application/json", "Connection": "close"}


class FrontRequest(msgspec.Struct, frozen=True):
    """A request: `peer` is the holder of the certificate, `address` the peer's host."""

    method: str
    path: str
    body: bytes
    peer: PeerName | None
    address: str


Answer = tuple[int, bytes]  # the status and the body, JSON


def http_front(answer: Callable[[FrontRequest], Awaitable[Answer]]) -> Front:
    """A front that has `answer` answer one request of each connection.

    It takes the request within `READ_S`, and gives `answer` as long as `ANSWER_S`.
    """

    async def serve(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: PeerName | None
    ) -> None:
        try:
            async with asyncio.timeout(READ_S):
                request = await _read_request(
                    reader, peer, str(writer.get_extra_info("peername")[0])
                )
        except (ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.write(build_answer(400, HEADERS, b'"no request that is understood here"'))
            return
        async with asyncio.timeout(ANSWER_S):
            status, body = await answer(request)
            writer.write(build_answer(status, HEADERS, body))

    return serve


async def _read_request(
    reader: asyncio.StreamReader, peer: PeerName | None, address: str
) -> FrontRequest:
    """Read the request. Raises ValueError if it is malformed or too large."""
    raw = await reader.readuntil(b"\r\n\r\n")
    if len(raw) > MAX_HEAD_BYTES:
        raise ValueError("the head is too large")
    head = parse_request_head(raw)
    values = {name.lower(): value for name, value in head.headers}
    if "transfer-encoding" in values:
        raise ValueError("the body must have a Content-Length")
    length = int(values.get("content-length", "0"))
    if length > MAX_BODY_BYTES:
        raise ValueError("the body is too large")
    body = await reader.readexactly(length)
    return FrontRequest(head.method, head.target, body, peer, address)


AUTHORITY_PATH, JOIN_PATH = "/internal/authority", "/internal/join"
CALL_S = 10.0
MAX_EACH, MAX_ALL = 20, 600  # attempts within PERIOD_S, of one address and of all
PERIOD_S = 60.0


class JoinDesk:
    """Shows the cluster's authorities, and passes requests to join on to control."""

    def __init__(
        self,
        folder: TlsFolder,
        control_url: str,
        internal_key: str,
        now_s: Callable[[], float] = monotonic_s,
    ) -> None:
        self._folder = folder
        self._control_url = control_url
        self._headers = {INTERNAL_KEY_HEADER: internal_key}
        self._now_s = now_s
        self._attempts: deque[tuple[float, str]] = deque()

    async def answer(self, request: FrontRequest) -> Answer:
        """The authorities, or control's answer."""
        if (request.method, request.path) == ("GET", AUTHORITY_PATH):
            return 200, self._folder.trusted.read_bytes()
        if (request.method, request.path) != ("POST", JOIN_PATH):
            return 404, b'{"reason": "there is nothing here but joining"}'
        if not self._may_try(request.address):
            return 429, b'{"reason": "too many attempts; wait a minute"}'
        try:
            async with peer_client(self._control_url) as http:
                answer = await http.post(
                    JOIN_PATH, content=request.body, headers=self._headers, timeout=CALL_S
                )
        except httpx.HTTPError:
            return 503, b'{"reason": "control does not answer; try again"}'
        return answer.status_code, answer.content

    def _may_try(self, address: str) -> bool:
        now = self._now_s()
        while self._attempts and self._attempts[0][0] <= now - PERIOD_S:
            self._attempts.popleft()
        of_address = sum(it == address for _, it in self._attempts)
        if of_address >= MAX_EACH or len(self._attempts) >= MAX_ALL:
            return False
        self._attempts.append((now, address))
        return True
