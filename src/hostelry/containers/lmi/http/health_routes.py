"""State of the server: the contract's /ping; vLLM's /health, /version and /load."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hostelry import __version__
from hostelry.containers.lmi.http.json_answer import PlainEndpoint, json_response
from hostelry.containers.lmi.http.server import LmiServer


def health_paths(server: LmiServer) -> list[Route]:
    """The routes of the server's own state; they need no model."""

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
    """GET /ping: 200 only when a request would be answered; the state by model, as in DJL."""

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
