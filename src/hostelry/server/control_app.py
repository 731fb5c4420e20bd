"""Control's HTTP: the AWS calls that the door passes on, and what the other processes ask.

docs/architecture.md section 5 lists the routes. Everything needs the internal key.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from hostelry.api.context import Context
from hostelry.api.operations import implementation, perform
from hostelry.aws.call import (
    Call,
    find_target,
    parse_call,
    serialize_error,
    serialize_result,
)
from hostelry.aws.models import signing_name
from hostelry.base.clock import Clock
from hostelry.base.errors import RetryableError, ServiceError
from hostelry.base.http import HttpRequest, HttpResponse
from hostelry.base.ids import new_request_id
from hostelry.base.key_guard import INTERNAL_KEY_HEADER, KeyGuard
from hostelry.base.rebinding import OwnHostsOnly
from hostelry.domain.load import Wake
from hostelry.domain.scope import Scope as Owner
from hostelry.domain.shape import Shape
from hostelry.gateway.handlers.callers import check_service
from hostelry.metrics.protocol import MetricStore
from hostelry.metrics.sagemaker.load_aggregator import LoadAggregator
from hostelry.reconcile.overview import overview
from hostelry.reconcile.reconciler import Reconciler
from hostelry.reconcile.record import load_all
from hostelry.server.home import Credentials
from hostelry.server.load_routes import LoadRoutes
from hostelry.server.placement_report import explained_endpoints
from hostelry.server.wake_routes import WakeRoutes
from hostelry.store.records import State

LOG = logging.getLogger(__name__)
ROUTES_WAIT_S = 20.0
JSON_HEADERS = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What the application answers from. `role_created_at` is shown by iam:GetRole.

    `wake` is called, in a thread, for each name without a copy that requests wait for. `board` has
    the load that gateway workers report. `metrics` and `pace` are what operations get of them.
    """

    state: State
    reconciler: Reconciler
    credentials: Credentials
    clock: Clock
    shape_of: Callable[[str], Shape]
    max_body_bytes: int
    role_created_at: float
    wake: Callable[[Wake], None] = lambda _: None
    board: LoadAggregator = field(default_factory=lambda: LoadAggregator(0.0))
    metrics: MetricStore
    pace: float = 1.0
    more_routes: tuple[Route, ...] = ()


def control_app(served: Served) -> ASGIApp:
    """The ASGI application; it refuses every request without the internal key."""
    routes = ControlRoutes(served)
    wakes = WakeRoutes(served.state, served.wake)
    loads = LoadRoutes(served.board, served.clock)
    app = Starlette(
        routes=[
            Route("/internal/routes", routes.routes, methods=["GET"]),
            Route("/internal/state", routes.state, methods=["GET"]),
            Route("/internal/placement", routes.placement, methods=["GET"]),
            Route("/internal/health", routes.health, methods=["GET"]),
            Route("/internal/load", loads.take, methods=["POST"]),
            Route("/internal/wake", wakes.wake, methods=["POST"]),
            Route("/internal/wanted", wakes.wanted, methods=["GET"]),
            *served.more_routes,
            # Whatever else comes is an AWS call: `aws` finds the operation, or says what is wrong.
            Route("/{path:path}", routes.call, methods=["GET", "POST", "PUT", "DELETE", "PATCH"]),
        ]
    )
    refusal = Response("The internal key is missing or wrong.", 403)
    key = served.credentials.internal_key
    return OwnHostsOnly(KeyGuard(app, INTERNAL_KEY_HEADER, key, refusal))


class ControlRoutes:
    """One method a route."""

    def __init__(self, served: Served) -> None:
        self._served = served

    async def call(self, request: Request) -> Response:
        """An AWS control call, from whom the door says it is."""
        request_id = request.headers.get("x-hostelry-request-id") or new_request_id()
        plain = HttpRequest("POST", "/", "", {}, b"")
        try:
            plain = await _plain(request, self._served.max_body_bytes)
            owner = _owner(request)
            signed_for = request.headers.get("x-hostelry-service", "")
            answer = await asyncio.to_thread(self._answer, plain, owner, signed_for, request_id)
        except ServiceError as error:
            answer = serialize_error(error, None, request_id, plain)
        return _response(answer)

    async def routes(self, request: Request) -> Response:
        """The routes, as soon as they are not those that the caller has; 304 after a while."""
        have = request.query_params.get("have")
        snapshot = await self._served.reconciler.routes.newer_than(have, ROUTES_WAIT_S)
        if snapshot is None:
            return Response(status_code=304)
        return Response(msgspec.json.encode(snapshot), headers=JSON_HEADERS)

    async def state(self, request: Request) -> Response:
        """What `hostelry status` prints: `endpoints`, and the version of the published routes."""
        worlds = await asyncio.to_thread(load_all, self._served.state)
        snapshot = self._served.reconciler.routes.snapshot
        shown = {
            "endpoints": overview(worlds, self._served.reconciler.instances.facts),
            "routes_version": None if snapshot is None else snapshot.version,
        }
        return Response(msgspec.json.encode(shown), headers=JSON_HEADERS)

    async def placement(self, request: Request) -> Response:
        """What `hostelry explain` prints: the endpoints of `state`, each with its `placement`."""
        shown = {"endpoints": await asyncio.to_thread(self._explained_endpoints)}
        return Response(msgspec.json.encode(shown), headers=JSON_HEADERS)

    async def health(self, request: Request) -> Response:
        """200 while the process answers and its store does; `ready` once routes are published."""
        revision = await asyncio.to_thread(self._served.state.store.revision)
        is_ready = self._served.reconciler.routes.snapshot is not None
        return Response(
            msgspec.json.encode({"status": "ok", "ready": is_ready, "revision": revision}),
            headers=JSON_HEADERS,
        )

    def _explained_endpoints(self) -> list[dict[str, Any]]:
        served = self._served
        return explained_endpoints(load_all(served.state), served.reconciler.instances.facts)

    def _answer(
        self, request: HttpRequest, owner: Owner, signed_for: str, request_id: str
    ) -> HttpResponse:
        """The answer to one call, errors included; runs in a thread of its own."""
        call: Call | None = None
        try:
            target = find_target(request)
            check_service(signed_for, signing_name(target.service))
            # Before the parameters: to correct those of a call that is not served helps nobody.
            implementation(target.service, target.operation)
            call = parse_call(request, request_id)
            result = perform(self._context(owner), call.service, call.operation, call.params)
            return serialize_result(call, result)
        except ServiceError as error:
            return serialize_error(error, call, request_id, request)
        except RetryableError as error:
            LOG.warning("request %s: %s", request_id, error)
            busy = ServiceError("ServiceUnavailable", f"Try again: {error}", 503)
            return serialize_error(busy, call, request_id, request)
        except Exception:  # the control request is the outermost edge of every API operation
            LOG.exception("request %s (%s) failed", request_id, call and call.operation)
            message = f"Something went wrong here. The request id is {request_id}."
            defect = ServiceError("InternalFailure", message, 500)
            return serialize_error(defect, call, request_id, request)

    def _context(self, owner: Owner) -> Context:
        served = self._served
        return Context(
            scope=owner,
            state=served.state,
            now=served.clock.now(),
            shape_of=served.shape_of,
            role_arn=served.credentials.role_arn,
            role_name=served.credentials.role_name,
            role_created_at=served.role_created_at,
            pace=served.pace,
            metrics=served.metrics,
        )


async def _plain(request: Request, max_body_bytes: int) -> HttpRequest:
    """The request as the door received it; raises ServiceError when its body is too large."""
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


def _owner(request: Request) -> Owner:
    """The identity that the door verified; raises ServiceError where it named none."""
    account = request.headers.get("x-hostelry-account")
    region = request.headers.get("x-hostelry-region")
    if not account or not region:
        message = "X-Hostelry-Account and X-Hostelry-Region must name the caller."
        raise ServiceError("MissingAuthenticationToken", message, 403)
    return Owner(account, region)


def _response(answer: HttpResponse) -> Response:
    return Response(answer.body, answer.status, dict(answer.headers))
