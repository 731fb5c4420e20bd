"""Routes of control about transform jobs, for the process that runs them."""

import asyncio
import logging

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from hostelry.base.json import decode
from hostelry.base.json_response import JsonResponse
from hostelry.domain.transform_job import TransformEnd, TransformProgressReport
from hostelry.reconcile.transform_jobs import TransformJobs

LOG = logging.getLogger(__name__)
WAIT_S = 20.0


class TransformRoutes:
    """Handlers of ``/internal/transform-jobs`` and what is below it."""

    def __init__(self, transforms: TransformJobs) -> None:
        self._transforms = transforms

    async def jobs(self, request: Request) -> Response:
        """The jobs to be run, once they differ from those that the caller has; 304 after 20 s."""
        snapshot = await self._transforms.newer_than(request.query_params.get("have"), WAIT_S)
        return Response(status_code=304) if snapshot is None else JsonResponse(snapshot)

    async def progress(self, request: Request) -> Response:
        """204 once the progress is known; 400 for none."""
        try:
            self._transforms.note(decode(await request.body(), TransformProgressReport))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return _no_report(error)
        return Response(status_code=204)

    async def finish(self, request: Request) -> Response:
        """204 once the end is durable, also where it was before; 400 for none, 404 for no job."""
        try:
            end = decode(await request.body(), TransformEnd)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return _no_report(error)
        if not await asyncio.to_thread(self._transforms.finish, end):
            return Response(f"there is no transform job {end.name}", 404)
        return Response(status_code=204)


def _no_report(error: Exception) -> Response:
    LOG.warning("a report on a transform job was refused: %s", error)
    return Response(f"no report on a transform job: {error}", 400)
