"""What is in service, as far as metrics need to know: how many copies and instances, and their use.

A value, made from the records by whoever has them (`server/census.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hostelry.domain.copy import GpuUse
from hostelry.domain.load import LoadKey
from hostelry.domain.metrics_config import MetricsConfig

DEFAULT_METRICS = MetricsConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyUse:
    """What a copy has of its instance: CPU seconds since its process began, and memory.

    `cpu_s` is as of `cpu_at` of a clock of its own. None where the agent could not tell.
    """

    copy_id: str
    instance_id: str
    cpu_s: float | None = None
    cpu_at: float = 0.0
    memory_bytes: int | None = None
    gpus: tuple[GpuUse, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """Declared resources: of a copy what it reserves, of an instance what it has."""

    cpus: float = 0.0
    memory_bytes: int = 0
    accelerators: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRoom:
    """An instance that runs, and what copies reserve on it."""

    id: str
    shape: Reserved
    reserved: Reserved = Reserved()


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentCensus:
    """A component in service; for an adapter the copies are those that have it registered.

    `base` is the adapter's base, None for a base; `reserved` what each of a base's copies reserves.
    The use of an adapter's copies is its base's.
    """

    key: LoadKey
    num_copies: int
    base: LoadKey | None = None
    reserved: Reserved = Reserved()
    copies: tuple[CopyUse, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantCensus:
    """A variant in service; `copies` are all that run on its instances."""

    key: LoadKey
    config_name: str
    takes_components: bool
    instances: tuple[InstanceRoom, ...]
    copies: tuple[CopyUse, ...] = ()
    metrics: MetricsConfig = DEFAULT_METRICS


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """Everything in service at one instant; `disk_use` is how full the home's disk is, 0 to 1."""

    variants: Mapping[LoadKey, VariantCensus] = field(default_factory=dict)
    components: Mapping[LoadKey, ComponentCensus] = field(default_factory=dict)
    disk_use: float | None = None


NOTHING_IN_SERVICE = Census()


def hosts_of(key: LoadKey) -> LoadKey:
    """The variant that a name's copies run on."""
    return key if key.component_name is None else replace(key, component_name=None)


def metrics_of(key: LoadKey, census: Census) -> MetricsConfig:
    """How finely a name's metrics are told; the defaults where its variant is not in service."""
    variant = census.variants.get(hosts_of(key))
    return DEFAULT_METRICS if variant is None else variant.metrics


def told_each(period_s: int, census: Census) -> Census:
    """What of the census has its use told at that period."""
    return replace(
        census,
        variants={
            it: own for it, own in census.variants.items() if own.metrics.period_s == period_s
        },
        components={
            it: own
            for it, own in census.components.items()
            if metrics_of(it, census).period_s == period_s
        },
    )
