"""`hostelry ls`: a line for every endpoint, component and adapter."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

import msgspec
import typer
from msgspec.structs import replace

from hostelry.base.clock import SystemClock
from hostelry.base.printable import one_line
from hostelry.cli import completion as names
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, load_home, print_json
from hostelry.cli.named import NameKind, describe, find_named, list_rows
from hostelry.cli.status_text import columns, duration
from hostelry.domain.trouble import ServedPart, summarize_serving, to_one_line
from hostelry.home.json_client import JsonClient

MAX_LOOKED_AT = 200  # components of one endpoint, each described by one call
NUM_THREADS = 8
MAX_QUERIES = 500  # in one GetMetricData call
NAMESPACE = "AWS/SageMaker"
MAX_ALIKE = 10  # more adapters of one base and status share a line
HEAD = ("NAME", "KIND", "STATUS", "READY", "INSTANCES", "REQ/MIN", "AGE")
NOTHING = "There are no models yet: `hostelry deploy SOURCE` makes one."


def ls(
    name: Annotated[
        str | None,
        typer.Argument(
            help="List only this endpoint.", show_default=False, autocompletion=names.endpoints
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Print one line per adapter, without grouping.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """List endpoints, components and adapters with state, copies, requests, age and failures.

    READY shows ready and desired copies (instances for a model endpoint). REQ/MIN is the number of
    requests in the last minute.

    Example: hostelry ls

    Example: hostelry ls chat --all

    Example: hostelry ls --json
    """
    config, credentials = load_home(home_at(home))
    sagemaker = JsonClient("sagemaker", config, credentials)
    only = None if name is None else find_named(sagemaker, name, NameKind.ENDPOINT).endpoint
    found = model_rows(sagemaker, only, most=None if everything else MAX_LOOKED_AT)
    now = SystemClock().now()
    rows = add_requests(JsonClient("cloudwatch", config, credentials), add_serving(found), now)
    if as_json:
        print_json([msgspec.to_builtins(it) for it in in_order(rows)])
    else:
        typer.echo("\n".join(listing_lines(rows, now, fold=not everything)))


class ModelRow(msgspec.Struct, frozen=True, kw_only=True):
    """One endpoint, component or adapter.

    Args:
        kind: "endpoint", "component", "adapter", or "unseen" for a component without a description.
        base: the base of an adapter.
        ready, desired: copies, or instances of an endpoint with one model. None without copies.
        instances: an endpoint's instance types with their numbers. variants: its variants.
        requests_last_minute: None if unknown.
        serving: why an endpoint does not serve everything, or None.
    """

    kind: str
    name: str
    endpoint: str
    status: str
    base: str | None = None
    ready: int | None = None
    desired: int | None = None
    instances: str = ""
    variants: tuple[str, ...] = ()
    requests_last_minute: float | None = None
    created_at: float | None = None
    reason: str | None = None
    serving: str | None = None


def model_rows(sagemaker: Any, endpoint: str | None, most: int | None) -> list[ModelRow]:
    """The rows of one endpoint, or of all. At most `most` components of each are described."""
    names = [it["EndpointName"] for it in list_rows(sagemaker, "list_endpoints", "Endpoints")]
    only = {} if endpoint is None else {"EndpointNameEquals": endpoint}
    listed = list_rows(sagemaker, "list_inference_components", "InferenceComponents", **only)
    components: dict[str, list[dict[str, Any]]] = {}
    for row in listed:
        components.setdefault(row["EndpointName"], []).append(row)
    chosen = [it for it in names if endpoint in (None, it)]
    with ThreadPoolExecutor(NUM_THREADS) as threads:
        rows = [*threads.map(partial(endpoint_row, sagemaker), chosen)]
        for mine in components.values():
            mine.sort(key=_first_looked_at)
            near, far = (mine, []) if most is None else (mine[:most], mine[most:])
            rows += threads.map(partial(component_row, sagemaker), near)
            rows += [unseen_row(it) for it in far]
    return [it for it in rows if it is not None]


def _first_looked_at(listed: Mapping[str, Any]) -> tuple[bool, datetime]:
    """The sort key for descriptions: failures first, and bases before their adapters."""
    return listed["InferenceComponentStatus"] != "Failed", listed["CreationTime"]


def endpoint_row(sagemaker: Any, name: str) -> ModelRow | None:
    """An endpoint's row. None if the endpoint was deleted meanwhile."""
    shown = describe(sagemaker, "endpoint", name)
    if shown is None:
        return None
    given = describe(sagemaker, "endpoint_config", shown.get("EndpointConfigName", "")) or {}
    variants = shown.get("ProductionVariants") or []
    configured = given.get("ProductionVariants") or []
    types = {
        variant["VariantName"]: "serverless"
        if "ServerlessConfig" in variant
        else variant.get("InstanceType", "-")
        for variant in configured
    }
    has_model = any("ModelName" in it for it in configured)
    counts = [(it.get("CurrentInstanceCount"), it.get("DesiredInstanceCount")) for it in variants]
    return ModelRow(
        kind="endpoint",
        name=name,
        endpoint=name,
        status=shown["EndpointStatus"],
        ready=sum(it[0] or 0 for it in counts) if has_model else None,
        desired=sum(it[1] or 0 for it in counts) if has_model else None,
        instances=variants_text(variants, types),
        variants=tuple(it["VariantName"] for it in variants),
        created_at=shown["CreationTime"].timestamp(),
        reason=shown.get("FailureReason"),
    )


def component_row(sagemaker: Any, listed: Mapping[str, Any]) -> ModelRow | None:
    """A component's row. None if the component was deleted meanwhile."""
    name = listed["InferenceComponentName"]
    shown = describe(sagemaker, "inference_component", name)
    if shown is None:
        return None
    base = shown.get("Specification", {}).get("BaseInferenceComponentName")
    runtime = shown.get("RuntimeConfig", {})
    return replace(
        unseen_row(shown),
        kind="adapter" if base else "component",
        base=base,
        ready=runtime.get("CurrentCopyCount"),
        desired=runtime.get("DesiredCopyCount"),
        reason=shown.get("FailureReason"),
    )


def unseen_row(listed: Mapping[str, Any]) -> ModelRow:
    """The row of a component from its entry in a list."""
    return ModelRow(
        kind="unseen",
        name=listed["InferenceComponentName"],
        endpoint=listed["EndpointName"],
        status=listed["InferenceComponentStatus"],
        created_at=listed["CreationTime"].timestamp(),
    )


def add_requests(cloudwatch: Any, rows: Sequence[ModelRow], now: float) -> list[ModelRow]:
    """The rows with their requests of the last minute, if there are metrics."""
    asked = [(row, dimensions) for row in rows for dimensions in list_dimensions(row)]
    minute = now - now % 60
    counts: dict[ModelRow, float] = {}
    for start in range(0, len(asked), MAX_QUERIES):
        some = asked[start : start + MAX_QUERIES]
        answer = cloudwatch.get_metric_data(
            MetricDataQueries=[_query(number, it[1]) for number, it in enumerate(some)],
            StartTime=datetime.fromtimestamp(minute - 60, UTC),
            EndTime=datetime.fromtimestamp(minute + 60, UTC),
        )
        for result in answer["MetricDataResults"]:
            row = some[int(result["Id"][1:])][0]
            counts[row] = counts.get(row, 0.0) + _last_minute(result, now)
    return [replace(it, requests_last_minute=counts.get(it)) for it in rows]


def list_dimensions(row: ModelRow) -> list[dict[str, str]]:
    """The dimensions of the metrics whose sum is the row's requests."""
    if row.kind == "endpoint":
        return [{"EndpointName": row.name, "VariantName": it} for it in row.variants]
    return [] if row.kind == "unseen" else [{"InferenceComponentName": row.name}]


def _query(number: int, dimensions: Mapping[str, str]) -> dict[str, Any]:
    given = [{"Name": name, "Value": value} for name, value in dimensions.items()]
    metric = {"Namespace": NAMESPACE, "MetricName": "Invocations", "Dimensions": given}
    return {"Id": f"q{number}", "MetricStat": {"Metric": metric, "Period": 60, "Stat": "Sum"}}


def _last_minute(result: Mapping[str, Any], now: float) -> float:
    minute = now - now % 60
    by_start = {
        at.timestamp(): value
        for at, value in zip(result["Timestamps"], result["Values"], strict=True)
    }
    return requests_in_last_minute(by_start.get(minute - 60, 0.0), by_start.get(minute, 0.0), now)


def add_serving(rows: Sequence[ModelRow]) -> list[ModelRow]:
    """The rows. An endpoint that serves less than it should gets its problem."""
    parts: dict[str, list[ServedPart]] = {}
    for row in rows:
        if row.kind != "endpoint" or row.desired is not None:
            has_copies = row.kind in ("endpoint", "component")
            desired = row.desired or 0 if has_copies else None
            part = ServedPart(status=row.status, ready=row.ready or 0, desired=desired)
            parts.setdefault(row.endpoint, []).append(part)
    return [
        replace(row, serving=summarize_serving(row.status, parts.get(row.name, ()))["trouble"])
        if row.kind == "endpoint"
        else row
        for row in rows
    ]


def in_order(rows: Iterable[ModelRow]) -> list[ModelRow]:
    """Endpoints by name. Each is followed by its components, and these by their adapters."""
    given = sorted(rows, key=lambda it: it.name)
    endpoints = [it for it in given if it.kind == "endpoint"]
    return [row for endpoint in endpoints for row in (endpoint, *_beneath(endpoint, given))]


def _beneath(endpoint: ModelRow, rows: Sequence[ModelRow]) -> Iterator[ModelRow]:
    mine = [it for it in rows if it.endpoint == endpoint.name and it.kind != "endpoint"]
    bases = [it for it in mine if it.kind == "component"]
    names = {it.name for it in bases}
    for base in bases:
        yield base
        yield from (it for it in mine if it.kind == "adapter" and it.base == base.name)
    yield from (it for it in mine if it.kind == "adapter" and it.base not in names)
    yield from (it for it in mine if it.kind == "unseen")


def listing_lines(rows: Sequence[ModelRow], now: float, *, fold: bool = True) -> list[str]:
    """A line per row, and the reason of a failure below its row.

    With `fold`, more than MAX_ALIKE adapters of one base and status share one line, except failed
    adapters.
    """
    return row_lines(in_order(rows), now, fold=fold) if rows else [NOTHING]


def row_lines(rows: Sequence[ModelRow], now: float, *, fold: bool = False) -> list[str]:
    """The lines of rows in the given order, as in `listing_lines`."""
    table: list[Sequence[str]] = [HEAD]
    reasons: dict[int, list[str]] = {}
    for row, others in _fold_rows(rows, fold=fold):
        table.append(_cells(row, others, now))
        causes = [one_line(to_one_line(it)) for it in (row.serving, row.reason) if it]
        reasons[len(table) - 1] = [f"{_indent(row)}  ! {it}" for it in causes]
    lines = []
    for number, line in enumerate(columns(table)):
        lines += [line, *reasons.get(number, ())]
    return lines


def requests_in_last_minute(previous: float, current: float, now: float) -> float:
    """Requests of the last 60 s, from the counts of the last full minute and the current one."""
    return current + previous * (1 - now % 60 / 60)


def _fold_rows(
    rows: Sequence[ModelRow], *, fold: bool
) -> Iterator[tuple[ModelRow, Sequence[ModelRow]]]:
    """Each row to show, with the other rows that it stands for."""
    groups: dict[tuple[str, ...], list[ModelRow]] = {}
    for row in rows:
        groups.setdefault(_group(row), []).append(row)
    for row in rows:
        group = groups[_group(row)]
        folds = (fold and len(group) > MAX_ALIKE and not row.reason) or row.kind == "unseen"
        if not folds:
            yield row, ()
        elif row is group[0]:
            yield row, group[1:]


def _group(row: ModelRow) -> tuple[str, ...]:
    own = () if row.kind in ("adapter", "unseen") else (row.name,)
    return (row.kind, row.endpoint, row.base or "", row.status, row.reason or "", *own)


def _indent(row: ModelRow) -> str:
    return "  " * ("endpoint", "component", "adapter").index(
        "component" if row.kind == "unseen" else row.kind
    )


def _cells(row: ModelRow, others: Sequence[ModelRow], now: float) -> tuple[str, ...]:
    name = row.name if not others else f"{row.name} ... {others[-1].name} ({len(others) + 1})"
    asked = [it.requests_last_minute for it in (row, *others)]
    known = [it for it in asked if it is not None]
    requests = f"{sum(known):.0f}" if known else "-"
    ready = "-" if row.ready is None else f"{row.ready}/{row.desired or 0}"
    age = "-" if row.created_at is None else duration(now - row.created_at)
    kind = "" if row.kind == "unseen" else row.kind
    return (_indent(row) + name, kind, row.status, ready, row.instances or "-", requests, age)


def variants_text(variants: Iterable[Mapping[str, object]], types: Mapping[str, str]) -> str:
    """The instance types of an endpoint's variants with their numbers."""
    counts: Counter[str] = Counter()
    for variant in variants:
        number = variant.get("CurrentInstanceCount") or variant.get("DesiredInstanceCount") or 0
        kind = types.get(str(variant["VariantName"]), "-")
        counts[kind] += int(str(number))
    return ", ".join(
        kind if kind == "serverless" else f"{number} x {kind}" for kind, number in counts.items()
    )
