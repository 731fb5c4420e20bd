"""Reports of invocations to control's audit trail. Notes wait while control is away.

| notes | outcome |
| --- | --- |
| up to MAX_WAITING | wait until control has kept them |
| more | are dropped and counted. Control records the number |
| of a worker that is killed | are lost from the last REPORT_S on, and not counted |
"""

import logging
from collections import deque
from collections.abc import Callable

import msgspec

from hostelry.audit.invocation import MAX_NOTES, InvocationNote, InvocationReport
from hostelry.base.clock import Clock
from hostelry.base.guards import INTERNAL_KEY_HEADER
from hostelry.base.http import HttpRequest
from hostelry.base.ids import new_uuid
from hostelry.dataplane.http.exchange import Exchange
from hostelry.dataplane.tracing.call_trace import NO_TRACE
from hostelry.http1.calls import call
from hostelry.http1.reply import UpstreamError
from hostelry.http1.upstream import Timeouts, Upstream
from hostelry.principals.audited import describe_caller, describe_decision

LOG = logging.getLogger(__name__)
TIMEOUTS = Timeouts(total_s=10.0, connect_s=1.0)
LAST_TIMEOUTS = Timeouts(total_s=2.0, connect_s=0.5)
MAX_ANSWER_BYTES = 64 * 1024
MAX_WAITING = 20_000
MAX_TEXT = 512
REPORT_S = 0.5
PATH = "/internal/audit/invocations"
ASYNC_SUFFIX = "/async-invocations"


class InvocationBacklog:
    """The notes of one worker that control has not kept yet, and the report under way."""

    def __init__(self, worker: str, started_at: float, max_waiting: int = MAX_WAITING) -> None:
        self._worker = worker
        self._started_at = started_at
        self._max_waiting = max_waiting
        self._waiting: deque[InvocationNote] = deque()
        self._num_lost = 0
        self._sequence = 0
        self._report: InvocationReport | None = None

    def add(self, note: InvocationNote) -> None:
        """Keep a note, or count it as lost if too many wait."""
        if len(self._waiting) < self._max_waiting:
            self._waiting.append(note)
        else:
            self._num_lost += 1

    @property
    def report(self) -> InvocationReport | None:
        """The report to send, the same until `drop_report`. None without notes."""
        if self._report is None and (self._waiting or self._num_lost):
            waiting = self._waiting
            notes = tuple(waiting.popleft() for _ in range(min(len(waiting), MAX_NOTES)))
            self._sequence += 1
            self._report = InvocationReport(
                worker=self._worker,
                started_at=self._started_at,
                sequence=self._sequence,
                notes=notes,
                num_lost=self._num_lost,
            )
            self._num_lost = 0
        return self._report

    def drop_report(self, *, is_kept: bool) -> None:
        """Drop the report. If control did not keep it, its invocations are lost."""
        if self._report is not None and not is_kept:
            self._num_lost += len(self._report.notes) + self._report.num_lost
        self._report = None


class InvocationAudit:
    """Notes invocations, and reports them.

    Args:
        backlog: notes that control has not kept yet.
        pool: connections.
        address: control's ``http://host:port``.
        internal_key: the key of calls between the platform's processes.
        clock: dates notes, and waits between reports.
    """

    def __init__(
        self,
        backlog: InvocationBacklog,
        pool: Upstream,
        address: str,
        internal_key: str,
        clock: Clock,
    ) -> None:
        self._backlog = backlog
        self._pool = pool
        self._address = address
        self._headers = {INTERNAL_KEY_HEADER: internal_key}
        self._clock = clock
        self._is_connected = True

    def note(self, exchange: Exchange, request_id: str) -> None:
        """Note an invocation that is over, and whose caller is known."""
        note = build_note(exchange, request_id, self._clock.now, new_uuid)
        if note is not None:
            self._backlog.add(note)

    async def report_forever(self) -> None:
        """Report until cancelled."""
        while True:
            await self._clock.sleep(REPORT_S)
            while self._backlog.report is not None:
                if not await self._send(TIMEOUTS):
                    break

    async def finish(self) -> None:
        """Report the rest, unless control is away."""
        while self._backlog.report is not None:
            if not await self._send(LAST_TIMEOUTS):
                return

    async def _send(self, timeouts: Timeouts) -> bool:
        """Send the report. False if control did not keep it."""
        body = msgspec.msgpack.encode(self._backlog.report)
        request = HttpRequest("POST", PATH, "", self._headers, body)
        try:
            answer = await call(self._pool, self._address, request, timeouts, MAX_ANSWER_BYTES)
        except UpstreamError as error:
            self._note_connection(is_connected=False, reason=str(error))
            return False
        if answer.status >= 500:
            self._note_connection(is_connected=False, reason=f"it answered {answer.status}")
            return False
        is_kept = answer.status < 400
        self._backlog.drop_report(is_kept=is_kept)  # a repetition would be refused, too
        self._note_connection(is_connected=is_kept, reason=f"it refused one: {answer.body[:300]!r}")
        return is_kept

    def _note_connection(self, *, is_connected: bool, reason: str) -> None:
        if is_connected != self._is_connected:
            self._is_connected = is_connected
            if is_connected:
                LOG.info("control takes reports of invocations again")
            else:
                LOG.warning("control takes no reports of invocations (%s)", reason)


def build_note(
    exchange: Exchange,
    request_id: str,
    now: Callable[[], float],
    new_event_id: Callable[[], str],
) -> InvocationNote | None:
    """The note of an invocation that is over. None if its caller is not known."""
    caller, trace, request = exchange.caller, exchange.trace, exchange.request
    error, decision = exchange.error, exchange.decision
    if caller is None:
        return None
    is_traced = trace is not NO_TRACE
    return InvocationNote(
        at=trace.arrived_at if is_traced else now(),
        request_id=request_id,
        event_id=new_event_id(),
        caller=describe_caller(caller),
        account=caller.account,
        region=exchange.region,
        operation=trace.operation or find_operation(request),
        status=trace.status if is_traced else exchange.status,
        endpoint=(trace.endpoint or find_endpoint(request.path))[:MAX_TEXT],
        component=trace.component or "",
        variant=trace.variant,
        target_model=(trace.target_model or "")[:MAX_TEXT],
        tenant=trace.tenant,
        address=exchange.address,
        user_agent=request.headers.get("user-agent", "")[:MAX_TEXT],
        error_code=error.code if error is not None else trace.code,
        error_message=error.message[:MAX_TEXT] if error is not None else trace.error[:MAX_TEXT],
        bytes_in=len(request.body),
        bytes_out=trace.bytes_out,
        took_ms=trace.took_ns / 1e6 if is_traced else 0.0,
        decision=describe_decision(decision) if decision is not None else {},
    )


def find_operation(request: HttpRequest) -> str:
    """The operation of a request that is not traced: InvokeEndpointAsync, or a path of OpenAI's."""
    if request.path.startswith("/endpoints/"):
        return "InvokeEndpointAsync" if request.path.endswith(ASYNC_SUFFIX) else "InvokeEndpoint"
    return request.path[:MAX_TEXT]


def find_endpoint(path: str) -> str:
    """The endpoint in a path of the runtime API. Empty for other paths."""
    parts = path.split("/", 3)
    return parts[2] if len(parts) > 3 and parts[1] == "endpoints" else ""
