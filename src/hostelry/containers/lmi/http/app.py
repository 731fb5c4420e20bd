"""The server's routes."""

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from hostelry.containers.lmi.engine.backend import BackendStats, EngineFailedError
from hostelry.containers.lmi.http.adapter_routes import adapter_paths, check_model, json_response
from hostelry.containers.lmi.http.invoke import InvocationHandler, InvocationRoute
from hostelry.containers.lmi.http.server import LmiServer
from hostelry.containers.lmi.refusal import Cause, Refusal, Surface
from hostelry.containers.lmi.request.invocation import Schema
from hostelry.containers.lmi.response.error_form import error_answer, front_end_error, openai_error

Endpoint = Callable[[Request], Awaitable[ASGIApp]]


def build_app(server: LmiServer) -> Starlette:
    """The application over `server`, which may still be loading its model."""
    own = InvocationRoute(None, server.config.dialect)
    chat = InvocationRoute(Schema.CHAT, Surface.OPENAI)
    completion = InvocationRoute(Schema.COMPLETION, Surface.OPENAI)
    routes = [
        Route("/ping", ping(server), methods=["GET"]),
        Route("/invocations", generating(server, own), methods=["POST"]),
        Route("/predictions/{model}", generating(server, own), methods=["POST"]),
        Route("/v1/chat/completions", generating(server, chat), methods=["POST"]),
        Route("/v1/completions", generating(server, completion), methods=["POST"]),
        Route("/v1/models", openai_models(server), methods=["GET"]),
        *adapter_paths(server),
        Route("/models", models(server), methods=["GET"]),
        Route("/models/{model}", describe_model(server), methods=["GET"]),
    ]
    return Starlette(
        routes=routes, exception_handlers={HTTPException: http_error, Exception: http_error}
    )


def ping(server: LmiServer) -> Callable[[Request], Awaitable[Response]]:
    """GET /ping: 200 only when a request would be answered."""

    async def answer(request: Request) -> Response:
        status = server.ping_status
        word = "Healthy" if status == 200 else server.phase.value.capitalize()
        return json_response({"status": word}, status)

    return answer


def generating(server: LmiServer, route: InvocationRoute) -> Endpoint:
    """A route that generates."""

    async def answer(request: Request) -> ASGIApp:
        return await InvocationHandler(server, request, route).respond()

    return answer


def openai_models(server: LmiServer) -> Callable[[Request], Awaitable[Response]]:
    """GET /v1/models: the base model and every adapter."""

    async def answer(request: Request) -> Response:
        names = [server.config.model_name]
        if server.model:
            names += server.model.registry.records
        created = int(server.clock.now())
        card = {"object": "model", "created": created, "owned_by": "hostelry"}
        cards = [{"id": name, **card} for name in names]
        return json_response({"object": "list", "data": cards})

    return answer


def models(server: LmiServer) -> Callable[[Request], Awaitable[Response]]:
    """GET /models: the one model of this server."""

    async def answer(request: Request) -> Response:
        name = server.config.model_name
        model = {"modelName": name, "modelUrl": str(server.config.model_dir)}
        return json_response({"models": [{**model, "status": server.phase.value.upper()}]})

    return answer


def describe_model(server: LmiServer) -> Callable[[Request], Awaitable[Response]]:
    """GET /models/{model}: the loaded model and its load."""

    async def answer(request: Request) -> Response:
        try:
            check_model(server, request.path_params["model"])
            loaded = server.loaded()
            content = await model_description(server)
        except Refusal as refusal:
            status, error = error_answer(refusal, Surface.FRONT_END, server.config.codes)
            return json_response(error, status)
        content["adapters"] = len(loaded.registry.records)
        return json_response(content)

    return answer


async def model_description(server: LmiServer) -> dict[str, Any]:
    """Facts of the model, and load of queue and engine."""
    backend = server.loaded().backend
    try:
        facts, stats = backend.facts, await backend.stats()
    except EngineFailedError as error:
        raise Refusal(Cause.ENGINE, str(error)) from error
    return {
        "modelName": server.config.model_name,
        "modelUrl": str(server.config.model_dir),
        "status": server.phase.value.upper(),
        "dtype": facts.dtype,
        "maxModelLen": facts.max_model_len,
        "warnings": [*server.config.warnings, *facts.warnings],
        "queue": {
            "inFlight": server.in_flight,
            "capacity": server.config.job_queue_size + server.config.max_batch_size,
        },
        "engine": engine_load(stats),
        "adapterTiers": adapter_tiers(stats),
    }


def engine_load(stats: BackendStats) -> dict[str, Any]:
    """Requests, tokens and pages of the pool."""
    return {
        "kernels": stats.kernels,
        "runningRequests": stats.running_requests,
        "waitingRequests": stats.waiting_requests,
        "steps": stats.steps,
        "freePages": stats.free_pages,
        "totalPages": stats.total_pages,
        "pinnedPages": stats.pinned_pages,
        "cachedPages": stats.cached_pages,
        "poolBytes": stats.pool_bytes,
        "promptTokens": stats.prompt_tokens,
        "cachedTokens": stats.cached_tokens,
        "generatedTokens": stats.generated_tokens,
        "preemptions": stats.preemptions,
        "expiredRequests": stats.expired_requests,
    }


def adapter_tiers(stats: BackendStats) -> dict[str, Any]:
    """Contents and bound of each adapter tier; remote places have none."""
    return {
        "pool": {
            "adapters": stats.adapters_in_pool,
            "pages": stats.adapter_pages,
            "maxPages": stats.total_pages,
        },
        "host": {
            "adapters": stats.adapters_in_host,
            "bytes": stats.host_bytes,
            "maxBytes": stats.max_host_bytes,
        },
        "disk": {"bytes": stats.disk_bytes, "maxBytes": stats.max_disk_bytes},
        "loads": {
            "waiting": stats.adapter_loads_waiting,
            "running": stats.adapter_loads_running,
            "failed": stats.adapter_loads_failed,
        },
    }


async def http_error(request: Request, error: Exception) -> Response:
    """404, 405 and defects of the server (500) in the form of the route's family."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    message = f"{request.method} {request.url.path}: {getattr(error, 'detail', 'failed')}"
    if request.url.path.startswith("/v1/"):
        return json_response(openai_error(status, message), status)
    return json_response(front_end_error(status, message), status)
