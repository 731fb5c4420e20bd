"""The server's routes."""

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Path
from starlette.types import ASGIApp

from hostelry.containers.lmi.engine.backend import BackendStats, EngineFailedError
from hostelry.containers.lmi.http.adapter_routes import adapter_paths, check_model, json_response
from hostelry.containers.lmi.http.invoke import Call, Route
from hostelry.containers.lmi.http.service import Service
from hostelry.containers.lmi.refusal import Cause, Refusal, Surface
from hostelry.containers.lmi.request.invocation import Schema
from hostelry.containers.lmi.response.error_form import error_answer, front_end_error, openai_error

Endpoint = Callable[[Request], Awaitable[ASGIApp]]


def build_app(service: Service) -> Starlette:
    """The application over `service`, which may still be loading its model."""
    own = Route(None, service.config.dialect)
    chat = Route(Schema.CHAT, Surface.OPENAI)
    completion = Route(Schema.COMPLETION, Surface.OPENAI)
    routes = [
        Path("/ping", ping(service), methods=["GET"]),
        Path("/invocations", generating(service, own), methods=["POST"]),
        Path("/predictions/{model}", generating(service, own), methods=["POST"]),
        Path("/v1/chat/completions", generating(service, chat), methods=["POST"]),
        Path("/v1/completions", generating(service, completion), methods=["POST"]),
        Path("/v1/models", openai_models(service), methods=["GET"]),
        *adapter_paths(service),
        Path("/models", models(service), methods=["GET"]),
        Path("/models/{model}", describe_model(service), methods=["GET"]),
    ]
    return Starlette(
        routes=routes, exception_handlers={HTTPException: http_error, Exception: http_error}
    )


def ping(service: Service) -> Callable[[Request], Awaitable[Response]]:
    """GET /ping: 200 only when a request would be answered."""

    async def answer(request: Request) -> Response:
        status = service.ping_status
        word = "Healthy" if status == 200 else service.phase.value.capitalize()
        return json_response({"status": word}, status)

    return answer


def generating(service: Service, route: Route) -> Endpoint:
    """A route that generates."""

    async def answer(request: Request) -> ASGIApp:
        return await Call(service, request, route).answer()

    return answer


def openai_models(service: Service) -> Callable[[Request], Awaitable[Response]]:
    """GET /v1/models: the base model and every adapter."""

    async def answer(request: Request) -> Response:
        names = [service.config.model_name]
        if service.model:
            names += service.model.registry.records
        created = int(service.clock.now())
        cards = [
            {"id": it, "object": "model", "created": created, "owned_by": "hostelry"}
            for it in names
        ]
        return json_response({"object": "list", "data": cards})

    return answer


def models(service: Service) -> Callable[[Request], Awaitable[Response]]:
    """GET /models: the one model this server holds."""

    async def answer(request: Request) -> Response:
        name = service.config.model_name
        model = {"modelName": name, "modelUrl": str(service.config.model_dir)}
        return json_response({"models": [{**model, "status": service.phase.value.upper()}]})

    return answer


def describe_model(service: Service) -> Callable[[Request], Awaitable[Response]]:
    """GET /models/{model}: the loaded model and the load on it."""

    async def answer(request: Request) -> Response:
        try:
            check_model(service, request.path_params["model"])
            loaded = service.loaded()
            content = await model_description(service)
        except Refusal as refusal:
            status, error = error_answer(refusal, Surface.FRONT_END, service.config.codes)
            return json_response(error, status)
        content["adapters"] = len(loaded.registry.records)
        return json_response(content)

    return answer


async def model_description(service: Service) -> dict[str, Any]:
    """Facts of the model, the queue's and the engine's load."""
    backend = service.loaded().backend
    try:
        facts, stats = backend.facts, await backend.stats()
    except EngineFailedError as error:
        raise Refusal(Cause.ENGINE, str(error)) from error
    return {
        "modelName": service.config.model_name,
        "modelUrl": str(service.config.model_dir),
        "status": service.phase.value.upper(),
        "dtype": facts.dtype,
        "maxModelLen": facts.max_model_len,
        "warnings": [*service.config.warnings, *facts.warnings],
        "queue": {
            "inFlight": service.in_flight,
            "capacity": service.config.job_queue_size + service.config.max_batch_size,
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
    """What each place for adapters holds, and its bound; remote places have none."""
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
    """404, 405 and defects of ours (500) in the form of the route's family."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    message = f"{request.method} {request.url.path}: {getattr(error, 'detail', 'failed')}"
    if request.url.path.startswith("/v1/"):
        return json_response(openai_error(status, message), status)
    return json_response(front_end_error(status, message), status)
