"""The records of a running platform, by its own APIs."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from hostelry.advisor.live.names import MixNames
from hostelry.advisor.live.records import (
    PART_S,
    LiveRecords,
    NameRecords,
    RecordedModel,
    RecordedUnit,
    Series,
)
from hostelry.advisor.options import HostingOption
from hostelry.base.errors import TerminalError
from hostelry.cli.control_requests import control_answer
from hostelry.cli.declared.aws import Aws, pages
from hostelry.cli.declared.document import CLOUDWATCH
from hostelry.cli.declared.observation import observed_state
from hostelry.cli.explain import models_by_copy
from hostelry.cli.live.endpoints import (
    LiveEndpoint,
    LiveModel,
    find_framework,
    list_endpoints,
)
from hostelry.cli.live.metric_reading import (
    MODELS,
    OWN,
    Asked,
    read_series,
    read_times,
)
from hostelry.containers.predictive.config import WORKERS
from hostelry.cost.usage import MB_MS_PER_GB_S, MODEL, REQUESTS
from hostelry.fleet.shapes import get_shape, instance_types
from hostelry.home.home import Credentials, UpConfig
from hostelry.processes.fleets import key_shown_to_agents

MINUTE_S, FIVE_MINUTES_S, HOUR_S, DAY_S = 60.0, 300.0, 3600.0, 86_400.0
MINUTES_KEPT_S, FIVE_MINUTES_KEPT_S = 15 * DAY_S, 63 * DAY_S  # by the metric store
SHORT_S = 6 * HOUR_S  # for this long, times are read by the minute
MIB = 2**20
TARGET_SOURCES = {
    "memory_mb": "measured: loaded_mb, and the copy without its models",
    "loaded_mb": "measured on a copy",
}
Progress = Callable[[str], None]
Facts = Mapping[str, Any]


class ReadPeriod(msgspec.Struct, frozen=True, kw_only=True):
    """The time to read, in periods of `step_s`, and the periods of times."""

    since: float
    until: float
    step_s: float
    times_s: float = MINUTE_S

    @property
    def between(self) -> tuple[float, float]:
        """Its ends."""
        return self.since, self.until


def find_period(since: float, now: float) -> ReadPeriod:
    """Whole periods, as short as the metric store keeps them for that long. The last is over."""
    age_s = now - since
    step_s = MINUTE_S if age_s < MINUTES_KEPT_S else FIVE_MINUTES_S
    step_s = step_s if age_s < FIVE_MINUTES_KEPT_S else HOUR_S
    return ReadPeriod(
        since=math.ceil(since / step_s) * step_s,
        until=math.floor(now / step_s) * step_s,
        step_s=step_s,
    )


class LiveSource(Protocol):
    """Knowledge of control and agents that AWS's APIs do not show."""

    def get_endpoints(self) -> Mapping[str, Facts]:
        """Each endpoint, with its copies, by name."""

    def get_target_models(self, endpoint: Facts) -> Mapping[str, Sequence[Facts]]:
        """The models that each copy of a multi-model endpoint knows, by the copy's id."""


class PlatformSource:
    """The running platform's knowledge."""

    def __init__(self, config: UpConfig, credentials: Credentials) -> None:
        self._running = config, credentials

    def get_endpoints(self) -> Mapping[str, Facts]:
        """Each endpoint, with its copies, by name."""
        state = control_answer(*self._running, "/internal/state", knows="the copies")
        return {it["name"]: it for it in state["endpoints"]}

    def get_target_models(self, endpoint: Facts) -> Mapping[str, Sequence[Facts]]:
        """The models that each copy of a multi-model endpoint knows, by the copy's id."""
        found = models_by_copy([endpoint], key_shown_to_agents(*self._running))
        return {name: it["models"] for name, it in found.items() if not isinstance(it, str)}


class LiveReading:
    """Reads the records of endpoints.

    Args:
        aws: the platform's APIs.
        source: knowledge that they do not show.
        role_arn: the default role.
        progress: called with a text on each part.
    """

    def __init__(self, aws: Aws, source: LiveSource, role_arn: str, progress: Progress) -> None:
        self._aws = aws
        self._source = source
        self._role_arn = role_arn
        self._progress = progress

    def read(self, chosen: Sequence[str], period: ReadPeriod) -> LiveRecords:
        """The records of the chosen endpoints, or of all. Raises TerminalError."""
        self._progress("reading endpoints")
        observed = observed_state(self._aws, lambda _: True, self._role_arn)
        found, left_out = list_endpoints(observed, chosen)
        unknown = [it for it in chosen if it not in {*left_out, *(one.name for one in found)}]
        if unknown:
            raise TerminalError(f"there is no endpoint {unknown[0]}; `hostelry ls` lists them")
        if not found:
            reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items())
            raise TerminalError(f"there is no endpoint to compare. {reasons}".rstrip())
        return self._read_units(found, left_out, self._source.get_endpoints(), period)

    def _read_units(
        self,
        endpoints: Sequence[LiveEndpoint],
        left_out: Mapping[str, str],
        facts: Mapping[str, Facts],
        period: ReadPeriod,
    ) -> LiveRecords:
        names = {
            tuple(model.dimensions.items()): model.dimensions
            for one in endpoints
            for model in one.models
        }
        self._progress(f"reading the calls of {len(names):,} names")
        calls = self._read_calls([*names.values()], period)
        at = [it for series, _ in calls for it in series]
        if not at:
            raise TerminalError(
                "no metric has a call or a zero in this time: nothing served, or --last is too "
                f"short; it is at least {MINUTE_S:.0f} s after an endpoint is InService"
            )
        used = replace(period, since=min(at), until=max(at) + period.step_s)
        times_s = MINUTE_S if used.until - used.since <= SHORT_S else HOUR_S
        used = replace(used, times_s=max(times_s, period.step_s))
        records = self._read_times([*names.values()], calls, used)
        by_name = dict(zip(names, records, strict=True))
        taken = MixNames()
        units = [
            self._build_unit(one, facts.get(one.name, {}), by_name, used, taken)
            for one in endpoints
        ]
        return LiveRecords(
            since=period.since,
            until=period.until,
            period_s=period.step_s,
            units=tuple(it for it in units if it.models),
            left_out=left_out,
        )

    def _read_calls(
        self, names: Sequence[Mapping[str, str]], period: ReadPeriod
    ) -> list[tuple[Series, Series]]:
        """The calls and the failures of each name."""
        metrics = ("Invocations", "Invocation4XXErrors", "Invocation5XXErrors")
        asked = [Asked(MODELS, metric, one, "Sum") for one in names for metric in metrics]
        series = read_series(self._aws, asked, *period.between, period.step_s)
        found: list[tuple[Series, Series]] = []
        for place in range(0, len(series), len(metrics)):
            calls, refused, broken = series[place : place + len(metrics)]
            failed = {it: refused.get(it, 0.0) + broken.get(it, 0.0) for it in calls}
            found.append((_drop_partial(calls, period), failed))
        return found

    def _read_times(
        self,
        names: Sequence[Mapping[str, str]],
        calls: Sequence[tuple[Series, Series]],
        period: ReadPeriod,
    ) -> list[NameRecords]:
        self._progress("reading their times")
        busy = [it for it, (series, _) in enumerate(calls) if any(series.values())]
        asked = [
            (metric, names[place])
            for place in busy
            for metric in ("ModelLatency", "OverheadLatency")
        ]
        times = read_times(self._aws, asked, period.between, period.times_s)
        by_place = {it: times[2 * at : 2 * at + 2] for at, it in enumerate(busy)}
        found = []
        for place, (series, failed) in enumerate(calls):
            model_s, overhead_s = by_place.get(place, ({}, {}))
            found.append(
                NameRecords(
                    calls=series,
                    failed=failed,
                    model_s=model_s,
                    overhead_s=overhead_s,
                    times_period_s=period.times_s,
                )
            )
        return found

    def _build_unit(
        self,
        endpoint: LiveEndpoint,
        facts: Facts,
        records: Mapping[tuple[tuple[str, str], ...], NameRecords],
        period: ReadPeriod,
        taken: MixNames,
    ) -> RecordedUnit:
        self._progress(f"reading {endpoint.name}")
        variant = endpoint.variant
        serverless = variant.get("ServerlessConfig", {})
        own = endpoint.dimensions
        starts = "ModelSetupTime" if serverless else "ModelLoadingTime"
        asked = [
            Asked(OWN, "Instances", own, "Average"),
            Asked(MODELS, starts, own, "SampleCount"),
            Asked(OWN, "ServerlessMemoryTime", own, "Sum"),
        ]
        instances, started, memory = read_series(self._aws, asked, *period.between, period.step_s)
        instance_type = "" if serverless else variant["InstanceType"]
        scaling = variant.get("ManagedInstanceScaling", {})
        most = scaling.get("MaxInstanceCount") or max(endpoint.counts, default=1)
        if any(endpoint.scalings) and not scaling:
            bounds = [it.get("MaxCapacity", 1) for one in endpoint.scalings for it in one]
            most = max(most, *bounds)
        found = RecordedUnit(
            endpoint=endpoint.name,
            option=endpoint.option,
            models=(),
            instance_type=instance_type,
            min_instances=scaling.get("MinInstanceCount") or 1,
            max_instances=most,
            scalings=endpoint.scalings,
            counts=endpoint.counts,
            instances=instances,
            starts=started,
            gb_s={at: it / MB_MS_PER_GB_S for at, it in memory.items()},
            memory_mb=serverless.get("MemorySizeInMB", 0),
            concurrency=serverless.get("MaxConcurrency", 1),
        )
        if instance_type:
            device_bytes = _get_device_bytes(instance_type)
            shape = get_shape(instance_type)
            found = replace(found, shape=shape, device_memory_bytes=device_bytes)
        if endpoint.option is HostingOption.MULTI_MODEL:
            models = self._list_targets(endpoint, facts, records, period, taken)
        else:
            models = [
                self._build_model(one, endpoint, facts, records, taken) for one in endpoint.models
            ]
        return replace(found, models=tuple(models))

    def _build_model(
        self,
        live: LiveModel,
        endpoint: LiveEndpoint,
        facts: Facts,
        records: Mapping[tuple[tuple[str, str], ...], NameRecords],
        taken: MixNames,
    ) -> RecordedModel:
        container, environment = live.container, live.container.get("Environment", {})
        is_component = endpoint.option in (HostingOption.COMPONENTS, HostingOption.ADAPTERS)
        copies = [
            copy
            for copy in facts.get("copies", ())
            if not is_component or copy["component"] == live.name
        ]
        framework = find_framework(container.get("Image", ""))
        use = _find_use(live, endpoint, copies)
        concurrency, cpus, source = _find_concurrency(live, endpoint, framework)
        starts = [it["start_s"] for it in copies if it["start_s"] is not None]
        base = live.adapter_of
        return RecordedModel(
            name=taken.add(live.name),
            live_name=live.name,
            records=records[tuple(live.dimensions.items())],
            framework=framework,
            image=container.get("Image", ""),
            artifact=container.get("ArtifactUrl") or container.get("ModelDataUrl") or "",
            environment=environment,
            memory_mb=use.memory_mb,
            cpus=cpus,
            accelerators=int(live.needs.get("NumberOfAcceleratorDevicesRequired", 0)),
            concurrency=concurrency,
            start_s=max(starts, default=None),
            adapter_of=None if base is None else taken.get(base),
            sources={
                "memory_mb": use.source,
                "concurrency": source,
                "start_s": f"measured: the slowest of {len(starts)} copies",
            },
        )

    def _list_targets(
        self,
        endpoint: LiveEndpoint,
        facts: Facts,
        records: Mapping[tuple[tuple[str, str], ...], NameRecords],
        period: ReadPeriod,
        taken: MixNames,
    ) -> list[RecordedModel]:
        """The models of a multi-model endpoint that were called, or are on a copy."""
        (whole,) = endpoint.models
        given = [{"Name": "EndpointName", "Value": endpoint.name}]
        listed = pages(
            self._aws,
            CLOUDWATCH,
            "ListMetrics",
            "Metrics",
            {"Namespace": OWN, "MetricName": REQUESTS, "Dimensions": given},
        )
        dimensions = [{it["Name"]: it["Value"] for it in one["Dimensions"]} for one in listed]
        called = {it[MODEL]: it for it in dimensions if MODEL in it}
        asked = [Asked(OWN, REQUESTS, it, "Sum") for it in called.values()]
        since, until = period.since - PART_S, period.until
        series = read_series(self._aws, asked, since, until, max(PART_S, period.step_s))
        parts = dict(zip(called, series, strict=True))
        by_copy = self._source.get_target_models(facts) if facts else {}
        known = {one["target"]: one for models in by_copy.values() for one in models}
        server_mb = find_server_mb(facts.get("copies", ()), by_copy)
        usual = self._build_model(whole, endpoint, facts, records, MixNames())
        prefix = whole.container.get("ModelDataUrl", "")
        found = []
        for name in sorted({*parts, *known}):
            account = known.get(name, {})
            loaded_mb = (account.get("memory_bytes") or 0) / MIB or None
            is_known = loaded_mb is not None and server_mb is not None
            found.append(
                replace(
                    usual,
                    name=taken.add(name.removesuffix(".tar.gz")),
                    live_name=name,
                    part=parts.get(name, {}),
                    artifact=f"{prefix.rstrip('/')}/{name}",
                    memory_mb=(loaded_mb or 0) + (server_mb or 0) if is_known else None,
                    loaded_mb=loaded_mb,
                    disk_mb=(account.get("disk_bytes") or 0) / MIB or None,
                    load_s=account.get("load_s") or None,
                    download_s=account.get("download_s") or None,
                    sources={**usual.sources, **TARGET_SOURCES},
                )
            )
        return found


def find_server_mb(
    copies: Iterable[Facts], models_by_id: Mapping[str, Sequence[Facts]]
) -> float | None:
    """The most memory that a copy has apart from its loaded models. None if no copy shows it."""
    rest = [
        copy["memory_bytes"] - sum(it["memory_bytes"] or 0 for it in models if it["loaded"])
        for copy in copies
        if copy["memory_bytes"] is not None and (models := models_by_id.get(copy["id"])) is not None
    ]
    return max(0, *rest) / MIB if rest else None


def _drop_partial(calls: Series, period: ReadPeriod) -> Series:
    """The calls without the first period, if the name came into service within it."""
    first = min(calls, default=period.since)
    return calls if first == period.since else {k: it for k, it in calls.items() if k != first}


def _get_device_bytes(instance_type: str) -> int:
    declared = instance_types().get(instance_type)
    device = declared.device if declared is not None else None
    return 0 if device is None else device.memory_bytes


class _MemoryUse(msgspec.Struct, frozen=True):
    memory_mb: float | None
    source: str = msgspec.field(default="")


def _find_use(live: LiveModel, endpoint: LiveEndpoint, copies: Sequence[Facts]) -> _MemoryUse:
    """The memory of a copy: reserved, or the most that a copy had."""
    if live.adapter_of is not None:
        return _MemoryUse(1.0, "assumed: an adapter is small")
    reserved = live.needs.get("MinMemoryRequiredInMb")
    if reserved is not None:
        return _MemoryUse(float(reserved), "declared: MinMemoryRequiredInMb")
    seen = [it["peak_memory_bytes"] or it["memory_bytes"] for it in copies]
    known = [it for it in seen if it is not None]
    if known:
        return _MemoryUse(max(known) / MIB, f"measured: the largest of {len(known)} copies")
    memory_mb = endpoint.variant.get("ServerlessConfig", {}).get("MemorySizeInMB")
    if memory_mb is not None:
        return _MemoryUse(float(memory_mb), "declared: MemorySizeInMB")
    return _MemoryUse(None)


def _find_concurrency(
    live: LiveModel, endpoint: LiveEndpoint, framework: str
) -> tuple[int, float, str]:
    """The requests that a copy works on at a time, its CPUs, and the source of the number."""
    reserved = float(live.needs.get("NumberOfCpuCoresRequired") or 0.0)
    workers = live.container.get("Environment", {}).get(WORKERS, "")
    if workers.isdigit() and 0 < int(workers) <= 1024:
        whole = get_shape(endpoint.variant.get("InstanceType", "")).cpus
        return int(workers), reserved or whole, f"declared: {WORKERS}"
    if framework in ("custom", "lmi"):
        source = "assumed: no setting shows how many requests the server takes at a time"
        return max(1, math.floor(reserved)), reserved or 1.0, source
    source = "as the platform's servers do: a process for each CPU"
    return max(1, math.floor(reserved)), reserved or 1.0, source
