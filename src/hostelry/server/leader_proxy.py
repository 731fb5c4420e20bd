"""ASGI: forwards every request to the leader among several controls.

what happens                                    then
----------------------------------------------  ------------------------------------------------
there is no leader                              it is waited for, then 503 with the cause
no byte of the request reached the leader       the request is sent to the next leader, any method
the control that got it answers: not the leader the same
the leader fails, or changes, before it answers a GET is sent again; others: 503, and it may have
                                                been executed
it fails within its answer                      the answer is cut off

A request that another forwarder has sent here is not forwarded: its sender looks again.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.types import Receive, Scope, Send

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import HostelryError
from hostelry.gateway.handlers.control import AWAY_HEADER
from hostelry.gateway.http.reply import ConnectError, Reply, UpstreamError
from hostelry.gateway.http.upstream import Timeouts, Upstream
from hostelry.server.leader_view import LeaderSource

log = logging.getLogger(__name__)
LEADER_WAIT_S = 1.0
AFTER_CHANGE_S = 1.0  # for the answer of a leader that has just been replaced
TIMEOUTS = Timeouts(total_s=70.0, connect_s=1.0)  # more than any caller waits
RETRY_AFTER = (b"retry-after", b"1")
FORWARDED = b"x-hostelry-forwarded"
NOT_LEADER = "x-hostelry-not-leader"
HOP_HEADERS = frozenset(
    (b"connection", b"content-length", b"host", b"keep-alive", b"transfer-encoding", b"expect")
)
IDEMPOTENT = frozenset({"GET", "HEAD"})


class LeaderAwayError(HostelryError):
    """No leader took the request, or it is not known whether it was executed."""


class ClientGoneError(HostelryError):
    """The caller has closed its connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forwarded:
    """A whole request to forward."""

    method: str
    parts: tuple[bytes, bytes]

    @property
    def is_idempotent(self) -> bool:
        """Whether executing it twice changes nothing."""
        return self.method in IDEMPOTENT


class LeaderProxy:
    """ASGI: forwards every request to the leader.

    Args:
        source: the leader.
        pool: connections to controls.
        max_body_bytes: of a request.
    """

    def __init__(self, source: LeaderSource, pool: Upstream, max_body_bytes: int) -> None:
        self._source = source
        self._pool = pool
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward one request, and its answer."""
        if scope["type"] != "http":
            return
        if any(name == FORWARDED for name, _ in scope["headers"]):
            await refuse(send, 503, "this control does not lead", {NOT_LEADER: "1"})
            return
        with contextlib.suppress(ClientGoneError):
            body = await self._body(receive)
            if body is None:
                await refuse(send, 413, f"a body has {self._max_body_bytes} bytes at most", {})
                return
            request = Forwarded(method=scope["method"], parts=(head_of(scope, len(body)), body))
            gone = asyncio.ensure_future(until_gone(receive))
            try:
                await self._forward(request, gone, send)
            finally:
                gone.cancel()

    async def _forward(self, request: Forwarded, gone: "asyncio.Future[None]", send: Send) -> None:
        try:
            leader, reply = await self._answered(request, gone)
        except LeaderAwayError as error:
            await refuse(send, 503, str(error), {AWAY_HEADER: str(error)})
            return
        try:
            await self._pass_on(leader, reply, gone, send)
        except UpstreamError as error:  # the server cuts an answer that does not end
            log.warning("an answer of %s is cut off: %s", leader, error)
        finally:
            reply.close()

    async def _body(self, receive: Receive) -> bytes | None:
        """The whole body; None where it is too large."""
        parts: list[bytes] = []
        num_bytes = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            parts.append(message.get("body", b""))
            num_bytes += len(parts[-1])
            if num_bytes > self._max_body_bytes:
                return None
            if not message.get("more_body", False):
                return b"".join(parts)

    async def _answered(
        self, request: Forwarded, gone: "asyncio.Future[None]"
    ) -> tuple[str, Reply]:
        """The leader and its reply, the head there; raises LeaderAwayError, ClientGoneError."""
        give_up_at = monotonic_s() + LEADER_WAIT_S
        while True:
            leader = await self._leader(give_up_at, gone)
            try:
                reply = await self._sent(leader, request, gone)
            except ConnectError as error:
                failure = str(error)
            except UpstreamError as error:
                failure = str(error)
                if not request.is_idempotent:
                    self._source.suspect(leader)
                    raise LeaderAwayError(
                        f"The control plane's leader failed before it answered ({error}): the call"
                        " may have been executed."
                    ) from None
            else:
                if NOT_LEADER not in reply.headers:
                    return leader, reply
                reply.close()
                failure = f"{leader} does not lead any more"
            self._source.suspect(leader)
            if monotonic_s() > give_up_at:
                raise LeaderAwayError(f"The control plane's leader cannot be reached: {failure}")
            await self._changed(0.1, gone)

    async def _leader(self, give_up_at: float, gone: "asyncio.Future[None]") -> str:
        while True:
            view = self._source.view
            if view.leader is not None:
                return view.leader
            left_s = give_up_at - monotonic_s()
            if left_s <= 0:
                raise LeaderAwayError(f"The control plane has no leader: {view.cause}.")
            await self._changed(left_s, gone)

    async def _changed(self, within_s: float, gone: "asyncio.Future[None]") -> bool:
        """Whether the leader changes within so many seconds."""
        changed = self._source.changed()
        try:
            await asyncio.wait(
                {changed, gone}, timeout=within_s, return_when=asyncio.FIRST_COMPLETED
            )
            if gone.done():
                raise ClientGoneError
            return changed.done()
        finally:
            changed.cancel()

    async def _sent(self, leader: str, request: Forwarded, gone: "asyncio.Future[None]") -> Reply:
        """The head of that control's reply; raises UpstreamError, also where the leader changes."""
        sending = asyncio.ensure_future(self._pool.send(leader, request.parts, TIMEOUTS))
        grace_s = 0.0 if request.is_idempotent else AFTER_CHANGE_S
        try:
            await self._until(sending, leader, gone, grace_s)
            return sending.result()
        except ClientGoneError:
            if sending.done() and not sending.exception():
                sending.result().close()
            raise
        finally:
            sending.cancel()

    async def _until(
        self,
        awaited: "asyncio.Future[Any]",
        leader: str,
        gone: "asyncio.Future[None]",
        grace_s: float,
    ) -> None:
        """Wait for `awaited`, for `grace_s` at most once there is another leader.

        Raises ClientGoneError, UpstreamError.
        """
        changed = self._source.changed()
        waited: set[asyncio.Future[Any]] = {awaited, gone}
        try:
            await asyncio.wait({*waited, changed}, return_when=asyncio.FIRST_COMPLETED)
            if changed.done():
                await asyncio.wait(waited, timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
        if gone.done():
            raise ClientGoneError
        if not awaited.done():
            raise UpstreamError(f"{leader} does not lead any more, and does not answer")

    async def _pass_on(
        self, leader: str, reply: Reply, gone: "asyncio.Future[None]", send: Send
    ) -> None:
        """Pass the answer on as it comes; raises UpstreamError where it breaks off."""
        headers = [
            (name.encode("latin-1"), value.encode("latin-1"))
            for name, value in reply.headers.items()
            if name == "content-length" or name.encode("latin-1") not in HOP_HEADERS
        ]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        while True:
            next_chunk = asyncio.ensure_future(reply.next_chunk())
            try:
                await self._until(next_chunk, leader, gone, AFTER_CHANGE_S)
                chunk = next_chunk.result()
            finally:
                next_chunk.cancel()
            if chunk is None:
                await send({"type": "http.response.body", "body": b""})
                return
            await send({"type": "http.response.body", "body": chunk, "more_body": True})


def head_of(scope: Scope, num_bytes: int) -> bytes:
    """The head of the request as the leader gets it."""
    query = scope["query_string"]
    target = scope["raw_path"] + (b"?" + query if query else b"")
    lines = [scope["method"].encode() + b" " + target + b" HTTP/1.1", b"Host: localhost"]
    lines += [name + b": " + value for name, value in scope["headers"] if name not in HOP_HEADERS]
    lines += [FORWARDED + b": 1", b"Content-Length: %d" % num_bytes]
    return b"\r\n".join(lines) + b"\r\n\r\n"


async def until_gone(receive: Receive) -> None:
    """Return once the caller has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        continue


async def refuse(send: Send, status: int, text: str, headers: Mapping[str, str]) -> None:
    """Answer with that text; callers may try again after a second where it is a 503."""
    body = f"{text}\n".encode()
    line = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
    line += [(b"content-type", b"text/plain; charset=utf-8")]
    line += [(b"content-length", str(len(body)).encode())]
    line += [RETRY_AFTER] if status == 503 else []
    await send({"type": "http.response.start", "status": status, "headers": line})
    await send({"type": "http.response.body", "body": body})
