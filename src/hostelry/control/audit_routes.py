"""GET and POST /internal/audit: the audit log, read and added to by other processes."""

import asyncio
import logging
from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hostelry.base.clock import Clock
from hostelry.base.json import decode
from hostelry.base.json_response import JsonResponse
from hostelry.base.whole_number import whole_number
from hostelry.control.audit_log import MAX_CHARS, AuditEntry, AuditLog
from hostelry.control.audit_rows import AuditRows

LOG = logging.getLogger(__name__)
MAX_ENTRIES = 1000
DEFAULT_ENTRIES = 100
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_CHARS)]
OptionalText = Annotated[str, msgspec.Meta(max_length=MAX_CHARS)]


class NewAuditEntry(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An entry as another process reports it; control adds the time."""

    who: Text
    act: Text
    target: Text
    outcome: Text
    endpoint: OptionalText = ""
    account: OptionalText = ""
    region: OptionalText = ""


class AuditRoutes:
    """Handlers over the home's one `AuditLog`."""

    def __init__(self, log: AuditLog | AuditRows, clock: Clock) -> None:
        self._log = log
        self._clock = clock

    def routes(self) -> tuple[Route, ...]:
        """The routes."""
        return (
            Route("/internal/audit", self.add, methods=["POST"]),
            Route("/internal/audit", self.newest, methods=["GET"]),
        )

    async def add(self, request: Request) -> Response:
        """204 once the entry is on disk; 400 for a body that is none, 507 for a full disk."""
        try:
            new = decode(await request.body(), NewAuditEntry)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return JsonResponse({"error": f"no audit entry: {error}"}, 400)
        entry = AuditEntry(at=self._clock.now(), **msgspec.structs.asdict(new))
        try:
            await asyncio.to_thread(self._log.append, entry)
        except OSError as error:
            LOG.warning("the audit log cannot be written: %s", error)
            return JsonResponse({"error": f"the audit log cannot be written: {error}"}, 507)
        return Response(status_code=204)

    async def newest(self, request: Request) -> Response:
        """`entries`, the newest first: at most `limit`, of the one named by `endpoint`, or all."""
        asked = request.query_params.get("limit", str(DEFAULT_ENTRIES))
        limit = whole_number(asked, 1, MAX_ENTRIES)
        if limit is None:
            return JsonResponse({"error": f"limit is {asked!r}, not 1 to {MAX_ENTRIES}"}, 400)
        endpoint = request.query_params.get("endpoint")
        found = await asyncio.to_thread(self._log.newest, limit, endpoint)
        return JsonResponse({"entries": found})
