"""Run steps that need no other process, and note their outcome or choice. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from hostelry.base.errors import HostelryError
from hostelry.graph.expression import GraphExpression, GraphExpressionError
from hostelry.graph.progress import GraphState, ReadyStep, StepOutcome, item_key
from hostelry.graph.steps import (
    CascadeAction,
    EachAction,
    GatherAction,
    GatherBy,
    GraphPlan,
    GraphStep,
    MapAction,
    OnError,
    ScatterAction,
    StepFault,
    SwitchAction,
)

Numbers = npt.NDArray[np.float64]
MAX_ITEMS = 256
UNPROCESSABLE, FAILED_DEPENDENCY = 422, 424


class GatherError(HostelryError):
    """The answers cannot be combined. The message names the branch."""


def gather(action: GatherAction, names: Sequence[str], answers: Sequence[Any]) -> Any:
    """Combine the answers of the branches `names`. Raises GatherError, GraphExpressionError.

    by             result
    mean           the mean of numbers, or of lists of equal shapes, by element
    weighted_mean  the same with the weights of the branches that answered
    majority       the most frequent value, by element of lists (among equals the first branch's)
    max            the largest number by element, or with `score` the value of the branch with the
                   largest score (among equals the first branch's)
    stack          a list of the values
    concatenate    one list of all elements, or one text
    """
    if not answers:
        raise GatherError(f"no branch of {action.of} has answered")
    values = [answer if action.value is None else action.value.value(answer) for answer in answers]
    match action.by:
        case GatherBy.STACK:
            return values
        case GatherBy.CONCATENATE:
            return _concatenate(names, values)
        case GatherBy.MAJORITY:
            return _find_majority(names, values)
        case GatherBy.MAX if action.score is not None:
            ranked = [action.score.value(answer) for answer in answers]
            scores = [_check_score(name, it) for name, it in zip(names, ranked, strict=True)]
            return values[scores.index(max(scores))]
    numbers = _to_array(names, values)
    if action.by is GatherBy.MAX:
        return _to_list(np.max(numbers, axis=0))
    weights = _find_weights(action.weights, names) if action.by is GatherBy.WEIGHTED_MEAN else None
    return _to_list(np.average(numbers, axis=0, weights=weights))


def _to_array(names: Sequence[str], values: Sequence[Any]) -> Numbers:
    """The values as one array. Raises GatherError with the first value that does not fit."""
    found: list[Numbers] = []
    for name, value in zip(names, values, strict=True):
        try:
            array = np.asarray(value)
        except ValueError:
            raise GatherError(f"{name} answered a list of uneven lists") from None
        if array.dtype.kind not in "iuf" or not array.size:
            raise GatherError(f"{name} answered no numbers: {_shorten(value)}")
        if found and array.shape != found[0].shape:
            raise GatherError(
                f"{name} answered {_shape_text(array)} and {names[0]} {_shape_text(found[0])}"
            )
        found.append(array.astype(np.float64))
    return np.stack(found)


def _find_weights(weights: Mapping[str, float], names: Sequence[str]) -> list[float]:
    found = [weights[name] for name in names]
    if not sum(found):
        raise GatherError(f"the weights of the branches that answered are 0: {', '.join(names)}")
    return found


def _concatenate(names: Sequence[str], values: Sequence[Any]) -> Any:
    if all(isinstance(value, str) for value in values):
        return "".join(values)
    joined: list[Any] = []
    for name, value in zip(names, values, strict=True):
        if not isinstance(value, list):
            raise GatherError(f"{name} answered no list: {_shorten(value)}")
        joined += value
    return joined


def _find_majority(names: Sequence[str], values: Sequence[Any]) -> Any:
    if not any(isinstance(value, list) for value in values):
        return _vote(values)
    lengths = [len(value) if isinstance(value, list) else -1 for value in values]
    for name, length in zip(names, lengths, strict=True):
        if length != lengths[0] or length < 0:
            raise GatherError(f"{name} answered another number of elements than {names[0]}")
    return [_find_majority(names, votes) for votes in zip(*values, strict=True)]


def _vote(values: Sequence[Any]) -> Any:
    # Texts are counted, because objects have no hash. True and 1 are different answers.
    texts = [f"{type(value).__name__} {value!r}" for value in values]
    return values[texts.index(Counter(texts).most_common(1)[0][0])]


def _check_score(name: str, score: Any) -> float:
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise GatherError(f"the score of {name} is no number: {_shorten(score)}")
    return float(score)


def _to_list(array: Any) -> Any:
    return array.tolist()


def _shape_text(array: Numbers) -> str:
    return "one number" if not array.shape else " by ".join(str(it) for it in array.shape)


def _shorten(value: Any) -> str:
    return repr(value)[:80]


def settle(plan: GraphPlan, state: GraphState, ready: ReadyStep) -> None:
    """Run a step of Act.LOCAL."""
    step = plan.steps[ready.name]
    try:
        _settle(state, step)
    except (GraphExpressionError, GatherError) as error:
        fault = StepFault(step=step.name, reason=str(error), status=UNPROCESSABLE)
        state.outcomes[step.name] = apply_rule(step, fault)


def apply_rule(step: GraphStep, fault: StepFault) -> StepOutcome:
    """The outcome of a failed step, by its rule."""
    if step.on_error is OnError.FAIL:
        return StepOutcome(fault=fault)
    if step.on_error is OnError.DROP:
        return StepOutcome(is_dropped=True)
    return StepOutcome(value=step.default)


def find_input(plan: GraphPlan, state: GraphState, ready: ReadyStep) -> StepOutcome:
    """The input of a call, function or cache. Raises GraphExpressionError.

    An input that is a step's whole answer, or the request, has its body.
    """
    step = plan.steps[ready.name]
    if ready.item is not None:
        return StepOutcome(value=state.items[step.name][ready.item])
    if isinstance(step.action, GatherAction):
        return state.outcomes[step.action.of]
    if step.input.is_reference:
        return state.outcomes[step.input.text]
    return StepOutcome(value=step.input.value(state.scope(step.input.references)))


def to_case(value: Any) -> str:
    """The case of a switch that a value selects: the text itself, or the value's JSON."""
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
        _choose_case(state, step, action)
    elif isinstance(action, ScatterAction):
        found = {name: state.outcomes[name] for name in action.branches}
        state.outcomes[step.name] = _join_branches(step, found, action.at_least)
    elif isinstance(action, EachAction):
        _scatter_items(state, step, action)
    elif isinstance(action, GatherAction):
        scattered = state.outcomes[action.of]
        value = gather(action, scattered.branches, scattered.value)
        state.outcomes[step.name] = StepOutcome(value=value)
    else:
        assert isinstance(action, CascadeAction)
        _advance_cascade(state, step, action)


def _choose_case(state: GraphState, step: GraphStep, action: SwitchAction) -> None:
    case = to_case(action.by.value(state.scope(action.by.references)))
    chosen = action.cases.get(case, action.otherwise)
    if chosen is None:
        known = ", ".join(action.cases)
        raise GraphExpressionError(
            f"there is no case {case[:80]!r}, and no otherwise; cases: {known}"
        )
    state.choices[step.name] = chosen


def _scatter_items(state: GraphState, step: GraphStep, action: EachAction) -> None:
    """Note the items, or join them once each has an outcome."""
    items = state.items.get(step.name)
    if items is not None:
        keys = [item_key(step.name, number) for number in range(len(items))]
        found = {key: state.outcomes[key] for key in keys}
        state.outcomes[step.name] = _join_branches(step, found, min(action.at_least, len(items)))
        return
    value = action.each.value(state.scope(action.each.references))
    if not isinstance(value, list):
        raise GraphExpressionError(f"{action.each.text[:80]} is no list")
    if len(value) > MAX_ITEMS:
        raise GraphExpressionError(
            f"{action.each.text[:80]} has {len(value)} items; at most {MAX_ITEMS}"
        )
    state.items[step.name] = tuple(value)


def _join_branches(step: GraphStep, found: dict[str, StepOutcome], at_least: int) -> StepOutcome:
    kept = {name: outcome for name, outcome in found.items() if not outcome.is_dropped}
    if len(kept) < at_least:
        reason = f"{len(kept)} of {len(found)} branches answered; at least {at_least} must"
        fault = StepFault(step=step.name, reason=reason, status=FAILED_DEPENDENCY)
        return StepOutcome(fault=fault)
    return StepOutcome(value=[outcome.value for outcome in kept.values()], branches=tuple(kept))


def _advance_cascade(state: GraphState, step: GraphStep, action: CascadeAction) -> None:
    position = state.choices.get(step.name, 0)
    entry = action.entries[position]
    found = state.outcomes[entry.step]
    if not found.is_dropped and entry.enough is not None and _is_enough(entry.enough, found.value):
        state.outcomes[step.name] = found
    else:
        state.choices[step.name] = position + 1


def _is_enough(enough: GraphExpression, answer: Any) -> bool:
    value = enough.value(answer)
    if not isinstance(value, bool):
        raise GraphExpressionError(f"{enough.text[:80]} is {value!r:.80}, not true or false")
    return value
