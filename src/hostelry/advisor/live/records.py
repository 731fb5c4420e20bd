"""Records of a running platform as values. PURE. Instants are in seconds since the epoch."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hostelry.advisor.options import HostingOption
from hostelry.domain.shape import NO_RESOURCES, Shape

Series = Mapping[float, float]  # a value by the start of its period. An absent period is a hole
SHARES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)


class PeriodTimes(msgspec.Struct, frozen=True):
    """The times of `num` calls in one period: the values at SHARES, in seconds."""

    num: float
    values: tuple[float, ...]


class NameRecords(msgspec.Struct, frozen=True, kw_only=True):
    """The records under one name: a component, an adapter, or the variant of an endpoint.

    `model_s` are times of the model server, `overhead_s` of the platform around it, by the start of
    periods of `times_period_s`.
    """

    calls: Series = msgspec.field(default_factory=dict)
    failed: Series = msgspec.field(default_factory=dict)
    model_s: Mapping[float, PeriodTimes] = msgspec.field(default_factory=dict)
    overhead_s: Mapping[float, PeriodTimes] = msgspec.field(default_factory=dict)
    times_period_s: float = 60.0


class RecordedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that serves now.

    `name` is valid in a mix, `live_name` is the platform's. `records` are of its name, or of
    the whole endpoint for a multi-model endpoint, whose `part` has the model's own requests by
    `PART_S`. `sources` has the source of each number, by its field of the mix's file. None of a
    number is unknown.
    """

    name: str
    live_name: str
    records: NameRecords
    part: Series | None = None
    framework: str = "custom"
    image: str = ""
    artifact: str = ""
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    memory_mb: float | None = None
    loaded_mb: float | None = None
    disk_mb: float | None = None
    cpus: float = 1.0
    accelerators: int = 0
    accelerator_memory_mb: float = 0.0
    concurrency: int = 1
    start_s: float | None = None
    download_s: float | None = None
    load_s: float | None = None
    adapter_of: str | None = None
    sources: Mapping[str, str] = msgspec.field(default_factory=dict)


PART_S = 300.0  # the sums of usage are kept for these periods


class RecordedUnit(msgspec.Struct, frozen=True, kw_only=True):
    """Models that share an endpoint, and the use of the endpoint.

    `scalings` has the requests that scale each model, or the whole endpoint if it is shared by its
    models, and `counts` their copies or instances now. `instances` is their mean number in each
    period, `starts` the environments that began, or the models that were loaded. A serverless
    endpoint has `gb_s`, `memory_mb` and `concurrency` instead of a machine.
    """

    endpoint: str
    option: HostingOption
    models: tuple[RecordedModel, ...]
    instance_type: str = ""
    shape: Shape = NO_RESOURCES
    device_memory_bytes: int = 0
    min_instances: int = 1
    max_instances: int = 1
    scalings: Sequence[Sequence[Mapping[str, Any]]] = ()
    counts: Sequence[int] = ()
    instances: Series = msgspec.field(default_factory=dict)
    starts: Series = msgspec.field(default_factory=dict)
    gb_s: Series = msgspec.field(default_factory=dict)
    memory_mb: int = 0
    concurrency: int = 1


class LiveRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was read, for periods of `period_s` in [since, until).

    `left_out` has the endpoints that cannot be compared, with the reason.
    """

    since: float
    until: float
    period_s: float
    units: tuple[RecordedUnit, ...]
    left_out: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def models(self) -> tuple[RecordedModel, ...]:
        """The models of all endpoints."""
        return tuple(model for unit in self.units for model in unit.models)
