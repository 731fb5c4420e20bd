"""Runtime API: InvokeEndpoint and InvokeEndpointWithResponseStream."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress

import msgspec
from msgspec import structs
from msgspec.structs import replace

from hostelry.aws.eventstream import payload_part, stream_exception
from hostelry.aws.runtime import (
    InvokeRequest,
    invocation_response_headers,
    parse_invocation,
    runtime_error,
)
from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest, HttpResponse
from hostelry.dataplane.balancing.destination import (
    NoCopyError,
    TrafficSplit,
    find_destination,
    unavailable,
)
from hostelry.dataplane.balancing.load_balancer import Chosen, InFlightRequest
from hostelry.dataplane.balancing.model_balancer import (
    Balancers,
    TargetModelRefusedError,
)
from hostelry.dataplane.balancing.outstanding import (
    ConcurrencyError,
    check_invocation,
    enter,
    is_beyond_provisioned,
)
from hostelry.dataplane.balancing.sessions import (
    CLOSED_SESSION_ID,
    new_session_id,
    pinned_copy,
)
from hostelry.dataplane.http.exchange import Exchange
from hostelry.dataplane.invocation_head import STEPS, find_note_headers
from hostelry.dataplane.metering.meter import Measurement
from hostelry.dataplane.model_error import (
    ModelError,
    build_answer_error,
    build_model_refusal,
    build_no_copy_answer_error,
    explain_timeout,
)
from hostelry.dataplane.route_table import Destination
from hostelry.dataplane.routes import RouteSource
from hostelry.dataplane.tracing.call_trace import CallTrace, RouteView
from hostelry.domain.at_zero import AtZero
from hostelry.domain.routes import CopyRoute
from hostelry.domain.scope import Scope
from hostelry.domain.serverless import MAX_INVOCATION_S, MAX_PAYLOAD_BYTES
from hostelry.gateway.handlers.admission import CallAdmission, SentRequest, send_when_ready
from hostelry.gateway.handlers.callers import (
    Callers,
    bind_principal,
    check_service,
    is_copy_identity,
)
from hostelry.gateway.handlers.invocation_call import InvocationCall, RequestTaps, TappedInvocation
from hostelry.gateway.queueing.turns import PLACES, RequestTurn, TurnRefusedError
from hostelry.gateway.quota_gate import describe_invocation, name_principal
from hostelry.graph.step_report import PROOF_HEADER
from hostelry.http1.reply import ConnectError, DeadlineError, Reply, UpstreamError
from hostelry.http1.upstream import Timeouts
from hostelry.permissions.needs.invocation import STREAMED, WHOLE, InvokedTarget
from hostelry.principals.caller import Caller
from hostelry.quotas.matching import NO_STANDING, CallStanding
from hostelry.routing.session import NEW_SESSION

SERVICE = "sagemaker"
SendTo = Callable[[Destination, Chosen, Measurement], Awaitable[InFlightRequest]]
MAX_ERROR_BYTES = 1024 * 1024

# In the calls of a graph: the request that the graph serves, and its step. It is believed if the
# keys of a copy signed the call.
PARENT = "x-hostelry-parent-request"


class InvocationLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of an answer's size and of a container's time."""

    max_answer_bytes: int = 25 * 1024 * 1024
    invoke_timeout_s: float = 60.0
    stream_timeout_s: float = 480.0

    @property
    def whole(self) -> Timeouts:
        """The timeouts of a whole answer."""
        return Timeouts(total_s=self.invoke_timeout_s)

    @property
    def stream(self) -> Timeouts:
        """The timeouts of a streamed answer."""
        return Timeouts(total_s=self.stream_timeout_s)


class CallLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one invocation: its container's time, and the bytes of a whole answer."""

    timeouts: Timeouts
    max_answer_bytes: int


class RuntimeHandler:
    """Serves ``/endpoints/NAME/invocations`` and ``.../invocations-response-stream``."""

    def __init__(
        self,
        callers: Callers,
        routes: RouteSource,
        balancers: Balancers,
        admission: CallAdmission,
        limits: InvocationLimits,
        draw: Callable[[], float],
        taps: RequestTaps,
    ) -> None:
        self._callers = callers
        self._routes = routes
        self._balancers = balancers
        self._counts = balancers.counts
        self._pending_queue = admission.pending_queue
        self._quotas = admission.quotas
        self._turns = admission.turns
        self._whole_limits = CallLimits(
            timeouts=limits.whole, max_answer_bytes=limits.max_answer_bytes
        )
        self._stream_limits = CallLimits(
            timeouts=limits.stream, max_answer_bytes=limits.max_answer_bytes
        )
        self._serverless_limits = CallLimits(
            timeouts=Timeouts(total_s=min(limits.invoke_timeout_s, MAX_INVOCATION_S)),
            max_answer_bytes=min(limits.max_answer_bytes, MAX_PAYLOAD_BYTES),
        )
        self._draw = draw
        self._traffic = TrafficSplit(draw)
        self._sessions = balancers.sessions
        self._taps = taps

    def admit(self, request: HttpRequest) -> bool:
        """True if the head proves who invokes. Raises ServiceError if it cannot be valid."""
        return self._callers.admits_to(SERVICE, request)

    async def serve(self, exchange: Exchange, request_id: str) -> None:
        """Answer one invocation. Raises ServiceError before the first byte of the answer."""
        request = exchange.request
        identity = await self._callers.identify(request, invokes=True)
        check_service(identity.service, SERVICE)
        caller = self._callers.resolve(identity)
        exchange.note_caller(caller, identity.region)
        exchange.verified()
        exchange.request = request = bind_principal(request, caller.principal)
        scope = Scope(identity.account_id, identity.region)
        from_copy = is_copy_identity(identity)
        if from_copy and PROOF_HEADER.lower() in request.headers:
            invocation = parse_invocation(request)
            self._check_permits(caller, exchange, scope, invocation)
            self._prove_target(exchange, scope, invocation)
            return
        trace = exchange.trace = self._taps.calls.begin(request_id, identity.account_id, request)
        if from_copy:
            trace.set_parent(request.headers.get(PARENT, ""))
        invocation = parse_invocation(request)
        trace.operation = STREAMED if invocation.stream else WHOLE
        trace.endpoint, trace.target_model = invocation.endpoint_name, invocation.target_model
        self._check_permits(caller, exchange, scope, invocation)
        if self._quotas.index is None:
            await self._serve_admitted(exchange, scope, invocation)
            return
        principal = name_principal(caller)
        call = describe_invocation(self._routes.table, scope, principal, invocation)
        with self._quotas.admit(call, exchange):
            standing = self._quotas.find_standing(call)
            await self._serve_admitted(exchange, scope, invocation, standing)

    async def _serve_admitted(
        self,
        exchange: Exchange,
        scope: Scope,
        invocation: InvokeRequest,
        standing: CallStanding = NO_STANDING,
    ) -> None:
        """Serve an invocation that its quotas admit, within the limit of a serverless variant."""
        serverless = self._routes.table.serverless(scope, invocation.endpoint_name)
        if serverless is None:
            limits = self._stream_limits if invocation.stream else self._whole_limits
            turn = None
            if invocation.target_model is None and invocation.session_id is None:
                trace, num_bytes = exchange.trace, len(exchange.request.body)
                tenant = f"{trace.account}/{trace.tenant}"
                turn = self._turns.begin(tenant, standing, num_bytes)
            if turn is None:
                await self._serve(exchange, scope, invocation, limits)
                return
            try:
                await self._serve(exchange, scope, invocation, limits, turn)
            finally:
                turn.end()
            return
        check_invocation(serverless, invocation, len(exchange.request.body))
        try:
            leave = enter(serverless, self._counts)
        except ConcurrencyError:
            self._pending_queue.count_throttled(serverless.key)
            raise
        if is_beyond_provisioned(serverless, self._counts):
            self._pending_queue.count_spilled(serverless.key)
        try:
            await self._serve(exchange, scope, invocation, self._serverless_limits)
        finally:
            leave()
            self._pending_queue.release_next(serverless.key)

    def _check_permits(
        self, caller: Caller, exchange: Exchange, scope: Scope, invocation: InvokeRequest
    ) -> None:
        """Raise ServiceError 403 unless the caller's policies allow the invocation."""
        operation = STREAMED if invocation.stream else WHOLE
        target = InvokedTarget(
            endpoint=invocation.endpoint_name,
            component=invocation.inference_component_name or "",
            model=invocation.target_model or "",
            container=invocation.target_container_hostname or "",
        )
        self._callers.permits.check(caller, exchange, scope, operation, target)

    async def _serve(
        self,
        exchange: Exchange,
        scope: Scope,
        invocation: InvokeRequest,
        limits: CallLimits,
        turn: RequestTurn | None = None,
    ) -> None:
        trace = exchange.trace
        request_id = trace.request_id
        tapped = TappedInvocation(self._taps, invocation, exchange.request, request_id)
        if invocation.session_id is not None:
            await self._sessions.fetch(scope, invocation)
        sent = await self._send_when_ready(scope, tapped, limits, trace, turn)
        destination, in_flight = sent.destination, sent.in_flight
        try:
            reply = in_flight.reply
            if STEPS in reply.headers:
                trace.set_steps(reply.headers[STEPS])
            if PLACES in reply.headers and not destination.is_pipeline:
                self._turns.learn(in_flight.copy.id, reply.headers[PLACES])
            if invocation.session_id is not None and 200 <= reply.status < 300:
                self._sessions.note(scope, invocation, in_flight.copy, reply.headers)
            headers = build_answer_headers(reply, destination, request_id, invocation)
            if invocation.stream:
                await self._answer_stream(exchange, sent, headers, tapped)
            else:
                await self._answer_whole(exchange, sent, headers, tapped, limits)
        finally:
            in_flight.close()
            sent.measured.end()

    def error_answer(
        self, error: ServiceError, request: HttpRequest, request_id: str
    ) -> HttpResponse:
        """Format `error` as the runtime API does, with the Retry-After of a busy container."""
        answer = runtime_error(error, request_id)
        if isinstance(error, ModelError | TurnRefusedError) and error.retry_after is not None:
            return structs.replace(
                answer, headers={**answer.headers, "Retry-After": error.retry_after}
            )
        return answer

    def _prove_target(self, exchange: Exchange, scope: Scope, invocation: InvokeRequest) -> None:
        """Answer whether a graph's target exists. Raises as an invocation of it would."""
        with suppress(NoCopyError):  # it may have copies later
            find_destination(self._routes.table, scope, invocation, self._draw())
        exchange.respond(HttpResponse(200))

    def _find(self, scope: Scope, invocation: InvokeRequest) -> Destination:
        """Find the destination. With an open session, it has only the copy of the session."""
        table, session_id = self._routes.table, invocation.session_id
        if session_id is None or session_id == NEW_SESSION:
            return find_destination(table, scope, invocation, self._draw())
        holder = self._sessions.holder(scope, invocation)
        destination = find_destination(table, scope, invocation, self._draw(), holder)
        copy = pinned_copy(destination, session_id, holder)
        return replace(destination, copies=(copy,), fleets=None)

    async def _split(
        self, destination: Destination, measured: Measurement, send_to: SendTo
    ) -> InFlightRequest:
        """Send to the fleet whose turn it is, and to the other fleet if all its copies refuse."""
        fleets, refusal = destination.fleets, ConnectError("There is no copy to connect to.")
        assert fleets is not None, "only traffic that shifts is split"
        for fleet in self._traffic.in_order(destination):
            others = [it.id for it in (fleets.new if fleet.copies is fleets.old else fleets.old)]

            def chosen(
                copy_id: str,
                num_on_copies: int,
                config: str | None,
                route: RouteView | None,
                others: list[str] = others,
            ) -> None:
                num_others = sum(map(self._counts.of, others))
                measured.record_copy(copy_id, num_on_copies + num_others, config, route)

            try:
                return await send_to(fleet, chosen, measured)
            except ConnectError as error:
                refusal = error
        raise refusal

    async def _send_when_ready(
        self,
        scope: Scope,
        tapped: TappedInvocation,
        limits: CallLimits,
        trace: CallTrace,
        turn: RequestTurn | None,
    ) -> SentRequest:
        """Send the invocation to a copy. It does not wait if it needs the copy of its session."""
        invocation, request, timeouts = tapped.invocation, tapped.request, limits.timeouts
        has_session = trace.has_session = invocation.session_id not in (None, NEW_SESSION)
        call = InvocationCall(
            balancers=self._balancers,
            tapped=tapped,
            timeouts=timeouts,
            max_answer_bytes=limits.max_answer_bytes,
            turn=turn,
        )

        async def send(destination: Destination, measured: Measurement) -> InFlightRequest:
            if destination.shadow is not None:  # once production's request is on its way
                asyncio.get_running_loop().call_soon(tapped.offer, destination)
            try:
                if destination.fleets is None:
                    return await call.send(destination, measured.record_copy, measured)
                return await self._split(destination, measured, call.send)
            except ConnectError:
                if has_session or destination.at_zero is AtZero.COMPAT:
                    measured.record_no_answer()
                    raise unavailable(destination.endpoint_name) from None
                raise
            except TargetModelRefusedError as error:
                measured.record_model_error(error.model_status or error.status)
                raise build_model_refusal(destination, error) from error
            except UpstreamError as error:
                measured.record_no_answer()
                raise build_no_copy_answer_error(destination, error) from error

        limit_s = 0.0 if has_session else timeouts.total_s
        pending = self._pending_queue.begin_request(
            lambda: self._find(scope, invocation), len(request.body), limit_s, trace
        )
        return await send_when_ready(self._pending_queue, pending, send)

    async def _answer_whole(
        self,
        exchange: Exchange,
        sent: SentRequest,
        headers: dict[str, str],
        tapped: TappedInvocation,
        limits: CallLimits,
    ) -> None:
        reply, measured = sent.in_flight.reply, sent.measured
        answered_by = sent.in_flight.answered_by
        try:
            body = await reply.body(limits.max_answer_bytes)
        except UpstreamError as error:
            measured.record_no_answer()
            raise build_no_copy_answer_error(sent.destination, error, answered_by) from error
        measured.record_answer(body, reply.head_ns)
        measured.add_bytes(len(exchange.request.body), len(body))
        if not 200 <= reply.status < 300:
            measured.record_model_error(reply.status)
            raise build_container_error(sent, body)
        exchange.respond(HttpResponse(200, headers, body))
        with closing(tapped.tap(sent.destination)) as tap:
            tap.add(body)
            tap.finish(reply.headers)

    async def _answer_stream(
        self,
        exchange: Exchange,
        sent: SentRequest,
        headers: dict[str, str],
        tapped: TappedInvocation,
    ) -> None:
        """Stream the answer. It begins with the first chunk: an early failure has a status."""
        reply, measured = sent.in_flight.reply, sent.measured
        try:
            if not 200 <= reply.status < 300:
                body = await reply.body(MAX_ERROR_BYTES)
                measured.record_answer(body, reply.head_ns)
                measured.add_bytes(len(exchange.request.body), len(body))
                measured.record_model_error(reply.status)
                raise build_container_error(sent, body)
            await reply.arrive()
        except UpstreamError as error:
            measured.record_no_answer()
            answered_by = sent.in_flight.answered_by
            raise build_no_copy_answer_error(sent.destination, error, answered_by) from error
        measured.record_first_chunk()
        measured.add_bytes(len(exchange.request.body), 0)
        exchange.start(200, headers)
        tap = tapped.tap(sent.destination)

        def take(chunk: bytes) -> bool:
            measured.add_bytes(0, len(chunk))
            measured.record_chunk(chunk)
            is_full = exchange.send_now(payload_part(chunk))
            tap.add(chunk)
            return is_full

        try:
            await reply.pass_on(take, exchange.wait_for_room)
            measured.record_answer()
            exchange.finish()
            tap.finish(reply.headers)
        except UpstreamError as error:
            measured.record_broken_stream()
            await exchange.send(build_break_frame(error, sent.in_flight.answered_by))
            exchange.finish()
        finally:
            tap.close()


def build_container_error(sent: SentRequest, body: bytes) -> ModelError:
    """Build the error for a container's error answer."""
    reply, answered_by = sent.in_flight.reply, sent.in_flight.answered_by
    retry_after = reply.headers.get("retry-after")
    return build_answer_error(sent.destination, reply.status, body, retry_after, answered_by)


def build_answer_headers(
    reply: Reply, destination: Destination, request_id: str, invocation: InvokeRequest
) -> dict[str, str]:
    """Build the headers of a 200 answer from the container's headers."""
    given = reply.headers.get
    return find_note_headers(reply.headers) | invocation_response_headers(
        request_id=request_id,
        invoked_production_variant=destination.variant_name,
        content_type=given("content-type"),
        custom_attributes=given("x-amzn-sagemaker-custom-attributes"),
        new_session_id=new_session_id(invocation, reply.headers),
        closed_session_id=given(CLOSED_SESSION_ID),
        stream=invocation.stream,
    )


def build_break_frame(error: UpstreamError, copy: CopyRoute) -> bytes:
    """Build the frame that ends a stream after the container of `copy` failed."""
    if isinstance(error, DeadlineError):
        return stream_exception(
            "ModelStreamError", explain_timeout(copy), "ModelInvocationTimeExceeded"
        )
    message = "The model server closed the stream before its end."
    return stream_exception("ModelStreamError", message, "StreamBroken")
