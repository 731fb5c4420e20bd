"""The models of one multi-model copy, and the routes by which gateways lease them.

A lease keeps its model loaded until its release, or for MAX_LEASE_S, because its gateway may be
gone and no request takes longer. Each call carries the copy's key.

    POST /target-models/COPY_ID/acquire {"target", "more_room"}  200 {"lease", "model_id", "hit"...}
    POST /target-models/COPY_ID/release {"lease", "lost", "uses"}  204
"""

import asyncio
import hmac
import os
import secrets
import shutil
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from hostelry.base.clock import Clock, MonotonicClock
from hostelry.base.errors import TerminalError
from hostelry.base.guards import COPY_KEY_HEADER
from hostelry.base.json import decode
from hostelry.domain.copy import CopySpec, CopyStatus
from hostelry.domain.shape import Shape
from hostelry.fleet.agent.adapters import AdapterMount
from hostelry.fleet.agent.deps import CopyDeps
from hostelry.fleet.agent.model_server import ModelServer
from hostelry.fleet.agent.models.routes import LoadedRecord, ServedRoutes
from hostelry.fleet.agent.models.target_models import TargetModels
from hostelry.fleet.agent.models.values import (
    ModelNotReadyError,
    ModelUse,
    TargetModelDeps,
    TargetModelError,
    TargetModelLimits,
    TargetModelLoadError,
)
from hostelry.fleet.artifacts.protocol import Artifacts, RoleArtifacts
from hostelry.fleet.rules.devices import AcceleratorMemory, parse_accelerator_memory

PREFIX = "/target-models"  # of the agent's routes
LOADED = "loaded-models"  # the record's folder below the copy's folder
MAX_LEASE_S = 600.0  # above the time limit of a stream
MODEL_SHARE = 0.9  # of a copy's memory. The server itself needs the rest
LEFT = "an earlier agent loaded it, and its unload had no answer"
MAX_TIMES = 1000  # kept until a gateway takes them
MAX_DISK_BYTES = 32 * 1024**3
DISK_SHARE = 0.5  # of the free bytes
MAX_BODY_BYTES = 16 * 1024


class Lease(msgspec.Struct, frozen=True):
    """A model in use by a gateway."""

    id: str
    use: ModelUse
    end: asyncio.TimerHandle


class CopyModels:
    """The models of a copy. `note` takes lines for its log."""

    def __init__(
        self,
        spec: CopySpec,
        artifacts: Artifacts,
        clock: Clock,
        limits: TargetModelLimits,
        note: Callable[[str], None],
        routes: ServedRoutes,
    ) -> None:
        assert spec.container.source is not None
        self._routes = routes
        self._times: deque[tuple[str, float]] = deque(maxlen=MAX_TIMES)
        deps = TargetModelDeps(
            routes=self._routes,
            artifacts=artifacts,
            clock=clock,
            note=note,
            record_seconds=lambda name, taken_s: self._times.append((name, round(taken_s, 6))),
        )
        self._models = TargetModels(
            spec.id, spec.container.source.uri, deps, limits, spec.container.model_cache
        )
        self._leases: dict[str, Lease] = {}
        self._clock, self._limits = clock, limits

    async def use_server(
        self, server: ModelServer, mount: AdapterMount | None, *, adopted: bool
    ) -> None:
        """Load models into this server from now on. Empties the server first if it is `adopted`."""
        left = await self._routes.use(server, mount, adopted=adopted)
        self._models.on_restart(left, LEFT)

    @property
    def num_loaded(self) -> int:
        """The models in memory."""
        return sum(it.loaded for it in self._models.models)

    def account(self) -> dict[str, Any]:
        """Every model that is known, and the last evictions, as JSON values."""
        now_s = self._clock.now()
        return {
            "memory_bytes": self._limits.memory_bytes,
            "disk_bytes": self._limits.disk_bytes,
            "accelerator_bytes": self._limits.accelerator_bytes,
            "models": [
                {
                    "target": model.key,
                    "loaded": model.loaded,
                    "on_disk": model.on_disk,
                    "memory_bytes": model.memory_bytes,
                    "accelerator_bytes": model.accelerator_bytes,
                    "disk_bytes": model.disk_bytes,
                    "last_used_s": max(0.0, round(now_s - model.last_used_at_s, 3)),
                    "hits": model.hits,
                    "in_flight": model.in_flight,
                    "pinned": model.pinned,
                    "load_s": model.load_s,
                    "download_s": model.download_s,
                }
                for model in self._models.models
            ],
            "stuck": [
                {"target": target, "reason": reason}
                for target, reason in self._models.stuck.items()
            ],
            "evictions": [
                {
                    "target": gone.key,
                    "tier": gone.tier.value,
                    "freed_bytes": gone.freed_bytes,
                    "reason": gone.reason,
                }
                for gone in self._models.evictions
            ],
        }

    @property
    def are_kept(self) -> bool:
        """Whether models stay after their requests."""
        return self._models.are_kept

    def take_times(self) -> list[tuple[str, float]]:
        """Seconds of downloads, loads and unloads since the last call."""
        found = list(self._times)
        self._times.clear()
        return found

    async def acquire(self, target: str, *, more_room: bool = False) -> Lease:
        """Lease the model, which is loaded until `release`. Raises as TargetModels.acquire does.

        With `more_room` other models are evicted for the model's request.
        """
        use = await self._models.acquire(target)
        try:
            if more_room:
                await self._models.make_room_for_request(target)
        except BaseException:
            self._models.release(use)
            raise
        lease_id = secrets.token_hex(8)
        end = asyncio.get_running_loop().call_later(MAX_LEASE_S, self.release, lease_id)
        lease = self._leases[lease_id] = Lease(lease_id, use, end)
        return lease

    def release(self, lease_id: str, *, lost: bool = False, uses: int = 1) -> None:
        """End the lease, unless it has ended. `lost` says that the server lacked the model."""
        lease = self._leases.pop(lease_id, None)
        if lease is None:
            return
        lease.end.cancel()
        if lost:
            self._models.on_missing_model(lease.use.target)
        self._models.release(lease.use, uses)

    async def close(self) -> None:
        """End the loads under way and all leases."""
        for lease_id in list(self._leases):
            self.release(lease_id)
        await self._models.close()


def build_copy_models(
    spec: CopySpec,
    deps: CopyDeps,
    folder: Path,
    note: Callable[[str], None],
    used_bytes: Callable[[], int],
    num_sharing: int,
) -> CopyModels | None:
    """Build the models of the copy in `folder`. None if the copy has a single model.

    `used_bytes` gets the memory of its processes. `num_sharing` containers share the instance.
    """
    if not spec.container.is_multi_model:
        return None
    # The copy's folder may not exist yet.
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    limits = compute_model_limits(deps.shape, there, spec.container.environment, num_sharing)
    routes = ServedRoutes(LoadedRecord(folder / LOADED), lambda: asyncio.to_thread(used_bytes))
    artifacts = RoleArtifacts(deps.artifacts, spec.container.role)
    return CopyModels(spec, artifacts, MonotonicClock(), limits, note, routes)


def add_models_address(
    status: CopyStatus, models: CopyModels | None, agent_address: str
) -> CopyStatus:
    """The status with the URL at which gateways lease models, and the number of loaded models."""
    if models is None:
        return status
    address = f"{agent_address}{PREFIX}/{status.id}"
    return replace(status, models_address=address, loaded_models=models.num_loaded)


def compute_model_limits(
    shape: Shape, folder: Path, environment: Mapping[str, str], num_sharing: int = 1
) -> TargetModelLimits:
    """The memory and disk for models on an instance of `shape` with its files in `folder`.

    `environment` is the container's. `num_sharing` containers share the instance.
    """
    try:
        declared = parse_accelerator_memory(environment)
    except TerminalError:  # agent/orders.py fails the copy
        declared = AcceleratorMemory()
    machine_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return TargetModelLimits(
        memory_bytes=int(MODEL_SHARE * min(shape.memory_bytes, machine_bytes) / num_sharing),
        disk_bytes=min(MAX_DISK_BYTES, int(DISK_SHARE * shutil.disk_usage(folder).free)),
        accelerator_bytes=declared.capacity_bytes,
        model_accelerator_bytes=declared.model_bytes,
    )


Find = Callable[[str], tuple[CopyModels, str | None] | None]


class AskedModel(msgspec.Struct):
    """The body of `acquire`. `more_room`: the server answered the model's request with 507."""

    target: str
    more_room: bool = False


class EndedLease(msgspec.Struct):
    """The body of `release`. `uses` counts the requests that used the lease."""

    lease: str
    lost: bool = False
    uses: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1


class LeaseRoutes:
    """The routes. `find` gets a copy's models and key. `hide_paths` removes paths from a text."""

    def __init__(self, find: Find, hide_paths: Callable[[str], str] = str) -> None:
        self._find = find
        self._hide_paths = hide_paths

    def app(self) -> Starlette:
        """The ASGI application."""
        return Starlette(
            routes=[
                Route(f"{PREFIX}/{{copy_id}}/acquire", self.acquire, methods=["POST"]),
                Route(f"{PREFIX}/{{copy_id}}/release", self.release, methods=["POST"]),
            ]
        )

    async def acquire(self, request: Request) -> Response:
        """Lease a model, which is loaded first if necessary."""
        models, body = await self._read_call(request)
        if models is None:
            return body
        try:
            asked = decode(bytes(body.body), AskedModel)
            lease = await models.acquire(asked.target, more_room=asked.more_room)
        except (msgspec.DecodeError, TargetModelError) as error:
            return build_refusal(400, self._hide_paths(str(error)))
        except ModelNotReadyError as error:
            return build_refusal(429, self._hide_paths(str(error)))
        except TargetModelLoadError as error:
            return build_refusal(424, self._hide_paths(str(error)), error.status)
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
        models, body = await self._read_call(request)
        if models is None:
            return body
        try:
            ended = decode(bytes(body.body), EndedLease)
        except msgspec.DecodeError as error:
            return build_refusal(400, str(error))
        models.release(ended.lease, lost=ended.lost, uses=ended.uses)
        return Response(status_code=204)

    async def _read_call(self, request: Request) -> tuple[CopyModels | None, Response]:
        """The copy's models with the body as a response, or None and the refusal."""
        found = self._find(request.path_params["copy_id"])
        if found is None:
            return None, build_refusal(404, "no multi-model copy of that id is here")
        models, key = found
        given = request.headers.get(COPY_KEY_HEADER, "")
        if key is not None and not hmac.compare_digest(given.encode(), key.encode()):
            return None, PlainTextResponse(
                f"{COPY_KEY_HEADER} is missing or wrong", status_code=403
            )
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > MAX_BODY_BYTES:
                return None, build_refusal(413, f"more than {MAX_BODY_BYTES} bytes")
        return models, Response(bytes(body))


def build_refusal(status: int, message: str, model_status: int | None = None) -> Response:
    """Build an answer with the cause. `model_status` is the container's."""
    members = {"message": message, "status": model_status}
    return Response(msgspec.json.encode(members), status, media_type="application/json")
