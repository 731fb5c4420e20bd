"""The models of this server: DJL Serving's descriptions, and OpenAI's list with vLLM's members."""

from datetime import UTC, datetime
from typing import Any

from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hostelry import __version__
from hostelry.containers.lmi.engine.backend import BackendStats, EngineFailedError
from hostelry.containers.lmi.http.bodies import PlainEndpoint, answering, json_response
from hostelry.containers.lmi.http.request_head import check_asked_model
from hostelry.containers.lmi.http.server import LmiServer
from hostelry.containers.lmi.metrics.exposition import Scrape
from hostelry.containers.lmi.refusal import Cause, Refusal, Surface
from hostelry.containers.lmi.request.fields import show

MB_IN_FLIGHT = 100  # MB of a batch job's payloads on a copy at once
# DJL's defaults. They have no effect: batching is continuous, and the worker never ends.
DELAY_MS, IDLE_S = 100, 60


def model_paths(server: LmiServer) -> list[Route]:
    """The routes that describe models."""

    def route(path: str, surface: Surface, operation: PlainEndpoint) -> Route:
        return Route(path, answering(server, surface, operation), methods=["GET"])

    async def openai_list(request: Request) -> Response:
        return json_response({"object": "list", "data": openai_cards(server)})

    async def openai_model(request: Request) -> Response:
        name = request.path_params["name"]
        server.get_model()
        for card in openai_cards(server):
            if card["id"] == name:
                return json_response(card)
        raise Refusal(Cause.NOT_FOUND, f"The model {show(name)} does not exist.", "model")

    async def djl_list(request: Request) -> Response:
        return json_response({"models": [{**head(server), "status": status_word(server)}]})

    async def djl_model(request: Request) -> Response:
        check_asked_model(server.config, request)
        return json_response([await description(server)])

    async def execution_parameters(request: Request) -> Response:
        return json_response(batch_parameters(server.batch_size))

    return [
        route("/v1/models", Surface.OPENAI, openai_list),
        route("/v1/models/{name:path}", Surface.OPENAI, openai_model),
        route("/models", Surface.FRONT_END, djl_list),
        route("/models/{model}", Surface.FRONT_END, djl_model),
        route("/execution-parameters", Surface.FRONT_END, execution_parameters),
    ]


def batch_parameters(max_batch_size: int) -> dict[str, Any]:
    """Choose the parameters of batch jobs. An eighth of a batch waits, to keep the batch full."""
    at_once = max_batch_size + max(2, max_batch_size // 8)
    return {
        "MaxConcurrentTransforms": at_once,
        "BatchStrategy": "SINGLE_RECORD",
        "MaxPayloadInMB": max(1, MB_IN_FLIGHT // at_once),
    }


def openai_cards(server: LmiServer) -> list[dict[str, Any]]:
    """List the base model under each of its names, and the adapters as its children."""
    config, model = server.config, server.model
    length = None if model is None else model.backend.facts.max_model_len
    card = {"object": "model", "created": int(ready_at(server)), "owned_by": "hostelry"}
    root = server.hide_paths(config.model_id or str(config.model_dir))
    names = [config.model_name, *(it for it in config.served[1:] if it != config.model_id)]
    cards = [
        {"id": name, **card, "root": root, "parent": None, "max_model_len": length}
        for name in names
    ]
    if model is None:
        return cards
    more = {"parent": config.model_name, "max_model_len": length}
    records = model.registry.records.values()
    return cards + [
        {"id": each.name, **card, "root": server.hide_paths(each.src), **more} for each in records
    ]


def ready_at(server: LmiServer) -> float:
    """When the model was loaded. The present time while it is loading."""
    return server.clock.now() if server.ready_at is None else server.ready_at


def head(server: LmiServer) -> dict[str, Any]:
    """The model's name and place."""
    return {
        "modelName": server.config.model_name,
        "modelUrl": str(server.config.model_dir),
    }


def status_word(server: LmiServer) -> str:
    """The server's phase in DJL's capitals."""
    return server.phase.value.upper()


async def description(server: LmiServer) -> dict[str, Any]:
    """The model as DJL describes a workflow of one model, and our facts and load."""
    config, model = server.config, server.get_model()
    facts, stats = model.backend.facts, await model.backend.stats()
    capacity = config.job_queue_size + server.batch_size
    described = {
        **head(server),
        "batchSize": server.batch_size,
        "maxBatchDelayMillis": DELAY_MS,
        "maxIdleSeconds": IDLE_S,
        "queueSize": config.job_queue_size,
        "requestInQueue": stats.waiting_requests,
        "status": "Healthy" if server.ping_status == 200 else "Unhealthy",
        "loadedAtStartup": True,
        "workerGroups": [worker_group(server, stats)],
        "dtype": facts.dtype,
        "ranks": facts.ranks,
        "maxModelLen": facts.max_model_len,
        "warnings": [*config.find_warnings(model.engine), *facts.warnings],
        "adapters": len(model.registry.records),
        "queue": {"inFlight": server.in_flight, "capacity": capacity},
        "engine": engine_load(stats),
        "engineReason": model.why_engine,
        "adapterTiers": adapter_tiers(stats),
    }
    return {
        "workflowName": config.model_name,
        "version": config.revision,
        "models": [described],
    }


def worker_group(server: LmiServer, stats: BackendStats) -> dict[str, Any]:
    """The one worker, on the device that the engine computes on."""
    is_gpu = stats.kernels == "triton"
    started = datetime.fromtimestamp(ready_at(server), UTC)
    start_time = started.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {
        "device": {"deviceType": "gpu" if is_gpu else "cpu", "deviceId": 0 if is_gpu else -1},
        "minWorkers": 1,
        "maxWorkers": 1,
        "workers": [{"id": 1, "startTime": start_time, "status": status_word(server)}],
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
    """Contents and bound of each adapter tier. Remote places have no bound."""
    return {
        "pool": {
            "adapters": stats.adapters_in_pool,
            "pages": stats.adapter_pages,
            "maxPages": stats.total_pages,
        },
        "merged": {"bytes": stats.merged_bytes},
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


def health_paths(server: LmiServer) -> list[Route]:
    """The routes of the server's own state. They need no model."""

    async def version(request: Request) -> Response:
        return json_response({"version": __version__})

    async def load(request: Request) -> Response:
        return json_response({"server_load": server.in_flight})

    return [
        Route("/ping", ping(server), methods=["GET"]),
        Route("/health", health(server), methods=["GET"]),
        Route("/version", version, methods=["GET"]),
        Route("/load", load, methods=["GET"]),
    ]


def ping(server: LmiServer) -> PlainEndpoint:
    """GET /ping: 200 only if a request would be answered. The state is by model, as in DJL."""

    async def answer(request: Request) -> Response:
        status = server.ping_status
        word = "Healthy" if status == 200 else server.phase.value.capitalize()
        own = {"status": word}
        return json_response({server.config.model_name: own, **own}, status)

    return answer


def health(server: LmiServer) -> PlainEndpoint:
    """GET /health: an empty 200 when a request would be answered, else 503."""

    async def answer(request: Request) -> Response:
        return Response(status_code=200 if server.ping_status == 200 else 503)

    return answer


def metrics_paths(server: LmiServer) -> list[Route]:
    """The page of metrics, also while the model loads or after its engine died."""

    async def answer(request: Request) -> Response:
        stats = await present_stats(server)
        if server.model is not None:
            server.measured.forget_adapters(server.model.registry.records.keys())
        scrape = Scrape(
            model_name=server.config.model_name,
            measured=server.measured,
            stats=stats,
            in_flight=server.in_flight,
            max_loras=server.config.engine.max_loras,
            now=server.clock.now(),
        )
        return Response(scrape.text(), headers={"content-type": CONTENT_TYPE_LATEST})

    return [Route("/metrics", answer, methods=["GET"])]


async def present_stats(server: LmiServer) -> BackendStats:
    """The engine's load. Zeros if the engine is not running."""
    if server.model is None:
        return BackendStats()
    try:
        return await server.model.backend.stats()
    except EngineFailedError:
        return BackendStats()
