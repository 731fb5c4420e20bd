"""Client of control for queued requests: wake a name, and ask whether control knows one."""

import logging
from collections.abc import Callable
from typing import Protocol
from urllib.parse import urlencode

import msgspec

from hostelry.base.guards import INTERNAL_KEY_HEADER
from hostelry.base.http import HttpRequest
from hostelry.base.json import decode
from hostelry.domain.load import LoadKey, Wake
from hostelry.http1.calls import call
from hostelry.http1.reply import UpstreamError
from hostelry.http1.upstream import Timeouts, Upstream

LOG = logging.getLogger(__name__)
CALL_TIMEOUTS = Timeouts(total_s=5.0, connect_s=1.0)
MAX_ANSWER_BYTES = 64 * 1024
MAX_ASKING = 32  # concurrent calls about names that the routes do not have
MAX_REMEMBERED = 1024
REMEMBERED_S = 0.25  # a no is cached, so repeated requests for unknown names cost control little


class ControlClient(Protocol):
    """The calls to control for queued requests. They do not raise if control fails."""

    async def wake(self, wake: Wake) -> None:
        """Report that requests wait for a name without a copy. Lost if control is down."""
        ...

    async def is_wanted(self, key: LoadKey) -> bool:
        """True if control knows the name and desires copies, which the routes may not have yet."""
        ...


class WantedReply(msgspec.Struct):
    """Control's answer about a name."""

    wanted: bool = False


class NoControl:
    """Stand-in without control."""

    async def wake(self, wake: Wake) -> None:
        """No-op."""

    async def is_wanted(self, key: LoadKey) -> bool:
        """False, because the routes are complete."""
        return False


class HttpControlClient:
    """Control at an address.

    Args:
        pool: connections, for example an `UpstreamPool`.
        address: ``http://host:port``.
        internal_key: the key of calls between the platform's processes.
        now_s: seconds of a monotonic clock.
    """

    def __init__(
        self, pool: Upstream, address: str, internal_key: str, now_s: Callable[[], float]
    ) -> None:
        self._pool = pool
        self._address = address
        self._headers = {INTERNAL_KEY_HEADER: internal_key}
        self._now_s = now_s
        self._num_asking = 0
        self._unwanted: dict[LoadKey, float] = {}

    async def wake(self, wake: Wake) -> None:
        """POST /internal/wake."""
        body = msgspec.json.encode(wake)
        status, answer = await self._call("POST", "/internal/wake", body)
        if status != 204:
            LOG.warning("control did not take the wake of %s: %s", wake.key, answer)

    async def is_wanted(self, key: LoadKey) -> bool:
        """Ask control. A no is cached for a moment. Above MAX_ASKING calls, the answer is no."""
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
            status, answer = await self._call("GET", f"/internal/wanted?{asked}", b"")
        finally:
            self._num_asking -= 1
        if status == 200 and is_yes(answer):
            return True
        if len(self._unwanted) >= MAX_REMEMBERED:
            self._unwanted.clear()
        self._unwanted[key] = now_s + REMEMBERED_S
        return False

    async def _call(self, method: str, target: str, body: bytes) -> tuple[int, bytes]:
        """Return the status and body of the answer. Status 0 with the reason if there is none."""
        request = HttpRequest(method, target, "", self._headers, body)
        try:
            answer = await call(self._pool, self._address, request, CALL_TIMEOUTS, MAX_ANSWER_BYTES)
        except UpstreamError as error:
            return 0, str(error).encode()
        return answer.status, answer.body


def is_yes(body: bytes) -> bool:
    """True if control answers that copies of a name are desired."""
    try:
        return decode(body, WantedReply).wanted
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
