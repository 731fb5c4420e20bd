"""Ready steps that need no process but this one: their outcome or choice is noted. Pure."""

from typing import Any

import msgspec

from hostelry.graph.expression import GraphExpression, GraphExpressionError
from hostelry.graph.faults import StepFault
from hostelry.graph.gather import GatherError, gathered
from hostelry.graph.state import GraphState, ReadyStep, StepOutcome, item_key
from hostelry.graph.steps import (
    CascadeAction,
    EachAction,
    GatherAction,
    GraphPlan,
    GraphStep,
    MapAction,
    OnError,
    ScatterAction,
    SwitchAction,
)

MAX_ITEMS = 256
UNPROCESSABLE, FAILED_DEPENDENCY = 422, 424


def settle(plan: GraphPlan, state: GraphState, ready: ReadyStep) -> None:
    """Carry out a step of Act.LOCAL."""
    step = plan.steps[ready.name]
    try:
        _settle(state, step)
    except (GraphExpressionError, GatherError) as error:
        fault = StepFault(step=step.name, reason=str(error), status=UNPROCESSABLE)
        state.outcomes[step.name] = ruled(step, fault)


def ruled(step: GraphStep, fault: StepFault) -> StepOutcome:
    """The outcome of a step that failed, by its rule."""
    if step.on_error is OnError.FAIL:
        return StepOutcome(fault=fault)
    if step.on_error is OnError.DROP:
        return StepOutcome(is_dropped=True)
    return StepOutcome(value=step.default)


def input_of(plan: GraphPlan, state: GraphState, ready: ReadyStep) -> StepOutcome:
    """The input of a call, function or cache; raises GraphExpressionError.

    An input that is a step's whole answer, or the request, has the body as it came.
    """
    step = plan.steps[ready.name]
    if ready.item is not None:
        return StepOutcome(value=state.items[step.name][ready.item])
    if isinstance(step.action, GatherAction):
        return state.outcomes[step.action.of]
    if step.input.is_reference:
        return state.outcomes[step.input.text]
    return StepOutcome(value=step.input.value(state.scope(step.input.references)))


def case_of(value: Any) -> str:
    """The name of the case of a switch that a value selects: a text itself, else its JSON."""
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode()
    except TypeError:
        return ""


def _settle(state: GraphState, step: GraphStep) -> None:
    action = step.action
    if isinstance(action, MapAction):
        value = action.expression.value(state.scope(action.expression.references))
        state.outcomes[step.name] = StepOutcome(value=value)
    elif isinstance(action, SwitchAction):
        _choose(state, step, action)
    elif isinstance(action, ScatterAction):
        found = {name: state.outcomes[name] for name in action.branches}
        state.outcomes[step.name] = _joined(step, found, action.at_least)
    elif isinstance(action, EachAction):
        _over_items(state, step, action)
    elif isinstance(action, GatherAction):
        scattered = state.outcomes[action.of]
        value = gathered(action, scattered.branches, scattered.value)
        state.outcomes[step.name] = StepOutcome(value=value)
    else:
        assert isinstance(action, CascadeAction)
        _cascade(state, step, action)


def _choose(state: GraphState, step: GraphStep, action: SwitchAction) -> None:
    case = case_of(action.by.value(state.scope(action.by.references)))
    chosen = action.cases.get(case, action.otherwise)
    if chosen is None:
        known = ", ".join(action.cases)
        raise GraphExpressionError(
            f"there is no case {case[:80]!r}, and no otherwise; cases: {known}"
        )
    state.choices[step.name] = chosen


def _over_items(state: GraphState, step: GraphStep, action: EachAction) -> None:
    """Note the items; once each of them has an outcome, join them."""
    items = state.items.get(step.name)
    if items is not None:
        keys = [item_key(step.name, number) for number in range(len(items))]
        found = {key: state.outcomes[key] for key in keys}
        state.outcomes[step.name] = _joined(step, found, min(action.at_least, len(items)))
        return
    value = action.each.value(state.scope(action.each.references))
    if not isinstance(value, list):
        raise GraphExpressionError(f"{action.each.text[:80]} is no list")
    if len(value) > MAX_ITEMS:
        raise GraphExpressionError(
            f"{action.each.text[:80]} has {len(value)} items; at most {MAX_ITEMS}"
        )
    state.items[step.name] = tuple(value)


def _joined(step: GraphStep, found: dict[str, StepOutcome], at_least: int) -> StepOutcome:
    kept = {name: outcome for name, outcome in found.items() if not outcome.is_dropped}
    if len(kept) < at_least:
        reason = f"{len(kept)} of {len(found)} branches answered; at least {at_least} must"
        fault = StepFault(step=step.name, reason=reason, status=FAILED_DEPENDENCY)
        return StepOutcome(fault=fault)
    return StepOutcome(value=[outcome.value for outcome in kept.values()], branches=tuple(kept))


def _cascade(state: GraphState, step: GraphStep, action: CascadeAction) -> None:
    position = state.choices.get(step.name, 0)
    entry = action.entries[position]
    found = state.outcomes[entry.step]
    if not found.is_dropped and entry.enough is not None and _holds(entry.enough, found.value):
        state.outcomes[step.name] = found
    else:
        state.choices[step.name] = position + 1


def _holds(enough: GraphExpression, answer: Any) -> bool:
    value = enough.value(answer)
    if not isinstance(value, bool):
        raise GraphExpressionError(f"{enough.text[:80]} is {value!r:.80}, not true or false")
    return value
