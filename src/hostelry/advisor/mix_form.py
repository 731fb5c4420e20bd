"""The form of a mix's TOML file: its tables, its fields and their limits."""

from typing import Annotated

import msgspec

from hostelry.advisor.values import LEAST_HOURS, Hardware, LatencyClass

NAME = r"^[A-Za-z0-9](-?[A-Za-z0-9]){0,50}$"
MAX_NAME_CHARS = 51
MAX_SECONDS = 3600.0
MAX_COUNT = 5000
MAX_MB = 16 * 2**20

Positive = Annotated[float, msgspec.Meta(gt=0.0, le=1e9)]
Amount = Annotated[float, msgspec.Meta(ge=0.0, le=1e9)]
Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=MAX_SECONDS)]
Megabytes = Annotated[float, msgspec.Meta(gt=0.0, le=MAX_MB)]
Hour = Annotated[float, msgspec.Meta(ge=0.0, lt=24.0)]
Name = Annotated[str, msgspec.Meta(pattern=NAME)]
Text = Annotated[str, msgspec.Meta(max_length=1024)]
Count = Annotated[int, msgspec.Meta(ge=0, le=100_000)]
Rank = Annotated[int, msgspec.Meta(ge=1, le=4096)]


class TrafficForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The table `traffic` of a model."""

    trace: Text | None = None
    model: Text | None = None
    per_hour: Annotated[float, msgspec.Meta(ge=0.0, le=1e7)] | None = None
    cv: Annotated[float, msgspec.Meta(ge=0.05, le=50.0)] = 1.0
    peak_hour: Hour = 12.0
    peak_to_mean: Annotated[float, msgspec.Meta(ge=1.0, le=2.0)] = 1.0
    time_zone: Text = "UTC"
    input_tokens: Count = 0
    output_tokens: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1


class ModelForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A table of `models`."""

    name: Name
    traffic: TrafficForm = msgspec.field(default_factory=TrafficForm)
    count: Annotated[int, msgspec.Meta(ge=1, le=MAX_COUNT)] = 1
    zipf: Annotated[float, msgspec.Meta(ge=0.0, le=5.0)] = 0.0
    framework: Name = "custom"
    hardware: Hardware = Hardware.CPU
    memory_mb: Megabytes
    loaded_mb: Megabytes | None = None
    disk_mb: Megabytes | None = None
    cpus: Annotated[float, msgspec.Meta(gt=0.0, le=1024.0)] = 1.0
    accelerators: Annotated[int, msgspec.Meta(ge=0, le=64)] = 0
    accelerator_memory_mb: Annotated[float, msgspec.Meta(ge=0.0, le=MAX_MB)] = 0.0
    latency_class: LatencyClass = LatencyClass.INTERACTIVE
    target_p99_ms: Positive
    target_first_token_ms: Positive | None = None
    isolation_label: Text = ""
    isolation_min: Annotated[int, msgspec.Meta(ge=0, le=4)] = 0
    streaming: bool = False
    data_capture: bool = False
    payload_mb: Amount = 1.0
    answer_mb: Amount = 1.0
    max_s: Annotated[float, msgspec.Meta(gt=0.0, le=86_400.0)] = 60.0
    min_copies: Annotated[int, msgspec.Meta(ge=0, le=100)] = 1
    adapter_of: Name | None = None
    adapter_rank: Rank | None = None
    calibration: Text | None = None
    seconds: Annotated[float, msgspec.Meta(gt=0.0, le=MAX_SECONDS)] | None = None
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 1
    spread: list[tuple[float, float]] = msgspec.field(default_factory=list)
    overhead_ms: Annotated[float, msgspec.Meta(ge=0.0, le=MAX_SECONDS * 1000)] = 0.0
    measured: Text | None = None
    start_s: Seconds | None = None
    warm_start_s: Seconds | None = None
    instance_start_s: Seconds | None = None
    download_s: Seconds = 1.0
    load_s: Seconds = 1.0
    image: Text = ""
    artifact: Text = ""
    environment: dict[Text, Text] = msgspec.field(default_factory=dict)


class MachineForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A table of `machines`."""

    type: Annotated[str, msgspec.Meta(pattern=r"^ml\.[a-z0-9-]{1,30}\.[a-z0-9-]{1,30}$")]
    cpus: Annotated[float, msgspec.Meta(gt=0.0, le=4096.0)] | None = None
    memory_gib: Annotated[float, msgspec.Meta(gt=0.0, le=MAX_MB)] | None = None
    accelerators: Annotated[int, msgspec.Meta(ge=0, le=64)] | None = None
    accelerator_memory_gib: Annotated[float, msgspec.Meta(ge=0.0, le=1024.0)] | None = None
    price_per_hour: Amount | None = None
    most: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 20


class AnchorsForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An axis of `axes`."""

    unacceptable: Amount
    target: Amount
    weight: Annotated[float, msgspec.Meta(ge=0.0, le=1000.0)] = 1.0


class AxesForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The table `axes`. Cost has no usual anchors."""

    cost: AnchorsForm
    latency: AnchorsForm = msgspec.field(
        default_factory=lambda: AnchorsForm(unacceptable=0.9, target=0.99)
    )
    isolation: AnchorsForm = msgspec.field(
        default_factory=lambda: AnchorsForm(unacceptable=0.0, target=3.0)
    )
    scalability: AnchorsForm = msgspec.field(
        default_factory=lambda: AnchorsForm(unacceptable=300.0, target=20.0)
    )
    operations: AnchorsForm = msgspec.field(
        default_factory=lambda: AnchorsForm(unacceptable=1000.0, target=20.0)
    )


class ThroughputForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A table of `platform.adapter_throughput`."""

    base: Name | None = None
    rank: Rank
    adapters: Annotated[int, msgspec.Meta(ge=1, le=100_000)]
    tokens_per_s: Positive


class PlatformForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The table `platform`."""

    machine_per_instance: bool = False
    batch_hour: Hour = 2.0
    batch_instances: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1
    serverless_concurrency: Annotated[int, msgspec.Meta(ge=1, le=200)] = 5
    serverless_price_per_gb_s: Positive | None = None
    merge_from_share: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] | None = None
    adapter_throughput: list[ThroughputForm] = msgspec.field(default_factory=list)


class MixForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A whole file."""

    name: Name
    axes: AxesForm
    machines: list[MachineForm]
    models: list[ModelForm]
    hours: Annotated[float, msgspec.Meta(ge=LEAST_HOURS, le=168.0)] = 24.0
    seeds: list[Annotated[int, msgspec.Meta(ge=0, le=2**31)]] = msgspec.field(
        default_factory=lambda: [1, 2, 3]
    )
    platform: PlatformForm = msgspec.field(default_factory=PlatformForm)
