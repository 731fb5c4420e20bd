"""Plan and finished steps -> the steps that follow. Pure.

A step is run when the output needs it, directly or through others: the branches of a switch that
are not chosen, and the costly steps of a cascade whose cheap answer was enough, are never run.
"""

from dataclasses import dataclass

from hostelry.graph.state import Act, GraphState, ReadyStep, StepOutcome, item_key
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
    SwitchAction,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NextSteps:
    """The steps that can be carried out, also those under way already, or the call's result."""

    ready: tuple[ReadyStep, ...] = ()
    result: StepOutcome | None = None


def next_steps(plan: GraphPlan, state: GraphState) -> NextSteps:
    """The steps that follow `state`; the first fault is the result at once.

    A switch, and a cascade at its end, get the outcome of the step that they ran: it is noted.
    """
    for outcome in state.outcomes.values():
        if outcome.fault is not None:
            return NextSteps(result=outcome)
    walk = _Walk(plan, state)
    result = walk.needed(plan.output, is_last=True)
    return NextSteps(ready=tuple(walk.ready.values()), result=result)


class _Walk:
    """A walk from the output to the steps that are ready."""

    def __init__(self, plan: GraphPlan, state: GraphState) -> None:
        self._plan = plan
        self._state = state
        self.ready: dict[str, ReadyStep] = {}

    def needed(self, name: str, *, is_last: bool = False) -> StepOutcome | None:
        """The outcome of a step; where there is none yet, what it waits for becomes ready."""
        found = self._state.outcomes.get(name)
        if found is not None:
            return found
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
        is_there = self._all(
            step.branches if isinstance(action, ScatterAction) else step.references
        )
        if is_there:
            self._begin(step, _act_of(step), is_last=is_last)
        return None

    def _all(self, names: tuple[str, ...]) -> bool:
        """Whether all of these have outcomes; all of them are begun."""
        return all([self.needed(name) is not None for name in names])  # noqa: C419 - begin each

    def _begin(
        self, step: GraphStep, act: Act, item: int | None = None, *, is_last: bool = False
    ) -> None:
        ready = ReadyStep(name=step.name, act=act, item=item, is_last=is_last)
        before = self.ready.get(ready.key)
        # What two steps need is no last step for either.
        self.ready[ready.key] = ready if before is None or not ready.is_last else before

    def _switch(self, step: GraphStep, is_last: bool) -> StepOutcome | None:
        chosen = self._state.choices.get(step.name)
        if chosen is not None:
            return self._inherited(step, self.needed(chosen, is_last=is_last))
        if self._all(step.references):
            self._begin(step, Act.LOCAL)
        return None

    def _cascade(self, step: GraphStep, action: CascadeAction, is_last: bool) -> StepOutcome | None:
        entry = action.entries[self._state.choices.get(step.name, 0)]
        is_final = entry.enough is None
        found = self.needed(entry.step, is_last=is_last and is_final)
        if is_final:
            return self._inherited(step, found)
        if found is not None:
            self._begin(step, Act.LOCAL)
        return None

    def _inherited(self, step: GraphStep, found: StepOutcome | None) -> StepOutcome | None:
        """Note the outcome of the step that stands for this one as its own."""
        if found is not None:
            self._state.outcomes[step.name] = found
        return found

    def _cache(self, step: GraphStep, action: CacheAction) -> StepOutcome | None:
        if step.name in self._state.choices:
            if self.needed(action.of) is not None:
                self._begin(step, Act.STORE)
        elif self._all(step.references):
            self._begin(step, Act.LOOK_UP)
        return None

    def _each(self, step: GraphStep) -> StepOutcome | None:
        items = self._state.items.get(step.name)
        if items is None:
            if self._all(step.references):
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


def _act_of(step: GraphStep) -> Act:
    action = step.action
    if isinstance(action, CallAction):
        return Act.CALL
    if isinstance(action, FunctionAction):
        return Act.FUNCTION
    if isinstance(action, GatherAction) and action.function is not None:
        return Act.FUNCTION
    assert isinstance(action, MapAction | GatherAction | ScatterAction)
    return Act.LOCAL
