"""JSON answers of the routes that do not generate."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from hostelry.containers.lmi.engine.backend import EngineFailedError
from hostelry.containers.lmi.http.server import LmiServer
from hostelry.containers.lmi.refusal import Cause, Refusal, Surface

PlainEndpoint = Callable[[Request], Awaitable[Response]]


def json_response(
    content: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A JSON answer."""
    body = msgspec.json.encode(content)
    return Response(body, status, headers, media_type="application/json")


def answering(server: LmiServer, surface: Surface, operation: PlainEndpoint) -> PlainEndpoint:
    """The endpoint of `operation`, whose refusals have the form of `surface`."""

    async def answer(request: Request) -> Response:
        try:
            return await operation(request)
        except EngineFailedError as error:
            refusal = Refusal(Cause.ENGINE, str(error))
        except Refusal as error:
            refusal = error
        status, content = server.refused(refusal, surface)
        return json_response(content, status, refusal.headers)

    return answer
