"""HTTP API of the jobs process, for the gateway and for commands. It needs the internal key.

request                                answer
-------------------------------------  --------------------------------------------------------
POST /internal/async-requests          204 once the request (MessagePack) is durable, else 503
GET  /internal/jobs?endpoint=&state=&before=&limit=   rows, the newest first, and every backlog.
                                       Without `endpoint` and `before` also batches
GET  /internal/jobs/ID                 a row, by id or inference id, or a batch, else 404
POST /internal/jobs/ID/retry, /drop    204, or 409 with the reason
POST /internal/jobs/ID/cancel          204 once the batch is being cancelled, 409 if it has ended
GET  /internal/health                  200, with the reason if the database cannot be written
/v1/files, /v1/batches                 see `batches/openai_api.py`
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, unquote

import msgspec

from hostelry.base.clock import Clock
from hostelry.base.errors import HostelryError, RetryableError, ServiceError
from hostelry.base.guards import INTERNAL_KEY_HEADER, has_key
from hostelry.base.http import HttpRequest, HttpResponse, whole_number
from hostelry.dataplane.http.exchange import Exchange
from hostelry.dataplane.http.reader import HttpRefusedError
from hostelry.domain.async_request import AsyncRequest
from hostelry.domain.llm_batch import StatusOrderError
from hostelry.domain.scope import Scope
from hostelry.jobs.batches.batch_work import BatchOverview
from hostelry.jobs.batches.openai_api import OpenAiFilesApi
from hostelry.jobs.queue.durable_queue import DurableQueue
from hostelry.jobs.queue.protocol import QueueCommits
from hostelry.jobs.queue.request_rows import RequestRows, RequestStateError, RowFilter
from hostelry.jobs.queue.tables import STATES

LOG = logging.getLogger(__name__)


class Submissions:
    """Adds new requests by `commits`. Calls `accepted` with the endpoint of each durable request.

    Used by the running event loop.
    """

    def __init__(self, commits: QueueCommits, accepted: Callable[[Scope, str], None]) -> None:
        self._commits = commits
        self._accepted = accepted
        self._loop = asyncio.get_running_loop()

    async def submit(self, request: AsyncRequest) -> None:
        """Return once the request is durable. Raises StoreUnavailable if it cannot be kept."""
        await self._commits.write(lambda queue: queue.submit([request]))
        self._accepted(request.scope, request.endpoint_name)

    def wake(self, account: str, region: str, endpoint_name: str) -> None:
        """Note that a request of the endpoint waits again. May be called from any thread."""
        self._loop.call_soon_threadsafe(self._accepted, Scope(account, region), endpoint_name)


DECODER = msgspec.msgpack.Decoder(AsyncRequest)
SUBMIT = "/internal/async-requests"
JOBS = "/internal/jobs"
HEALTH = "/internal/health"
OPENAI = "/v1/"
MAX_ROWS = 1000
MAX_SEQUENCE = 2**63 - 1  # of a row
RATE_S = 60.0  # over which the rate of a queue is measured


class JobsApi(msgspec.Struct, frozen=True, kw_only=True):
    """The handlers. `handle` answers each exchange and never raises, except when cancelled."""

    submissions: Submissions
    queue: DurableQueue
    rows: RequestRows
    openai: OpenAiFilesApi
    batches: BatchOverview
    internal_key: str
    clock: Clock

    def admit(self, request: HttpRequest) -> bool:
        """Return True if the head has the internal key. Raises HttpRefusedError if it does not."""
        if not has_key(self.internal_key, _get_keys(request)):
            raise HttpRefusedError(403, "The internal key is missing or wrong.", request)
        return True

    async def handle(self, exchange: Exchange) -> None:
        """Answer one request."""
        request = exchange.request
        if not has_key(self.internal_key, _get_keys(request)):
            exchange.respond(_text(403, "The internal key is missing or wrong."))
            return
        exchange.verified()
        try:
            if request.path.startswith(OPENAI):
                await self.openai.serve(exchange)
            else:
                exchange.respond(await self._answer(request))
        except ServiceError as error:
            exchange.respond(_text(error.http_status, error.message))
        except (RequestStateError, StatusOrderError) as error:
            exchange.respond(_text(409, str(error)))
        except RetryableError as error:
            exchange.respond(_text(503, str(error)))
        except HostelryError as error:
            exchange.respond(_text(500, str(error)))
        except Exception:  # the outermost edge of every request to this process
            LOG.exception("%s %s failed", request.method, request.path)
            if exchange.started:
                return  # the connection is cut
            exchange.respond(_text(500, "an internal error; the log of the jobs process has it"))

    @staticmethod
    def refusal_answer(refusal: HttpRefusedError) -> HttpResponse:
        """The answer to bytes that are not a valid request."""
        return _text(refusal.status, refusal.reason)

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        method, path = request.method, request.path
        if (method, path) == ("POST", SUBMIT):
            await self.submissions.submit(_decode_submission(request))
            return HttpResponse(204, {}, b"")
        if (method, path) == ("GET", HEALTH):
            return _json({"status": "ok", "trouble": self.queue.database.trouble})
        if (method, path) == ("GET", JOBS):
            return _json(await self._list(_parse_filter(request.query)))
        if path.startswith(f"{JOBS}/"):
            name, _, act = path.removeprefix(f"{JOBS}/").partition("/")
            if (method, act) == ("POST", "cancel"):
                return await self._cancel(unquote(name))
            if (method, act) == ("GET", "") and (one := await self.batches.find(unquote(name))):
                return _json(one)
            return await asyncio.to_thread(self._act_on_request, method, unquote(name), act)
        raise ServiceError("NotFound", f"nothing is served at {method} {path:.200}", 404)

    async def _cancel(self, name: str) -> HttpResponse:
        if not await self.batches.cancel(name):
            raise ServiceError("NotFound", f"no batch has the id {name:.100}", 404)
        return HttpResponse(204, {}, b"")

    async def _list(self, wanted: RowFilter) -> Mapping[str, Any]:
        has_batches = wanted.endpoint_name is None and wanted.before is None
        batches = []
        if has_batches:
            batches = await self.batches.list_newest(wanted.state, wanted.limit)
        return {**await asyncio.to_thread(self._list_requests, wanted), "batches": batches}

    def _list_requests(self, wanted: RowFilter) -> Mapping[str, Any]:
        since = self.clock.now() - RATE_S
        return {
            "jobs": self.rows.page(wanted),
            "backlog": self.queue.backlog(),
            "finished_a_minute": self.rows.finished_since(since),
            "trouble": self.queue.database.trouble,
        }

    def _act_on_request(self, method: str, name: str, act: str) -> HttpResponse:
        row = self.rows.find(name)
        if row is None:
            what = "request or batch" if method == "GET" else "asynchronous request"
            raise ServiceError("NotFound", f"no {what} has the id or inference id {name:.100}", 404)
        if (method, act) == ("GET", ""):
            trouble = self.queue.database.trouble if row.finished_at is None else None
            return _json({**msgspec.structs.asdict(row), "trouble": trouble})
        if (method, act) == ("POST", "retry"):
            self.rows.retry(row.id, self.clock.now())
            self.submissions.wake(row.account, row.region, row.endpoint_name)
            return HttpResponse(204, {}, b"")
        if (method, act) == ("POST", "drop"):
            self.rows.drop(row.id)
            return HttpResponse(204, {}, b"")
        raise ServiceError("NotFound", f"{method} {act:.50} is not served for a request", 404)


def _get_keys(request: HttpRequest) -> list[str]:
    value = request.headers.get(INTERNAL_KEY_HEADER.lower())
    return [] if value is None else [value]


def _decode_submission(request: HttpRequest) -> AsyncRequest:
    try:
        found = DECODER.decode(request.body)
    except msgspec.MsgspecError as error:
        raise ServiceError("Invalid", f"the body is no asynchronous request: {error}") from None
    if (found.body is None) == (found.input_uri is None):
        raise ServiceError("Invalid", "exactly one of body and input_uri must be there")
    return found


def _parse_filter(query: str) -> RowFilter:
    fields = {name: values[0] for name, values in parse_qs(query).items()}
    state = fields.get("state")
    if state is not None and state not in STATES:
        raise ServiceError("Invalid", f"state {state:.50} is none of {', '.join(STATES)}")
    before = whole_number(fields.get("before", "0"), 0, MAX_SEQUENCE)
    limit = whole_number(fields.get("limit", "100"), 0, MAX_SEQUENCE)
    if before is None or limit is None:
        raise ServiceError("Invalid", "before and limit must be whole numbers")
    return RowFilter(
        endpoint_name=fields.get("endpoint"),
        state=state,
        before=before if "before" in fields else None,
        limit=max(1, min(limit, MAX_ROWS)),
    )


def _json(content: Any) -> HttpResponse:
    return HttpResponse(200, {"Content-Type": "application/json"}, msgspec.json.encode(content))


def _text(status: int, text: str) -> HttpResponse:
    return HttpResponse(status, {"Content-Type": "text/plain; charset=utf-8"}, text.encode())
