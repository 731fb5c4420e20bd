"""The mix of the deployment as TOML for `hostelry fit`, with the source of each number. PURE."""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from math import ceil

from hostelry.advisor.live.forecast import LivePrices, get_present_cost
from hostelry.advisor.live.records import LiveRecords, RecordedModel, RecordedUnit
from hostelry.advisor.live.stretch import Span, show_instant
from hostelry.advisor.live.times import get_latency, measure_times
from hostelry.advisor.options import HostingOption
from hostelry.advisor.traffic import DrawnCalls
from hostelry.advisor.values import GIB

NAME = "live"
USUAL_SECONDS, USUAL_MEMORY_MB, USUAL_TARGET_MS = 0.1, 512.0, 1000.0
TARGET_TIMES = 2.0  # times the measured p99 are the target
ASSUMED = "assumed"
DECLARED = "declared"


def build_mix_text(
    records: LiveRecords,
    span: Span,
    calls: Mapping[str, DrawnCalls],
    prices: LivePrices,
    trace: str,
    notes: tuple[str, ...],
) -> str:
    """The file. `trace` is the name of the file with the calls."""
    known = [it.memory_mb for it in records.models if it.memory_mb is not None]
    usual_mb = sum(known) / len(known) if known else USUAL_MEMORY_MB
    lines = [
        "# Written by `hostelry fit --from-live`. Edit it, and run `hostelry fit` with it.",
        f"# Records from {show_instant(span.since)} to {show_instant(span.until)}, in UTC.",
        *(f"# note: {_comment(it)}" for it in notes),
        f"name = {_text(NAME)}",
        f"hours = {span.seconds / 3600:.6g}",
        "",
        *_list_platform(records, prices),
        *_list_axes(get_present_cost(records, span, prices)),
        *_list_machines(records, prices),
    ]
    for unit in records.units:
        for model in unit.models:
            num = len(calls[model.name].at_s)
            lines += _list_model(unit, model, span, num, usual_mb, trace)
    return "\n".join(lines) + "\n"


def _list_platform(records: LiveRecords, prices: LivePrices) -> Iterator[str]:
    serverless = [it for it in records.units if it.option is HostingOption.SERVERLESS]
    yield "[platform]"
    if serverless:
        most = max(it.concurrency for it in serverless)
        yield _line("serverless_concurrency", most, f"{DECLARED}: the largest MaxConcurrency")
    if prices.per_gb_s is not None:
        yield _line("serverless_price_per_gb_s", prices.per_gb_s, "prices.toml")
    yield ""


def _list_axes(present: float | None) -> Iterator[str]:
    yield "[axes]"
    if not present:
        anchors = "{ unacceptable = 1.0, target = 0.1, weight = 0.0 }"
        cost = "unknown" if present is None else "zero"
        yield f"cost = {anchors}    # the present cost is {cost}, so cost has no weight"
    else:
        anchors = f"{{ unacceptable = {2 * present:.6g}, target = {present / 10:.6g} }}"
        yield (
            f"cost = {anchors}    # {ASSUMED}: twice and a tenth of the present "
            f"{present:.4g} for 1,000 calls"
        )
    yield ""


def _list_machines(records: LiveRecords, prices: LivePrices) -> Iterator[str]:
    units: dict[str, RecordedUnit] = {}
    for unit in records.units:
        if unit.instance_type:
            known = units.setdefault(unit.instance_type, unit)
            if unit.max_instances > known.max_instances:
                units[unit.instance_type] = unit
    for name, unit in units.items():
        yield "[[machines]]    # in use now. Add others to compare them"
        yield f"type = {_text(name)}"
        yield _line("cpus", unit.shape.cpus, DECLARED)
        yield _line("memory_gib", unit.shape.memory_bytes / GIB, DECLARED)
        if unit.shape.accelerators:
            yield _line("accelerators", int(unit.shape.accelerators), DECLARED)
            gib = unit.device_memory_bytes / GIB
            yield _line("accelerator_memory_gib", gib, DECLARED)
        price = prices.per_hour.get(name)
        if price is None:
            yield "# price_per_hour is unknown: it is in no prices.toml"
        else:
            yield _line("price_per_hour", price, "prices.toml")
        yield ""
    if not units:
        yield from ("[[machines]]    # assumed: no instance is in use now", 'type = "ml.m5.xlarge"')
        yield ""


def _list_model(
    unit: RecordedUnit,
    model: RecordedModel,
    span: Span,
    num_calls: int,
    usual_mb: float,
    trace: str,
) -> Iterator[str]:
    sources = {"cpus": DECLARED, **model.sources}
    yield f"[[models]]    # {_comment(model.live_name)}, now {unit.option.value}"
    yield f"name = {_text(model.name)}"
    yield f"framework = {_text(model.framework)}"
    if model.adapter_of is not None:
        yield f"adapter_of = {_text(model.adapter_of)}"
    yield from _list_resources(model, usual_mb, sources)
    yield from _list_times(model, span, sources)
    yield from _list_target(model, span)
    for name in ("image", "artifact"):
        value = getattr(model, name)
        if value:
            yield f"{name} = {_text(value)}"
    if model.environment:
        inner = ", ".join(f"{_text(k)} = {_text(v)}" for k, v in model.environment.items())
        yield f"environment = {{ {inner} }}"
    if num_calls:
        counted = f"measured: {num_calls:,} calls"
        yield f"traffic = {{ trace = {_text(trace)}, model = {_text(model.name)} }}    # {counted}"
    else:
        yield "traffic = { per_hour = 0.0 }    # measured: no call"
    yield ""


def _list_resources(
    model: RecordedModel, usual_mb: float, sources: Mapping[str, str]
) -> Iterator[str]:
    if model.memory_mb is None:
        least_mb = max(usual_mb, model.loaded_mb or 0.0)
        yield _line("memory_mb", ceil(least_mb), f"{ASSUMED}: not recorded")
    else:
        yield _line("memory_mb", ceil(model.memory_mb), sources.get("memory_mb", DECLARED))
    if model.loaded_mb is not None:
        yield _line("loaded_mb", ceil(model.loaded_mb), sources.get("loaded_mb", DECLARED))
    if model.disk_mb is not None:
        yield _line("disk_mb", max(1, ceil(model.disk_mb)), sources.get("disk_mb", DECLARED))
    yield _line("cpus", model.cpus, sources["cpus"])
    if model.accelerators:
        yield 'hardware = "accelerator"'
        yield _line("accelerators", model.accelerators, DECLARED)
        known = model.accelerator_memory_mb
        source = DECLARED if known else f"{ASSUMED}: as its memory"
        yield _line("accelerator_memory_mb", known or model.memory_mb or usual_mb, source)


def _list_times(model: RecordedModel, span: Span, sources: Mapping[str, str]) -> Iterator[str]:
    times = measure_times(model.records, span)
    if times is None:
        yield _line("seconds", USUAL_SECONDS, f"{ASSUMED}: no call was recorded")
    else:
        yield _line("seconds", times.seconds, times.source)
        points = ", ".join(f"[{share:g}, {factor:g}]" for share, factor in times.spread)
        yield f"spread = [{points}]    # measured: the same calls"
        yield _line("overhead_ms", times.overhead_s * 1000, "measured: median OverheadLatency")
        yield f"measured = {_text(f'{datetime.fromtimestamp(span.until, UTC):%Y-%m-%d}')}"
    yield _line("concurrency", model.concurrency, sources.get("concurrency", ASSUMED))
    for name in ("start_s", "download_s", "load_s"):
        value = getattr(model, name)
        if value is not None:
            yield _line(name, value, sources.get(name, "measured"))


def _list_target(model: RecordedModel, span: Span) -> Iterator[str]:
    p99_s = get_latency([model.records], span, 0.99)
    if p99_s is None:
        yield _line("target_p99_ms", USUAL_TARGET_MS, f"{ASSUMED}: no call was recorded")
    else:
        target = max(1.0, round(TARGET_TIMES * p99_s * 1000))
        yield _line("target_p99_ms", target, f"{ASSUMED}: twice the measured p99")


def _line(name: str, value: float, source: str) -> str:
    return f"{name} = {value:.6g}    # {_comment(source)}"


def _comment(text: str) -> str:
    """A text without line ends and control characters, which comments may not have."""
    return "".join(it if it.isprintable() else " " for it in text)


def _text(value: str) -> str:
    """A TOML string. JSON's escapes are TOML's, and TOML also forbids DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
