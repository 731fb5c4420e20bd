"""A component's desired number of copies in a replay, changed by the platform's own `decide`."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from hostelry.domain.load import Wake
from hostelry.domain.scaling import ScalableTarget, ScalingPolicy, ScheduledAction
from hostelry.scaling.decide.decide import (
    NO_ACTS,
    NO_TRIGGERS,
    TargetSnapshot,
    decide,
    get_look_back_s,
)
from hostelry.scaling.decide.decision import (
    PROPOSAL_S,
    WAKE,
    BoundsCheck,
    Capacity,
    Decision,
    LastAct,
    LastActs,
    Proposal,
    Request,
    Resource,
    Trigger,
)
from hostelry.scaling.decide.schedule import replace_bounds
from hostelry.sim.component import SimulatedComponent
from hostelry.sim.ledger import ReplayLedger, SimulatedAct
from hostelry.sim.policy_requests import SCOPE, PolicySet


class SimulatedTarget:
    """A component's number of copies. All instants here are wall times.

    Args:
        component: the component.
        policies: its policies and bounds.
        ledger: where acts are noted.
        begins_at: the wall time of second 0.
        pace: the divisor of cooldowns.
    """

    def __init__(
        self,
        component: SimulatedComponent,
        policies: PolicySet,
        ledger: ReplayLedger,
        begins_at: float,
        pace: float,
    ) -> None:
        self.component = component
        self._policies: Sequence[ScalingPolicy] = policies.policies
        self._target = ScalableTarget(
            scope=SCOPE,
            resource_id=f"inference-component/{component.key.component_name}",
            dimension=policies.dimension,
            arn="",
            min_capacity=policies.minimum,
            max_capacity=policies.maximum,
            role_arn="",
            created_at=begins_at,
        )
        self._ledger = ledger
        self._begins_at = begins_at
        self._pace = pace
        self._out: LastAct | None = None
        self._out_under_way = False
        self._in: LastAct | None = None
        self._woken: LastAct | None = None
        self._proposal: Proposal | None = None

    @property
    def capacity(self) -> Capacity:
        """The number now, and its bounds."""
        return self._resource.capacity(self._target)

    def trigger(self, trigger: Trigger, standing: Mapping[str, Trigger], now: float) -> None:
        """Handle an alarm's trigger. `standing` has the triggers of other policies by ARN."""
        self._handle(trigger, now, standing)

    def propose(self, by: str, decision: Decision, now: float, *, may_lower: bool = False) -> None:
        """Raise the number, and keep it up for a while. Or lower it if the proposal may."""
        proposal = Proposal(
            scope=SCOPE,
            resource_id=self._target.resource_id,
            dimension=self._target.dimension,
            by=by,
            decision=decision,
            load_rose_at=None,
            at=now,
            may_lower=may_lower,
        )
        self._proposal = proposal
        self._handle(proposal, now)

    def wake(self, held: int, now: float) -> None:
        """Start copies for requests that wait."""
        self._handle(Wake(key=self.component.key, held=held, at=now), now)

    def fire(self, action: ScheduledAction, now: float) -> None:
        """Set the bounds of a scheduled action. No cooldown begins with a change for them."""
        self._target = replace_bounds(self._target, action)
        acts = (self._out, self._in, self._out_under_way)
        self._handle(BoundsCheck(), now, by=action.name)
        self._out, self._in, self._out_under_way = acts

    def set(self, by: str, desired: int, reason: str, now: float) -> None:
        """Have this number, within the bounds: what other systems' rules ask for."""
        decision = Decision(desired=self.capacity.clamp(desired), reason=reason)
        self._change(by, decision, now)

    @property
    def is_at_minimum(self) -> bool:
        """Whether nothing can lower the number, and nothing is on its way up."""
        is_least = self.component.desired <= self._target.min_capacity
        return is_least and not self._out_under_way and self._proposal is None

    @property
    def _resource(self) -> Resource:
        component = self.component
        return Resource(
            keys=(component.key,),
            desired=component.desired,
            serving=len(component.serving),
            status="InService",
            is_settled=True,
            may_grow=True,
            is_ending=False,
        )

    def _handle(
        self,
        request: Request,
        now: float,
        standing: Mapping[str, Trigger] = NO_TRIGGERS,
        by: str | None = None,
    ) -> None:
        """Load, decide, act, as the platform's scaler does."""
        proposal = self._proposal
        is_recent = proposal is not None and now - proposal.at <= PROPOSAL_S
        known = TargetSnapshot(
            target=self._target,
            resource=self._resource,
            policies=self._policies,
            standing=standing,
            proposal=proposal if is_recent else None,
            acts=self._acts(now) if isinstance(request, Trigger) else NO_ACTS,
            woken=self._woken,
            pace=self._pace,
        )
        since = now - get_look_back_s(known, request, now)
        known = replace(known, seconds=[it for it in self.component.loads if it.second >= since])
        plan = decide(known, request, now)
        if plan.decision is not None:
            self._change(by or plan.cause.by, plan.decision, now)

    def _acts(self, now: float) -> LastActs:
        """The last acts. An act whose copies are still coming up counts as done now."""
        if self._out is not None and self._out_under_way:
            self._out = replace(self._out, at=now)
            there = len(self.component.serving)
            self._out_under_way = there < min(self._out.capacity, self.component.desired)
        return LastActs(scale_out=self._out, scale_in=self._in)

    def _change(self, by: str, decision: Decision, now: float) -> None:
        component, desired = self.component, decision.desired
        before = component.desired
        if desired == before:
            return
        now_s = now - self._begins_at
        act = SimulatedAct(
            model=component.model,
            by=by,
            decided_s=now_s,
            from_copies=before,
            to_copies=desired,
            reason=decision.reason,
        )
        self._ledger.acts.append(act)
        if by == WAKE:
            self._woken = LastAct(at=now, since_capacity=before, capacity=desired)
        if desired > before:
            replaced = self._out if self._out_under_way else None
            since = before if replaced is None else replaced.since_capacity
            self._out = LastAct(at=now, since_capacity=since, capacity=desired)
            self._out_under_way = True
        else:
            self._in = LastAct(at=now, since_capacity=before, capacity=desired)
            self._out_under_way = False
        component.want(desired, now_s)
