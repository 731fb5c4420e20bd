"""``GET /traces``: the traces of the last calls, as the gateway's workers noted them.

``/traces/ID`` is one call with the calls that it made. ``/traces?order=slowest`` and
``?order=failed`` are lists, with ``endpoint``, ``since_s`` and ``limit``.

who asks                                    sees
------------------------------------------  ------------------------------------------
a platform's process: the internal key      the calls of all accounts
the root of an account, by signature        the calls of its account
a user or a role                            nothing: 403
who shows the OpenAI key                    the calls of the owner's account
a copy, by its own keys                     nothing: 403
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol
from urllib.parse import parse_qs, unquote

import msgspec

from hostelry.base.errors import ServiceError
from hostelry.base.guards import INTERNAL_KEY_HEADER, has_key
from hostelry.base.http import HttpRequest, HttpResponse
from hostelry.dataplane.http.exchange import Exchange
from hostelry.dataplane.tracing.call_document import attach_calls
from hostelry.dataplane.tracing.question import MAX_LISTED, TraceQuestion, WorkerCalls
from hostelry.gateway.handlers.callers import Callers
from hostelry.principals.decisions import is_unlimited

TRACES = "traces"
ORDERS = ("slowest", "failed")
MAX_DEPTH = 5  # graphs call graphs up to 4 deep
MAX_SINCE_S = 24 * 3600.0
INTERNAL_KEY = INTERNAL_KEY_HEADER.lower()
JOB_HINT = "Asynchronous requests, batches and transform jobs are in `hostelry jobs show`."


class GatewayWorkers(Protocol):
    """All workers of this gateway."""

    async def ask(self, question: TraceQuestion) -> tuple[Sequence[WorkerCalls], Sequence[str]]:
        """The answers, and the names of the workers that did not answer."""
        ...


class TracesHandler:
    """Serves the traces of calls.

    Args:
        callers: identifies callers.
        internal_key: the key of the platform's processes.
        workers: keep the traces.
    """

    def __init__(self, callers: Callers, internal_key: str, workers: GatewayWorkers) -> None:
        self._callers = callers
        self._internal_key = internal_key
        self._workers = workers

    def admit(self, request: HttpRequest) -> bool:
        """Raise ServiceError 413, because requests for traces have no body."""
        raise ServiceError("ValidationException", f"{request.path} takes no body.", 413)

    async def serve(self, exchange: Exchange, request_id: str) -> None:
        """Answer one question. Raises ServiceError 400 (invalid query), 403, 404 and 405."""
        request = exchange.request
        account = await self._account(request)
        exchange.verified()
        if request.method != "GET":
            raise ServiceError("MethodNotAllowed", f"{request.method} /{TRACES}: use GET.", 405)
        wanted = unquote(request.path.removeprefix(f"/{TRACES}").strip("/"))
        found = await (
            self._call(wanted, account) if wanted else self._list_calls(request.query, account)
        )
        headers = {"Content-Type": "application/json", "x-amzn-RequestId": request_id}
        exchange.respond(HttpResponse(200, headers, msgspec.json.encode(found)))

    def error_answer(
        self, error: ServiceError, request: HttpRequest, request_id: str
    ) -> HttpResponse:
        """Format `error` as JSON."""
        headers = {"Content-Type": "application/json", "x-amzn-RequestId": request_id}
        body = msgspec.json.encode({"code": error.code, "message": error.message})
        return HttpResponse(error.http_status, headers, body)

    async def _account(self, request: HttpRequest) -> str | None:
        """Find the account whose calls are shown. None means all. Raises ServiceError 403."""
        given = request.headers.get(INTERNAL_KEY)
        if given is not None and has_key(self._internal_key, [given]):
            return None
        if self._callers.holds_openai_key(request):
            return self._callers.owner.account
        caller = self._callers.resolve(await self._callers.identify(request))
        if not is_unlimited(caller):
            raise ServiceError(
                "AccessDeniedException",
                f"{caller.arn} is not the root of account {caller.account}. Only the root reads"
                " traces of calls.",
                403,
            )
        return caller.account

    async def _call(self, request_id: str, account: str | None) -> dict[str, Any]:
        """Find the call of that id, with the calls below it."""
        ids = frozenset({request_id})
        answers, silent = await self._workers.ask(TraceQuestion(account=account, ids=ids))
        found = next(_iterate_calls(answers), None)
        if found is None:
            raise ServiceError("NotFound", describe_unknown_call(request_id, answers, silent), 404)
        made: dict[str, list[dict[str, Any]]] = {}
        parents = ids
        for _ in range(MAX_DEPTH):
            question = TraceQuestion(account=found["account"], parents=parents)
            calls = list(_iterate_calls((await self._workers.ask(question))[0]))
            if not calls:
                break
            for call in calls:
                made.setdefault(call["parent_id"], []).append(call)
            parents = frozenset(it["request_id"] for it in calls)
        return {"call": attach_calls(found, made), "silent": list(silent)}

    async def _list_calls(self, query: str, account: str | None) -> dict[str, Any]:
        question = parse_question(query, account)
        answers, silent = await self._workers.ask(question)
        slowest = question.order == "slowest"
        calls = sorted(_iterate_calls(answers), key=lambda it: -(it["ms"] if slowest else it["at"]))
        return {"calls": calls[: question.limit], "silent": list(silent)}


def parse_question(query: str, account: str | None) -> TraceQuestion:
    """Parse a query. Raises ServiceError 400 if it is invalid."""
    given = {name: values[-1] for name, values in parse_qs(query).items()}
    order = given.get("order", "slowest")
    try:
        since_s, limit = float(given.get("since_s", "300")), int(given.get("limit", "20"))
    except ValueError:
        raise ServiceError("ValidationException", "since_s and limit are numbers.", 400) from None
    if order not in ORDERS or not 0 < since_s <= MAX_SINCE_S or not 1 <= limit <= MAX_LISTED:
        raise ServiceError(
            "ValidationException",
            f"order is one of {', '.join(ORDERS)}, since_s is above 0 and at most {MAX_SINCE_S:g}, "
            f"limit is 1 to {MAX_LISTED}.",
            400,
        )
    return TraceQuestion(
        account=account,
        order=order,
        endpoint=given.get("endpoint"),
        since_s=since_s,
        limit=limit,
    )


def describe_unknown_call(
    request_id: str, answers: Sequence[WorkerCalls], silent: Sequence[str]
) -> str:
    """Explain that a call is not kept, with the calls that each worker keeps."""
    kept = "; ".join(_describe_kept(it) for it in answers) or "no worker answers"
    lost = f" {', '.join(silent)} did not answer: what it has is not known." if silent else ""
    return (
        f"No call {request_id[:80]} is kept. Each gateway worker keeps its last calls, the failed "
        f"ones and the slowest of the last minutes, while it runs: {kept}.{lost} {JOB_HINT}"
    )


def _describe_kept(answer: WorkerCalls) -> str:
    if answer.oldest_at is None:
        return f"{answer.worker} has had none since its start at {_instant(answer.began_at)}"
    return (
        f"{answer.worker}, started at {_instant(answer.began_at)}, has all {answer.num_last} since "
        f"{_instant(answer.oldest_at)}"
    )


def _instant(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _iterate_calls(answers: Sequence[WorkerCalls]) -> Iterator[dict[str, Any]]:
    return (call for answer in answers for call in answer.calls)
