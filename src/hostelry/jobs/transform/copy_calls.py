"""Calls of a transform job to one copy."""

import asyncio
from collections.abc import Callable

from hostelry.base.clock import Clock
from hostelry.base.errors import HostelryError
from hostelry.dataplane.balancing.load_balancer import InFlightRequest, head_end, skip_count
from hostelry.dataplane.balancing.pipeline import (
    OTHERWISE,
    PipelineLimits,
    PipelineStep,
    through_pipeline,
)
from hostelry.dataplane.invocation_head import post_head
from hostelry.dataplane.metering.meter import Meter
from hostelry.domain.load import LoadKey
from hostelry.domain.routes import CopyRoute
from hostelry.domain.transform_job import VARIANT_NAME, TransformJob
from hostelry.http1.reply import (
    BrokenError,
    ConnectError,
    DeadlineError,
    TooLargeError,
)
from hostelry.http1.upstream import Timeouts, UpstreamPool
from hostelry.jobs.records.splitting import RecordError

MAX_ANSWER_BYTES = 100 * 1024 * 1024
MAX_SHOWN_BYTES = 500
MAX_HEADS = 1000
FORWARDED = ("X-Amzn-SageMaker-Forwarded-Api", "InvokeEndpoint")


class CopyGoneError(HostelryError):
    """The copy refuses connections. Other copies get its objects."""


class CopyBrokeError(RecordError):
    """The copy broke off every answer. It died, perhaps because of this payload."""


class CopyCalls:
    """Sends the payloads of one job.

    Args:
        job: has the limits.
        pool: connections to copies.
        meter: measures requests.
        clock: paces retries.
    """

    def __init__(self, job: TransformJob, pool: UpstreamPool, meter: Meter, clock: Clock) -> None:
        self._job = job
        self._pool = pool
        self._meter = meter
        self._clock = clock
        self._key = LoadKey(
            scope=job.scope, endpoint_name=job.endpoint_name, variant_name=VARIANT_NAME
        )
        self._timeouts = Timeouts(total_s=job.invocation_timeout_s)
        # By key and size, because most records have the same size.
        self._heads: dict[tuple[str | None, int], bytes] = {}

    async def answer(self, copy: CopyRoute, body: bytes, name: Callable[[], str]) -> bytes:
        """Send a payload to the copy and return the answer. `name` names the payload in errors.

        Calls are repeated after 5xx and 429, broken connections and time-outs, as often as the job
        allows. Raises RecordError after the last try (CopyBrokeError if that was a broken
        connection), and CopyGoneError.
        """
        status, answer, broke, by = 0, b"", False, copy
        for attempt in range(self._job.max_retries + 1):
            if attempt:
                await self._clock.sleep(float(2 ** (attempt - 1)))
            try:
                status, answer, by = await self._once(copy, body)
            except BrokenError as error:
                status, answer, broke, by = 0, str(error).encode(), True, error.copy or copy
                continue
            except ConnectError as error:
                if broke:  # it died of this payload, or for another reason
                    break
                raise CopyGoneError(str(error)) from error
            broke = False
            if 200 <= status < 300:
                return answer
            if 0 < status < 500 and status != 429:
                break
        shown = answer[:MAX_SHOWN_BYTES].decode("utf-8", "replace")
        cause = f"{_title(by)} answered {status}" if status else f"{_title(by)} gave no answer"
        reason = f"{cause} to {name()}, attempt {attempt + 1}: {shown}"
        raise CopyBrokeError(reason) if broke else RecordError(reason)

    async def _once(self, copy: CopyRoute, body: bytes) -> tuple[int, bytes, CopyRoute]:
        """Send once. Returns status, body and the answering copy. Without an answer 0 and a reason.

        Raises ConnectError, BrokenError, and RecordError if the answer is too large.
        """
        measured = self._meter.begin(self._key)
        measured.enter_container(copy.container)
        measured.record_copy(copy.id, 0)
        try:
            reply = await self._pool.send(
                copy.address,
                (self._head(copy, len(body)), body),
                self._timeouts,
                MAX_ANSWER_BYTES,
            )
            sent = InFlightRequest(copy, reply, skip_count)
            if copy.further:
                limits = PipelineLimits(
                    total_s=self._timeouts.total_s, max_body_bytes=MAX_ANSWER_BYTES
                )
                sent = await through_pipeline(sent, self._send_on, limits, measured)
            try:
                answer = await sent.reply.body(MAX_ANSWER_BYTES)
            finally:
                sent.close()
            measured.record_answer()
        except DeadlineError as error:
            measured.record_no_answer()
            late = f"none within {self._job.invocation_timeout_s:g} s".encode()
            return 0, late, error.copy or copy
        except TooLargeError as error:
            by = error.copy or copy
            raise RecordError(f"{_title(by)} gave too large an answer: {error}") from error
        except BrokenError:
            measured.record_no_answer()
            raise
        finally:
            measured.end()
        return sent.reply.status, answer, sent.answered_by

    async def _send_on(self, step: PipelineStep) -> InFlightRequest:
        """Send the request to a further container of a pipeline."""
        head = self._new_head(len(step.body), step.content_type, step.content_encoding)
        parts = (head + head_end(step.copy.key), step.body)
        reply = await self._pool.send(step.copy.address, parts, step.timeouts, MAX_ANSWER_BYTES)
        return InFlightRequest(step.copy, reply, skip_count)

    def _head(self, copy: CopyRoute, num_bytes: int) -> bytes:
        found = self._heads.get((copy.key, num_bytes))
        if found is None:
            if len(self._heads) >= MAX_HEADS:
                self._heads.clear()
            head = self._new_head(num_bytes, self._job.input.content_type or OTHERWISE)
            found = self._heads[copy.key, num_bytes] = head + head_end(copy.key)
        return found

    def _new_head(self, num_bytes: int, content_type: str, encoding: str | None = None) -> bytes:
        return post_head(
            "/invocations",
            num_bytes,
            (
                FORWARDED,
                ("Content-Type", content_type),
                ("Content-Encoding", encoding),
                ("Accept", self._job.output.accept),
            ),
        )


def _title(copy: CopyRoute) -> str:
    """Name the copy or its container in messages."""
    return "The model" if copy.container is None else f"Container {copy.container}"


async def cancel_all(tasks: "list[asyncio.Task[bytes]]") -> None:
    """Cancel tasks, and wait for their end."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
