"""A document becomes a plan, or all its faults, each with its step and field. Pure.

Checked are names, what each kind of step needs, expressions with the types that they read, targets,
cycles, and steps that nothing uses.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter

import msgspec

from hostelry.graph.actions import ActionReader, FieldFaultError, expression_in
from hostelry.graph.content import can_be_written, media_type, type_of_content
from hostelry.graph.document import GraphDocument, StepRow, read_document
from hostelry.graph.expression import GraphExpression, GraphExpressionError, check_copies
from hostelry.graph.expression import type_of_expression as type_of
from hostelry.graph.faults import GraphDocumentError, GraphFault
from hostelry.graph.steps import (
    REQUEST,
    CacheAction,
    CallAction,
    CascadeAction,
    EachAction,
    FunctionAction,
    GatherAction,
    GatherBy,
    GraphPlan,
    GraphStep,
    MapAction,
    OnError,
    ScatterAction,
    StepAction,
    SwitchAction,
)
from hostelry.graph.value_types import ValueType, common_type, type_of_value

MAX_DEADLINE_S = 3600.0
NUMBERS = frozenset({GatherBy.MEAN, GatherBy.WEIGHTED_MEAN, GatherBy.MAX})
# The fields beside the kind's own that have a meaning.
FIELDS: Mapping[type, frozenset[str]] = {
    CallAction: frozenset({"input", "timeout_s", "on_error", "default"}),
    FunctionAction: frozenset({"input", "timeout_s", "on_error", "default"}),
    MapAction: frozenset({"on_error", "default"}),
    EachAction: frozenset({"timeout_s", "on_error", "default"}),
    GatherAction: frozenset({"timeout_s", "on_error", "default"}),
    CacheAction: frozenset({"input"}),
    SwitchAction: frozenset(),
    ScatterAction: frozenset(),
    CascadeAction: frozenset(),
}


def plan_of_text(text: str) -> GraphPlan:
    """The plan of graph.yaml's text; raises GraphDocumentError with every fault."""
    return plan_of(read_document(text))


def plan_of(document: GraphDocument) -> GraphPlan:
    """The plan of a document; raises GraphDocumentError with every fault."""
    faults: list[GraphFault] = []
    if not 0 < document.deadline_s <= MAX_DEADLINE_S:
        reason = f"it is {document.deadline_s:g}; above 0, at most {MAX_DEADLINE_S:g}"
        faults.append(GraphFault(field="deadline_s", reason=reason))
    if "/" not in document.content_type:
        reason = f"{document.content_type[:80]!r} is no content type such as application/json"
        faults.append(GraphFault(field="content_type", reason=reason))
    steps: dict[str, GraphStep] = {}
    for name, row in document.steps.items():
        try:
            steps[name] = _step(name, row)
        except FieldFaultError as error:
            faults.append(GraphFault(step=name, field=error.field, reason=error.reason))
    faults += _faults_of_references(document, steps)
    if faults:
        raise GraphDocumentError(faults)
    ordered = _ordered(steps)
    _check_used(ordered, document.output)
    typed = _typed(ordered, type_of_content(document.content_type))
    return GraphPlan(
        steps=typed,
        output=document.output,
        content_type=media_type(document.content_type),
        deadline_s=document.deadline_s,
    )


def _step(name: str, row: StepRow) -> GraphStep:
    kind = row.kinds[0]
    action = ActionReader(row).action(kind)
    for field in ("input", "timeout_s", "on_error", "default"):
        given = getattr(row, field)
        if given is not None and given is not msgspec.UNSET and field not in FIELDS[type(action)]:
            raise FieldFaultError(field, f"it has no meaning for {kind} here; leave it out")
    if row.timeout_s is not None and not 0 < row.timeout_s <= MAX_DEADLINE_S:
        raise FieldFaultError(
            "timeout_s", f"it is {row.timeout_s:g}; above 0, at most {MAX_DEADLINE_S:g}"
        )
    on_error = OnError(row.on_error or "fail")
    if (on_error is OnError.DEFAULT) != (row.default is not msgspec.UNSET):
        raise FieldFaultError("default", "on_error: default and a value in default go together")
    read_input = expression_in("input", row.input or REQUEST)
    return GraphStep(
        name=name,
        kind=kind,
        action=action,
        input=read_input,
        references=tuple(dict.fromkeys(_references(action, read_input))),
        branches=tuple(dict.fromkeys(_branches(action))),
        timeout_s=row.timeout_s,
        on_error=on_error,
        default=None if row.default is msgspec.UNSET else row.default,
    )


def _references(action: StepAction, read_input: GraphExpression) -> tuple[str, ...]:
    """The values that the step reads before it begins."""
    if isinstance(action, CallAction | FunctionAction | CacheAction):
        return read_input.references
    if isinstance(action, MapAction):
        return action.expression.references
    if isinstance(action, SwitchAction):
        return action.by.references
    if isinstance(action, EachAction):
        return action.each.references
    return (action.of,) if isinstance(action, GatherAction) else ()


def _branches(action: StepAction) -> tuple[str, ...]:
    """The steps that the step may run."""
    if isinstance(action, SwitchAction):
        return (*action.cases.values(), *([action.otherwise] if action.otherwise else []))
    if isinstance(action, ScatterAction):
        return action.branches
    if isinstance(action, CascadeAction):
        return tuple(entry.step for entry in action.entries)
    return (action.of,) if isinstance(action, CacheAction) else ()


def _faults_of_references(
    document: GraphDocument, steps: Mapping[str, GraphStep]
) -> Iterable[GraphFault]:
    """A fault for each name that is no step, also of steps that have other faults."""
    known = set(document.steps)
    if document.output not in known:
        yield GraphFault(field="output", reason=_no_step(document.output, known))
    for step in steps.values():
        for name in step.references:
            if name != REQUEST and name not in known:
                field = "gather.of" if isinstance(step.action, GatherAction) else "input"
                if isinstance(step.action, MapAction | SwitchAction | EachAction):
                    field = {"map": "map", "switch": "switch.by"}.get(step.kind, "scatter.each")
                yield GraphFault(step=step.name, field=field, reason=_no_step(name, known))
        for name in step.branches:
            if name not in known:
                yield GraphFault(step=step.name, field=step.kind, reason=_no_step(name, known))


def _no_step(name: str, known: Iterable[str]) -> str:
    return f"there is no step {name[:80]}; there are {', '.join(sorted(known))}"


def _ordered(steps: Mapping[str, GraphStep]) -> dict[str, GraphStep]:
    """The steps, each behind those that it needs; raises GraphDocumentError for a cycle."""
    needs = {
        name: [it for it in (*step.references, *step.branches) if it != REQUEST]
        for name, step in steps.items()
    }
    try:
        return {name: steps[name] for name in TopologicalSorter(needs).static_order()}
    except CycleError as error:
        cycle = list(reversed(error.args[1]))
        reason = f"it needs itself: {' needs '.join(cycle)}"
        raise GraphDocumentError([GraphFault(step=cycle[0], reason=reason)]) from None


def _check_used(steps: Mapping[str, GraphStep], output: str) -> None:
    """Raise GraphDocumentError for steps without which the answer would be the same."""
    used: set[str] = set()
    waiting = [output]
    while waiting:
        name = waiting.pop()
        if name not in used and name != REQUEST:
            used.add(name)
            waiting += [*steps[name].references, *steps[name].branches]
    unused = [
        GraphFault(step=name, reason="no step uses it, and it is not the output")
        for name in steps
        if name not in used
    ]
    if unused:
        raise GraphDocumentError(unused)


def _typed(steps: Mapping[str, GraphStep], request: ValueType) -> dict[str, GraphStep]:
    """The steps with the types of their values; raises GraphDocumentError."""
    types, copies = {REQUEST: request}, {REQUEST: Counter({REQUEST: 1})}
    typed: dict[str, GraphStep] = {}
    faults: list[GraphFault] = []
    for name, step in steps.items():
        try:
            found = _type(step, types, typed)
            _check_default(step, found)
            copies[name] = _copies(step, copies)
        except FieldFaultError as error:
            faults.append(GraphFault(step=name, field=error.field, reason=error.reason))
            found, copies[name] = ValueType.ANY, Counter()
        # A step that is dropped, or has a default, may have a value of another type.
        types[name] = found if step.on_error is OnError.FAIL else ValueType.ANY
        typed[name] = replace(step, type=found)
    if faults:
        raise GraphDocumentError(faults)
    return typed


def _copies(step: GraphStep, known: Mapping[str, Counter[str]]) -> Counter[str]:
    """How often the step's value can have a part of the request, or of the answer of each step.

    Raises FieldFaultError if that is too often, so that chains of steps bound what they make.
    """
    action, times, field = step.action, step.input.copies, "input"
    if isinstance(action, MapAction):
        times, field = action.expression.copies, "map"
    elif isinstance(action, EachAction):
        times, field = action.each.copies, "scatter.each"
    elif isinstance(action, GatherAction):
        times, field = action.value.copies if action.value is not None else 1, "gather.value"
    read: Counter[str] = Counter()
    for name in (*step.references, *step.branches):
        read.update({it: count * times for it, count in known[name].items()})
    try:
        check_copies(max(read.values(), default=1))
    except GraphExpressionError as error:
        raise FieldFaultError(field, str(error)) from None
    is_answer = isinstance(action, CallAction | FunctionAction | EachAction)
    return Counter({step.name: 1}) if is_answer else read


def _type(
    step: GraphStep, types: Mapping[str, ValueType], typed: Mapping[str, GraphStep]
) -> ValueType:
    action = step.action
    if isinstance(action, CallAction | FunctionAction):
        return _type_of_work(step, action, types)
    if isinstance(action, MapAction):
        return _expression_type("map", action.expression, types)
    if isinstance(action, EachAction):
        read = _expression_type("scatter.each", action.each, types)
        if read not in (ValueType.ANY, ValueType.LIST):
            raise FieldFaultError("scatter.each", f"it is {read.value}, not a list")
    if isinstance(action, ScatterAction | EachAction):
        return ValueType.LIST
    if isinstance(action, GatherAction):
        return _type_of_gather(action, types, typed)
    if isinstance(action, SwitchAction):
        _expression_type("switch.by", action.by, types)
    if isinstance(action, CacheAction):
        _expression_type("input", step.input, types)
    return common_type(types[name] for name in step.branches)


def _type_of_work(
    step: GraphStep, action: CallAction | FunctionAction, types: Mapping[str, ValueType]
) -> ValueType:
    read = _expression_type("input", step.input, types)
    if isinstance(action, FunctionAction):
        _check_function_input(read)
        return ValueType.ANY
    if not can_be_written(read, action.target.content_type):
        reason = f"{read.value} cannot be sent as {action.target.content_type}"
        raise FieldFaultError("input", reason)
    return type_of_content(action.target.accept)


def _expression_type(
    field: str, expression: GraphExpression, types: Mapping[str, ValueType]
) -> ValueType:
    try:
        return type_of(expression, types)
    except GraphExpressionError as error:
        raise FieldFaultError(field, str(error)) from None


def _check_function_input(read: ValueType) -> None:
    if read is ValueType.BYTES:
        raise FieldFaultError("input", "functions get JSON values, and there are bytes")


def _type_of_gather(
    action: GatherAction, types: Mapping[str, ValueType], typed: Mapping[str, GraphStep]
) -> ValueType:
    scattered = typed[action.of].action if action.of in typed else None
    if not isinstance(scattered, ScatterAction | EachAction):
        raise FieldFaultError("gather.of", f"{action.of} is no scatter")
    branches = scattered.branches if isinstance(scattered, ScatterAction) else ()
    if isinstance(scattered, ScatterAction):
        answers = {name: types[name] for name in branches}
    else:
        answers = {"each answer": type_of_content(scattered.target.accept)}
    _check_weights(action, branches)
    for name, found in answers.items():
        if action.value is not None and found in (ValueType.TEXT, ValueType.BYTES):
            raise FieldFaultError("gather.value", f"{name} is {found.value}, which has no fields")
        is_number = found in (ValueType.ANY, ValueType.LIST, ValueType.NUMBER)
        if action.by in NUMBERS and action.score is None and not is_number:
            raise FieldFaultError("gather.by", f"{name} is {found.value}, which has no numbers")
        if action.function is not None:
            _check_function_input(found)
    return ValueType.LIST if action.by is GatherBy.STACK else ValueType.ANY


def _check_weights(action: GatherAction, branches: tuple[str, ...]) -> None:
    if action.by is GatherBy.WEIGHTED_MEAN and set(action.weights) != set(branches):
        raise FieldFaultError(
            "gather.weights",
            f"they are of {', '.join(action.weights) or 'no step'}; {action.of} has "
            f"{', '.join(branches) or 'no named branches'}",
        )
    if any(not math.isfinite(it) or it < 0 for it in action.weights.values()):
        raise FieldFaultError("gather.weights", "each must be 0 or more")
    if action.weights and not sum(action.weights.values()):
        raise FieldFaultError("gather.weights", "one of them must be above 0")


def _check_default(step: GraphStep, type: ValueType) -> None:
    """Raise FieldFaultError for a default that is of another type than the step's answers."""
    if step.on_error is not OnError.DEFAULT or step.default is None:
        return
    given = type_of_value(step.default)
    of_step = type
    if isinstance(step.action, EachAction):
        of_step = type_of_content(step.action.target.accept)
    if of_step not in (ValueType.ANY, given):
        raise FieldFaultError("default", f"it is {given.value}, and the step's is {of_step.value}")
