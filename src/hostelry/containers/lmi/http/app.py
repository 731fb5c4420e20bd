"""The server's routes."""

import logging
import re
from collections.abc import Awaitable, Callable
from contextvars import ContextVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hostelry.base.guards import COPY_KEY_HEADER, MISSING_COPY_KEY, KeyGuard
from hostelry.base.ids import new_request_id
from hostelry.containers.lmi.http.adapter_routes import adapter_paths, lora_paths
from hostelry.containers.lmi.http.bodies import json_response
from hostelry.containers.lmi.http.cache_routes import cache_paths
from hostelry.containers.lmi.http.invoke import InvocationHandler, InvocationRoute
from hostelry.containers.lmi.http.model_routes import health_paths, metrics_paths, model_paths
from hostelry.containers.lmi.http.openapi import openapi_paths
from hostelry.containers.lmi.http.pooling_routes import (
    POOLED_PATHS,
    PooledHandler,
    pooling_facts,
)
from hostelry.containers.lmi.http.server import LmiServer
from hostelry.containers.lmi.http.token_routes import token_paths
from hostelry.containers.lmi.pooling.parse import PooledRoute
from hostelry.containers.lmi.refusal import Surface
from hostelry.containers.lmi.request.invocation import Schema
from hostelry.containers.lmi.response.forms import front_end_error, openai_error

ID = re.compile(rb"[\x21-\x7e]{1,128}")  # safe in a header and in one log line
REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
GATEWAYS = b"x-request-id"
Endpoint = Callable[[Request], Awaitable[ASGIApp]]


class RequestIds:
    """Calls `app` with an id for each request: from the header `header`, or else the gateway's."""

    def __init__(self, app: ASGIApp, header: str) -> None:
        self._app = app
        self._name = header.lower().encode("latin-1")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request under its id."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        given = (headers.get(name, b"") for name in (self._name, GATEWAYS))
        request_id = next(filter(ID.fullmatch, given), None) or new_request_id().encode()

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                named = (self._name, request_id)
                message = {**message, "headers": [*message.get("headers", ()), named]}
            await send(message)

        token = REQUEST_ID.set(request_id.decode())
        try:
            await self._app(scope, receive, send_with_id)
        finally:
            REQUEST_ID.reset(token)


class RequestIdSuffix(logging.Filter):
    """Adds the id of the present request to a log line, in DJL Serving's form."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the id, and keep the line."""
        request_id = REQUEST_ID.get()
        if request_id:
            record.msg = f"{record.getMessage()} requestId={request_id}"
            record.args = None
        return True


def show_request_ids(root: logging.Logger) -> None:
    """Add the ids to the lines that the handlers of `root` write."""
    for handler in root.handlers:
        handler.addFilter(RequestIdSuffix())


def guard_with_key(app: ASGIApp, key: str | None) -> ASGIApp:
    """`app` for requests with `key`, and 403 for others. Without a key, `app` itself."""
    return app if key is None else KeyGuard(app, COPY_KEY_HEADER, key, _refuse)


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    form = openai_error if scope["path"].startswith("/v1/") else front_end_error
    refusal = json_response(form(403, MISSING_COPY_KEY), 403)
    refusal.headers["Connection"] = "close"  # the rest of the body is not read
    await refusal(scope, receive, send)


def build_app(server: LmiServer) -> Starlette:
    """The application over `server`, which may still be loading its model."""
    own = InvocationRoute(None, server.config.dialect)
    chat = InvocationRoute(Schema.CHAT, Surface.OPENAI)
    completion = InvocationRoute(Schema.COMPLETION, Surface.OPENAI)
    generating_paths = {
        "/invocations": own,
        "/predictions/{model}": own,
        "/predictions/{model}/{version}": own,
        "/models/{model}/invoke": own,
        "/v1/chat/completions": chat,
        "/v1/completions": completion,
        "/v1/responses": InvocationRoute(Schema.RESPONSES, Surface.OPENAI),
    }
    routes = [
        *health_paths(server),
        *(
            Route(path, generating(server, route), methods=["POST"])
            for path, route in generating_paths.items()
        ),
        *(
            Route(path, pooling(server, route), methods=["POST"])
            for path, route in POOLED_PATHS.items()
        ),
        *token_paths(server),
        *lora_paths(server),
        *metrics_paths(server),
        *cache_paths(server),
        *adapter_paths(server),
        *model_paths(server),
    ]
    routes += openapi_paths(routes, server.config.codes)
    return Starlette(
        routes=routes,
        middleware=[Middleware(RequestIds, header=server.config.request_id_header)],
        exception_handlers={HTTPException: http_error, Exception: http_error},
    )


def generating(server: LmiServer, route: InvocationRoute) -> Endpoint:
    """A route that generates. A pooled model answers it with vectors, or refuses it."""

    async def answer(request: Request) -> ASGIApp:
        if pooling_facts(server) is not None:
            surface, generates = route.surface, route.schema is not None
            handler = PooledHandler(server, request, None, surface, generates)
            return await handler.respond()
        return await InvocationHandler(server, request, route).respond()

    return answer


def pooling(server: LmiServer, route: PooledRoute) -> Endpoint:
    """A route for vectors."""

    async def answer(request: Request) -> ASGIApp:
        return await PooledHandler(server, request, route).respond()

    return answer


async def http_error(request: Request, error: Exception) -> Response:
    """404, 405 and defects of the server (500) in the form of the route's family."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    message = f"{request.method} {request.url.path}: {getattr(error, 'detail', 'failed')}"
    headers = error.headers if isinstance(error, HTTPException) else None  # Allow, of a 405
    form = openai_error if request.url.path.startswith("/v1/") else front_end_error
    return json_response(form(status, message), status, headers)
