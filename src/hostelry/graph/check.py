"""Build a plan from a document, or report all its faults, each with its step and field. Pure.

The checks cover names, the fields of each kind of step, expressions and the types of their values,
targets, cycles, and unused steps.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

import msgspec
from msgspec.structs import replace

from hostelry.graph.actions import ActionReader, FieldFaultError, parse_expression
from hostelry.graph.content import (
    ValueType,
    can_be_written,
    common_type,
    find_content_type,
    find_type,
    media_type,
)
from hostelry.graph.document import GraphDocument, StepRow, read_document
from hostelry.graph.expression import (
    GraphExpression,
    GraphExpressionError,
    check_copies,
    infer_type,
)
from hostelry.graph.steps import (
    REQUEST,
    CacheAction,
    CallAction,
    CascadeAction,
    EachAction,
    FunctionAction,
    GatherAction,
    GatherBy,
    GraphDocumentError,
    GraphFault,
    GraphPlan,
    GraphStep,
    MapAction,
    OnError,
    ScatterAction,
    StepAction,
    SwitchAction,
)

MAX_DEADLINE_S = 3600.0
NUMBERS = frozenset({GatherBy.MEAN, GatherBy.WEIGHTED_MEAN, GatherBy.MAX})
# The fields that have a meaning for an action, in addition to the kind's field.
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


def build_plan(text: str) -> GraphPlan:
    """The plan of graph.yaml's text. Raises GraphDocumentError with every fault."""
    document = read_document(text)
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
            steps[name] = _build_step(name, row)
        except FieldFaultError as error:
            faults.append(GraphFault(step=name, field=error.field, reason=error.reason))
    faults += _find_reference_faults(document, steps)
    if faults:
        raise GraphDocumentError(faults)
    ordered = _sort_steps(steps)
    _check_used(ordered, document.output)
    typed = _add_types(ordered, find_content_type(document.content_type))
    return GraphPlan(
        steps=typed,
        output=document.output,
        content_type=media_type(document.content_type),
        deadline_s=document.deadline_s,
    )


def _build_step(name: str, row: StepRow) -> GraphStep:
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
    read_input = parse_expression("input", row.input or REQUEST)
    return GraphStep(
        name=name,
        kind=kind,
        action=action,
        input=read_input,
        references=tuple(dict.fromkeys(_list_references(action, read_input))),
        branches=tuple(dict.fromkeys(_list_branches(action))),
        timeout_s=row.timeout_s,
        on_error=on_error,
        default=None if row.default is msgspec.UNSET else row.default,
    )


def _list_references(action: StepAction, read_input: GraphExpression) -> tuple[str, ...]:
    """The names of the values that the step reads before it begins."""
    if isinstance(action, CallAction | FunctionAction | CacheAction):
        return read_input.references
    if isinstance(action, MapAction):
        return action.expression.references
    if isinstance(action, SwitchAction):
        return action.by.references
    if isinstance(action, EachAction):
        return action.each.references
    return (action.of,) if isinstance(action, GatherAction) else ()


def _list_branches(action: StepAction) -> tuple[str, ...]:
    """The names of the steps that the step may run."""
    if isinstance(action, SwitchAction):
        return (*action.cases.values(), *([action.otherwise] if action.otherwise else []))
    if isinstance(action, ScatterAction):
        return action.branches
    if isinstance(action, CascadeAction):
        return tuple(entry.step for entry in action.entries)
    return (action.of,) if isinstance(action, CacheAction) else ()


def _find_reference_faults(
    document: GraphDocument, steps: Mapping[str, GraphStep]
) -> Iterable[GraphFault]:
    """A fault for each unknown name, also in steps with other faults."""
    known = set(document.steps)
    if document.output not in known:
        yield GraphFault(field="output", reason=_describe_missing(document.output, known))
    for step in steps.values():
        for name in step.references:
            if name != REQUEST and name not in known:
                field = "gather.of" if isinstance(step.action, GatherAction) else "input"
                if isinstance(step.action, MapAction | SwitchAction | EachAction):
                    field = {"map": "map", "switch": "switch.by"}.get(step.kind, "scatter.each")
                yield GraphFault(step=step.name, field=field, reason=_describe_missing(name, known))
        for name in step.branches:
            if name not in known:
                yield GraphFault(
                    step=step.name, field=step.kind, reason=_describe_missing(name, known)
                )


def _describe_missing(name: str, known: Iterable[str]) -> str:
    return f"there is no step {name[:80]}; there are {', '.join(sorted(known))}"


def _sort_steps(steps: Mapping[str, GraphStep]) -> dict[str, GraphStep]:
    """The steps in an order in which each follows its needs. Raises GraphDocumentError."""
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
    """Raise GraphDocumentError for steps that the output does not need."""
    used: set[str] = set()
    pending = [output]
    while pending:
        name = pending.pop()
        if name not in used and name != REQUEST:
            used.add(name)
            pending += [*steps[name].references, *steps[name].branches]
    unused = [
        GraphFault(step=name, reason="no step uses it, and it is not the output")
        for name in steps
        if name not in used
    ]
    if unused:
        raise GraphDocumentError(unused)


def _add_types(steps: Mapping[str, GraphStep], request: ValueType) -> dict[str, GraphStep]:
    """The steps with the types of their values. Raises GraphDocumentError."""
    types, copies = {REQUEST: request}, {REQUEST: Counter({REQUEST: 1})}
    typed: dict[str, GraphStep] = {}
    faults: list[GraphFault] = []
    for name, step in steps.items():
        try:
            found = _infer_step_type(step, types, typed)
            _check_default(step, found)
            copies[name] = _count_copies(step, copies)
        except FieldFaultError as error:
            faults.append(GraphFault(step=name, field=error.field, reason=error.reason))
            found, copies[name] = ValueType.ANY, Counter()
        # The value of a step that is dropped, or has a default, may have another type.
        types[name] = found if step.on_error is OnError.FAIL else ValueType.ANY
        typed[name] = replace(step, type=found)
    if faults:
        raise GraphDocumentError(faults)
    return typed


def _count_copies(step: GraphStep, known: Mapping[str, Counter[str]]) -> Counter[str]:
    """How often the step's value can repeat a part of the request or of each step's answer.

    Raises FieldFaultError if that is too often. This bounds the values of chains of steps.
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


def _infer_step_type(
    step: GraphStep, types: Mapping[str, ValueType], typed: Mapping[str, GraphStep]
) -> ValueType:
    action = step.action
    if isinstance(action, CallAction | FunctionAction):
        return _infer_work_type(step, action, types)
    if isinstance(action, MapAction):
        return _infer_expression_type("map", action.expression, types)
    if isinstance(action, EachAction):
        read = _infer_expression_type("scatter.each", action.each, types)
        if read not in (ValueType.ANY, ValueType.LIST):
            raise FieldFaultError("scatter.each", f"it is {read.value}, not a list")
    if isinstance(action, ScatterAction | EachAction):
        return ValueType.LIST
    if isinstance(action, GatherAction):
        return _infer_gather_type(action, types, typed)
    if isinstance(action, SwitchAction):
        _infer_expression_type("switch.by", action.by, types)
    if isinstance(action, CacheAction):
        _infer_expression_type("input", step.input, types)
    return common_type(types[name] for name in step.branches)


def _infer_work_type(
    step: GraphStep, action: CallAction | FunctionAction, types: Mapping[str, ValueType]
) -> ValueType:
    read = _infer_expression_type("input", step.input, types)
    if isinstance(action, FunctionAction):
        _check_function_input(read)
        return ValueType.ANY
    if not can_be_written(read, action.target.content_type):
        reason = f"{read.value} cannot be sent as {action.target.content_type}"
        raise FieldFaultError("input", reason)
    return find_content_type(action.target.accept)


def _infer_expression_type(
    field: str, expression: GraphExpression, types: Mapping[str, ValueType]
) -> ValueType:
    try:
        return infer_type(expression, types)
    except GraphExpressionError as error:
        raise FieldFaultError(field, str(error)) from None


def _check_function_input(read: ValueType) -> None:
    if read is ValueType.BYTES:
        raise FieldFaultError("input", "functions get JSON values, and there are bytes")


def _infer_gather_type(
    action: GatherAction, types: Mapping[str, ValueType], typed: Mapping[str, GraphStep]
) -> ValueType:
    scattered = typed[action.of].action if action.of in typed else None
    if not isinstance(scattered, ScatterAction | EachAction):
        raise FieldFaultError("gather.of", f"{action.of} is no scatter")
    branches = scattered.branches if isinstance(scattered, ScatterAction) else ()
    if isinstance(scattered, ScatterAction):
        answers = {name: types[name] for name in branches}
    else:
        answers = {"each answer": find_content_type(scattered.target.accept)}
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
    """Raise FieldFaultError if the default has another type than the step's answers."""
    if step.on_error is not OnError.DEFAULT or step.default is None:
        return
    given, wanted = find_type(step.default), type
    if isinstance(step.action, EachAction):
        wanted = find_content_type(step.action.target.accept)
    if wanted not in (ValueType.ANY, given):
        raise FieldFaultError("default", f"it is {given.value}, and the step's is {wanted.value}")
