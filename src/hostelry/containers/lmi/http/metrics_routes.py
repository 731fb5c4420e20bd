"""GET /metrics, for Prometheus."""

from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hostelry.containers.lmi.engine.backend import BackendStats, EngineFailedError
from hostelry.containers.lmi.http.server import LmiServer
from hostelry.containers.lmi.metrics.exposition import Scrape


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
            max_loras=server.config.max_loras,
            now=server.clock.now(),
        )
        return Response(scrape.text(), headers={"content-type": CONTENT_TYPE_LATEST})

    return [Route("/metrics", answer, methods=["GET"])]


async def present_stats(server: LmiServer) -> BackendStats:
    """The engine's load; zeros where there is no living engine."""
    if server.model is None:
        return BackendStats()
    try:
        return await server.model.backend.stats()
    except EngineFailedError:
        return BackendStats()
