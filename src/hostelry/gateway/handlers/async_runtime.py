"""Runtime API: InvokeEndpointAsync, which hands requests to the jobs process."""

from typing import Protocol

import msgspec
from msgspec.structs import replace

from hostelry.aws.runtime import (
    AsyncInvokeRequest,
    accepted_answer,
    parse_async_invocation,
    runtime_error,
)
from hostelry.base.clock import Clock
from hostelry.base.errors import ServiceError
from hostelry.base.guards import INTERNAL_KEY_HEADER
from hostelry.base.http import HttpRequest, HttpResponse
from hostelry.base.ids import new_uuid
from hostelry.dataplane.control_client import ControlClient
from hostelry.dataplane.http.exchange import Exchange
from hostelry.dataplane.routes import RouteSource
from hostelry.domain.async_request import AsyncInference, AsyncRequest, object_uri
from hostelry.domain.load import LoadKey
from hostelry.domain.routes import EndpointRoute
from hostelry.domain.scope import Scope
from hostelry.gateway.handlers.callers import Callers, check_service
from hostelry.gateway.quota_gate import QuotaGate, name_principal
from hostelry.http1.calls import call
from hostelry.http1.reply import UpstreamError
from hostelry.http1.upstream import Timeouts, Upstream
from hostelry.permissions.needs.invocation import ASYNCHRONOUS, InvokedTarget
from hostelry.quotas.estimate import NO_TOKENS
from hostelry.quotas.matching import QuotaCall

DEFAULT_TTL_S = 21600
DEFAULT_TIMEOUT_S = 900
MAX_KEY_BYTES = 1024  # of S3


def build_async_request(
    scope: Scope,
    asked: AsyncInvokeRequest,
    settings: AsyncInference,
    body: bytes,
    ids: tuple[str, str],
    now: float,
) -> AsyncRequest:
    """Build the request to keep, which was accepted at `now`.

    `ids` are its id and its default inference id. Raises ServiceError ValidationError (400) if the
    input or the output is not a valid object.
    """
    own_id, new_inference_id = ids
    inference_id = asked.inference_id or new_inference_id
    input_uri = None
    if asked.input_location is not None:
        input_uri = object_uri(asked.input_location)
        if input_uri is None:
            raise _build_invalid_error(
                f"InputLocation '{asked.input_location}' names no object in S3; give it as"
                " s3://bucket/key or https://bucket.s3.REGION.amazonaws.com/key."
            )
    return AsyncRequest(
        id=own_id,
        inference_id=inference_id,
        scope=scope,
        endpoint_name=asked.endpoint_name,
        input_uri=input_uri,
        body=None if input_uri is not None else body,
        content_type=asked.content_type,
        accept=asked.accept,
        custom_attributes=asked.custom_attributes,
        output_uri=output_uri(asked, settings, inference_id),
        failure_uri=_check_key(
            f"{settings.failure_uri or settings.output_uri}/{inference_id}-error.out"
        ),
        success_topic_arn=settings.success_topic_arn,
        error_topic_arn=settings.error_topic_arn,
        include_response_in=settings.include_response_in,
        kms_key_id=settings.kms_key_id,
        accepted_at=now,
        expires_at=now + (asked.request_ttl_s or DEFAULT_TTL_S),
        timeout_s=float(asked.invocation_timeout_s or DEFAULT_TIMEOUT_S),
    )


def output_uri(asked: AsyncInvokeRequest, settings: AsyncInference, inference_id: str) -> str:
    """Join S3OutputPath, the extension, and Filename or the inference id."""
    extension = (asked.output_path_extension or "").strip("/")
    folder = f"{settings.output_uri}/{extension}" if extension else settings.output_uri
    return _check_key(f"{folder}/{asked.filename or inference_id}.out")


def _check_key(uri: str) -> str:
    key = uri.removeprefix("s3://").partition("/")[2]
    if len(key.encode()) > MAX_KEY_BYTES:
        raise _build_invalid_error(
            f"The output object's key would have {len(key.encode())} bytes; S3 allows"
            f" {MAX_KEY_BYTES}. Shorten S3OutputPathExtension or InferenceId."
        )
    return uri


def _build_invalid_error(message: str) -> ServiceError:
    return ServiceError("ValidationError", message, 400)


SUBMIT_TIMEOUTS = Timeouts(total_s=15.0, connect_s=1.0)
MAX_ANSWER_BYTES = 64 * 1024
SUBMIT = "/internal/async-requests"


class JobsClient(Protocol):
    """The call to the jobs process."""

    async def submit(self, request: AsyncRequest) -> None:
        """Return once `request` is durable. Raises ServiceError 503 with the cause."""
        ...


class HttpJobsClient:
    """The jobs process at an address.

    Args:
        pool: connections, for example an `UpstreamPool`.
        address: ``http://host:port``.
        internal_key: the key of calls between the platform's processes.
    """

    def __init__(self, pool: Upstream, address: str, internal_key: str) -> None:
        self._pool = pool
        self._address = address
        self._headers = {INTERNAL_KEY_HEADER: internal_key}

    async def submit(self, request: AsyncRequest) -> None:
        """POST the request. Raises ServiceError 503 unless the process says that it is durable."""
        body = msgspec.msgpack.encode(request)
        asked = HttpRequest("POST", SUBMIT, "", self._headers, body)
        try:
            answer = await call(self._pool, self._address, asked, SUBMIT_TIMEOUTS, MAX_ANSWER_BYTES)
        except UpstreamError as error:
            raise build_not_queued_error(f"the jobs process does not answer ({error})") from error
        if answer.status != 204:
            raise build_not_queued_error(
                answer.body.decode(errors="replace").strip() or f"status {answer.status}"
            )


def build_not_queued_error(cause: str) -> ServiceError:
    """Build the error of a request that could not be kept. AWS clients retry on it."""
    return ServiceError(
        "ServiceUnavailable", f"The request could not be queued: {cause}. Try again.", 503
    )


SERVICE = "sagemaker"
# How often to look for the route of an endpoint that control serves and this worker lacks.
ROUTES_LOOK_S = 0.05
ROUTES_LOOKS = 100


class AsyncRuntimeHandler(msgspec.Struct, frozen=True, kw_only=True):
    """Serves ``/endpoints/NAME/async-invocations``."""

    callers: Callers
    routes: RouteSource
    control: ControlClient
    jobs: JobsClient
    clock: Clock
    quotas: QuotaGate

    def admit(self, request: HttpRequest) -> bool:
        """True if the head proves who invokes. Raises ServiceError if it cannot be valid."""
        return self.callers.admits_to(SERVICE, request)

    async def serve(self, exchange: Exchange, request_id: str) -> None:
        """Answer 202 once the request is durable. Raises ServiceError otherwise."""
        request = exchange.request
        identity = await self.callers.identify(request)
        check_service(identity.service, SERVICE)
        caller = self.callers.resolve(identity)
        exchange.note_caller(caller, identity.region)
        exchange.verified()
        scope = Scope(identity.account_id, identity.region)
        asked = parse_async_invocation(request)
        target = InvokedTarget(endpoint=asked.endpoint_name)
        self.callers.permits.check(caller, exchange, scope, ASYNCHRONOUS, target)
        route, settings = await self._route(scope, asked.endpoint_name)
        ids = (new_uuid().replace("-", ""), new_uuid())
        queued = replace(
            build_async_request(scope, asked, settings, request.body, ids, self.clock.now()),
            principal=caller.principal,
            endpoint_created_at=route.created_at,
        )
        if self.quotas.index is not None:
            call = QuotaCall(
                account=scope.account,
                principal=name_principal(caller),
                endpoint=asked.endpoint_name,
            )
            with self.quotas.admit(call, exchange, NO_TOKENS):
                await self.jobs.submit(queued)
        else:
            await self.jobs.submit(queued)
        exchange.respond(
            accepted_answer(
                request_id=request_id,
                inference_id=queued.inference_id,
                output_location=queued.output_uri,
                failure_location=queued.failure_uri,
            )
        )

    def error_answer(
        self, error: ServiceError, request: HttpRequest, request_id: str
    ) -> HttpResponse:
        """Format `error` as the runtime API does."""
        return runtime_error(error, request_id)

    async def _route(self, scope: Scope, name: str) -> tuple[EndpointRoute, AsyncInference]:
        """Find the endpoint and its settings. Raises ServiceError ValidationError without them."""
        route = self.routes.table.endpoint(scope, name) or await self._await_route(scope, name)
        if route is None:
            raise _build_invalid_error(f"Endpoint {name} of account {scope.account} not found.")
        if route.async_inference is None:
            raise _build_invalid_error(
                f"Endpoint {name} has no AsyncInferenceConfig: it takes InvokeEndpoint, not"
                " InvokeEndpointAsync."
            )
        return route, route.async_inference

    async def _await_route(self, scope: Scope, name: str) -> EndpointRoute | None:
        """Wait for the route of an endpoint that control serves. None if it does not come."""
        key = LoadKey(scope=scope, endpoint_name=name, variant_name="")
        if not await self.control.is_wanted(key):
            return None
        for _ in range(ROUTES_LOOKS):
            route = self.routes.table.endpoint(scope, name)
            if route is not None:
                return route
            await self.clock.sleep(ROUTES_LOOK_S)
        return None
