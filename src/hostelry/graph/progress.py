"""The state of one call of a graph, and the steps that follow from plan and state. Pure.

A step runs only if the output needs it, directly or through other steps. The branches of a switch
that are not chosen, and the costly steps of a cascade with a sufficient cheap answer, never run.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import msgspec

from hostelry.graph.steps import (
    CacheAction,
    CallAction,
    CascadeAction,
    EachAction,
    FunctionAction,
    GatherAction,
    GraphPlan,
    GraphStep,
    MapAction,
    ScatterAction,
    StepFault,
    SwitchAction,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """The end of a step: a value, a failure of the whole call, or no value (`is_dropped`).

    `body` and `content_type` are the value as a target sent it. `branches` are the names of the
    answers in a scatter's list. With `is_streamed` the answer has been sent to the client.
    """

    value: Any = None
    fault: StepFault | None = None
    is_dropped: bool = False
    body: bytes | None = field(default=None, repr=False)
    content_type: str = ""
    branches: tuple[str, ...] = ()
    is_streamed: bool = False


class Act(Enum):
    """The resource that a ready step needs."""

    CALL = "call"  # its target
    FUNCTION = "function"  # a function of the archive
    LOCAL = "local"  # `settle`
    LOOK_UP = "look up"  # its cache, by its input
    STORE = "store"  # its cache


class ReadyStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step, or the call of one of its items, that can run now.

    With `is_last` its answer is the answer of the whole call.
    """

    name: str
    act: Act
    item: int | None = None
    is_last: bool = False

    @property
    def key(self) -> str:
        """The name in `GraphState.outcomes`."""
        return self.name if self.item is None else item_key(self.name, self.item)


class GraphState(msgspec.Struct):
    """The state of one call, at first with the request only.

    `choices` has the chosen step of a switch, the position of a cascade, and the missing key of a
    cache. `items` has the items of a scatter over a list.
    """

    outcomes: dict[str, StepOutcome]
    choices: dict[str, Any] = msgspec.field(default_factory=dict)
    items: dict[str, tuple[Any, ...]] = msgspec.field(default_factory=dict)

    def scope(self, names: Mapping[str, Any] | tuple[str, ...]) -> dict[str, Any]:
        """The values of the steps. None for a dropped step."""
        return {name: self.outcomes[name].value for name in names}


def item_key(name: str, item: int) -> str:
    """The name of one item of a step."""
    return f"{name}[{item}]"


class NextSteps(msgspec.Struct, frozen=True, kw_only=True):
    """The steps that can run, including those that already run, or the call's result."""

    ready: tuple[ReadyStep, ...] = ()
    result: StepOutcome | None = None


def next_steps(plan: GraphPlan, state: GraphState) -> NextSteps:
    """Find the steps that follow `state`. The first fault is the result at once.

    A switch, or a cascade at its last step, takes over the outcome of the chosen step. This outcome
    is noted in `state`.
    """
    for outcome in state.outcomes.values():
        if outcome.fault is not None:
            return NextSteps(result=outcome)
    walk = _Walk(plan, state)
    result = walk.require(plan.output, is_last=True)
    return NextSteps(ready=tuple(walk.ready.values()), result=result)


class _Walk:
    """A walk from the output to the steps that are ready."""

    def __init__(self, plan: GraphPlan, state: GraphState) -> None:
        self._plan = plan
        self._state = state
        self.ready: dict[str, ReadyStep] = {}

    def require(self, name: str, *, is_last: bool = False) -> StepOutcome | None:
        """The outcome of a step. If it has none, the step or its needs become ready."""
        outcome = self._state.outcomes.get(name)
        if outcome is not None:
            return outcome
        step = self._plan.steps[name]
        action = step.action
        if isinstance(action, SwitchAction):
            return self._switch(step, is_last)
        if isinstance(action, CascadeAction):
            return self._cascade(step, action, is_last)
        if isinstance(action, CacheAction):
            return self._cache(step, action)
        if isinstance(action, EachAction):
            return self._each(step)
        is_there = self._require_all(
            step.branches if isinstance(action, ScatterAction) else step.references
        )
        if is_there:
            self._begin(step, _choose_act(step), is_last=is_last)
        return None

    def _require_all(self, names: tuple[str, ...]) -> bool:
        """Require all of these. True if all have outcomes."""
        return all([self.require(name) is not None for name in names])  # noqa: C419 - require each

    def _begin(
        self, step: GraphStep, act: Act, item: int | None = None, *, is_last: bool = False
    ) -> None:
        ready = ReadyStep(name=step.name, act=act, item=item, is_last=is_last)
        before = self.ready.get(ready.key)
        # A step that two steps need is not the last step for either.
        self.ready[ready.key] = ready if before is None or not ready.is_last else before

    def _switch(self, step: GraphStep, is_last: bool) -> StepOutcome | None:
        chosen = self._state.choices.get(step.name)
        if chosen is not None:
            return self._inherit(step, self.require(chosen, is_last=is_last))
        if self._require_all(step.references):
            self._begin(step, Act.LOCAL)
        return None

    def _cascade(self, step: GraphStep, action: CascadeAction, is_last: bool) -> StepOutcome | None:
        entry = action.entries[self._state.choices.get(step.name, 0)]
        is_final = entry.enough is None
        found = self.require(entry.step, is_last=is_last and is_final)
        if is_final:
            return self._inherit(step, found)
        if found is not None:
            self._begin(step, Act.LOCAL)
        return None

    def _inherit(self, step: GraphStep, found: StepOutcome | None) -> StepOutcome | None:
        """Note the outcome of the chosen step as the step's own."""
        if found is not None:
            self._state.outcomes[step.name] = found
        return found

    def _cache(self, step: GraphStep, action: CacheAction) -> StepOutcome | None:
        if step.name in self._state.choices:
            if self.require(action.of) is not None:
                self._begin(step, Act.STORE)
        elif self._require_all(step.references):
            self._begin(step, Act.LOOK_UP)
        return None

    def _each(self, step: GraphStep) -> StepOutcome | None:
        items = self._state.items.get(step.name)
        if items is None:
            if self._require_all(step.references):
                self._begin(step, Act.LOCAL)
            return None
        missing = [
            number
            for number in range(len(items))
            if item_key(step.name, number) not in self._state.outcomes
        ]
        for number in missing:
            self._begin(step, Act.CALL, number)
        if not missing:
            self._begin(step, Act.LOCAL)
        return None


def _choose_act(step: GraphStep) -> Act:
    action = step.action
    if isinstance(action, CallAction):
        return Act.CALL
    if isinstance(action, FunctionAction):
        return Act.FUNCTION
    if isinstance(action, GatherAction) and action.function is not None:
        return Act.FUNCTION
    assert isinstance(action, MapAction | GatherAction | ScatterAction)
    return Act.LOCAL
