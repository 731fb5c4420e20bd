"""Users of a load test that send requests for streamed answers to the copies of an LLM."""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from hostelry.dataplane.balancing.load_balancer import head_end
from hostelry.dataplane.invocation_head import (
    ADAPTER_ALIAS,
    ADAPTER_IDENTIFIER,
    FORWARDED_STREAM,
    post_head,
)
from hostelry.dataplane.metering.meter import Measurement, Meter
from hostelry.dataplane.route_table import Destination, RouteTable
from hostelry.domain.ai_benchmark_job import AiWorkload
from hostelry.domain.routes import CopyRoute
from hostelry.domain.scope import Scope
from hostelry.http1.reply import (
    BrokenError,
    ConnectError,
    DeadlineError,
    Reply,
    TooLargeError,
    UpstreamError,
)
from hostelry.http1.upstream import Timeouts, UpstreamPool
from hostelry.loadtest.recording import AnswerRecord
from hostelry.loadtest.requests import LoadClient, LoadPlan
from hostelry.loadtest.runner import LoadRun
from hostelry.loadtest.tally import LoadTally

PAUSE_S = 0.1  # before another look for a copy
TIMEOUT_S = 600.0  # of a request
JSON = "application/json"


class TargetCalls:
    """Sends requests to the copies of a job's targets, and counts them as invocations.

    Args:
        find: returns what there is of target number n, or None.
        num_targets: requests go to the targets in turn.
    """

    def __init__(
        self,
        find: Callable[[int], Destination | None],
        num_targets: int,
        pool: UpstreamPool,
        meter: Meter,
    ) -> None:
        self._find = find
        self._num_targets = num_targets
        self._pool = pool
        self._meter = meter
        self._timeouts = Timeouts(total_s=TIMEOUT_S)
        self._in_flight: Counter[str] = Counter()

    async def send(self, number: int, body: bytes, answer: AnswerRecord) -> None:
        """Send a request to the copy with the fewest requests, and record its answer.

        Waits for a copy. Raises TimeoutError, and ConnectionError.
        """
        try:
            async with self.open(number, body) as reply:
                while (chunk := await reply.next_chunk()) is not None:
                    answer.take(chunk)
        except DeadlineError as error:
            raise TimeoutError(str(error)) from error
        except ConnectError as error:
            raise ConnectionError(str(error)) from error
        except (BrokenError, TooLargeError) as error:
            answer.fail("the model gave no whole answer", str(error))
            return
        answer.end(reply.status, b"")

    @asynccontextmanager
    async def open(self, number: int, body: bytes) -> AsyncIterator["CountedReply"]:
        """Send a request to the copy with the fewest requests. Its answer is read in the block.

        Waits for a copy. Raises UpstreamError.
        """
        target, copy = await self._wait_for_copy(number)
        self._in_flight[copy.id] += 1
        measured = self._meter.begin(target.key)
        measured.record_copy(copy.id, 0)
        try:
            head = build_head(target, len(body)) + head_end(copy.key)
            reply = await self._pool.send(copy.address, (head, body), self._timeouts)
            try:
                yield CountedReply(reply, measured)
            finally:
                reply.close()
            if not 200 <= reply.status < 300:
                measured.record_model_error(reply.status)
            measured.record_answer()
        except UpstreamError:
            measured.record_no_answer()
            raise
        finally:
            self._in_flight[copy.id] -= 1
            measured.end()

    async def _wait_for_copy(self, number: int) -> tuple[Destination, CopyRoute]:
        while True:
            target = self._find(number % self._num_targets)
            count = self._in_flight
            copies = () if target is None else target.copies
            copy = min(copies, key=lambda it: (count[it.id], it.id), default=None)
            if target is not None and copy is not None:
                return target, copy
            await asyncio.sleep(PAUSE_S)


class CountedReply:
    """An answer whose bytes are counted as the copy's."""

    def __init__(self, reply: Reply, measured: Measurement) -> None:
        self.status = reply.status
        self.content_type = reply.headers.get("content-type", "")
        self._reply = reply
        self._measured = measured
        self._has_begun = False

    async def next_chunk(self) -> bytes | None:
        """Read the next piece of the body. None after the last piece. Raises UpstreamError."""
        chunk = await self._reply.next_chunk()
        if not self._has_begun:
            self._has_begun = True
            self._measured.record_first_chunk()
        if chunk is not None:
            self._measured.record_chunk(chunk)
        return chunk


class LlmLoad:
    """The users of a load: `bodies` in turn. All users share the connections of the process.

    After `num_requests` they send no more, and wait for the end of the load. A further load with
    the same users continues with the next body.
    """

    streams_text = True

    def __init__(
        self, calls: TargetCalls, bodies: Sequence[bytes], num_requests: int | None = None
    ) -> None:
        self._numbers = itertools.count()
        self._calls = calls
        self._bodies = bodies
        self._num_requests = num_requests

    def open_client(self, plan: LoadPlan) -> LoadClient:
        """A new user."""
        del plan
        return self

    def close(self) -> None:
        """Keep the connections, which others use."""

    async def send(self, number: int, answer: AnswerRecord) -> None:
        """Send the next request, and record its answer. Each load counts its own `number`."""
        del number
        following = next(self._numbers)
        if self._num_requests is not None and following >= self._num_requests:
            await asyncio.Event().wait()
        await self._calls.send(following, self._bodies[following % len(self._bodies)], answer)


async def send_requests(
    calls: TargetCalls, workload: AiWorkload, bodies: Sequence[bytes], num_requests: int | None
) -> LoadTally:
    """Send requests until they are all answered, or the duration of the load is over."""
    plan = LoadPlan(
        concurrency=workload.concurrency,
        duration_s=workload.duration_s,
        rate_per_s=workload.request_rate_per_s,
        timeout_s=TIMEOUT_S,
    )
    load = LoadRun(plan, LlmLoad(calls, bodies, num_requests), show_nothing)

    def is_over(num_done: int, open_s: float) -> bool:
        has_all = num_requests is not None and num_done >= num_requests
        return has_all or open_s >= workload.duration_s

    async with load.load():
        await load.wait_until(is_over)
        tally = load.take_window()
        load.interrupt()
        load.interrupt()  # requests under way are not counted
    return tally


def show_nothing(tally: LoadTally, elapsed_s: float, in_flight: int) -> None:
    """Show no progress: the log stream does."""
    del tally, elapsed_s, in_flight


def find_only_variant(table: RouteTable, scope: Scope, endpoint_name: str) -> Destination | None:
    """The variant of an endpoint that has one. None before the endpoint serves."""
    endpoint = table.endpoint(scope, endpoint_name)
    if endpoint is None or not endpoint.variants:
        return None
    return table.variant(endpoint, endpoint.variants[0])


def build_head(target: Destination, num_bytes: int) -> bytes:
    """The head of a request, but for its end."""
    headers = (
        FORWARDED_STREAM,
        ("Content-Type", JSON),
        (ADAPTER_IDENTIFIER, target.adapter_id),
        (ADAPTER_ALIAS, target.adapter_alias),
    )
    return post_head("/invocations", num_bytes, headers)
