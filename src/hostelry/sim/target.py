"""The number that policies change, and what is known when they do: a replay's scaler."""

from collections.abc import Sequence
from dataclasses import dataclass

from hostelry.domain.load import SecondLoad
from hostelry.scaling_policy import wake
from hostelry.scaling_policy.combine import CombinedDecision, Vote, Voter, combine
from hostelry.scaling_policy.decision import Capacity, Decision, LastAct, LastActs, Situation
from hostelry.scaling_policy.guard import TargetHealth, unless_vetoed, veto
from hostelry.sim.component import SimulatedComponent
from hostelry.sim.ledger import ReplayLedger, SimulatedAct

GUARD_WINDOW_S = 60
LOOK_BACK_S = 600
PROPOSAL_S = 30.0


@dataclass(slots=True, kw_only=True)
class Bounds:
    """MinCapacity and MaxCapacity."""

    minimum: int
    maximum: int


@dataclass(slots=True, kw_only=True)
class Floor:
    """What was proposed beside AWS's policies, and when: for a while it keeps capacity up."""

    vote: Vote
    at: float


class SimulatedTarget:
    """A component's number of copies.

    Args:
        component: whose number it is.
        bounds: within which it stays.
        ledger: where acts are noted.
        begins_at: the wall time of second 0; all instants here are wall times.
        pace: what divides cooldowns.
    """

    def __init__(
        self,
        component: SimulatedComponent,
        bounds: Bounds,
        ledger: ReplayLedger,
        begins_at: float,
        pace: float,
    ) -> None:
        self.component = component
        self.bounds = bounds
        self.at_once = 1.0
        self.scale_in_cooldown_s = 0.0
        self._ledger = ledger
        self._begins_at = begins_at
        self._pace = pace
        self._out: LastAct | None = None
        self._out_under_way = False
        self._in: LastAct | None = None
        self._woken: LastAct | None = None
        self._floor: Floor | None = None

    @property
    def capacity(self) -> Capacity:
        """The number now, and its bounds."""
        component = self.component
        return Capacity(
            desired=component.desired,
            serving=len(component.serving),
            minimum=self.bounds.minimum,
            maximum=self.bounds.maximum,
        )

    def situation(self, now: float) -> Situation:
        """What policies decide by; an act whose copies are still coming up counts as done now."""
        if self._out is not None and self._out_under_way:
            there = len(self.component.serving)
            self._out = LastAct(
                at=now, since_capacity=self._out.since_capacity, capacity=self._out.capacity
            )
            self._out_under_way = there < min(self._out.capacity, self.component.desired)
        acts = LastActs(scale_out=self._out, scale_in=self._in)
        return Situation(capacity=self.capacity, acts=acts, now=now, pace=self._pace)

    def decide(self, votes: Sequence[Vote], situation: Situation) -> None:
        """Do what the policies' votes come to, unless the target fares badly."""
        now, capacity = situation.now, situation.capacity
        outcome = combine([*votes, *self._floor_votes(now)], capacity)
        if outcome.decision.desired < capacity.desired:
            outcome = unless_vetoed(outcome, capacity, self._veto(outcome, now))
        self._conclude(outcome, now)

    def propose(self, by: str, decision: Decision, now: float) -> None:
        """Raise the number, and keep it up for a while."""
        vote = Vote(by=by, voter=Voter.PROPOSAL, decision=decision)
        self._floor = Floor(vote=vote, at=now)
        self._conclude(combine([vote], self.capacity), now)

    def set(self, by: str, desired: int, reason: str, now: float) -> None:
        """Have this number, within the bounds: what other systems' rules ask for."""
        wanted = Decision(desired=self.capacity.clamped(desired), reason=reason)
        self._conclude(CombinedDecision(decision=wanted, by=by), now)

    def settle(self, by: str, now: float) -> None:
        """Move the number inside bounds that have changed; no cooldown begins with it."""
        within = self.capacity.clamped(self.component.desired)
        if within != self.component.desired:
            acts = (self._out, self._in, self._out_under_way)
            self.set(by, within, f"the bounds are {self.bounds}", now)
            self._out, self._in, self._out_under_way = acts

    def wake(self, held: int, now: float) -> None:
        """Start copies for requests that wait."""
        loads = [it for it in self.component.loads if it.second >= now - LOOK_BACK_S]
        finished = sum(it.finished for it in loads)
        service_s = sum(it.service_s for it in loads) / finished if finished else None
        waiting = wake.Waiting(held=held, service_s=service_s, at_once=self.at_once)
        decision = wake.decide(waiting, self.capacity)
        before = self.component.desired
        self._conclude(CombinedDecision(decision=decision, by="wake"), now)
        if self.component.desired > before:
            self._woken = LastAct(at=now, since_capacity=before, capacity=decision.desired)

    def _floor_votes(self, now: float) -> list[Vote]:
        floor = self._floor
        return [floor.vote] if floor is not None and now - floor.at <= PROPOSAL_S else []

    def _veto(self, outcome: CombinedDecision, now: float) -> str | None:
        desired, cooldown_s = outcome.decision.desired, self.scale_in_cooldown_s
        awake = wake.keeps_awake(desired, self._woken, cooldown_s, self._pace, now)
        return veto(self._health(now)) or awake

    def _health(self, now: float) -> TargetHealth:
        loads = [it for it in self.component.loads if it.second >= now - GUARD_WINDOW_S]
        return TargetHealth(
            num_requests=sum(it.finished + it.no_capacity for it in loads),
            num_errors=sum(_failed(it) for it in loads),
            oldest_waiting_s=loads[-1].oldest_held_s if loads else 0.0,
        )

    def _conclude(self, outcome: CombinedDecision, now: float) -> None:
        component, desired = self.component, outcome.decision.desired
        before = component.desired
        if desired == before:
            return
        now_s = now - self._begins_at
        act = SimulatedAct(
            model=component.model,
            by=outcome.by,
            decided_s=now_s,
            from_copies=before,
            to_copies=desired,
            reason=outcome.decision.reason,
        )
        self._ledger.acts.append(act)
        if desired > before:
            replaced = self._out if self._out_under_way else None
            since = before if replaced is None else replaced.since_capacity
            self._out = LastAct(at=now, since_capacity=since, capacity=desired)
            self._out_under_way = True
        else:
            self._in = LastAct(at=now, since_capacity=before, capacity=desired)
            self._out_under_way = False
        component.want(desired, now_s)


def _failed(load: SecondLoad) -> int:
    return load.errors_5xx + load.broken_streams + load.no_capacity
