"""``GET /internal/routes``: the routes once they differ from the caller's, whole or what changed.

a caller with version `have`                                   answer
------------------------------------------------------------   ----------------------------------
that is the newest, for 20 s                                   304
that control knows, asks for `delta=1`                         the changes (`X-Hostelry-Routes`)
another, or does not ask for changes, as before 2026.12        the whole
"""

import asyncio

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hostelry.domain.route_delta import DELTA, ROUTES_HEADER, encoded
from hostelry.domain.routes import RouteSnapshot
from hostelry.reconcile.route_board import RouteBoard

ROUTES_WAIT_S = 20.0
JSON = "application/json"


class RouteRoutes:
    """Handler of the gateways' polls for routes. Workers that have the same get the same bytes."""

    def __init__(self, board: RouteBoard) -> None:
        self._board = board
        self._versions: tuple[str, str] | None = None  # of the last delta
        self._delta = b""

    def routes(self) -> tuple[Route, ...]:
        """The route."""
        return (Route("/internal/routes", self.newer, methods=["GET"]),)

    async def newer(self, request: Request) -> Response:
        """The routes once they differ from those that the caller has; 304 after 20 seconds."""
        have = request.query_params.get("have")
        snapshot = await self._board.newer_than(have, ROUTES_WAIT_S)
        if snapshot is None:
            return Response(status_code=304)
        if have is not None and request.query_params.get("delta") == "1":
            changes = self._changes(have, snapshot)
            if changes:
                return Response(changes, media_type=JSON, headers={ROUTES_HEADER: DELTA})
        return Response(await asyncio.to_thread(encoded, snapshot), media_type=JSON)

    def _changes(self, have: str, snapshot: RouteSnapshot) -> bytes:
        """The changes since `have` as JSON; empty where they are not known."""
        if self._versions != (have, snapshot.version):
            delta = self._board.delta_since(have)
            self._delta = b"" if delta is None else msgspec.json.encode(delta)
            self._versions = (have, snapshot.version)
        return self._delta
