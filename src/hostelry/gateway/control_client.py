"""What the door asks of control while it holds requests: to wake a name, and whether one exists."""

import logging
from collections.abc import Callable
from typing import Protocol
from urllib.parse import urlencode

import msgspec

from hostelry.base.json import decode
from hostelry.domain.load import LoadKey, Wake
from hostelry.gateway.http.reply import UpstreamError
from hostelry.gateway.http.upstream import Timeouts, Upstream

log = logging.getLogger(__name__)
CALL_TIMEOUTS = Timeouts(total_s=5.0, connect_s=1.0)
MAX_ANSWER_BYTES = 64 * 1024
MAX_ASKING = 32  # calls under way about names that the routes do not have
MAX_REMEMBERED = 1024
REMEMBERED_S = 0.25  # a no is good for; clients that ask on about nothing cost control little


class ControlClient(Protocol):
    """Control, as far as holding requests needs it. Neither call raises for what control does."""

    async def wake(self, wake: Wake) -> None:
        """Tell that requests wait for a name without a copy; lost where control is away."""
        ...

    async def is_wanted(self, key: LoadKey) -> bool:
        """Whether control knows the name and wants copies of it, though the routes say neither."""
        ...


class WantedReply(msgspec.Struct):
    """Control's answer about a name."""

    wanted: bool = False


class NoControl:
    """Where there is no control to ask."""

    async def wake(self, wake: Wake) -> None:
        """Nobody is told."""

    async def is_wanted(self, key: LoadKey) -> bool:
        """The routes are all there is."""
        return False


class HttpControlClient:
    """Control at an address.

    Args:
        pool: connections; `UpstreamPool` is one.
        address: ``http://host:port``.
        internal_key: what control lets its own processes in by.
        now_s: seconds of a clock that never goes back.
    """

    def __init__(
        self, pool: Upstream, address: str, internal_key: str, now_s: Callable[[], float]
    ) -> None:
        self._pool = pool
        self._address = address
        self._head = f"Host: {address.removeprefix('http://')}\r\nX-Hostelry-Key: {internal_key}"
        self._now_s = now_s
        self._num_asking = 0
        self._unwanted: dict[LoadKey, float] = {}

    async def wake(self, wake: Wake) -> None:
        """Tell control."""
        body = msgspec.json.encode(wake)
        status, said = await self._call("POST", "/internal/wake", body)
        if status != 204:
            log.warning("control was not told of what waits for %s: %s", wake.key, said)

    async def is_wanted(self, key: LoadKey) -> bool:
        """Ask control; a no is remembered for a moment, and stands where too much is asked."""
        now_s = self._now_s()
        if self._unwanted.get(key, 0.0) > now_s or self._num_asking >= MAX_ASKING:
            return False
        asked = urlencode(
            {
                "account": key.scope.account,
                "region": key.scope.region,
                "endpoint": key.endpoint_name,
                "component": key.component_name or "",
            }
        )
        self._num_asking += 1
        try:
            status, said = await self._call("GET", f"/internal/wanted?{asked}", b"")
        finally:
            self._num_asking -= 1
        if status == 200 and is_yes(said):
            return True
        if len(self._unwanted) >= MAX_REMEMBERED:
            self._unwanted.clear()
        self._unwanted[key] = now_s + REMEMBERED_S
        return False

    async def _call(self, method: str, target: str, body: bytes) -> tuple[int, bytes]:
        """The answer's status and body; status 0 and the reason where there is none."""
        head = f"{method} {target} HTTP/1.1\r\n{self._head}\r\nContent-Length: {len(body)}\r\n\r\n"
        try:
            reply = await self._pool.send(
                self._address, (head.encode("latin-1"), body), CALL_TIMEOUTS, MAX_ANSWER_BYTES
            )
            try:
                return reply.status, await reply.body(MAX_ANSWER_BYTES)
            finally:
                reply.close()
        except UpstreamError as error:
            return 0, str(error).encode()


def is_yes(body: bytes) -> bool:
    """Whether control's answer is that a name is wanted."""
    try:
        return decode(body, WantedReply).wanted
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
