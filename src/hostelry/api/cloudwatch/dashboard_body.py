"""Checks of a dashboard's body: errors, with which it is refused, and warnings.

A path is that of JSON Pointer: ``/widgets/0/properties/metrics/1``.

Source: "Dashboard body structure and syntax" in the CloudWatch API reference; the texts of errors
are AWS's, as issue reports of aws-cdk, pulumi and Terraform's provider quote them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_WIDGETS = 500
MAX_METRICS = 500  # of a widget
MAX_ALARMS = 100
GRID_WIDTH = 24
MAX_HEIGHT = 1000
TOP_LEVEL = ("widgets", "start", "end", "periodOverride", "variables")
OF_WIDGET = ("type", "x", "y", "width", "height", "properties", "id")
REQUIRED: Mapping[str, tuple[str, ...]] = {
    "alarm": ("alarms",),
    "chart": ("data",),
    "custom": ("endpoint",),
    "explorer": ("metrics", "labels"),
    "log": ("query", "region"),
    "metric": (),
    "text": ("markdown",),
}
"""The properties that a widget of each type must have."""
NO_SOURCE = (
    "The metric widget should have specified a region and a data source or an alarm annotation"
)
STRINGS_ONLY = 'Invalid metric field type, only "String" type is allowed'
ARRAYS_ONLY = (
    'Field "metrics" has to be an array of array of strings, with an optional metricRenderer object'
    " as last element"
)


@dataclass(frozen=True, slots=True)
class Remark:
    """A remark on one place of a body."""

    path: str
    message: str


def errors_in(body: Mapping[str, Any]) -> Iterator[Remark]:
    """Everything for which the body is refused."""
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


def warnings_in(body: Mapping[str, Any]) -> Iterator[Remark]:
    """Everything that is stored without a meaning."""
    for name in body.keys() - set(TOP_LEVEL):
        yield Remark(f"/{name}", f"Unknown property {name:.100}, will be ignored")
    for number, widget in enumerate(body["widgets"]):
        for name in widget.keys() - set(OF_WIDGET):
            path = f"/widgets/{number}/{name}"
            yield Remark(path, f"Unknown property {name:.100}, will be ignored")


def _widget_errors(widget: Any, path: str) -> Iterator[Remark]:
    if not isinstance(widget, dict):
        yield Remark(path, "Should be object")
        return
    for name in ("type", "properties"):
        if name not in widget:
            yield Remark(path, f"Should have required property '{name}'")
    yield from _one_of(widget, "type", path, tuple(REQUIRED))
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
    if not isinstance(kind, str) or kind not in REQUIRED:
        return
    for name in REQUIRED[kind]:
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
        yield from _list_errors(properties["alarms"], f"{path}/alarms", 1, MAX_ALARMS)


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
