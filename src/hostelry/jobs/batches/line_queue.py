"""The lines of one batch: the queue of each model, and the call of a copy for one line."""

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable

import msgspec

from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest
from hostelry.dataplane.openai import error_response, find_model
from hostelry.dataplane.route_table import Destination, RouteTable
from hostelry.domain.llm_batch import LlmBatch
from hostelry.domain.routes import CopyRoute
from hostelry.domain.scope import Scope
from hostelry.gateway.handlers.completions import (
    MODEL_FAILED,
    NO_CAPACITY,
    TIMEOUT,
    Completions,
    build_no_answer_error,
)
from hostelry.http1.reply import TooLargeError, UpstreamError
from hostelry.http1.upstream import UpstreamPool
from hostelry.jobs.copy_parameters import get_execution_parameters, get_reported_concurrency
from hostelry.jobs.records.batch_lines import BatchLine
from hostelry.jobs.rules.copy_slots import (
    HELD,
    ModelQueue,
    choose_models,
    compute_room,
    limit_wanted,
)
from hostelry.jobs.rules.next_step import BUSY, Trouble, classify_status

MAX_KNOWN = 4096


class CopySizes:
    """Asks each copy for its limit once, in the background. `changed` is called after an answer."""

    def __init__(self, pool: UpstreamPool, changed: Callable[[], None]) -> None:
        self._pool = pool
        self._changed = changed
        self._reported: dict[str, int | None] = {}
        self._asking: set[asyncio.Task[None]] = set()

    def get_wanted(self, copy: CopyRoute) -> int:
        """Number of requests that a copy wants at once. The default until it has answered."""
        if copy.id not in self._reported:
            if len(self._reported) >= MAX_KNOWN:
                self._reported.clear()
            self._reported[copy.id] = None
            task = asyncio.get_running_loop().create_task(self._ask(copy))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)
        return limit_wanted(self._reported[copy.id])

    async def _ask(self, copy: CopyRoute) -> None:
        answer = await get_execution_parameters(self._pool, copy)
        self._reported[copy.id] = get_reported_concurrency(answer)
        self._changed()


TROUBLES = {
    NO_CAPACITY: Trouble.NO_COPY,
    TIMEOUT: Trouble.TIMED_OUT,
    MODEL_FAILED: Trouble.MODEL_FAILED,
}


class LineAnswer(msgspec.Struct, frozen=True):
    """The answer to a line. For 2xx `trouble` is empty (None)."""

    status: int
    body: bytes
    trouble: Trouble | None


class LineCalls:
    """Sends the lines of all batches.

    Args:
        completions: finds a model's copies.
        max_answer_bytes: limit of one answer, which is held in memory.
    """

    def __init__(self, completions: Completions, max_answer_bytes: int) -> None:
        self._completions = completions
        self._max_answer_bytes = max_answer_bytes

    async def answer(self, batch: LlmBatch, model: str, body: bytes, id: str) -> LineAnswer:
        """Send a line to a copy. Returns the answer, or an error in OpenAI's format.

        In the engine the batch is the request's tenant, which gets a fair share.
        """
        headers = {"content-type": "application/json", "x-hostelry-tenant": batch.id}
        request = HttpRequest("POST", batch.endpoint, "", headers, body)
        try:
            return await self._answer(request, batch, model, id)
        except ServiceError as error:
            trouble = TROUBLES.get(error.code, Trouble.MODEL_REFUSED)
            return LineAnswer(error.http_status, error_response(error, id).body, trouble)

    async def _answer(
        self, request: HttpRequest, batch: LlmBatch, model: str, id: str
    ) -> LineAnswer:
        sent = await self._completions.send_when_ready(request, batch.scope, model, id)
        reply, measured = sent.in_flight.reply, sent.measured
        try:
            body = await reply.body(self._max_answer_bytes)
            measured.record_answer()
            if not 200 <= reply.status < 300:
                measured.record_model_error(reply.status)
        except TooLargeError as error:
            raise ServiceError("answer_too_large", str(error), 502) from error
        except UpstreamError as error:
            measured.record_no_answer()
            raise build_no_answer_error(error) from error
        finally:
            sent.in_flight.close()
            measured.end()
        # A busy copy takes the request later, so the attempt has not failed.
        trouble = Trouble.NO_COPY if reply.status == BUSY else classify_status(reply.status)
        return LineAnswer(reply.status, body, trouble)


class SharedPools:
    """The batches that have lines for each pool of copies."""

    def __init__(self) -> None:
        self._batches: dict[str, set[str]] = {}
        self._elsewhere: Counter[str] = Counter()

    def set_pools(self, batch_id: str, pools: Iterable[str]) -> None:
        """Set the pools that a batch has lines for."""
        self.remove(batch_id)
        for pool in pools:
            self._batches.setdefault(pool, set()).add(batch_id)

    def remove(self, batch_id: str) -> None:
        """Remove a batch, which has no more lines."""
        for pool, batches in tuple(self._batches.items()):
            batches.discard(batch_id)
            if not batches:
                del self._batches[pool]

    def get_pools(self, batch_id: str) -> list[str]:
        """The pools that a batch has lines for."""
        return [pool for pool, batches in self._batches.items() if batch_id in batches]

    def set_elsewhere(self, pools: Iterable[str]) -> None:
        """Set the pools of other hosts' batches. A pool is repeated for each of its batches."""
        self._elsewhere = Counter(pools)

    def count_batches(self, pool: str) -> int:
        """Count the batches of all hosts that share a pool."""
        return len(self._batches.get(pool, ())) + self._elsewhere[pool]


class LineQueue:
    """The lines of one batch. `take` returns the lines to send now."""

    def __init__(
        self, batch_id: str, scope: Scope, lines: Iterable[BatchLine], shared: SharedPools
    ) -> None:
        self._batch_id = batch_id
        self._scope = scope
        self._shared = shared
        self._waiting: defaultdict[str, deque[BatchLine]] = defaultdict(deque)
        self._in_flight: Counter[str] = Counter()
        self._without_copy: list[str] = []
        for line in lines:
            self._waiting[line.model].append(line)

    @property
    def is_empty(self) -> bool:
        """Whether no line waits."""
        return not any(self._waiting.values())

    @property
    def trouble(self) -> str | None:
        """Names a model without a copy. None if each model had a copy at the last `take`."""
        if not self._without_copy:
            return None
        model, *others = self._without_copy
        num_lines = len(self._waiting[model]) + self._in_flight[model]
        more = f", and those of {len(others)} more models" if others else ""
        return f"no copy serves model {model:.100} now: {num_lines} of its requests wait{more}"

    def list_waiting(self) -> list[BatchLine]:
        """List the waiting lines, in the order of the file."""
        return sorted(line for lines in self._waiting.values() for line in lines)

    def note_end(self, line: BatchLine) -> None:
        """Note that a taken line is done."""
        self._in_flight[line.model] -= 1
        if not self._in_flight[line.model] and not self._waiting[line.model]:
            del self._in_flight[line.model], self._waiting[line.model]

    def take(self, table: RouteTable, sizes: CopySizes) -> list[BatchLine]:
        """Take the lines to send now, which the copies of the routes have room for."""
        found = {model: self._find_destination(table, model) for model in self._waiting}
        known = [it for it in found.values() if it is not None]
        self._without_copy = [model for model, it in found.items() if it is None]
        known.sort(key=lambda it: len(it.copies))  # an adapter may be on only some of the copies
        pools = {get_pool_name(it): it for it in known}
        self._shared.set_pools(self._batch_id, pools)
        busy = Counter[str]()
        for model, destination in found.items():
            if destination is not None:
                busy[get_pool_name(destination)] += self._in_flight[model]
        room = {
            pool: compute_room(
                [sizes.get_wanted(copy) for copy in it.copies],
                self._shared.count_batches(pool),
                busy[pool],
            )
            for pool, it in pools.items()
        }
        queues = [
            ModelQueue(
                model=model,
                pool=None if destination is None else get_pool_name(destination),
                waiting=[line.number for line in self._find_head(model, room, destination)],
                in_flight=self._in_flight[model],
            )
            for model, destination in found.items()
        ]
        taken = [self._waiting[model].popleft() for model in choose_models(queues, room)]
        self._in_flight.update(line.model for line in taken)
        return taken

    def put_back(self, lines: Iterable[BatchLine]) -> None:
        """Put back lines that were taken and not sent, in the order in which they were taken."""
        for line in reversed(list(lines)):
            self._in_flight[line.model] -= 1
            self._waiting[line.model].appendleft(line)

    def _find_destination(self, table: RouteTable, model: str) -> Destination | None:
        """Find the copies of a model. None if the model has no copy now, or is missing."""
        try:
            destination = find_model(table, self._scope, model)
        except ServiceError:
            return None
        return destination if destination.copies else None

    def _find_head(
        self, model: str, room: dict[str, int], destination: Destination | None
    ) -> list[BatchLine]:
        """Find the first waiting lines of a model, as many as could be taken."""
        most = HELD if destination is None else room[get_pool_name(destination)]
        lines = self._waiting[model]
        return [lines[index] for index in range(min(most, len(lines)))]


def get_pool_name(destination: Destination) -> str:
    """Name the pool of a destination's copies. An adapter shares the pool of its base."""
    key = destination.base_key or destination.key
    return f"{key.scope.account}/{key.scope.region}/{key.endpoint_name}/{key.component_name}"
