"""GET /internal/leader of any control: who leads, and which controls there are."""

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hostelry.base.errors import HostelryError
from hostelry.base.json_response import JsonResponse
from hostelry.home.home import UpConfig
from hostelry.store.database import Database
from hostelry.store.leaders import Leadership, read_leadership


class LeaderRoutes:
    """The route, over a function that reads who leads, once for all that ask meanwhile.

    They ask often where a database hangs, and would take every thread.
    """

    def __init__(self, document: Callable[[], dict[str, Any]]) -> None:
        self.document = document
        self._reading: asyncio.Task[dict[str, Any]] | None = None

    def routes(self) -> tuple[Route, ...]:
        """The route."""
        return (Route("/internal/leader", self.leader, methods=["GET"]),)

    async def leader(self, _request: Request) -> Response:
        """GET /internal/leader."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(asyncio.to_thread(self.document))
        return JsonResponse(await asyncio.shield(self._reading))


def alone(config: UpConfig) -> dict[str, Any]:
    """The document of a control that has no others."""
    address = own_address(config)
    return {"leader": address, "epoch": 0, "controls": [address]}


def read_document(database: Database, me: str) -> dict[str, Any]:
    """The document of the control `me` of several; no leader while the database does not answer."""
    try:
        return leader_document(read_leadership(database), me)
    except HostelryError as error:
        return leader_document(Leadership(), me) | {"trouble": str(error)}


def leader_document(found: Leadership, me: str) -> dict[str, Any]:
    """The body: addresses for programs; `members` and `changes` (newest first) for people."""
    leader = found.leader
    return {
        "leader": None if leader is None else leader.address,
        "epoch": found.epoch,
        "controls": list(dict.fromkeys(it.address for it in found.controls)),
        "members": [{**asdict(it), "leads": it == leader} for it in found.controls],
        "changes": [asdict(it) for it in found.changes],
        "me": me,
        "trouble": None,
    }


def own_address(config: UpConfig) -> str:
    """Where this host's control is reached from others."""
    return config.control_address
