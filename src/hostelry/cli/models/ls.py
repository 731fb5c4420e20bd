"""`hostelry ls`: every model in a line."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

import msgspec
import typer

from hostelry.base.clock import SystemClock
from hostelry.cli.completion import names
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, print_json, settled
from hostelry.cli.models.listing import (
    ModelRow,
    in_order,
    listing_lines,
    requests_in_last_minute,
    variants_text,
    with_serving,
)
from hostelry.cli.named import NameKind, described, find_named, rows_of
from hostelry.home.json_client import JsonClient

MAX_LOOKED_AT = 200  # components of one endpoint, a call each
NUM_THREADS = 8
MAX_QUERIES = 500  # of one GetMetricData
NAMESPACE = "AWS/SageMaker"


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
    config, credentials = settled(home_at(home))
    sagemaker = JsonClient("sagemaker", config, credentials)
    only = None if name is None else find_named(sagemaker, name, NameKind.ENDPOINT).endpoint
    found = model_rows(sagemaker, only, most=None if everything else MAX_LOOKED_AT)
    now = SystemClock().now()
    rows = with_requests(JsonClient("cloudwatch", config, credentials), with_serving(found), now)
    if as_json:
        print_json([msgspec.to_builtins(it) for it in in_order(rows)])
    else:
        typer.echo("\n".join(listing_lines(rows, now, fold=not everything)))


def model_rows(sagemaker: Any, endpoint: str | None, most: int | None) -> list[ModelRow]:
    """The rows of one endpoint, or of all; at most `most` components of each are looked at."""
    names = [it["EndpointName"] for it in rows_of(sagemaker, "list_endpoints", "Endpoints")]
    only = {} if endpoint is None else {"EndpointNameEquals": endpoint}
    listed = rows_of(sagemaker, "list_inference_components", "InferenceComponents", **only)
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
    """Failures are what one looks for; bases are made before their adapters."""
    return listed["InferenceComponentStatus"] != "Failed", listed["CreationTime"]


def endpoint_row(sagemaker: Any, name: str) -> ModelRow | None:
    """An endpoint's row; None where it has been deleted meanwhile."""
    shown = described(sagemaker, "endpoint", name)
    if shown is None:
        return None
    given = described(sagemaker, "endpoint_config", shown.get("EndpointConfigName", "")) or {}
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
    """A component's row; None where it has been deleted meanwhile."""
    name = listed["InferenceComponentName"]
    shown = described(sagemaker, "inference_component", name)
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


def with_requests(cloudwatch: Any, rows: Sequence[ModelRow], now: float) -> list[ModelRow]:
    """The rows with their requests of the last minute, where metrics have any."""
    asked = [(row, dimensions) for row in rows for dimensions in dimensions_of(row)]
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


def dimensions_of(row: ModelRow) -> list[dict[str, str]]:
    """The dimensions of each metric whose sum is the row's requests."""
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
