"""The agent's routes by which gateways lease models; each call carries the copy's key.

POST /target-models/COPY_ID/acquire {"target", "more_room"}    200 {"lease", "model_id", "hit", ...}
POST /target-models/COPY_ID/release {"lease", "lost", "uses"}  204
"""

import hmac
from collections.abc import Callable
from typing import Annotated

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from hostelry.base.copy_key import HEADER
from hostelry.base.json import decode
from hostelry.fleet.agent.models.copy_models import PREFIX, CopyModels
from hostelry.fleet.agent.models.values import (
    ModelNotReadyError,
    TargetModelError,
    TargetModelLoadError,
)

MAX_BODY_BYTES = 16 * 1024
Find = Callable[[str], tuple[CopyModels, str | None] | None]


class AskedModel(msgspec.Struct):
    """The body of `acquire`; `more_room`: the server answered a request for the model with 507."""

    target: str
    more_room: bool = False


class EndedLease(msgspec.Struct):
    """The body of `release`; `uses` counts the requests that used the lease."""

    lease: str
    lost: bool = False
    uses: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1


class LeaseRoutes:
    """The routes; `find` gives a copy's models and its key, `shown` a text as callers get it."""

    def __init__(self, find: Find, shown: Callable[[str], str] = str) -> None:
        self._find = find
        self._shown = shown

    def app(self) -> Starlette:
        """The ASGI application."""
        return Starlette(
            routes=[
                Route(f"{PREFIX}/{{copy_id}}/acquire", self.acquire, methods=["POST"]),
                Route(f"{PREFIX}/{{copy_id}}/release", self.release, methods=["POST"]),
            ]
        )

    async def acquire(self, request: Request) -> Response:
        """Lease a model, which is loaded first if it has to be."""
        models, body = await self._asked(request)
        if models is None:
            return body
        try:
            asked = decode(bytes(body.body), AskedModel)
            lease = await models.acquire(asked.target, more_room=asked.more_room)
        except (msgspec.DecodeError, TargetModelError) as error:
            return refusal(400, self._shown(str(error)))
        except ModelNotReadyError as error:
            return refusal(429, self._shown(str(error)))
        except TargetModelLoadError as error:
            return refusal(424, self._shown(str(error)), error.status)
        if await request.is_disconnected():
            models.release(lease.id)
        members = {
            "lease": lease.id,
            "model_id": lease.use.model_id,
            "hit": lease.use.hit,
            "waited_s": lease.use.waited_s,
            "times": models.take_times(),
            "keep": models.are_kept,
        }
        return Response(msgspec.json.encode(members), media_type="application/json")

    async def release(self, request: Request) -> Response:
        """End a lease."""
        models, body = await self._asked(request)
        if models is None:
            return body
        try:
            ended = decode(bytes(body.body), EndedLease)
        except msgspec.DecodeError as error:
            return refusal(400, str(error))
        models.release(ended.lease, lost=ended.lost, uses=ended.uses)
        return Response(status_code=204)

    async def _asked(self, request: Request) -> tuple[CopyModels | None, Response]:
        """The copy's models with the body as a response, or None and the refusal."""
        found = self._find(request.path_params["copy_id"])
        if found is None:
            return None, refusal(404, "no multi-model copy of that id is here")
        models, key = found
        given = request.headers.get(HEADER, "")
        if key is not None and not hmac.compare_digest(given.encode(), key.encode()):
            return None, PlainTextResponse(f"{HEADER} is missing or wrong", status_code=403)
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > MAX_BODY_BYTES:
                return None, refusal(413, f"more than {MAX_BODY_BYTES} bytes")
        return models, Response(bytes(body))


def refusal(status: int, message: str, model_status: int | None = None) -> Response:
    """An answer with the cause; `model_status` is the container's."""
    members = {"message": message, "status": model_status}
    return Response(msgspec.json.encode(members), status, media_type="application/json")
