"""Internal routes of the audit trail: acts of other processes, invocations, the chain's head."""

import asyncio
import logging
from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hostelry.audit.acts import AuditEntry
from hostelry.audit.invocation import (
    MAX_NOTES,
    InvocationReport,
    build_invocation_event,
    build_lost_event,
)
from hostelry.audit.trail import AuditTrail
from hostelry.base.clock import Clock
from hostelry.base.http import whole_number
from hostelry.base.ids import new_uuid
from hostelry.base.json import decode
from hostelry.base.json_response import JsonResponse

LOG = logging.getLogger(__name__)
MAX_CHARS = 512  # of each text of an act
MAX_ENTRIES = 1000
DEFAULT_ENTRIES = 100
DECODER = msgspec.msgpack.Decoder(InvocationReport)
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_CHARS)]
OptionalText = Annotated[str, msgspec.Meta(max_length=MAX_CHARS)]


class NewAuditEntry(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An act as another process reports it. Control adds the time."""

    who: Text
    act: Text
    target: Text
    outcome: Text
    endpoint: OptionalText = ""
    account: OptionalText = ""
    region: OptionalText = ""


class AuditRoutes:
    """Handlers that add to the audit trail and read it."""

    def __init__(self, trail: AuditTrail, clock: Clock) -> None:
        self._trail = trail
        self._clock = clock
        self._taken: dict[str, dict[float, int]] = {}  # the last report of each worker
        self._keeping = asyncio.Lock()

    def routes(self) -> tuple[Route, ...]:
        """The routes."""
        return (
            Route("/internal/audit", self.add, methods=["POST"]),
            Route("/internal/audit", self.newest, methods=["GET"]),
            Route("/internal/audit/head", self.head, methods=["GET"]),
            Route("/internal/audit/invocations", self.take_invocations, methods=["POST"]),
        )

    async def add(self, request: Request) -> Response:
        """Answer 204 once the act is on disk, 400 for an invalid body, 507 for a full disk."""
        try:
            new = decode(await request.body(), NewAuditEntry)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return JsonResponse({"error": f"no audit entry: {error}"}, 400)
        entry = AuditEntry(at=self._clock.now(), **msgspec.structs.asdict(new))
        try:
            await asyncio.to_thread(self._trail.append, entry)
        except OSError as error:
            LOG.warning("the audit log cannot be written: %s", error)
            return JsonResponse({"error": f"the audit log cannot be written: {error}"}, 507)
        return Response(status_code=204)

    async def newest(self, request: Request) -> Response:
        """Return at most `limit` acts, newest first, of one `endpoint` or of all."""
        asked = request.query_params.get("limit", str(DEFAULT_ENTRIES))
        limit = whole_number(asked, 1, MAX_ENTRIES)
        if limit is None:
            return JsonResponse({"error": f"limit is {asked!r}, not 1 to {MAX_ENTRIES}"}, 400)
        endpoint = request.query_params.get("endpoint")
        found = await asyncio.to_thread(self._trail.newest, limit, endpoint)
        return JsonResponse({"entries": found})

    async def head(self, _: Request) -> Response:
        """Return the number and the digest of the newest record."""
        return JsonResponse(self._trail.head)

    async def take_invocations(self, request: Request) -> Response:
        """Keep a report of invocations. Answer 204, also if it was kept before.

        400 if it is invalid. 507 if it cannot be kept: the gateway sends it again.
        """
        try:
            report = DECODER.decode(await request.body())
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return JsonResponse({"error": f"no report: {error}"}, 400)
        if len(report.notes) > MAX_NOTES:
            text = f"{len(report.notes)} invocations; the limit is {MAX_NOTES}"
            return JsonResponse({"error": text}, 400)
        async with self._keeping:  # a repetition waits for the first attempt
            if report.sequence <= self._taken.get(report.worker, {}).get(report.started_at, 0):
                return Response(status_code=204)
            try:
                await asyncio.to_thread(self._keep, report)
            except OSError as error:
                return JsonResponse({"error": f"the audit log cannot be written: {error}"}, 507)
            self._taken[report.worker] = {report.started_at: report.sequence}
        return Response(status_code=204)

    def _keep(self, report: InvocationReport) -> None:
        now = self._clock.now()
        events = [(build_invocation_event(it), now) for it in report.notes]
        if report.num_lost:
            lost = build_lost_event(report, self._trail.owner, now, new_uuid())
            events.insert(0, (lost, now))
        if events:
            self._trail.record_all(events)
