"""Models on one instance of a multi-model endpoint, and decisions on room for them, as values."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from hostelry.placement.model_popularity import DecayedCounts, Demand

MIB = 1024 * 1024


class ModelTier(Enum):
    """A place that models take bytes of: loaded in memory, or unpacked on the instance's disk.

    A loaded model may also take a declared part of an accelerator's memory.
    """

    MEMORY = "memory"
    ACCELERATOR = "accelerator"
    DISK = "disk"


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedModel:
    """A model that one instance has served, loaded or not.

    Args:
        key: its TargetModel and the version of its object.
        on_disk: whether its files are there, or being made.
        loaded: whether it is in memory, or being loaded.
        disk_bytes: of its unpacked files.
        memory_bytes: measured after its last load; before that an estimate.
        accelerator_bytes: declared; what it takes of the accelerator while it is loaded.
        download_s: measured, unpacking included.
        load_s: measured.
        popularity: its requests.
        in_flight: requests, loads and downloads that use it now.
        pinned: kept whatever comes.
        hits: requests that found it loaded.
    """

    key: str
    on_disk: bool = False
    loaded: bool = False
    disk_bytes: int = 0
    memory_bytes: int = 0
    accelerator_bytes: int = 0
    download_s: float = 0.0
    load_s: float = 0.0
    popularity: DecayedCounts = field(default_factory=DecayedCounts)
    in_flight: int = 0
    pinned: bool = False
    hits: int = 0

    @property
    def evictable(self) -> bool:
        """Whether it may be evicted now."""
        return not self.pinned and not self.in_flight

    @property
    def last_used_at_s(self) -> float:
        """When it was last requested."""
        return self.popularity.at_s

    def held_bytes(self, tier: ModelTier) -> int:
        """Bytes of `tier` that it takes now."""
        if tier is ModelTier.DISK:
            return self.disk_bytes if self.on_disk else 0
        return self.size_bytes(tier) if self.loaded else 0

    def size_bytes(self, tier: ModelTier) -> int:
        """Bytes of `tier` that it takes when it is there."""
        match tier:
            case ModelTier.MEMORY:
                return self.memory_bytes
            case ModelTier.ACCELERATOR:
                return self.accelerator_bytes
            case ModelTier.DISK:
                return self.disk_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCacheState:
    """One tier of an instance: its bytes, the models of the instance, and their demand."""

    tier: ModelTier
    capacity_bytes: int
    models: Sequence[CachedModel]
    demand: Demand = field(default_factory=Demand)

    def held_bytes(self) -> list[int]:
        """Bytes of the tier that each model takes now."""
        if self.tier is ModelTier.MEMORY:
            return [model.memory_bytes if model.loaded else 0 for model in self.models]
        if self.tier is ModelTier.ACCELERATOR:
            return [model.accelerator_bytes if model.loaded else 0 for model in self.models]
        return [model.disk_bytes if model.on_disk else 0 for model in self.models]

    @property
    def used_bytes(self) -> int:
        """Bytes of the models that are there."""
        return sum(self.held_bytes())

    @property
    def free_bytes(self) -> int:
        """Bytes left; less than zero where models grew beyond the capacity."""
        return self.capacity_bytes - self.used_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """A model to remove from a tier, and why."""

    key: str
    tier: ModelTier
    freed_bytes: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomMade:
    """There is room once `evictions`, possibly none, are carried out in their order."""

    evictions: tuple[Eviction, ...] = ()

    @property
    def freed_bytes(self) -> int:
        """Bytes that the evictions free, both tiers together."""
        return sum(eviction.freed_bytes for eviction in self.evictions)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTooLarge:
    """No wait and no eviction makes room; `text` names the sizes."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsInUse:
    """There is room once models that are in use are idle.

    `drain` names what has to go, idle models included. A caller that has waited for long sends
    these no new request until they are evicted; else one or another could be in use forever.
    """

    text: str
    lacking_bytes: int
    drain: tuple[str, ...]


RoomPlan = RoomMade | ModelTooLarge | ModelsInUse


def size_text(num_bytes: int) -> str:
    """Bytes as text, in MB of 1024 KB as AWS's shapes count them."""
    return f"{num_bytes / MIB:.1f} MB"
