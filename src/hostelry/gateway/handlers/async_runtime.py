"""Runtime API: InvokeEndpointAsync."""

from dataclasses import dataclass, replace

from hostelry.aws.async_runtime import accepted_answer, parse_async_invocation
from hostelry.aws.runtime import runtime_error
from hostelry.base.clock import Clock
from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest, HttpResponse
from hostelry.base.ids import new_uuid
from hostelry.dataplane.control_client import ControlClient
from hostelry.dataplane.http.exchange import Exchange
from hostelry.dataplane.routes import RouteSource
from hostelry.domain.async_inference import AsyncInference
from hostelry.domain.load import LoadKey
from hostelry.domain.routes import EndpointRoute
from hostelry.domain.scope import Scope
from hostelry.gateway.handlers.callers import Callers, check_service, principal_of
from hostelry.gateway.jobs_client import JobsClient
from hostelry.gateway.queued_request import queued_request

SERVICE = "sagemaker"
# For the route of an endpoint that control serves and this worker does not know yet.
ROUTES_LOOK_S = 0.05
ROUTES_LOOKS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncRuntimeHandler:
    """Serves ``/endpoints/NAME/async-invocations``."""

    callers: Callers
    routes: RouteSource
    control: ControlClient
    jobs: JobsClient
    clock: Clock

    def admit(self, request: HttpRequest) -> bool:
        """Whether the head proves who invokes; raises ServiceError where it cannot be valid."""
        return self.callers.admits_to(SERVICE, request)

    async def serve(self, exchange: Exchange, request_id: str) -> None:
        """Answer 202 once the request is durable; raises ServiceError otherwise."""
        request = exchange.request
        identity = await self.callers.identify(request)
        check_service(identity.service, SERVICE)
        exchange.verified()
        scope = Scope(identity.account_id, identity.region)
        asked = parse_async_invocation(request)
        route, settings = await self._route(scope, asked.endpoint_name)
        ids = (new_uuid().replace("-", ""), new_uuid())
        queued = replace(
            queued_request(scope, asked, settings, request.body, ids, self.clock.now()),
            principal=principal_of(identity.session),
            endpoint_created_at=route.created_at,
        )
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
        """`error` in the runtime API's format."""
        return runtime_error(error, request_id)

    async def _route(self, scope: Scope, name: str) -> tuple[EndpointRoute, AsyncInference]:
        """The endpoint and its settings; raises ServiceError ValidationError if it has none."""
        route = self.routes.table.endpoint(scope, name) or await self._coming(scope, name)
        if route is None:
            raise _invalid(f"Endpoint {name} of account {scope.account} not found.")
        if route.async_inference is None:
            raise _invalid(
                f"Endpoint {name} has no AsyncInferenceConfig: it takes InvokeEndpoint, not"
                " InvokeEndpointAsync."
            )
        return route, route.async_inference

    async def _coming(self, scope: Scope, name: str) -> EndpointRoute | None:
        """The route of an endpoint that control serves already, once it has come here."""
        key = LoadKey(scope=scope, endpoint_name=name, variant_name="")
        if not await self.control.is_wanted(key):
            return None
        for _ in range(ROUTES_LOOKS):
            route = self.routes.table.endpoint(scope, name)
            if route is not None:
                return route
            await self.clock.sleep(ROUTES_LOOK_S)
        return None


def _invalid(message: str) -> ServiceError:
    return ServiceError("ValidationError", message, 400)
