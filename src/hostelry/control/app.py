"""Control's HTTP application: AWS calls from the gateway, and internal routes for other processes.

docs/architecture.md section 5 lists the routes. Every request needs the internal key.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from hostelry import __version__
from hostelry.api.context import CallContext, NotYetError, no_provider_keys
from hostelry.api.iam.aws_policies import aws_policies
from hostelry.api.operations import UNSIGNED_OPERATIONS, implementation, perform
from hostelry.audit.caller import name_service, name_unknown
from hostelry.audit.record import OWN_SOURCE
from hostelry.audit.trail import AuditTrail
from hostelry.aws.access_keys import AccessKeySecrets
from hostelry.aws.call import (
    ApiCall,
    find_target,
    parse_call,
    serialize_error,
    serialize_result,
)
from hostelry.aws.models import signing_name
from hostelry.aws.sigv4 import Identity
from hostelry.aws.temporary_keys import Session, TemporaryKeys, TokenSeal, parse_session_header
from hostelry.base.clock import Clock, monotonic_s, worked_s
from hostelry.base.errors import RetryableError, ServiceError
from hostelry.base.guards import INTERNAL_KEY_HEADER, KeyGuard, OwnHostsOnly
from hostelry.base.http import HttpRequest, HttpResponse
from hostelry.base.ids import new_request_id
from hostelry.base.json_response import JsonResponse
from hostelry.base.logging import about_request
from hostelry.base.root_key import RootKey
from hostelry.control.call_recorder import CallRecorder, NotedCall, explain_failure
from hostelry.control.call_threads import CallThreads, answer_call
from hostelry.control.gateway_routes import LoadRoutes, RouteRoutes, WakeRoutes
from hostelry.control.jobs_routes import TransformRoutes, loaded_job_routes
from hostelry.control.reports import PlacementReports
from hostelry.domain.endpoint import Endpoint
from hostelry.domain.load import Wake
from hostelry.domain.role import build_role_arn
from hostelry.domain.scope import Scope as Owner
from hostelry.domain.shape import NO_RESOURCES, Shape
from hostelry.events.call_rows import CallRows
from hostelry.fleet.shapes import instance_types
from hostelry.gateway.handlers.callers import check_service
from hostelry.gateway.handlers.control import (
    KEY_ID_HEADER,
    SECURE_HEADER,
    SOURCE_HEADER,
    UNSIGNED_HEADER,
    USER_HEADER,
)
from hostelry.home.home import Credentials
from hostelry.logs.store import LogStore
from hostelry.messaging.services import Messaging
from hostelry.metrics.protocol import MetricStore
from hostelry.metrics.sagemaker.load_aggregator import LoadAggregator
from hostelry.principals.audited import describe_caller
from hostelry.principals.caller import Caller, request_keys
from hostelry.principals.records import find_caller
from hostelry.reconcile.overview import (
    ai_benchmark_overview,
    experiment_overview,
    overview,
    recommendation_overview,
    transform_overview,
)
from hostelry.reconcile.reconciler import Reconciler
from hostelry.reconcile.record import filter_visible, load_all
from hostelry.store.records import State

LOG = logging.getLogger(__name__)
MAX_CALL_S = 50.0  # the gateway waits for 55 s


class ControlDeps(msgspec.Struct, frozen=True, kw_only=True):
    """Dependencies of control's application.

    `on_keys_issued` is called with temporary keys before the caller gets them. `wake` is called in
    a thread for each name without a copy for which requests wait. `aggregator` gets the load that
    gateway workers report. `note_step` is called after each successful call. These functions return
    data for `hostelry status`:

    - `last_used`: the time at which each environment was last used
    - `captured`: the sums of an endpoint's data capture
    - `verdict_of`: the verdict on an endpoint's update
    - `leader`: which of several controls leads
    - `gateway_hosts`: the hosts with gateways
    - `reached_quotas`: the quotas with a limit that is reached

    `machine` has the resources of this machine. `find_provider_keys` returns the public keys of an
    OpenID Connect provider, as in `CallContext`. `find_price` returns the price per hour of an
    instance type, or None if it is not known. `trail` gets a record of each call.
    """

    state: State
    reconciler: Reconciler
    credentials: Credentials
    clock: Clock
    get_shape: Callable[[str], Shape]
    max_body_bytes: int
    wake: Callable[[Wake], None] = lambda _: None
    aggregator: LoadAggregator = msgspec.field(default_factory=lambda: LoadAggregator(0.0))
    metrics: MetricStore
    pace: float = 1.0
    root_key: RootKey = msgspec.field(default_factory=RootKey)
    logs: LogStore | None = None
    on_keys_issued: Callable[[TemporaryKeys], None] = lambda _: None
    checks_roles: bool = True
    find_provider_keys: Callable[[str, str], Sequence[Mapping[str, Any]]] = no_provider_keys
    machine: Shape = NO_RESOURCES
    find_price: Callable[[str], float | None] = lambda _: None
    messaging: Messaging | None = None
    calls: CallRows | None = None
    foreign_s3: str = ""
    more_routes: tuple[Route, ...] = ()
    last_used: Callable[[], Mapping[str, float]] = dict
    captured: Callable[[Owner, str], Sequence[Mapping[str, Any]]] = lambda *_: ()
    verdict_of: Callable[[Endpoint], str | None] = lambda _: None
    note_step: Callable[[Owner, ApiCall], None] = lambda *_: None
    leader: Callable[[], dict[str, Any]] | None = None
    gateway_hosts: Callable[[], list[dict[str, Any]]] = list
    reached_quotas: Callable[[], dict[str, Any]] = dict
    trail: AuditTrail | None = None


class VerifiedCaller(msgspec.Struct, frozen=True, kw_only=True):
    """The caller as the gateway verified it. `signed_for` is the service of the signature.

    `source_ip` is the client's address, and `is_platform` is true for a process of the platform. If
    the request `is_unsigned`, its sender is not known, and may use `UNSIGNED_OPERATIONS` alone.
    """

    identity: Identity
    is_platform: bool
    is_unsigned: bool = False
    signed_for: str
    source_ip: str
    is_secure: bool

    @property
    def scope(self) -> Owner:
        """The account and region that the call is for."""
        return Owner(self.identity.account_id, self.identity.region)

    def check_operation(self, service: str, operation: str) -> None:
        """Raise ServiceError 403 if the operation needs a signature that is missing."""
        if self.is_unsigned and (service, operation) not in UNSIGNED_OPERATIONS:
            text = "Missing Authentication Token"
            raise ServiceError("MissingAuthenticationTokenException", text, 403)

    @property
    def sharer(self) -> str:
        """The account, user or role in whose name the caller takes turns at control's threads."""
        if self.is_unsigned:
            return "unsigned"
        identity = self.identity
        role_name = identity.session.role_name if identity.session is not None else ""
        return f"{identity.account_id}/{identity.user or role_name}"


def build_app(deps: ControlDeps) -> ASGIApp:
    """Build the ASGI application, which refuses every request without the internal key."""
    routes = InternalApi(deps)
    wakes = WakeRoutes(deps.state, deps.wake)
    loads = LoadRoutes(deps.aggregator, deps.clock)
    transforms = TransformRoutes(deps.reconciler.transforms)
    jobs = deps.reconciler
    app = Starlette(
        routes=[
            *RouteRoutes(deps.reconciler.routes).routes(),
            Route("/internal/state", routes.state, methods=["GET"]),
            Route("/internal/names", routes.names, methods=["GET"]),
            Route("/internal/placement", routes.placement, methods=["GET"]),
            Route("/internal/health", routes.health, methods=["GET"]),
            Route("/internal/load", loads.take, methods=["POST"]),
            Route("/internal/load", loads.show_recent, methods=["GET"]),
            Route("/internal/wake", wakes.wake, methods=["POST"]),
            Route("/internal/wanted", wakes.is_wanted, methods=["GET"]),
            Route("/internal/transform-jobs", transforms.get_newer, methods=["GET"]),
            Route("/internal/transform-jobs/progress", transforms.note_progress, methods=["POST"]),
            Route("/internal/transform-jobs/finish", transforms.finish, methods=["POST"]),
            *loaded_job_routes(jobs.recommendations, jobs.ai_recommendations, jobs.ai_benchmarks),
            *deps.more_routes,
            # All other requests are AWS calls. `find_target` finds the operation or refuses it.
            Route("/{path:path}", routes.call, methods=["GET", "POST", "PUT", "DELETE", "PATCH"]),
        ],
        exception_handlers={RetryableError: _ask_to_retry},
    )
    refusal = Response("The internal key is missing or wrong.", 403)
    key = deps.credentials.internal_key
    return OwnHostsOnly(KeyGuard(app, INTERNAL_KEY_HEADER, key, refusal))


async def _ask_to_retry(_: Request, error: Exception) -> Response:
    """Answer 503 if an internal route finds the store unavailable or busy."""
    return Response(f"Try again: {error}", 503)


class InternalApi:
    """Handlers of AWS calls and of internal routes."""

    def __init__(self, deps: ControlDeps) -> None:
        self._deps = deps
        self._seal = TokenSeal(deps.credentials.internal_key)
        self._secrets = AccessKeySecrets(deps.credentials.internal_key)
        self._threads = CallThreads()
        self._recorder = CallRecorder(deps.trail)
        self._reports = PlacementReports(
            deps.state, lambda: deps.reconciler.instances.facts, monotonic_s
        )

    async def call(self, request: Request) -> Response:
        """Perform an AWS control call for the caller that the gateway has verified."""
        request_id = request.headers.get("x-hostelry-request-id") or new_request_id()
        about_request(request_id)  # each request has a separate task
        plain = HttpRequest("POST", "/", "", {}, b"")
        try:
            plain = await _read_request(request, self._deps.max_body_bytes)
            caller = _read_caller(request)
            ask = partial(self._answer, plain, caller, request_id, monotonic_s() + MAX_CALL_S)
            answer = await answer_call(
                ask,
                request,
                self._deps.messaging,
                self._deps.clock,
                self._threads,
                caller.sharer,
            )
        except ServiceError as error:
            answer = serialize_error(error, None, request_id, plain)
        return Response(answer.body, answer.status, dict(answer.headers))

    async def state(self, request: Request) -> Response:
        """The data of `hostelry status`: endpoints, jobs, experiments and the routes' version."""
        states = await asyncio.to_thread(load_all, self._deps.state)
        stored = await asyncio.to_thread(self._deps.state.transform_jobs.list)
        experiments = await asyncio.to_thread(self._deps.state.inference_experiments.list)
        benchmarks = await asyncio.to_thread(self._deps.state.recommendation_jobs.list)
        benchmarks += await asyncio.to_thread(self._deps.state.ai_recommendation_jobs.list)
        ai_benchmarks = await asyncio.to_thread(self._deps.state.ai_benchmark_jobs.list)
        reconciler = self._deps.reconciler
        snapshot, facts = reconciler.routes.snapshot, reconciler.instances.facts
        get_progress = reconciler.transforms.get_progress
        now, pace = self._deps.clock.now(), self._deps.pace
        endpoints = overview(filter_visible(states), facts, now, pace, self._deps.verdict_of)
        used_at = self._deps.last_used()
        for copy in (copy for endpoint in endpoints for copy in endpoint["copies"]):
            copy["last_used_at"] = used_at.get(copy["id"])
        for endpoint in (it for it in endpoints if it["capture"] is not None):
            scope = Owner(endpoint["account"], endpoint["region"])
            endpoint["capture"]["variants"] = self._deps.captured(scope, endpoint["name"])
        shown: dict[str, Any] = {
            "endpoints": endpoints,
            "transform_jobs": transform_overview(
                (it.value for it in stored), states, facts, get_progress
            ),
            "inference_experiments": experiment_overview(it.value for it in experiments),
            "recommendation_jobs": recommendation_overview(it.value for it in benchmarks),
            "ai_benchmark_jobs": ai_benchmark_overview(it.value for it in ai_benchmarks),
            "routes_version": None if snapshot is None else snapshot.version,
            "version": __version__,
        }
        if self._deps.leader is not None:
            shown["control"] = await asyncio.to_thread(self._deps.leader)
        if hosts := self._deps.gateway_hosts():
            shown["gateway_hosts"] = hosts
        if quotas := self._deps.reached_quotas():
            shown["quotas"] = quotas
        return JsonResponse(shown)

    async def names(self, request: Request) -> Response:
        """The names and ids of all resources, for completion in shells."""
        return JsonResponse(await asyncio.to_thread(self._list_names))

    async def placement(self, request: Request) -> Response:
        """The data of `hostelry explain`: the endpoints of `state`, each with `placement`."""
        shown = {"endpoints": await asyncio.to_thread(self._reports.endpoints)}
        return JsonResponse(shown)

    async def health(self, request: Request) -> Response:
        """Answer 200 while the store answers. `ready` is true once routes are published."""
        revision = await asyncio.to_thread(self._deps.state.store.revision)
        is_ready = self._deps.reconciler.routes.snapshot is not None
        return JsonResponse(
            {"status": "ok", "ready": is_ready, "revision": revision, "version": __version__}
        )

    def _list_names(self) -> dict[str, list[str]]:
        states = filter_visible(load_all(self._deps.state))
        endpoints = [it for it in states if it.endpoint is not None]
        return {
            "endpoints": [it.endpoint.name for it in endpoints if it.endpoint is not None],
            "variants": [variant.variant.name for it in endpoints for _, variant in it.variants()],
            "components": [name for it in endpoints for name in it.components],
            "instances": [name for it in endpoints for name in it.instances],
            "copies": [name for it in endpoints for name in it.copies],
            "transform_jobs": [it.value.name for it in self._deps.state.transform_jobs.list()],
            "quotas": [it.value.name for it in self._deps.state.quotas.list()],
        }

    def _answer(
        self,
        request: HttpRequest,
        caller: VerifiedCaller,
        request_id: str,
        until_s: float,
        may_wait: bool,
    ) -> HttpResponse:
        """Answer one call, errors included. Runs in a thread. The call is too late after `until_s`.

        If it `may_wait`, raises NotYetError for a long poll without a message.
        """
        noted = NotedCall(
            scope=caller.scope,
            at=self._deps.clock.now(),
            request_id=request_id,
            access_key_id=caller.identity.access_key_id,
            address=caller.source_ip,
            user_agent=request.headers.get("user-agent", ""),
        )
        call: ApiCall | None = None
        try:
            target = find_target(request)
            noted.service, noted.operation = target.service, target.operation
            principal = self._find_principal(caller, noted)
            check_service(caller.signed_for, signing_name(target.service))
            caller.check_operation(target.service, target.operation)
            # Checked before the parameters, because no parameter makes an unserved call valid.
            implementation(target.service, target.operation)
            call = parse_call(request, request_id)
            noted.params = call.params
            self._recorder.check(noted)
            context = self._build_context(caller, principal, noted, may_wait, until_s)
            result = perform(context, call.service, call.operation, call.params)
            noted.result = result
            self._deps.note_step(caller.scope, call)
            answer = serialize_result(call, result)
            failure = None
        except NotYetError:
            raise
        except (ServiceError, RetryableError) as error:
            failure = explain_failure(error, noted)
        except Exception as defect:  # the outermost handler of every API operation
            LOG.exception("request %s (%s) failed", request_id, noted.operation)
            failure = explain_failure(defect, noted)
        failure = self._recorder.record(noted, failure)
        return answer if failure is None else serialize_error(failure, call, request_id, request)

    def _issue(self, session: Session) -> TemporaryKeys:
        keys = self._seal.issue(session)
        self._deps.on_keys_issued(keys)
        return keys

    def _find_principal(self, caller: VerifiedCaller, noted: NotedCall) -> Caller | None:
        """The principal that calls. Raises ServiceError 403.

        None for a process of the platform, and for a call whose token is the proof.
        """
        if caller.is_platform:
            noted.caller = name_service(caller.scope.account, OWN_SOURCE)
            return None
        if caller.is_unsigned:
            noted.caller = name_unknown(caller.scope.account, "")
            return None
        owner = self._deps.credentials.account_id
        found = find_caller(self._deps.state, aws_policies(), owner, caller.identity)
        noted.caller = describe_caller(found)
        return found

    def _build_context(
        self,
        caller: VerifiedCaller,
        principal: Caller | None,
        noted: NotedCall,
        may_wait: bool,
        until_s: float,
    ) -> CallContext:
        deps, began_s, now = self._deps, worked_s(), self._deps.clock.now()
        role_name = deps.credentials.role_name
        keys = request_keys(
            now=now,
            region=caller.scope.region,
            source_ip=caller.source_ip,
            user_agent=noted.user_agent,
            is_secure=caller.is_secure,
        )
        return CallContext(
            scope=caller.scope,
            caller=principal,
            request_keys=keys,
            note_decision=noted.note_decision,
            name_caller=noted.name_caller,
            session=caller.identity.session,
            state=deps.state,
            now=now,
            get_shape=deps.get_shape,
            role_arn=build_role_arn(caller.scope.account, role_name),
            role_name=role_name,
            first_account=deps.credentials.account_id,
            pace=deps.pace,
            metrics=deps.metrics,
            instance_types=instance_types(),
            machine=deps.machine,
            find_price=deps.find_price,
            root_key=deps.root_key,
            log_store=deps.logs,
            issue_keys=self._issue,
            derive_secret=self._secrets.derive,
            find_provider_keys=deps.find_provider_keys,
            checks_roles=deps.checks_roles,
            messaging=deps.messaging,
            may_wait=may_wait,
            calls=deps.calls,
            foreign_s3=deps.foreign_s3,
            verdict_of=deps.verdict_of,
            is_late=lambda: monotonic_s() > until_s,
            worked_s=lambda: worked_s() - began_s,
            trail=deps.trail,
        )


async def _read_request(request: Request, max_body_bytes: int) -> HttpRequest:
    """Read the request as the gateway received it. Raises ServiceError for too large a body."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_body_bytes:
            message = f"The request body is larger than the limit of {max_body_bytes} bytes."
            raise ServiceError("RequestEntityTooLargeException", message, 413)
    headers: dict[str, str] = {}
    for name, value in request.headers.items():
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    raw_path: bytes = request.scope.get("raw_path") or request.url.path.encode()
    return HttpRequest(
        method=request.method,
        path=raw_path.decode("latin-1"),
        query=request.scope["query_string"].decode("latin-1"),
        headers=headers,
        body=bytes(body),
    )


def _read_caller(request: Request) -> VerifiedCaller:
    """Read the identity that the gateway verified. Raises ServiceError if headers are missing."""
    account = request.headers.get("x-hostelry-account")
    region = request.headers.get("x-hostelry-region")
    if not account or not region:
        message = "X-Hostelry-Account and X-Hostelry-Region must name the caller."
        raise ServiceError("MissingAuthenticationToken", message, 403)
    session = request.headers.get("x-hostelry-session")
    service = request.headers.get("x-hostelry-service", "")
    key_id = request.headers.get(KEY_ID_HEADER)
    identity = Identity(
        access_key_id=key_id or "",
        account_id=account,
        region=region,
        service=service,
        user=request.headers.get(USER_HEADER, ""),
        session=parse_session_header(session) if session else None,
    )
    return VerifiedCaller(
        identity=identity,
        is_platform=key_id is None,
        is_unsigned=UNSIGNED_HEADER in request.headers,
        signed_for=service,
        source_ip=request.headers.get(SOURCE_HEADER, ""),
        is_secure=request.headers.get(SECURE_HEADER) == "1",
    )
