"""Carries a request through a pipeline: each container gets the answer of the one before.

an answer                                   next
-----------------------------------------   ----------------------------------------------------
2xx, and a container follows                its whole body goes there
2xx of the last container                   it is the answer, whole or as it comes
any other                                   it is the answer: no further container is asked
none, broken, late, or larger than a body   UpstreamError, with the copy that it is about
may be between containers
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from hostelry.dataplane.balancing.load_balancer import InFlightRequest
from hostelry.domain.routes import CopyRoute
from hostelry.http1.reply import (
    ConnectError,
    ContainerDownError,
    DeadlineError,
    UpstreamError,
)
from hostelry.http1.upstream import Timeouts

OTHERWISE = "application/octet-stream"


class PipelineLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Time limit of all containers together, and size limit of a body between two of them."""

    total_s: float
    max_body_bytes: int


class PipelineStep(msgspec.Struct, frozen=True, kw_only=True):
    """A request to a further container: the answer of the one before, and the time left."""

    copy: CopyRoute
    content_type: str
    content_encoding: str | None
    body: bytes
    timeouts: Timeouts
    is_last: bool


class ContainerTimes(Protocol):
    """Measures one request at each of its containers."""

    def enter_container(self, name: str | None, copy_id: str = "") -> None:
        """Record that the request goes to this container, on that copy."""
        ...

    def leave_container(self, num_bytes: int = 0) -> None:
        """Record the whole answer of a container before the last one."""
        ...

    def since_chosen_s(self) -> float:
        """Seconds since the copy was chosen."""
        ...


SendStep = Callable[[PipelineStep], Awaitable[InFlightRequest]]


async def through_pipeline(
    first: InFlightRequest, send: SendStep, limits: PipelineLimits, measured: ContainerTimes
) -> InFlightRequest:
    """Send a request on from its first container until a container gives the client's answer.

    Closing the result closes `first` too. Raises UpstreamError and the errors of `send`, and then
    leaves nothing in flight. Raises ContainerDownError if a container refuses the connection. No
    other copy is tried then, because earlier containers have already processed the request.
    """
    current = first
    further = first.copy.further
    try:
        for number, copy in enumerate(further, start=1):
            if not 200 <= current.reply.status < 300:
                break
            step = await _next_step(current, copy, limits, measured, number == len(further))
            current.reply.close()
            if current is not first:
                current.close()
            current = await _send_step(step, send)
    except BaseException:
        current.close()
        if current is not first:
            first.close()
        raise
    if current is first:
        return first
    last = current

    def end() -> None:
        last.close()
        first.close()

    return InFlightRequest(first.copy, last.reply, end, answered_by=last.copy)


async def _next_step(
    current: InFlightRequest,
    copy: CopyRoute,
    limits: PipelineLimits,
    measured: ContainerTimes,
    is_last: bool,
) -> PipelineStep:
    """Read the answer of the container before, and build the next step."""
    reply = current.reply
    try:
        body = await reply.body(limits.max_body_bytes)
    except UpstreamError as error:
        error.copy = current.answered_by
        raise
    measured.leave_container(len(body))
    left_s = limits.total_s - measured.since_chosen_s()
    measured.enter_container(copy.container, copy.id)
    if left_s <= 0:
        raise DeadlineError("The time limit passed before the container was asked.", copy)
    return PipelineStep(
        copy=copy,
        content_type=reply.headers.get("content-type", OTHERWISE),
        content_encoding=reply.headers.get("content-encoding"),
        body=body,
        timeouts=Timeouts(total_s=left_s),
        is_last=is_last,
    )


async def _send_step(step: PipelineStep, send: SendStep) -> InFlightRequest:
    try:
        return await send(step)
    except ConnectError as error:
        raise ContainerDownError(
            f"Container {step.copy.container} takes no connection: its model server has ended, and "
            "is started again.",
            step.copy,
        ) from error
    except UpstreamError as error:
        error.copy = step.copy
        raise
