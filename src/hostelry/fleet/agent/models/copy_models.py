"""The models of one multi-model copy, and the leases by which gateways use them.

A lease keeps its model loaded. It ends by its release, or after MAX_LEASE_S: the gateway may be
gone, and no request takes longer.
"""

import asyncio
import os
import secrets
import shutil
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hostelry.base.clock import Clock, MonotonicClock
from hostelry.base.errors import TerminalError
from hostelry.domain.copy import CopySpec, CopyStatus
from hostelry.domain.shape import Shape
from hostelry.fleet.agent.adapter_mount import AdapterMount
from hostelry.fleet.agent.deps import CopyDeps
from hostelry.fleet.agent.model_server import ModelServer
from hostelry.fleet.agent.models.served_routes import LoadedRecord, ServedRoutes
from hostelry.fleet.agent.models.target_models import TargetModels
from hostelry.fleet.agent.models.values import ModelUse, TargetModelDeps, TargetModelLimits
from hostelry.fleet.artifacts.protocol import Artifacts
from hostelry.fleet.rules.accelerator_memory import AcceleratorMemory, accelerator_memory

PREFIX = "/target-models"  # of the agent's routes
LOADED = "loaded-models"  # the folder of the record, in the copy's
MAX_LEASE_S = 600.0  # above the time limit of a stream
MODEL_SHARE = 0.9  # of a copy's memory; the rest is the server's own
LEFT = "an earlier agent loaded it, and its unload had no answer"
MAX_TIMES = 1000  # kept until a gateway takes them
MAX_DISK_BYTES = 32 * 1024**3
DISK_SHARE = 0.5  # of what is free


@dataclass(frozen=True, slots=True)
class Lease:
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
            measured=lambda name, taken_s: self._times.append((name, round(taken_s, 6))),
        )
        self._models = TargetModels(
            spec.id, spec.container.source.uri, deps, limits, spec.container.model_cache
        )
        self._leases: dict[str, Lease] = {}
        self._clock, self._limits = clock, limits

    async def served_by(
        self, server: ModelServer, mount: AdapterMount | None, *, adopted: bool
    ) -> None:
        """Load models into this server from now on; it has none, once an `adopted` one is empty."""
        left = await self._routes.use(server, mount, adopted=adopted)
        self._models.restarted(left, LEFT)

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
        """The model, loaded, until `release`; with `more_room` others are evicted for its request.

        Raises as TargetModels.acquire does.
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
        """End the lease, if it has not ended; `lost`: the server did not have the model."""
        lease = self._leases.pop(lease_id, None)
        if lease is None:
            return
        lease.end.cancel()
        if lost:
            self._models.lost(lease.use.target)
        self._models.release(lease.use, uses)

    async def close(self) -> None:
        """End the loads under way and all leases."""
        for lease_id in list(self._leases):
            self.release(lease_id)
        await self._models.close()


def copy_models(
    spec: CopySpec,
    deps: CopyDeps,
    folder: Path,
    note: Callable[[str], None],
    used_bytes: Callable[[], int],
    num_sharing: int,
) -> CopyModels | None:
    """The models of the copy in `folder`; None where it has one model.

    `used_bytes` is the memory of its processes; `num_sharing` containers share the instance's.
    """
    if not spec.container.is_multi_model:
        return None
    # The copy's folder may not be there yet.
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    limits = model_limits(deps.shape, there, spec.container.environment, num_sharing)
    routes = ServedRoutes(LoadedRecord(folder / LOADED), lambda: asyncio.to_thread(used_bytes))
    return CopyModels(spec, deps.artifacts, MonotonicClock(), limits, note, routes)


def with_models(status: CopyStatus, models: CopyModels | None, agent_address: str) -> CopyStatus:
    """The status with where gateways lease the copy's models, and how many are in memory."""
    if models is None:
        return status
    address = f"{agent_address}{PREFIX}/{status.id}"
    return replace(status, models_address=address, loaded_models=models.num_loaded)


def model_limits(
    shape: Shape, folder: Path, environment: Mapping[str, str], num_sharing: int = 1
) -> TargetModelLimits:
    """The memory and disk for models on an instance of `shape` with its files in `folder`.

    `environment` is the container's, one of `num_sharing` of the instance.
    """
    try:
        declared = accelerator_memory(environment)
    except TerminalError:  # the copy fails by that (agent/orders.py)
        declared = AcceleratorMemory()
    machine_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return TargetModelLimits(
        memory_bytes=int(MODEL_SHARE * min(shape.memory_bytes, machine_bytes) / num_sharing),
        disk_bytes=min(MAX_DISK_BYTES, int(DISK_SHARE * shutil.disk_usage(folder).free)),
        accelerator_bytes=declared.capacity_bytes,
        model_accelerator_bytes=declared.model_bytes,
    )
