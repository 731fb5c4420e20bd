"""Census for metrics: copies and instances in service, and their usage.

A plain value. `reconcile/census.py` builds it from the records.
"""

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from hostelry.domain.copy import GpuUse
from hostelry.domain.load import LoadKey
from hostelry.domain.metric import DEFAULT_PERIOD_S, MetricsConfig, Sample
from hostelry.domain.scope import Scope
from hostelry.domain.serverless import ServerlessConfig

ScopedSample = tuple[Scope, Sample]


def move_to_period(scoped: ScopedSample, period_s: int) -> ScopedSample:
    """Move a sample to the start of its period, unless the period is a minute or longer.

    Samples of a period share one instant, so that they share one bucket of the store.
    """
    if period_s >= DEFAULT_PERIOD_S:
        return scoped
    scope, sample = scoped
    return scope, replace(sample, at=sample.at - sample.at % period_s, resolution_s=1)


DEFAULT_METRICS = MetricsConfig()


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """Declared resources of a copy's reservation, or of an instance."""

    cpus: float = 0.0
    memory_bytes: int = 0
    accelerators: float = 0.0


class CopyUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of one copy: CPU seconds since its process began, memory, and accelerators.

    `cpu_s` is measured at `cpu_at` of its machine's monotonic clock. None stands for values that
    are not measured. `limit` has the resources of its instance, of type `instance_type`. `setup`
    has the number of its process, and the seconds from the process's launch until it was proven.
    """

    copy_id: str
    instance_id: str
    instance_type: str = ""
    limit: Resources = Resources()
    cpu_s: float | None = None
    cpu_at: float = 0.0
    memory_bytes: int | None = None
    gpus: tuple[GpuUse, ...] = ()
    loaded_models: int | None = None
    setup: tuple[int, float] | None = None


class InstanceCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """A running instance, and the resources that copies reserve on it.

    `config_name` is its endpoint configuration.
    """

    id: str
    shape: Resources
    config_name: str = ""
    instance_type: str = ""
    reserved: Resources = Resources()


class ComponentCensus(msgspec.Struct, frozen=True, kw_only=True):
    """A component in service. The copies of an adapter are the copies that have it registered.

    `base` is an adapter's base, None for a base. `reserved` is the reservation of each copy of a
    base.
    """

    key: LoadKey
    num_copies: int
    base: LoadKey | None = None
    reserved: Resources = Resources()
    copies: tuple[CopyUsage, ...] = ()


class VariantCensus(msgspec.Struct, frozen=True, kw_only=True):
    """A variant in service. `copies` has all copies on its instances.

    While its traffic shifts, these are copies of both fleets, and `new_config_name` is the
    configuration of the new fleet. `pools` has the instance types of its InstancePools, if it has
    pools. `is_async` is True if its endpoint's requests are queued. A `serverless` variant may be
    without copies.
    """

    key: LoadKey
    config_name: str
    takes_components: bool
    instances: tuple[InstanceCapacity, ...]
    copies: tuple[CopyUsage, ...] = ()
    metrics: MetricsConfig = DEFAULT_METRICS
    pools: tuple[str, ...] = ()
    is_async: bool = False
    serverless: ServerlessConfig | None = None
    new_config_name: str | None = None

    @property
    def config_names(self) -> tuple[str, ...]:
        """The configurations whose copies serve the variant."""
        new = self.new_config_name
        return (self.config_name,) if new in (None, self.config_name) else (self.config_name, new)


class Census(msgspec.Struct, frozen=True, kw_only=True):
    """Everything in service at one instant. `disk_use` is the use of the home's disk, from 0 to 1.

    `transforms` are the instances of transform jobs, which get no requests from clients.
    """

    variants: Mapping[LoadKey, VariantCensus] = msgspec.field(default_factory=dict)
    components: Mapping[LoadKey, ComponentCensus] = msgspec.field(default_factory=dict)
    transforms: Mapping[LoadKey, VariantCensus] = msgspec.field(default_factory=dict)
    disk_use: float | None = None


NOTHING_IN_SERVICE = Census()


def get_host_key(key: LoadKey) -> LoadKey:
    """The key of the variant that a name's copies run on."""
    return key if key.component_name is None else replace(key, component_name=None)


def find_metrics(key: LoadKey, census: Census) -> MetricsConfig:
    """MetricsConfig of a name's variant. The defaults if the variant is not in service."""
    variant = census.variants.get(get_host_key(key))
    return DEFAULT_METRICS if variant is None else variant.metrics


def select_period(period_s: int, census: Census) -> Census:
    """The part of the census whose usage is published at that period."""
    variants = census.variants.items()
    components = census.components.items()
    return replace(
        census,
        variants={key: it for key, it in variants if it.metrics.period_s == period_s},
        transforms={
            key: it for key, it in census.transforms.items() if it.metrics.period_s == period_s
        },
        components={
            key: it for key, it in components if find_metrics(key, census).period_s == period_s
        },
    )
