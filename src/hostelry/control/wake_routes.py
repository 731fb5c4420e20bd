"""POST /internal/wake and GET /internal/wanted: gateway workers on names without a copy."""

import asyncio
import logging
import math
from collections.abc import Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from hostelry.base.json import decode
from hostelry.base.json_response import JsonResponse
from hostelry.domain.load import LoadKey, Wake
from hostelry.domain.scope import Scope
from hostelry.reconcile.desired import has_desired_copies
from hostelry.store.records import State

LOG = logging.getLogger(__name__)


class WakeRoutes:
    """Handlers that pass wakes to `wake`, in a thread, and look desired names up in `state`."""

    def __init__(self, state: State, wake: Callable[[Wake], None]) -> None:
        self._state = state
        self._wake = wake

    async def wake(self, request: Request) -> Response:
        """204 once the wake is decided on; 400 for a body that is no wake."""
        try:
            wake = decode(await request.body(), Wake)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            LOG.warning("a wake was refused: %s", error)
            return Response(f"no wake: {error}", 400)
        if max(wake.held, wake.concurrency) < 1 or not math.isfinite(wake.at):
            return Response(f"no wake: {wake.held} requests wait since {wake.at}", 400)
        await asyncio.to_thread(self._wake, wake)
        return Response(status_code=204)

    async def wanted(self, request: Request) -> Response:
        """Whether a name that a worker's routes lack is desired, so that its copies are coming."""
        asked = request.query_params
        key = LoadKey(
            scope=Scope(asked.get("account", ""), asked.get("region", "")),
            endpoint_name=asked.get("endpoint", ""),
            variant_name="",
            component_name=asked.get("component") or None,
        )
        wanted = await asyncio.to_thread(has_desired_copies, self._state, key)
        return JsonResponse({"wanted": wanted})
