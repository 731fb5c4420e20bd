"""A plan as a person reads it: each resource with its changed fields, then the numbers. Pure."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hostelry.cli.declared.change import ABSENT, FieldChange
from hostelry.cli.declared.resource import ResourceKey, ResourceKind
from hostelry.cli.declared.step import OLD_VERSION, ApplyStep, StepAct, StepPlan, UploadedFile
from hostelry.cli.status_text import count_text

Line = tuple[str, str]
"""A colour ("" for none) and a text."""
MAX_VALUE = 90
LEFT_OUT = (
    "Specification.",
    "Container.",
    "ComputeResourceRequirements.",
    "Containers[0].",
    "ProductionVariants[AllTraffic].",
    "TargetTrackingScalingPolicyConfiguration.",
    "StepScalingPolicyConfiguration.",
    "ScalableTargetAction.",
)
"""Beginnings of fields that are clear without."""
SIGNS: Mapping[StepAct, tuple[str, str, str]] = {
    StepAct.CREATE: ("+", "green", "to create"),
    StepAct.UPDATE: ("~", "yellow", "to update"),
    StepAct.TAG: ("~", "yellow", "to update"),
    StepAct.DELETE: ("-", "red", "to delete"),
    StepAct.UPLOAD: ("^", "cyan", "to upload"),
}
REPLACE = ("-/+", "magenta", "to replace")


def diff_lines(plan: StepPlan) -> list[Line]:
    """Every resource that changes, and a last line with the numbers."""
    counts: dict[str, int] = {}
    lines: list[Line] = []
    uploads = _upload_lines(plan.steps)
    lines += uploads
    if uploads:
        counts["to upload"] = len(uploads)
    for key, steps in _by_resource(plan).items():
        sign, colour, word = _sign(steps)
        counts[word] = counts.get(word, 0) + 1
        because = "; ".join(dict.fromkeys(it.because for it in steps if it.because))
        lines.append((colour, f"{sign} {key}" + (f"  ({because})" if because else "")))
        for step in steps:
            lines += [_change_line(it) for it in step.changes]
    if not plan.steps:
        return [("", f"Nothing to change: {_same(plan)}.")]
    numbers = ", ".join(f"{count} {word}" for word, count in counts.items())
    return [*lines, ("", f"{numbers}; {_same(plan)}.")]


def _same(plan: StepPlan) -> str:
    verb = "is" if plan.num_same == 1 else "are"
    return f"{count_text(plan.num_same, 'resource')} {verb} as desired"


def _by_resource(plan: StepPlan) -> dict[ResourceKey, list[ApplyStep]]:
    found: dict[ResourceKey, list[ApplyStep]] = {}
    for step in plan.steps:
        if step.file is None and not _goes_with_endpoint(step):
            found.setdefault(step.key, []).append(step)
    return found


def _goes_with_endpoint(step: ApplyStep) -> bool:
    """Whether it makes or replaces a configuration, whose fields are shown with its endpoint."""
    return step.key.kind is ResourceKind.CONFIG and step.because in ("", OLD_VERSION)


def _sign(steps: Sequence[ApplyStep]) -> tuple[str, str, str]:
    acts = [it.act for it in steps]
    if steps[0].key.kind is ResourceKind.MODEL:  # a new version, and the old one in its name
        acts = acts[:1] if StepAct.CREATE in acts[:1] else acts
    if StepAct.DELETE in acts and StepAct.CREATE in acts:
        return REPLACE
    for act in (StepAct.DELETE, StepAct.CREATE):
        if act in acts:
            return SIGNS[act]
    return SIGNS[acts[0]]


def _change_line(change: FieldChange) -> Line:
    field = short_field(change.field)
    if change.before is ABSENT:
        return "green", f"    + {field}: {value_text(change.after)}"
    if change.after is ABSENT:
        return "red", f"    - {field}: {value_text(change.before)}"
    before, after = value_text(change.before), value_text(change.after)
    return "yellow", f"    ~ {field}: {before} -> {after}"


def value_text(value: Any) -> str:
    """A value on one line, cut short."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 3]}..."


def _upload_lines(steps: Sequence[ApplyStep]) -> list[Line]:
    """A line for each local artifact, which may be many files."""
    by_artifact: dict[str, list[UploadedFile]] = {}
    for step in steps:
        if step.file is not None:
            by_artifact.setdefault(step.key.name, []).append(step.file)
    lines = []
    for uri, files in by_artifact.items():
        path, size = files[0].path, size_text(sum(it.order.num_bytes for it in files))
        if uri != files[0].uri:  # a folder's files below a prefix
            size = f"{len(files)} file{'' if len(files) == 1 else 's'}, {size}"
        lines.append(("cyan", f"^ {shown_path(path)} -> {uri} ({size})"))
    return lines


def shown_path(path: str) -> str:
    """A path as it is from here, where it is below."""
    near = os.path.relpath(path)
    return path if near.startswith("..") else near


def short_field(field: str) -> str:
    """A field without what documents leave out too."""
    for prefix in LEFT_OUT:
        if field.startswith(prefix):
            return short_field(field.removeprefix(prefix))
    return field


def size_text(size_bytes: float) -> str:
    """A number of bytes, in the unit that suits it."""
    for unit in ("B", "kB", "MB"):
        if size_bytes < 1000:
            return f"{size_bytes:.0f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.1f} GB"


def steps_document(plan: StepPlan) -> list[dict[str, Any]]:
    """The steps for programs."""
    return [
        {
            "number": one.number,
            "act": one.act.value,
            "kind": one.key.kind.value,
            "name": one.key.name,
            "within": one.key.within,
            "operation": one.operation,
            "needs": list(one.needs),
            "because": one.because,
            "changes": [_change_document(change) for change in one.changes],
        }
        for one in plan.steps
    ]


def _change_document(change: FieldChange) -> dict[str, Any]:
    found: dict[str, Any] = {"field": change.field}
    if change.before is not ABSENT:
        found["before"] = change.before
    if change.after is not ABSENT:
        found["after"] = change.after
    return found
