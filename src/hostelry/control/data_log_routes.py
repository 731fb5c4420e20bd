"""Route of control for the data logs of jobs and endpoints, which the jobs process writes."""

import asyncio
import logging
import threading

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hostelry.base.clock import Clock
from hostelry.base.json import decode
from hostelry.domain.data_log import DataLine, DataLogReport, stream_of
from hostelry.domain.log_source import LogSource, source_of_copy
from hostelry.domain.scope import Scope
from hostelry.logs.errors import LogsUnavailable
from hostelry.logs.events import NewEvent
from hostelry.logs.store import LogStore
from hostelry.store.records import State

LOG = logging.getLogger(__name__)
MAX_SOURCES = 10_000


class DataLogRoutes:
    """The handler of POST /internal/data-log.

    Args:
        state: has the copies, which name the streams.
        logs: takes the lines.
        clock: is when.
    """

    def __init__(self, state: State, logs: LogStore, clock: Clock) -> None:
        self._state = state
        self._logs = logs
        self._clock = clock
        self._taken: tuple[float, int] = (0.0, 0)  # the newest report's process and number
        self._taking = threading.Lock()
        self._sources: dict[str, LogSource] = {}  # by copy

    def routes(self) -> tuple[Route, ...]:
        """The route."""
        return (Route("/internal/data-log", self.take, methods=["POST"]),)

    async def take(self, request: Request) -> Response:
        """204 once the lines are stored, or were before; 400 for no report, 503 for a full disk."""
        try:
            report = decode(await request.body(), DataLogReport)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            LOG.warning("a data log of the jobs process was refused: %s", error)
            return Response(f"no data log: {error}", 400)
        try:
            await asyncio.to_thread(self._take, report)
        except LogsUnavailable as error:
            return Response(str(error), 503)
        return Response(status_code=204)

    def _take(self, report: DataLogReport) -> None:
        with self._taking:
            number = (report.started_at, report.sequence)
            if number <= self._taken:
                return
            events: dict[tuple[Scope, str, str], list[NewEvent]] = {}
            for line in report.lines:
                stream = (line.scope, *stream_of(line, self._source(line)))
                event = NewEvent(at_ms=int(line.at * 1000), message=line.text)
                events.setdefault(stream, []).append(event)
            now_ms = int(self._clock.now() * 1000)
            for (scope, group, stream_name), found in events.items():
                self._logs.put(scope, group, stream_name, found, now_ms)
            self._taken = number

    def _source(self, line: DataLine) -> LogSource | None:
        """The copy of a line; one whose record is gone is remembered from earlier lines."""
        if line.copy_id is None:
            return None
        known = self._sources.get(line.copy_id)
        if known is None:
            found = self._state.copies.get(line.scope, line.copy_id)
            if found is None:
                return None
            if len(self._sources) >= MAX_SOURCES:
                self._sources.clear()
            known = self._sources[line.copy_id] = source_of_copy(found.value)
        return known
