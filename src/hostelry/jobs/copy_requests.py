"""Requests of jobs to copies, which do not pass through a gateway."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import msgspec

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
from hostelry.http1.reply import BrokenError, DeadlineError
from hostelry.http1.upstream import Timeouts, UpstreamPool

MAX_ANSWER_BYTES = 100 * 1024 * 1024
MAX_HEADS = 1000
FORWARDED = ("X-Amzn-SageMaker-Forwarded-Api", "InvokeEndpoint")


class CopyAnswer(msgspec.Struct, frozen=True):
    """An answer, and the copy that gave it."""

    status: int
    body: bytes
    answered_by: CopyRoute


class CopyRequests:
    """Sends requests to the copies of one endpoint's variant, and counts them.

    Args:
        key: the endpoint and the variant.
        accept: the value of the Accept header, if any.
        timeout_s: limits one request.
        pool: connections to copies.
        meter: measures requests.
    """

    def __init__(
        self, key: LoadKey, accept: str | None, timeout_s: float, pool: UpstreamPool, meter: Meter
    ) -> None:
        self._key = key
        self._accept = accept
        self._timeouts = Timeouts(total_s=timeout_s)
        self._pool = pool
        self._meter = meter
        # By key, size and type, because most requests have the same size.
        self._heads: dict[tuple[str | None, int, str], bytes] = {}

    async def send(self, copy: CopyRoute, body: bytes, content_type: str | None) -> CopyAnswer:
        """Send a request once, and return the whole answer.

        Raises ConnectError, BrokenError, DeadlineError, and TooLargeError.
        """
        async with self._exchange(copy, body, content_type, MAX_ANSWER_BYTES) as sent:
            answer = await sent.reply.body(MAX_ANSWER_BYTES)
        return CopyAnswer(sent.reply.status, answer, sent.answered_by)

    async def stream(
        self, copy: CopyRoute, body: bytes, content_type: str | None, take: Callable[[bytes], None]
    ) -> int:
        """Send a request once, pass each piece of the answer to `take`, and return its status.

        No answer is kept in memory. Raises ConnectError, BrokenError, DeadlineError, and
        TooLargeError for the answer of an earlier container of a pipeline.
        """
        async with self._exchange(copy, body, content_type, None) as sent:
            while (piece := await sent.reply.next_chunk()) is not None:
                take(piece)
        return sent.reply.status

    @asynccontextmanager
    async def _exchange(
        self, copy: CopyRoute, body: bytes, content_type: str | None, whole_below_bytes: int | None
    ) -> AsyncIterator[InFlightRequest]:
        """Send a request, and measure it until the block has read the answer."""
        measured = self._meter.begin(self._key)
        measured.enter_container(copy.container)
        measured.record_copy(copy.id, 0)
        try:
            reply = await self._pool.send(
                copy.address,
                (self._head(copy, len(body), content_type or OTHERWISE), body),
                self._timeouts,
                whole_below_bytes,
            )
            sent = InFlightRequest(copy, reply, skip_count)
            if copy.further:
                limits = PipelineLimits(
                    total_s=self._timeouts.total_s, max_body_bytes=MAX_ANSWER_BYTES
                )
                send_on = partial(self._send_on, whole_below_bytes)
                sent = await through_pipeline(sent, send_on, limits, measured)
            try:
                yield sent
            finally:
                sent.close()
            measured.record_answer()
        except (BrokenError, DeadlineError):
            measured.record_no_answer()
            raise
        finally:
            measured.end()

    async def _send_on(self, whole_below_bytes: int | None, step: PipelineStep) -> InFlightRequest:
        """Send the request to a further container of a pipeline."""
        head = self._new_head(len(step.body), step.content_type, step.content_encoding)
        parts = (head + head_end(step.copy.key), step.body)
        reply = await self._pool.send(step.copy.address, parts, step.timeouts, whole_below_bytes)
        return InFlightRequest(step.copy, reply, skip_count)

    def _head(self, copy: CopyRoute, num_bytes: int, content_type: str) -> bytes:
        name = (copy.key, num_bytes, content_type)
        found = self._heads.get(name)
        if found is None:
            if len(self._heads) >= MAX_HEADS:
                self._heads.clear()
            head = self._new_head(num_bytes, content_type)
            found = self._heads[name] = head + head_end(copy.key)
        return found

    def _new_head(self, num_bytes: int, content_type: str, encoding: str | None = None) -> bytes:
        return post_head(
            "/invocations",
            num_bytes,
            (
                FORWARDED,
                ("Content-Type", content_type),
                ("Content-Encoding", encoding),
                ("Accept", self._accept),
            ),
        )


def name_copy(copy: CopyRoute) -> str:
    """Name the copy or its container in messages."""
    return "The model" if copy.container is None else f"Container {copy.container}"
