"""One attempt at a request: a copy gets the input, and its answer becomes the output object."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from hostelry.base.errors import HostelryError
from hostelry.dataplane.balancing.load_balancer import InFlightRequest, head_end, skip_count
from hostelry.dataplane.balancing.pipeline import (
    OTHERWISE,
    PipelineLimits,
    PipelineStep,
    through_pipeline,
)
from hostelry.dataplane.invocation_head import build_principal_headers, post_head
from hostelry.dataplane.metering.meter import Measurement, Meter
from hostelry.dataplane.model_error import build_answer_error, build_no_copy_answer_error
from hostelry.dataplane.route_table import Destination
from hostelry.domain.async_request import AsyncRequest
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.load import LoadKey
from hostelry.domain.routes import CopyRoute, EndpointRoute
from hostelry.http1.reply import (
    ConnectError,
    DeadlineError,
    Reply,
    TooLargeError,
    UpstreamError,
)
from hostelry.http1.streamed_body import BodyBrokenError
from hostelry.http1.upstream import Timeouts, UpstreamPool
from hostelry.jobs.dispatch.metric_reports import (
    DOWNLOAD_FAILURES,
    DOWNLOAD_LATENCY,
    UPLOAD_FAILURES,
    UPLOAD_LATENCY,
    AsyncMeasurements,
    Place,
)
from hostelry.jobs.dispatch.request_input import AttemptCapture, OpenInput, open_input
from hostelry.jobs.dispatch.slots import CopySlots
from hostelry.jobs.objects.object_output import AnswerWriter
from hostelry.jobs.objects.object_store import (
    ObjectError,
    ObjectStore,
    ObjectStoreDownError,
    OutputSettings,
)
from hostelry.jobs.rules.copy_slots import ChosenCopy
from hostelry.jobs.rules.messages import Response
from hostelry.jobs.rules.next_step import Trouble, classify_status

MAX_ERROR_BYTES = 1024 * 1024
MAX_BETWEEN_BYTES = 100 * 1024 * 1024  # limit of a body between two containers of a pipeline
MAX_WRITING = 64  # answers written at once, beyond which answers hold their copies
FORWARDED = ("X-Amzn-SageMaker-Forwarded-Api", "InvokeEndpointAsync")
Agree = Callable[[], Awaitable[bool]]


class AttemptFailedError(HostelryError):
    """The attempt has no output because of `trouble`. The text is the reason for the client."""

    def __init__(self, trouble: Trouble, reason: str) -> None:
        super().__init__(reason)
        self.trouble = trouble


class AttemptDeps(msgspec.Struct, frozen=True, kw_only=True):
    """Dependencies of attempts. `pool` has connections to copies, and `now_s` never goes back."""

    store: ObjectStore
    writer: AnswerWriter
    pool: UpstreamPool
    slots: CopySlots
    meter: Meter
    measurements: AsyncMeasurements
    now_s: Callable[[], float]


class CopyAttempts:
    """Runs attempts."""

    def __init__(self, deps: AttemptDeps) -> None:
        self._deps = deps
        self._writing = asyncio.Semaphore(MAX_WRITING)

    async def run(
        self,
        request: AsyncRequest,
        endpoint: EndpointRoute,
        chosen: ChosenCopy,
        captured: AttemptCapture,
        may_publish: Agree,
    ) -> Response:
        """Run an attempt, and return the written output.

        The slot `chosen` is given back once its copy has answered. Raises AttemptFailedError, and
        StaleClaimError if `may_publish` returns False.
        """
        attempt = CopyAttempt(self._deps, self._writing, request, endpoint, chosen, captured)
        try:
            return await attempt.run(may_publish)
        finally:
            attempt.end()


class CopyAttempt:
    """One attempt under way. `end` must be called once."""

    def __init__(
        self,
        deps: AttemptDeps,
        writing: asyncio.Semaphore,
        request: AsyncRequest,
        endpoint: EndpointRoute,
        chosen: ChosenCopy,
        captured: AttemptCapture,
    ) -> None:
        self._deps = deps
        self._writing = writing
        self._is_writing = False
        self._request = request
        self._endpoint = endpoint
        self._captured = captured
        self._chosen: ChosenCopy | None = chosen
        self._variant_name = chosen.variant_name
        self._answered_by: CopyRoute | None = None
        self._measured: Measurement | None = None

    @property
    def _place(self) -> Place:
        return self._endpoint.scope, self._endpoint.name, self._variant_name

    async def run(self, may_publish: Agree) -> Response:
        """Send the input to a copy, and write its answer to the output object."""
        given = await self._open()
        try:
            sent = await self._send(given)
            try:
                return await self._take(sent.reply, may_publish)
            finally:
                sent.close()
        finally:
            given.close()  # not earlier, because a copy may answer while it still reads

    def end(self) -> None:
        """Give back the slot and end the measurement."""
        self._leave_copy()
        if self._is_writing:
            self._is_writing = False
            self._writing.release()

    def _leave_copy(self) -> None:
        """Give back the slot of the copy, if there is one."""
        if self._measured is not None:
            self._measured.end()
        if self._chosen is not None:
            self._deps.slots.give_back(self._chosen)
            self._chosen = None

    async def _open(self) -> OpenInput:
        deps, began_s = self._deps, self._deps.now_s()

        def came() -> None:
            deps.measurements.add_us(self._place, DOWNLOAD_LATENCY, deps.now_s() - began_s)

        try:
            return await open_input(
                deps.store.acting_for(self._request.scope.account), self._request, came
            )
        except ObjectError as error:
            raise self._no_input(error) from error

    def _no_input(self, error: ObjectError) -> AttemptFailedError:
        self._deps.measurements.count(self._place, DOWNLOAD_FAILURES)
        is_down = isinstance(error, ObjectStoreDownError)
        return AttemptFailedError(Trouble.STORE_DOWN if is_down else Trouble.NO_INPUT, str(error))

    async def _send(self, given: OpenInput) -> InFlightRequest:
        """Send the input, and return once the head of the answer has arrived.

        If a copy refuses the connection, other copies are tried. In a pipeline, the answer is the
        last container's, or the answer of the container that refused the request.
        """
        while self._chosen is not None:
            try:
                return await self._send_to(self._chosen, given)
            except ConnectError:
                self._deps.slots.block(self._chosen)
                self._deps.slots.give_back(self._chosen)
                self._chosen = self._deps.slots.take(self._endpoint)
            except BodyBrokenError as error:
                if isinstance(error.cause, ObjectError):
                    raise self._no_input(error.cause) from error
                raise self._no_answer(error) from error
            except UpstreamError as error:
                raise self._no_answer(error) from error
        raise AttemptFailedError(Trouble.NO_COPY, "No copy took the request.")

    async def _send_to(self, chosen: ChosenCopy, given: OpenInput) -> InFlightRequest:
        self._variant_name = chosen.variant_name
        if self._measured is not None:
            self._measured.end()
        self._measured = self._deps.meter.begin(self._key)
        self._captured.begin(self._destination, given)
        copy = chosen.copy
        self._measured.enter_container(copy.container)
        self._measured.record_copy(copy.id, self._deps.slots.count_in_flight(copy.id), copy.config)
        self._answered_by = copy
        reply = await self._ask(copy, given)
        first = InFlightRequest(copy, reply, skip_count)
        if not copy.further:
            return first
        limits = PipelineLimits(total_s=self._request.timeout_s, max_body_bytes=MAX_BETWEEN_BYTES)
        found = await through_pipeline(first, self._send_on, limits, self._measured)
        self._answered_by = found.answered_by
        return found

    async def _ask(self, copy: CopyRoute, given: OpenInput) -> Reply:
        content_type = self._request.content_type or given.content_type
        kept = (("X-Amzn-SageMaker-Custom-Attributes", self._request.custom_attributes),)
        head = self._head(given.size_bytes, content_type or OTHERWISE, kept) + head_end(copy.key)
        timeouts, pool = Timeouts(total_s=self._request.timeout_s), self._deps.pool
        if not given.is_streamed:
            return await pool.send(copy.address, (head, given.body or b""), timeouts)
        return await pool.stream(copy.address, head, given.stream(), timeouts)

    async def _send_on(self, step: PipelineStep) -> InFlightRequest:
        encoding = (("Content-Encoding", step.content_encoding),)
        head = self._head(len(step.body), step.content_type, encoding) + head_end(step.copy.key)
        address, pool = step.copy.address, self._deps.pool
        reply = await pool.send(address, (head, step.body), step.timeouts)
        return InFlightRequest(step.copy, reply, skip_count)

    def _head(
        self, num_bytes: int, content_type: str, more: Iterable[tuple[str, str | None]]
    ) -> bytes:
        request = self._request
        return post_head(
            "/invocations",
            num_bytes,
            (
                FORWARDED,
                ("Content-Type", content_type),
                ("Accept", request.accept),
                ("X-Amzn-SageMaker-Inference-Id", request.inference_id),
                ("x-request-id", request.id),
                *build_principal_headers(request.principal).items(),
                *more,
            ),
        )

    async def _take(self, reply: Reply, may_publish: Agree) -> Response:
        trouble = classify_status(reply.status)
        if trouble is not None:
            raise await self._build_refusal(trouble, reply)
        request, deps, began_s = self._request, self._deps, self._deps.now_s()
        content_type = reply.headers.get("content-type")

        async def agree() -> bool:
            nonlocal began_s
            if self._measured is not None:
                self._measured.record_answer()
            await self._writing.acquire()
            self._is_writing = True
            self._leave_copy()
            began_s = deps.now_s()
            return await may_publish()

        settings = OutputSettings(content_type=content_type, kms_key_id=request.kms_key_id)
        try:
            body = await deps.writer.write(
                request.scope.account, request.output_uri, reply, settings, agree
            )
        except ObjectError as error:
            deps.measurements.count(self._place, UPLOAD_FAILURES)
            is_down = isinstance(error, ObjectStoreDownError)
            lost = Trouble.STORE_DOWN if is_down else Trouble.NO_OUTPUT
            raise AttemptFailedError(lost, str(error)) from error
        except UpstreamError as error:
            raise self._no_answer(error) from error
        deps.measurements.add_us(self._place, UPLOAD_LATENCY, deps.now_s() - began_s)
        self._captured.note_answer(self._destination, body, reply.headers)
        return Response(location=request.output_uri, content_type=content_type, body=body)

    async def _build_refusal(self, trouble: Trouble, reply: Reply) -> AttemptFailedError:
        try:
            body = await reply.body(MAX_ERROR_BYTES)
        except TooLargeError as error:
            body = str(error).encode()
        except UpstreamError as error:
            return self._no_answer(error)
        if self._measured is not None:
            self._measured.record_answer()
            self._measured.record_model_error(reply.status)
        reason = build_answer_error(
            self._destination, reply.status, body, copy=self._answered_by
        ).message
        return AttemptFailedError(trouble, reason)

    def _no_answer(self, error: UpstreamError) -> AttemptFailedError:
        if self._measured is not None:
            self._measured.record_no_answer()
        is_late = isinstance(error, DeadlineError)
        copy = error.copy or self._answered_by
        reason = build_no_copy_answer_error(self._destination, error, copy).message
        return AttemptFailedError(Trouble.TIMED_OUT if is_late else Trouble.MODEL_FAILED, reason)

    @property
    def _key(self) -> LoadKey:
        return LoadKey(
            scope=self._endpoint.scope,
            endpoint_name=self._endpoint.name,
            variant_name=self._variant_name,
        )

    @property
    def _destination(self) -> Destination:
        """Build the destination, for error texts and for data capture."""
        variants = self._endpoint.variants
        return Destination(
            scope=self._endpoint.scope,
            endpoint_name=self._endpoint.name,
            variant_name=self._variant_name,
            component_name=None,
            routing=RoutingStrategy.LEAST_OUTSTANDING_REQUESTS,
            copies=(),
            key=self._key,
            capture=next((it.capture for it in variants if it.name == self._variant_name), None),
        )
