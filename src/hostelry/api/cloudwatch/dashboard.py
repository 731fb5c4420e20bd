"""Dashboards: put, read, listed and deleted. They are stored, not drawn.

A remark on a body has a path of JSON Pointer: ``/widgets/0/properties/metrics/1``. A body with
errors is refused, a body with warnings is not.

Source: these operations, and "Dashboard body structure and syntax", in the CloudWatch API
reference. The texts of errors are AWS's, as issue reports of aws-cdk, pulumi and Terraform's
provider quote them.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from hostelry.api.cloudwatch.metric_data import invalid_value
from hostelry.api.context import CallContext, Params, Result
from hostelry.api.page import ListPaging
from hostelry.api.tags import parse_tags, write_tags
from hostelry.base.errors import ServiceError
from hostelry.base.json import nests_deeper
from hostelry.domain.metric import Dashboard, dashboard_arn, everywhere
from hostelry.store.records import Versioned

MAX_DASHBOARDS = 5000
MAX_BODY_BYTES = 1024 * 1024
MAX_DEPTH = 50
MAX_REMARKS = 100  # shown of one body
LISTS = ListPaging(page_size=1000, size_member="", error_code="InvalidParameterValue")
_NAME = re.compile(r"[0-9A-Za-z_-]{1,255}")
MAX_WIDGETS = 500
MAX_METRICS = 500  # of a widget
MAX_WIDGET_ALARMS = 100
GRID_WIDTH = 24
MAX_HEIGHT = 1000
TOP_LEVEL = ("widgets", "start", "end", "periodOverride", "variables")
WIDGET_MEMBERS = ("type", "x", "y", "width", "height", "properties", "id")
REQUIRED_PROPERTIES: Mapping[str, tuple[str, ...]] = {
    "alarm": ("alarms",),
    "chart": ("data",),
    "custom": ("endpoint",),
    "explorer": ("metrics", "labels"),
    "log": ("query", "region"),
    "metric": (),
    "text": ("markdown",),
}
"""The required properties of each type of widget."""
NO_SOURCE = (
    "The metric widget should have specified a region and a data source or an alarm annotation"
)
STRINGS_ONLY = 'Invalid metric field type, only "String" type is allowed'
ARRAYS_ONLY = (
    'Field "metrics" has to be an array of array of strings, with an optional metricRenderer object'
    " as last element"
)


class Remark(msgspec.Struct, frozen=True):
    """A remark on one place of a body."""

    path: str
    message: str


def put_dashboard(context: CallContext, params: Params) -> Result:
    """PutDashboard: creates a dashboard, or replaces the body. Only a new dashboard takes tags."""
    name, text = params["DashboardName"], params["DashboardBody"]
    if not _NAME.fullmatch(name):
        raise _invalid_input(
            f"The field DashboardName is {name[:300]!r}; it must have 1 to 255 characters, of"
            " letters, digits, - and _."
        )
    body = _parse_body(text)
    errors = list(find_errors(body))
    if errors:
        raise _invalid_body(errors)
    scope, records = everywhere(context.scope), context.state.dashboards
    found = records.get(scope, name)
    if found is None:
        if len(records.list(scope)) >= MAX_DASHBOARDS:
            raise _invalid_input(f"There are {MAX_DASHBOARDS} dashboards; more are not possible.")
        tags = parse_tags(params.get("Tags"))
        if tags:
            write_tags(context, dashboard_arn(scope, name), tags)
    value = Dashboard(scope=scope, name=name, body=text, modified_at=context.now)
    records.put(scope, name, value, expect=None if found is None else found.version)
    return {"DashboardValidationMessages": _describe_remarks(find_warnings(body))}


def get_dashboard(context: CallContext, params: Params) -> Result:
    """GetDashboard: the body as it was put. Raises ResourceNotFound."""
    dashboard = _find(context, params["DashboardName"]).value
    return {
        "DashboardArn": dashboard.arn,
        "DashboardBody": dashboard.body,
        "DashboardName": dashboard.name,
    }


def list_dashboards(context: CallContext, params: Params) -> Result:
    """ListDashboards, by name, 1,000 per page."""
    prefix = params.get("DashboardNamePrefix") or ""
    every = [it.value for it in context.state.dashboards.list(everywhere(context.scope))]
    rows = [((0.0, it.name), _summarize(it)) for it in every if it.name.startswith(prefix)]
    return LISTS.answer(context, "ListDashboards", params, "DashboardEntries", rows)


def delete_dashboards(context: CallContext, params: Params) -> Result:
    """DeleteDashboards: all of them, or none if one is missing."""
    names = dict.fromkeys(params["DashboardNames"])
    if not names:
        raise invalid_value("The parameter DashboardNames must have at least one name.")
    found = [_find(context, name) for name in names]
    for stored in found:
        dashboard = stored.value
        write_tags(context, dashboard.arn, {})
        context.state.dashboards.delete(dashboard.scope, dashboard.name, expect=stored.version)
    return {}


def _find(context: CallContext, name: str) -> Versioned[Dashboard]:
    found = context.state.dashboards.get(everywhere(context.scope), name)
    if found is None:
        raise ServiceError("ResourceNotFound", f"Dashboard {name:.300} does not exist", 404)
    return found


def _parse_body(text: str) -> dict[str, Any]:
    if len(text.encode()) > MAX_BODY_BYTES:
        raise _invalid_input(
            f"The field DashboardBody has {len(text.encode())} bytes; it has at most"
            f" {MAX_BODY_BYTES}."
        )
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise _invalid_input("The field DashboardBody must be a valid JSON object")
    if nests_deeper(body, MAX_DEPTH):
        raise _invalid_input(f"The field DashboardBody is nested deeper than {MAX_DEPTH} levels.")
    return body


def _summarize(dashboard: Dashboard) -> Result:
    return {
        "DashboardName": dashboard.name,
        "DashboardArn": dashboard.arn,
        "LastModified": dashboard.modified_at,
        "Size": len(dashboard.body.encode()),
    }


def _describe_remarks(remarks: Iterable[Remark]) -> list[Result]:
    """The remarks of an answer, in the order of their places."""
    ordered = sorted(remarks, key=lambda it: (it.path, it.message))
    return [{"DataPath": it.path, "Message": it.message} for it in ordered[:MAX_REMARKS]]


def _invalid_input(message: str) -> ServiceError:
    """DashboardInvalidInputError, by its code on the wire."""
    return ServiceError("InvalidParameterInput", message)


def _invalid_body(errors: list[Remark]) -> ServiceError:
    """The error for a body, with each wrong place."""
    places = [{"dataPath": it.path, "message": it.message} for it in errors[:MAX_REMARKS]]
    text = json.dumps(places, indent=2)
    return ServiceError(
        "InvalidParameterInput",
        f"The dashboard body is invalid, there are {len(errors)} validation errors:\n{text}",
        members={"dashboardValidationMessages": _describe_remarks(errors)},
    )


def find_errors(body: Mapping[str, Any]) -> Iterator[Remark]:
    """The errors for which a body is refused."""
    if "widgets" not in body:
        yield Remark("", "Should have required property 'widgets'")
        return
    widgets = body["widgets"]
    if not isinstance(widgets, list):
        yield Remark("/widgets", "Should be array")
        return
    if len(widgets) > MAX_WIDGETS:
        yield Remark("/widgets", f"Should NOT have more than {MAX_WIDGETS} items")
        return
    if body.get("end") is not None and body.get("start") is None:
        yield Remark("", "Should have required property 'start'")
    yield from _one_of(body, "periodOverride", "", ("auto", "inherit"))
    for number, widget in enumerate(widgets):
        yield from _widget_errors(widget, f"/widgets/{number}")


def find_warnings(body: Mapping[str, Any]) -> Iterator[Remark]:
    """Remarks on members that are stored without a meaning."""
    for name in body.keys() - set(TOP_LEVEL):
        yield Remark(f"/{name}", f"Unknown property {name:.100}, will be ignored")
    for number, widget in enumerate(body["widgets"]):
        for name in widget.keys() - set(WIDGET_MEMBERS):
            path = f"/widgets/{number}/{name}"
            yield Remark(path, f"Unknown property {name:.100}, will be ignored")


def _widget_errors(widget: Any, path: str) -> Iterator[Remark]:
    if not isinstance(widget, dict):
        yield Remark(path, "Should be object")
        return
    for name in ("type", "properties"):
        if name not in widget:
            yield Remark(path, f"Should have required property '{name}'")
    yield from _one_of(widget, "type", path, tuple(REQUIRED_PROPERTIES))
    yield from _within(widget, "x", path, 0, GRID_WIDTH - 1)
    yield from _within(widget, "y", path, 0, None)
    yield from _within(widget, "width", path, 1, GRID_WIDTH)
    yield from _within(widget, "height", path, 1, MAX_HEIGHT)
    if "type" not in widget or "properties" not in widget:
        return
    properties, kind = widget["properties"], widget["type"]
    if not isinstance(properties, dict):
        yield Remark(f"{path}/properties", "Should be object")
        return
    if not isinstance(kind, str) or kind not in REQUIRED_PROPERTIES:
        return
    for name in REQUIRED_PROPERTIES[kind]:
        if name not in properties:
            yield Remark(f"{path}/properties", f"Should have required property '{name}'")
    yield from _property_errors(kind, properties, f"{path}/properties")


def _property_errors(kind: str, properties: Mapping[str, Any], path: str) -> Iterator[Remark]:
    for name in ("markdown", "query", "region", "endpoint", "title", "stat"):
        if name in properties and not isinstance(properties[name], str):
            yield Remark(f"{path}/{name}", "Should be string")
    if kind == "metric":
        yield from _metric_widget_errors(properties, path)
    if kind == "alarm" and "alarms" in properties:
        yield from _list_errors(properties["alarms"], f"{path}/alarms", 1, MAX_WIDGET_ALARMS)


def _metric_widget_errors(properties: Mapping[str, Any], path: str) -> Iterator[Remark]:
    annotations = properties.get("annotations")
    has_alarms = isinstance(annotations, dict) and bool(annotations.get("alarms"))
    if "metrics" not in properties and not has_alarms:
        yield Remark(path, "Should have required property 'metrics'")
        yield Remark(path, NO_SOURCE)
        if annotations is None:
            yield Remark(path, "Should have required property 'annotations'")
        return
    if not has_alarms and "region" not in properties:
        yield Remark(path, NO_SOURCE)
    if "metrics" not in properties:
        return
    metrics = properties["metrics"]
    wrong = list(_list_errors(metrics, f"{path}/metrics", 0, MAX_METRICS))
    yield from wrong
    for number, metric in enumerate([] if wrong else metrics):
        yield from _metric_errors(metric, f"{path}/metrics/{number}")


def _metric_errors(metric: Any, path: str) -> Iterator[Remark]:
    """Errors of [namespace, name, label, value ..., {options}], or of [{"expression": ...}]."""
    if not isinstance(metric, list):
        yield Remark(path, "Should be array")
        yield Remark(path, ARRAYS_ONLY)
        return
    if not metric:
        yield Remark(path, "Should NOT have less than 1 items")
        return
    parts: Sequence[Any] = metric[:-1] if isinstance(metric[-1], dict) else metric
    for number, part in enumerate(parts):
        if not isinstance(part, str):
            yield Remark(f"{path}/{number}", STRINGS_ONLY)
            return
    if "..." not in parts and len(parts) % 2 and parts != ["."]:
        yield Remark(path, f"Should NOT have more than {len(parts) - 1} items")
    if not parts and "expression" not in metric[-1]:
        yield Remark(f"{path}/0", "Should have required property 'expression'")


def _list_errors(value: Any, path: str, least: int, most: int) -> Iterator[Remark]:
    if not isinstance(value, list):
        yield Remark(path, "Should be array")
    elif len(value) < least:
        yield Remark(path, f"Should NOT have less than {least} items")
    elif len(value) > most:
        yield Remark(path, f"Should NOT have more than {most} items")


def _one_of(
    within: Mapping[str, Any], name: str, path: str, allowed: Sequence[str]
) -> Iterator[Remark]:
    if name in within and within[name] not in allowed:
        yield Remark(
            f"{path}/{name}", f"Should be equal to one of the allowed values: {', '.join(allowed)}"
        )


def _within(
    widget: Mapping[str, Any], name: str, path: str, least: int, most: int | None
) -> Iterator[Remark]:
    value = widget.get(name)
    if name not in widget:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
        yield Remark(f"{path}/{name}", "Should be integer")
    elif value < least:
        yield Remark(f"{path}/{name}", f"Should be >= {least}")
    elif most is not None and value > most:
        yield Remark(f"{path}/{name}", f"Should be <= {most}")
