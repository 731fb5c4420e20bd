"""graph.yaml: its rows, with unknown keys rejected. Pure.

content_type: application/json        # of requests (the default)
deadline_s: 55                        # of the whole call (the default)
output: answer                        # the step whose value is the answer
steps:
rows:   {map: "input.instances"}
ridge:  {call: {endpoint: fruits, component: ridge}, input: rows, on_error: drop}
forest: {call: {endpoint: fruits, component: forest}, input: rows}
both:   {scatter: [ridge, forest]}
answer: {gather: {of: both, by: mean}}
"""

import re
from typing import Any, Literal, TypeVar

import msgspec

from hostelry.base.json import convert
from hostelry.graph.content import JSON
from hostelry.graph.steps import GraphDocumentError, GraphFault
from hostelry.graph.strict_yaml import YamlError, read_yaml

RowT = TypeVar("RowT")
FILE = "graph.yaml"
MAX_STEPS = 64
MAX_BRANCHES = 32
KINDS = ("call", "map", "switch", "scatter", "gather", "cascade", "cache")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


class _Row(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    pass


class CallRow(_Row):
    """call: {...}."""

    endpoint: str | None = None
    component: str | None = None
    variant: str | None = None
    model: str | None = None
    container: str | None = None
    content_type: str = JSON
    accept: str = JSON


class FunctionRow(_Row):
    """map: {function: MODULE:NAME}."""

    function: str


class SwitchRow(_Row):
    """switch: {by: EXPRESSION, cases: {VALUE: STEP}, otherwise: STEP}."""

    by: str
    cases: dict[str, str]
    otherwise: str | None = None


class ScatterRow(_Row):
    """scatter: {to: [STEP, ...]}, or {each: EXPRESSION, call: {...}}."""

    to: tuple[str, ...] | None = None
    each: str | None = None
    call: CallRow | None = None
    at_least: int = 1


class GatherRow(_Row):
    """gather: {of: STEP, by: ...}, or {of: STEP, function: MODULE:NAME}."""

    of: str
    by: Literal["mean", "weighted_mean", "majority", "max", "stack", "concatenate"] | None = None
    weights: dict[str, float] | None = None
    value: str | None = None
    score: str | None = None
    function: str | None = None


class CascadeRow(_Row):
    """cascade: [{step: STEP, enough: EXPRESSION}, ..., {step: STEP}]."""

    step: str
    enough: str | None = None


class CacheRow(_Row):
    """cache: {of: STEP, ttl_s: 300, max_bytes: 16777216}."""

    of: str
    ttl_s: float
    max_bytes: int = 16 * 1024 * 1024


class StepRow(_Row):
    """One step: exactly one of KINDS, and its further fields."""

    call: CallRow | None = None
    map: str | FunctionRow | None = None
    switch: SwitchRow | None = None
    scatter: tuple[str, ...] | ScatterRow | None = None
    gather: GatherRow | None = None
    cascade: tuple[CascadeRow, ...] | None = None
    cache: CacheRow | None = None
    input: str | None = None
    timeout_s: float | None = None
    on_error: Literal["fail", "drop", "default"] | None = None
    default: Any = msgspec.UNSET

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that the row names."""
        return tuple(kind for kind in KINDS if getattr(self, kind) is not None)


class _DocumentRow(_Row):
    steps: dict[str, Any]
    output: str
    content_type: str = JSON
    deadline_s: float = 55.0


class GraphDocument(msgspec.Struct, kw_only=True):
    """A document whose rows have valid fields and types, before names are checked."""

    steps: dict[str, StepRow]
    output: str
    content_type: str
    deadline_s: float


def read_document(text: str) -> GraphDocument:
    """Read a document. Raises GraphDocumentError with every fault of its rows."""
    try:
        value = read_yaml(text)
    except YamlError as error:
        raise GraphDocumentError([GraphFault(reason=f"{FILE} cannot be read: {error}")]) from None
    if not isinstance(value, dict):
        raise GraphDocumentError([GraphFault(reason=f"{FILE} has no keys; it needs steps, output")])
    document = _convert(value, _DocumentRow, "")
    if isinstance(document, GraphFault):
        raise GraphDocumentError([document])
    faults = [*_find_name_faults(document)]
    rows: dict[str, StepRow] = {}
    for name, given in document.steps.items():
        row = _convert(given, StepRow, name)
        if isinstance(row, GraphFault):
            faults.append(row)
        elif len(row.kinds) != 1:
            named = " and ".join(row.kinds) or "none"
            faults.append(
                GraphFault(step=name, reason=f"needs one of {', '.join(KINDS)}; has {named}")
            )
        else:
            rows[name] = row
    if faults:
        raise GraphDocumentError(faults)
    return GraphDocument(
        steps=rows,
        output=document.output,
        content_type=document.content_type,
        deadline_s=document.deadline_s,
    )


def _find_name_faults(document: _DocumentRow) -> list[GraphFault]:
    if not document.steps:
        return [GraphFault(field="steps", reason="there is none")]
    if len(document.steps) > MAX_STEPS:
        reason = f"there are {len(document.steps)}; at most {MAX_STEPS}"
        return [GraphFault(field="steps", reason=reason)]
    return [
        GraphFault(step=name[:80], reason="a name has letters, digits and _, and is not `input`")
        for name in document.steps
        if not NAME.fullmatch(name) or name == "input"
    ]


def _convert(value: Any, type: type[RowT], step: str) -> RowT | GraphFault:
    try:
        return convert(value, type)
    except (msgspec.ValidationError, RecursionError) as error:
        reason, at, place = str(error).rpartition(" - at `")
        field = place.removesuffix("`").removeprefix("$").lstrip(".") if at else ""
        return GraphFault(step=step, field=field, reason=reason if at else place)
