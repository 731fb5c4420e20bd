"""One endpoint: its traffic and latency, targets, copies, scaling acts, updates and alarms. Pure.

The charts show one target, which is a variant or a component. The parameters `kind` and `target`
name it. Without them the document suggests the busiest target.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from hostelry.console.platform import ApiQuery, ProcessQuery, Query

PARAMS = frozenset({"name", "kind", "target", "minutes"})
JsonObject = Mapping[str, Any]
MINUTES = ("15", "60", "360")
COMPONENT, VARIANT = "component", "variant"
NAMESPACE = "AWS/SageMaker"
MIB = 1024**2
US_PER_MS = 1000.0
MAX_LOG_LINES = 12
MAX_UPDATES, MAX_ACTS = 10, 30
MAX_NAMES = 50
MAX_ALARM_PAGES = 50
MAX_POINTS = 400  # of each series
LATENCIES = (
    ("p50", "ModelLatency", "p50"),
    ("p90", "ModelLatency", "p90"),
    ("p99", "ModelLatency", "p99"),
    ("first_p50", "FirstChunkLatency", "p50"),
    ("first_p99", "FirstChunkLatency", "p99"),
)
COUNTS = (
    ("requests", "Invocations", "Sum"),
    ("errors_4xx", "Invocation4XXErrors", "Sum"),
    ("errors_5xx", "Invocation5XXErrors", "Sum"),
    ("in_flight", "ConcurrentRequestsPerModel", "Average"),
)


def sources(params: Mapping[str, str], now: float) -> Mapping[str, Query]:
    """Build the queries for the endpoint's state, load, timeline and alarms, and the metrics."""
    name, minutes = params.get("name", ""), parse_minutes(params)
    target = get_target(params)
    queries: dict[str, Query] = {
        "state": ProcessQuery(process="control", path="/internal/state"),
        "load": ProcessQuery(
            process="control",
            path="/internal/load",
            query={"endpoint": name, **({} if target is None else {target[0]: target[1]})},
        ),
        "timeline": ProcessQuery(
            process="control",
            path="/internal/scaling/timeline",
            query={"endpoint": name, "since_s": str(minutes * 60)},
        ),
        "scaling": ProcessQuery(process="control", path="/internal/scaling"),
        "alarms": ApiQuery(
            service="cloudwatch",
            operation="DescribeAlarms",
            parameters={"MaxRecords": 100},
            max_pages=MAX_ALARM_PAGES,
        ),
    }
    if target is not None:
        parameters = metric_parameters(name, target, minutes, now)
        queries["metrics"] = ApiQuery(
            service="cloudwatch", operation="GetMetricData", parameters=parameters
        )
    return queries


def parse_minutes(params: Mapping[str, str]) -> int:
    """Parse the minutes that charts show."""
    given = params.get("minutes", MINUTES[0])
    return int(given if given in MINUTES else MINUTES[0])


def get_target(params: Mapping[str, str]) -> tuple[str, str] | None:
    """Parse kind and name of the charts' target, or None."""
    kind, name = params.get("kind"), params.get("target")
    return (kind, name) if kind in (COMPONENT, VARIANT) and name else None


def period_s(minutes: int) -> int:
    """Choose the seconds that a point of a chart covers."""
    return 60 if minutes <= 60 else 300


def metric_parameters(
    endpoint: str, target: tuple[str, str], minutes: int, now: float
) -> dict[str, Any]:
    """Build the parameters of GetMetricData for the target's charts."""
    kind, name = target
    dimensions = (
        [{"Name": "InferenceComponentName", "Value": name}]
        if kind == COMPONENT
        else [
            {"Name": "EndpointName", "Value": endpoint},
            {"Name": "VariantName", "Value": name},
        ]
    )
    period = period_s(minutes)
    end = (math.floor(now / period) + 1) * period
    return {
        "StartTime": end - minutes * 60,
        "EndTime": end,
        "ScanBy": "TimestampAscending",
        "MetricDataQueries": [
            {
                "Id": id,
                "MetricStat": {
                    "Metric": {
                        "Namespace": NAMESPACE,
                        "MetricName": metric,
                        "Dimensions": dimensions,
                    },
                    "Period": period,
                    "Stat": statistic,
                },
            }
            for id, metric, statistic in (*LATENCIES, *COUNTS)
        ],
    }


def document(sources: Mapping[str, Any], params: Mapping[str, str], now: float) -> dict[str, Any]:
    """Build the document. If the endpoint does not exist, `missing` has the names of the others."""
    name = params.get("name", "")
    if sources.get("state") is None:
        return {"name": name, "now": now}
    endpoints = sources["state"].get("endpoints", ())
    found = next((it for it in endpoints if it["name"] == name), None)
    if found is None:
        names = [it["name"] for it in endpoints[:MAX_NAMES]]
        return {"name": name, "missing": True, "names": names, "now": now}
    minutes, target = parse_minutes(params), get_target(params)
    load = sources.get("load") or {}
    targets = get_targets(found, load.get("names", ()))
    points = metric_points(sources.get("metrics") or {}, now, period_s(minutes))
    return {
        "name": name,
        "now": round(now, 1),
        "minutes": minutes,
        **head(found),
        "load_known": sources.get("load") is not None,
        "variants": {it["name"]: variant(it) for it in found["variants"]},
        "targets": targets,
        "chosen": "/".join(target or suggest_target(targets) or ()),
        "traffic": traffic(load.get("series", ())) if minutes == 15 else coarse_traffic(points),
        "latency": percentiles(points),
        "copies": {it["id"]: copy(it) for it in found["copies"]},
        "instances": {it["id"]: instance(it) for it in found["instances"]},
        "scaling": scaling(sources, name),
        "updates": {f"{it['began_at']:.3f}": update(it) for it in found["updates"][-MAX_UPDATES:]},
        "alarms": alarms(sources, found),
    }


def head(endpoint: JsonObject) -> dict[str, Any]:
    """Describe the endpoint itself, and the update in progress."""
    shift, bake = endpoint.get("shift") or {}, endpoint.get("bake") or {}
    serving = endpoint.get("serving", {})
    return {
        "status": endpoint["status"],
        "tone": serving.get("tone"),
        "serving": serving.get("trouble"),
        "reason": endpoint["failure_reason"],
        "config": endpoint["config"],
        "pending_config": endpoint["pending_config"],
        "progress": endpoint["progress"],
        "going_back": shift.get("failure") or bake.get("going_back"),
        "created_at": endpoint["created_at"],
        "takes_components": endpoint["takes_components"],
    }


def variant(given: JsonObject) -> dict[str, Any]:
    """Describe a variant's instances."""
    return {
        "types": list(given["instance_types"]),
        "desired": given["desired_instances"],
        "min": given["min_instances"],
        "max": given["max_instances"],
        "serverless": given["serverless"],
    }


def get_targets(endpoint: JsonObject, loads: Iterable[JsonObject]) -> dict[str, dict[str, Any]]:
    """Return each variant that serves models and each component, with its load and copies."""
    by_target = {
        (
            f"{COMPONENT}/{load['component']}"
            if load["component"]
            else f"{VARIANT}/{load['variant']}"
        ): load
        for load in loads
    }
    if endpoint["takes_components"]:
        found = {f"{COMPONENT}/{it['name']}": component(it) for it in endpoint["components"]}
    else:
        variants = endpoint["variants"]
        found = {f"{VARIANT}/{it['name']}": serving_variant(endpoint, it) for it in variants}
    return {id: {**it, **sum_loads(by_target.get(id))} for id, it in found.items()}


def component(given: JsonObject) -> dict[str, Any]:
    """Describe a component as a target."""
    is_base = given["base"] is None
    return {
        "status": given["status"],
        "reason": given["failure_reason"] or given["placement_note"],
        "base": given["base"],
        "ready": given.get("ready_copies") if is_base else None,
        "desired": given.get("desired_copies") if is_base else None,
    }


def serving_variant(endpoint: JsonObject, given: JsonObject) -> dict[str, Any]:
    """Describe a variant that serves models as a target. Its instances count as copies."""
    owner = f"variant/{given['name']}"
    mine = [it for it in endpoint["copies"] if it["owner"] == owner and not it["draining"]]
    ready = {it["instance"] for it in mine if it["phase"] == "ready"}
    is_serverless = given["serverless"] is not None
    return {
        "status": endpoint["status"],
        "ready": given["serverless"]["ready"] if is_serverless else len(ready),
        "desired": given["serverless"]["desired"] if is_serverless else given["desired_instances"],
    }


def sum_loads(load: JsonObject | None) -> dict[str, Any]:
    """Summarize the load of a target for its row. Empty without load."""
    if load is None:
        return {}
    latency, first = load["latency_ms"] or {}, load["first_chunk_ms"] or {}
    return {
        "rate": load["arrivals_per_s"],
        "error_rate": errors_per_s(load),
        "in_flight": load["in_flight"],
        "held": load["held"],
        "oldest_held_s": round(load["oldest_held_s"], 1),
        "p50": latency.get("p50"),
        "p90": latency.get("p90"),
        "p99": latency.get("p99"),
        "first_p50": first.get("p50"),
        "first_p99": first.get("p99"),
    }


def has_no_place(component: JsonObject) -> bool:
    """True if a component's note says that no instance has room for some of its copies."""
    return bool(
        component["placement_note"]
        and component["status"] != "Failed"
        and component["placed_copies"] < component["desired_copies"]
    )


def errors_per_s(load: JsonObject) -> float:
    """Sum the failed and refused requests per second."""
    kinds = ("errors_4xx", "errors_5xx", "throttled")
    return round(sum(float(load[f"{it}_per_s"]) for it in kinds), 3)


def suggest_target(targets: Mapping[str, JsonObject]) -> tuple[str, str] | None:
    """Choose the target with the most requests, or else one that is not an adapter, or None."""
    if not targets:
        return None
    best = max(targets, key=lambda it: (targets[it].get("rate", 0.0), not targets[it].get("base")))
    kind, _, name = best.partition("/")
    return kind, name


def traffic(series: Sequence[JsonObject]) -> dict[str, list[float]]:
    """By time: requests, 4xx errors and 5xx errors per second, then in flight and queued."""
    return {
        str(load["at"]): [
            load["arrivals_per_s"],
            round(load["errors_4xx_per_s"] + load["throttled_per_s"], 3),
            load["errors_5xx_per_s"],
            load["in_flight"],
            load["held"],
        ]
        for load in series[-MAX_POINTS:]
    }


def percentiles(points: Mapping[str, JsonObject]) -> dict[str, list[float | None]]:
    """By time: the values in the order of LATENCIES, with None for missing values."""
    ids = [id for id, _, _ in LATENCIES]
    found = {at: [it.get(id) for id in ids] for at, it in points.items()}
    return {at: it for at, it in found.items() if any(value is not None for value in it)}


def coarse_traffic(points: Mapping[str, JsonObject]) -> dict[str, list[float | None]]:
    """By time: the values in the order of COUNTS. Metrics do not include the queue."""
    ids = [id for id, _, _ in COUNTS]
    return {at: [it.get(id) for id in ids] for at, it in points.items() if "requests" in it}


def metric_points(answer: JsonObject, now: float, period: int) -> dict[str, dict[str, float]]:
    """By time: the value of each query, in milliseconds, or for counts as a rate per second.

    The newest period is not over. Its rates count only the seconds that have passed.
    """
    points: dict[str, dict[str, float]] = {}
    latencies = {id for id, _, _ in LATENCIES}
    for series in answer.get("MetricDataResults", ()):
        id = series["Id"]
        for instant, value in zip(series["Timestamps"], series["Values"], strict=True):
            at = epoch(instant)
            if id in latencies:
                value = value / US_PER_MS
            elif id != "in_flight":
                value = value / min(period, max(1.0, now - at))
            points.setdefault(f"{at:.0f}", {})[id] = round(value, 3)
    return dict(sorted(points.items(), key=lambda it: float(it[0])))


def epoch(instant: datetime | float) -> float:
    """Convert to seconds since the epoch."""
    return instant.timestamp() if isinstance(instant, datetime) else float(instant)


def copy(given: JsonObject) -> dict[str, Any]:
    """Describe a copy, with the reason why it is not ready, and its last end."""
    end = given.get("last_end")
    adapters = given.get("adapters") or ()
    failed = [it for it in adapters if it.get("reason")]
    return {
        "of": given["component"] or given["owner"].partition("/")[2],
        "container": given["container"],
        "instance": given["instance"],
        "phase": "draining" if given["draining"] else given["phase"],
        "reason": given["reason"],
        "log": tail(given["log_tail"]) if given["reason"] else [],
        "end": None if end is None else {**end, "log_tail": tail(end["log_tail"])},
        "restarts": given["restarts"],
        "memory_mib": round((given["memory_bytes"] or 0) / MIB),
        "start_s": given["start_s"],
        "start_kind": given["start_kind"],
        "ready_at": given["ready_at"],
        "adapters": len(adapters),
        "adapters_failed": len(failed),
        "adapter_reason": failed[0]["reason"] if failed else None,
    }


def tail(log: str | None) -> list[str]:
    """Return the last lines of a log."""
    return log.removesuffix("\n").split("\n")[-MAX_LOG_LINES:] if log else []


def instance(given: JsonObject) -> dict[str, Any]:
    """Describe an ML instance."""
    return {
        "type": given["type"],
        "variant": given["variant"],
        "state": given["state"],
        "problem": given["problem"],
    }


def scaling(sources: Mapping[str, Any], endpoint: str) -> dict[str, Any]:
    """Describe each scalable target: capacity by time, acts with receipts, the last decision."""
    targets = (sources.get("scaling") or {}).get("targets", ())
    known = {it["resource_id"]: it for it in targets if it["endpoint"] == endpoint}
    timelines = (sources.get("timeline") or {}).get("timelines", ())
    ids = [it["resource_id"] for it in timelines]
    shown = [scalable_target(it, known.get(id, {})) for id, it in zip(ids, timelines, strict=True)]
    return dict(zip(ids, shown, strict=True))


def scalable_target(timeline: JsonObject, known: JsonObject) -> dict[str, Any]:
    """Describe a target's timeline. `known` has its last decision and its problem."""
    return {
        "component": timeline["component"],
        "variant": timeline["variant"],
        "min": timeline["min"],
        "max": timeline["max"],
        "desired": by_instant(timeline["series"]["desired"]),
        "serving": by_instant(timeline["series"]["serving"]),
        "acts": {act["id"]: shown_act(act) for act in timeline["acts"][-MAX_ACTS:]},
        "decision": known.get("last_decision"),
        "problem": known.get("problem"),
    }


def by_instant(points: Sequence[Sequence[float]]) -> dict[str, float]:
    """Keep the changes of a series, its first point and its last point, by time."""
    changes = [
        point
        for place, point in enumerate(points)
        if place in (0, len(points) - 1) or point[1] != points[place - 1][1]
    ]
    return {f"{at:.0f}": value for at, value in changes[-MAX_POINTS:]}


def shown_act(act: JsonObject) -> dict[str, Any]:
    """Describe a scaling act. t0: the load rose, t1: decision, t2: first answer of new capacity."""
    receipt = act["receipt"] or {}
    signal = receipt.get("signal") or {}
    return {
        "from": act["from"],
        "to": act["to"],
        "at": act["started_at"],
        "ended_at": act["ended_at"],
        "status": act["status"],
        "message": act["status_message"],
        "cause": act["cause"],
        "by": act["by"],
        "t0": receipt.get("t0"),
        "t1": receipt.get("t1"),
        "t2": receipt.get("t2"),
        "delayed": receipt.get("requests_delayed"),
        "failed": receipt.get("requests_failed"),
        "signal": {key: value for key, value in signal.items() if value is not None},
    }


def update(given: JsonObject) -> dict[str, Any]:
    """Describe an update, in progress or past, with its steps."""
    return {
        "from": given["from_config"],
        "to": given["to_config"],
        "began_at": given["began_at"],
        "ended_at": given["ended_at"],
        "outcome": given["outcome"],
        "cause": given["cause"],
        "alarms": list(given["alarm_names"]),
        "steps": [
            {
                "name": step["name"],
                "began_at": step["began_at"],
                "ended_at": step["ended_at"],
                "share": step["most_share"],
                "verdict": step["verdict"],
            }
            for step in given["steps"]
        ],
    }


def alarms(sources: Mapping[str, Any], endpoint: JsonObject) -> dict[str, dict[str, Any]]:
    """Find the alarms on the endpoint's metrics, and the alarms that its updates watch."""
    answer = sources.get("alarms") or {}
    watched = {name for it in endpoint["updates"] for name in it["alarm_names"]}
    components = {it["name"] for it in endpoint["components"]}
    return {
        name: shown
        for name, shown in alarms_shown(answer)
        if name in watched
        or shown["endpoint"] == endpoint["name"]
        or (shown["component"] is not None and shown["component"] in components)
    }


def alarms_shown(answer: JsonObject) -> Iterator[tuple[str, dict[str, Any]]]:
    """Describe each alarm of DescribeAlarms, by name."""
    for alarm in (*answer.get("MetricAlarms", ()), *answer.get("CompositeAlarms", ())):
        dimensions = {it["Name"]: it["Value"] for it in alarm.get("Dimensions", ())}
        changed = alarm.get("StateUpdatedTimestamp")
        yield (
            alarm["AlarmName"],
            {
                "state": alarm["StateValue"],
                "reason": alarm.get("StateReason"),
                "metric": alarm.get("MetricName"),
                "endpoint": dimensions.get("EndpointName"),
                "component": dimensions.get("InferenceComponentName"),
                "at": None if changed is None else round(epoch(changed), 1),
            },
        )
