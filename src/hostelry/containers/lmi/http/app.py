"""The server's routes."""

from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from hostelry.containers.lmi.http.adapter_routes import adapter_paths
from hostelry.containers.lmi.http.cache_routes import cache_paths
from hostelry.containers.lmi.http.health_routes import health_paths
from hostelry.containers.lmi.http.invoke import InvocationHandler, InvocationRoute
from hostelry.containers.lmi.http.json_answer import json_response
from hostelry.containers.lmi.http.lora_routes import lora_paths
from hostelry.containers.lmi.http.metrics_routes import metrics_paths
from hostelry.containers.lmi.http.model_routes import model_paths
from hostelry.containers.lmi.http.openapi import openapi_paths
from hostelry.containers.lmi.http.pooling_routes import (
    POOLED_PATHS,
    PooledHandler,
    pooling_facts,
)
from hostelry.containers.lmi.http.request_id import RequestIds
from hostelry.containers.lmi.http.server import LmiServer
from hostelry.containers.lmi.http.token_routes import token_paths
from hostelry.containers.lmi.pooling.parse import PooledRoute
from hostelry.containers.lmi.refusal import Surface
from hostelry.containers.lmi.request.invocation import Schema
from hostelry.containers.lmi.response.error_form import front_end_error, openai_error

Endpoint = Callable[[Request], Awaitable[ASGIApp]]


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
    """A route that generates; a pooled model answers it with vectors, or refuses it."""

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
