"""Values of a mix: its models, their traffic, the machines, the axes and their anchors. PURE."""

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, IntEnum
from pathlib import Path

import msgspec

from hostelry.domain.shape import Shape
from hostelry.sim.service import ServiceModel

MIB, GIB = 2**20, 2**30
LEAST_HOURS = 0.05


class Hardware(Enum):
    """The processor that a model needs."""

    CPU = "cpu"
    ACCELERATOR = "accelerator"


class LatencyClass(Enum):
    """When a caller needs the answer: in the call, within minutes, or by the next day."""

    INTERACTIVE = "interactive"
    SOON = "soon"
    OFFLINE = "offline"


class IsolationLevel(IntEnum):
    """The separation of a model from the other models of its file, weakest first."""

    SAME_PROCESS = 0
    OWN_PROCESS = 1
    OWN_CONTAINER = 2
    OWN_LIMITS = 3
    OWN_MACHINE = 4


ISOLATION_TEXT: Mapping[IsolationLevel, str] = {
    IsolationLevel.SAME_PROCESS: "weights in one process with the others",
    IsolationLevel.OWN_PROCESS: "a process in a shared container",
    IsolationLevel.OWN_CONTAINER: "a container and user, limits shared",
    IsolationLevel.OWN_LIMITS: "a container, user and limits",
    IsolationLevel.OWN_MACHINE: "a machine",
}


class NumberSource(Enum):
    """The origin of a number."""

    MEASURED = "measured"
    SIMULATED = "simulated"
    COUNTED = "counted"
    ASSUMED = "assumed"


class ModelTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """The requests for one model: rows of a trace, or a shape.

    `trace_model` names the rows, None for all rows. The shape has `per_hour` requests on average,
    `cv` as the coefficient of variation of the time between two, and `peak_to_mean` times the mean
    rate at `peak_hour` of `time_zone`.
    """

    trace: Path | None = None
    trace_model: str | None = None
    per_hour: float = 0.0
    cv: float = 1.0
    peak_hour: float = 12.0
    peak_to_mean: float = 1.0
    time_zone: str = "UTC"
    input_tokens: int = 0
    output_tokens: int = 1


class FitModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model to host.

    `memory_bytes` are of a copy with its server, `loaded_bytes` of the model in a server that runs.
    `cpus` are reserved for a copy, which works on `service.max_concurrency` requests at a time.
    `is_measured` if the service times come from a measurement. `is_calibrated` if they come from a
    calibration of one copy. `adapter_of` names the base of an adapter, and `adapter_rank` is its
    rank, None if unknown. `max_s` is the longest time that a request may take.
    """

    name: str
    framework: str = "custom"
    hardware: Hardware = Hardware.CPU
    memory_bytes: int = GIB
    loaded_bytes: int | None = None
    disk_bytes: int = GIB
    cpus: float = 1.0
    accelerators: int = 0
    accelerator_memory_bytes: int = 0
    latency_class: LatencyClass = LatencyClass.INTERACTIVE
    target_p99_s: float = 1.0
    target_first_token_s: float | None = None
    isolation_label: str = ""
    isolation_min: IsolationLevel = IsolationLevel.SAME_PROCESS
    needs_streaming: bool = False
    needs_capture: bool = False
    payload_bytes: int = MIB
    answer_bytes: int = MIB
    max_s: float = 60.0
    adapter_of: str | None = None
    adapter_rank: int | None = None
    min_copies: int = 1
    service: ServiceModel
    service_origin: str = ""
    is_measured: bool = False
    is_calibrated: bool = False
    download_s: float = 1.0
    load_s: float = 1.0
    overhead_s: float = 0.0
    traffic: ModelTraffic = ModelTraffic()
    image: str = ""
    artifact: str = ""
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def held_bytes(self) -> int:
        """The memory that the model takes in a server of several models."""
        return self.memory_bytes if self.loaded_bytes is None else self.loaded_bytes


class FitMachine(msgspec.Struct, frozen=True, kw_only=True):
    """An instance type that may be used. A price of None is unknown.

    `most` is the largest number of them.
    """

    type: str
    shape: Shape
    device_memory_bytes: int = 0
    price_per_hour: float | None = None
    most: int = 20


class FitAxis(Enum):
    """An axis of the chart. The order is fixed."""

    LATENCY = "latency"
    COST = "cost"
    ISOLATION = "isolation"
    SCALABILITY = "scalability"
    OPERATIONS = "operations"


class AxisAnchors(msgspec.Struct, frozen=True, kw_only=True):
    """The user's scale of an axis: the value that scores 0, the value that scores 1, the weight."""

    unacceptable: float
    target: float
    weight: float = 1.0


class AdapterThroughput(msgspec.Struct, frozen=True, kw_only=True):
    """A measured point: tokens a second of a copy of `base` with adapters of one rank in use."""

    base: str
    rank: int
    adapters: int
    tokens_per_s: float


class FitMix(msgspec.Struct, frozen=True, kw_only=True):
    """The models to host and everything that the choice depends on.

    With `has_machine_per_instance` every instance is a machine. `serverless_price` is for a
    GB-second, None if unknown. `merge_from_share` is the share of an adapter from which merging it
    pays, None if unknown. `adapter_throughput` has measured points, empty if unknown. `batch_hour`
    is the hour (UTC) at which batches start.
    """

    name: str
    models: tuple[FitModel, ...]
    machines: tuple[FitMachine, ...]
    axes: Mapping[FitAxis, AxisAnchors]
    seeds: tuple[int, ...] = (1, 2, 3)
    hours: float = 24.0
    has_machine_per_instance: bool = False
    serverless_price: float | None = None
    serverless_concurrency: int = 5
    merge_from_share: float | None = None
    adapter_throughput: tuple[AdapterThroughput, ...] = ()
    batch_hour: float = 2.0
    batch_instances: int = 1
    notes: tuple[str, ...] = ()


def group_adapters(models: Iterable[FitModel]) -> Mapping[str, Sequence[FitModel]]:
    """The adapters among the models, by the name of their base."""
    found: dict[str, list[FitModel]] = {}
    for model in models:
        if model.adapter_of is not None:
            found.setdefault(model.adapter_of, []).append(model)
    return found


def format_limit(value: float) -> str:
    """A positive limit with two digits. It is rounded down, so that the text keeps the limit."""
    text = f"{value:.2g}"
    if float(text) <= value:
        return text
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return f"{math.floor(value / step) * step:.2g}"
