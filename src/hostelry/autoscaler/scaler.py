"""The scaler: lets policies decide with all that is known of a target, and does it.

One decision at a time for a target, on whatever thread it is asked for. What cannot be done now is
kept and tried again when the resource has settled; `tick` sees to that, and to acts under way.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from hostelry.autoscaler import activity_texts
from hostelry.autoscaler.activities import ActivityBook, place_of
from hostelry.autoscaler.activity_tracker import ActivityTracker
from hostelry.autoscaler.capacity import Capacities, RefuseFewer, Resource, component_id
from hostelry.autoscaler.last_acts import WAKE, last_acts, last_wake
from hostelry.autoscaler.loads import (
    LOOK_BACK_S,
    WINDOW_S,
    Crashes,
    LoadReader,
    added_up,
    health_of,
    is_over,
    mean_service_s,
    rose_at,
)
from hostelry.autoscaler.policy_votes import PolicyVotes
from hostelry.autoscaler.protocol import Proposal, Trigger
from hostelry.autoscaler.scaling_executor import Ask, ScalingExecutor
from hostelry.base.clock import Clock
from hostelry.base.errors import RetryableError
from hostelry.base.ids import new_request_id
from hostelry.domain.alarm import AlarmState
from hostelry.domain.at_zero import Wakeable
from hostelry.domain.load import Wake
from hostelry.domain.scaling import (
    ActivityStatus,
    Dimension,
    ScalableTarget,
    ScalingActivity,
    ScalingPolicy,
    TargetTracking,
    target_name,
)
from hostelry.domain.scope import Scope
from hostelry.scaling_policy import wake as waking
from hostelry.scaling_policy.combine import CombinedDecision, Vote, Voter, combine, unless_suspended
from hostelry.scaling_policy.decision import Decision, Situation
from hostelry.scaling_policy.guard import unless_vetoed, veto
from hostelry.store.records import State

LOG = logging.getLogger(__name__)
WAKE_RETRY_S = 60.0
MAX_RETRIES = 1000

Place = tuple[Scope, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalerDeps:
    """What the scaler works with; `steady` never jumps, and `pace` divides cooldowns."""

    state: State
    loads: LoadReader
    clock: Clock
    steady: Clock
    refuse_fewer: RefuseFewer
    pace: float = 1.0
    new_id: Callable[[], str] = new_request_id


@dataclass(frozen=True, slots=True, kw_only=True)
class LastDecision:
    """What was decided last for a target, and when, also where nothing was changed."""

    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """What could not be done, to be tried again; `still` says whether it is still wanted."""

    attempt: Callable[[], None]
    still: Callable[[], bool]


class TargetScaler:
    """`Scaler` over the records of a store; the only one in the process that sets numbers."""

    def __init__(self, deps: ScalerDeps) -> None:
        self._deps = deps
        self._state = deps.state
        self.book = ActivityBook(deps.state)
        self.capacities = Capacities(deps.state, deps.refuse_fewer)
        self._executor = ScalingExecutor(self.book, self.capacities, deps.clock, deps.new_id)
        self._tracker = ActivityTracker(self.book, self.capacities, deps.loads, self._executor)
        self._votes = PolicyVotes(deps.state)
        self._crashes = Crashes()
        self._lock = threading.Lock()
        self._turns: dict[Place, threading.Lock] = {}
        self._retries: dict[tuple[Place, str], Retry] = {}  # by whom they were asked for
        self._said: dict[Place, LastDecision] = {}
        self._unsettled: set[Place] = set()

    def recover(self) -> None:
        """Finish what a predecessor began, and move inside their bounds what is outside of them."""
        for activity in self.book.every():
            with self._turn(place_of(activity)):
                self._take_up(activity)
        self.settle_all()

    def trigger(self, trigger: Trigger) -> None:
        """Let the policy decide, with what else is known of its target, and do it."""
        policies = [it.value for it in self._state.scaling_policies.list(trigger.scope)]
        policy = next((it for it in policies if it.arn == trigger.policy_arn), None)
        if policy is None or trigger.state is not AlarmState.ALARM:
            return
        self._votes.record(trigger)
        beside = [
            it
            for it in policies
            if (it.resource_id, it.dimension) == (policy.resource_id, policy.dimension)
        ]
        ask = Ask(cause=activity_texts.by_alarm(trigger.alarm_name, policy.name), by=policy.name)
        again = Retry(
            attempt=lambda: self.trigger(replace(trigger, at=self._deps.clock.now())),
            still=lambda: self._lasts(trigger),
        )
        with self._at(trigger.scope, policy.resource_id, policy.dimension, ask) as (target, found):
            if target is None or found is None:
                return
            situation = self._situation(target, found)
            votes = self._votes.votes(beside, trigger, situation)
            votes += self._votes.floor(target, situation.capacity, self._deps.steady.now())
            outcome = self._guarded(combine(votes, situation.capacity), target, found, policy)
            rose = self._rose_at(policy, trigger, found, outcome.decision)
            self._conclude(target, found, outcome, replace(ask, load_rose_at=rose), again)

    def propose(self, proposal: Proposal) -> None:
        """Raise the target's capacity, and keep it up for as long as that is proposed again.

        It is lowered only where the proposal says so and no target-tracking policy sees to that.
        """
        steady_now = self._deps.steady.now()
        self._votes.record_proposal(proposal, steady_now)
        ask = Ask(
            cause=f"{proposal.by}: {proposal.decision.reason}"[: activity_texts.MAX_MESSAGE_CHARS],
            by=proposal.by,
            load_rose_at=proposal.load_rose_at,
        )
        place = (proposal.scope, proposal.resource_id, proposal.dimension)
        with self._at(*place, ask) as (target, found):
            if target is None or found is None:
                return
            capacity = found.capacity(target)
            wanted = replace(proposal.decision, desired=capacity.clamped(proposal.decision.desired))
            outcome = CombinedDecision(decision=wanted, by=proposal.by)
            if not proposal.may_lower or self._tracking(target):
                vote = Vote(by=proposal.by, voter=Voter.PROPOSAL, decision=wanted)
                outcome = combine([vote], capacity)
            outcome = self._guarded(outcome, target, found, None)
            self._conclude(target, found, outcome, ask, self._soon(lambda: self.propose(proposal)))

    def wake(self, wake: Wake) -> None:
        """Give a name without a copy its first one, at once."""
        name = self._base_of(wake)
        if name is None:
            return
        ask = Ask(
            cause=(
                f"{activity_texts.requests(wake.held)} waited for a copy of inference component "
                f"{name}"
            ),
            by=WAKE,
            load_rose_at=wake.at,
        )
        with self._at(wake.key.scope, component_id(name), Dimension.COPIES, ask) as (target, found):
            if target is None or found is None or waking.wakeable(target) is not Wakeable.YES:
                return
            capacity = found.capacity(target)
            decision = waking.decide(self._waiting(wake, target, found), capacity)
            outcome = CombinedDecision(decision=decision, by=WAKE)
            self._conclude(target, found, outcome, ask, self._soon(lambda: self.wake(wake)))

    def settle(self, scope: Scope, name: str) -> None:
        """Move a target's number inside its bounds; no cooldown and no suspension holds that up.

        What cannot be done now is, as soon as it can.
        """
        self._unsettled.discard((scope, name))
        stored = self._state.scalable_targets.get(scope, name)
        if stored is None:
            return
        target = stored.value
        ask = Ask(cause="bounds were set", by="")
        with self._at(scope, target.resource_id, target.dimension, ask) as (known, found):
            if known is None or found is None:
                return
            capacity = found.capacity(known)
            within = capacity.clamped(capacity.desired)
            if within == capacity.desired:
                return
            bound = Ask(cause=activity_texts.by_bound(known, capacity.desired), by="")
            decision = Decision(desired=within, reason=f"{bound.cause}.")
            self._said[scope, name] = LastDecision(at=self._deps.clock.now(), text=decision.reason)
            if not self._executor.do(known, found, decision, bound):
                self._unsettled.add((scope, name))

    def settle_all(self) -> None:
        """Move every target's number inside its bounds."""
        for stored in self._state.scalable_targets.list():
            target = stored.value
            self.settle(target.scope, target_name(target.resource_id, target.dimension))

    def tell_bounds(self, target: ScalableTarget, action_name: str) -> None:
        """Tell of bounds that a scheduled action set, and move the number inside."""
        self._executor.tell_bounds(
            target, Ask(cause=activity_texts.by_schedule(action_name), by=action_name)
        )
        self.settle(target.scope, target_name(target.resource_id, target.dimension))

    def tick(self) -> None:
        """Look at everything under way; to be called about once a second, by one thread."""
        now, steady_now = self._deps.clock.now(), self._deps.steady.now()
        self._crashes.see((it.value for it in self._state.copies.list()), steady_now)
        for activity in self.book.open_ones():
            with self._turn(place_of(activity)):
                present = self.book.present(activity)
                # Whoever writes an activity holds the turn: a pending one was left by a failure.
                self._take_up(present)
                self._tracker.look(self.book.present(present), now, steady_now)
        self.book.close_those(lambda it: not self._tracker.is_open(it, now, steady_now))
        self._try_again()

    def said(self, target: ScalableTarget) -> LastDecision | None:
        """What was decided last for a target since this process began."""
        return self._said.get((target.scope, target_name(target.resource_id, target.dimension)))

    def _take_up(self, activity: ScalingActivity) -> None:
        """Finish a decision that was not carried out to its end."""
        if activity.status is not ActivityStatus.PENDING:
            return
        stored = self._state.scalable_targets.get(*place_of(activity))
        found = self.capacities.find(activity.scope, activity.resource_id, activity.dimension)
        self._executor.recover(None if stored is None else stored.value, found, activity)

    def _conclude(
        self,
        target: ScalableTarget,
        found: Resource,
        outcome: CombinedDecision,
        ask: Ask,
        again: Retry,
    ) -> None:
        """Do what was decided, or tell why nothing is."""
        place = (target.scope, target_name(target.resource_id, target.dimension))
        decision = outcome.decision
        self._said[place] = LastDecision(at=self._deps.clock.now(), text=decision.reason)
        self._retries.pop((place, ask.by), None)
        if decision.desired == found.desired:
            if decision.not_scaled:
                self._executor.refuse(
                    target, found.desired, decision.not_scaled, ask, decision.reason
                )
            return
        asked = ask if outcome.by in ("", ask.by) else replace(ask, by=outcome.by)
        if (
            not self._executor.do(target, found, decision, asked)
            and len(self._retries) < MAX_RETRIES
        ):
            self._retries[place, ask.by] = again

    @contextmanager
    def _at(
        self, scope: Scope, resource_id: str, dimension: Dimension, ask: Ask
    ) -> Iterator[tuple[ScalableTarget | None, Resource | None]]:
        """The target, and what its number belongs to, for a decision that nobody else makes now."""
        place = (scope, target_name(resource_id, dimension))
        with self._turn(place):
            stored = self._state.scalable_targets.get(*place)
            if stored is None:
                yield None, None
                return
            found = self.capacities.find(scope, resource_id, dimension)
            if found is None or found.is_ending:
                self._executor.tell_gone(stored.value, found, ask)
                yield stored.value, None
                return
            yield stored.value, found

    @contextmanager
    def _turn(self, place: Place) -> Iterator[None]:
        with self._lock:
            turn = self._turns.setdefault(place, threading.Lock())
        with turn:
            yield

    def _situation(self, target: ScalableTarget, found: Resource) -> Situation:
        now = self._deps.clock.now()
        mine = self.book.of(target.scope, target.resource_id, target.dimension)
        return Situation(
            capacity=found.capacity(target),
            acts=last_acts(mine, now),
            now=now,
            pace=self._deps.pace,
        )

    def _guarded(
        self,
        outcome: CombinedDecision,
        target: ScalableTarget,
        found: Resource,
        policy: ScalingPolicy | None,
    ) -> CombinedDecision:
        """`outcome`, unless the target fares badly, was woken a short time ago or is suspended."""
        capacity = found.capacity(target)
        if outcome.decision.desired < capacity.desired:
            reason = self._veto(found) or self._awake(outcome, target, policy)
            outcome = unless_vetoed(outcome, capacity, reason)
        return unless_suspended(outcome, capacity, target.suspended)

    def _veto(self, found: Resource) -> str | None:
        now = self._deps.clock.now()
        seconds = added_up(self._deps.loads, found.keys, now - WINDOW_S)
        return veto(health_of(seconds, self._crashes.among(found.keys)))

    def _awake(
        self, outcome: CombinedDecision, target: ScalableTarget, policy: ScalingPolicy | None
    ) -> str | None:
        now = self._deps.clock.now()
        mine = self.book.of(target.scope, target.resource_id, target.dimension)
        cooldown_s = 0.0
        if policy is not None and policy.tracking is not None:
            cooldown_s = policy.tracking.scale_in_cooldown_s
        elif policy is not None and policy.stepping is not None:
            cooldown_s = policy.stepping.cooldown_s
        return waking.keeps_awake(
            outcome.decision.desired, last_wake(mine, now), cooldown_s, self._deps.pace, now
        )

    def _rose_at(
        self, policy: ScalingPolicy, trigger: Trigger, found: Resource, decision: Decision
    ) -> float | None:
        """When the load left what the capacity carries; the first value over it, if none tells."""
        if decision.desired <= found.desired:
            return None
        tracking = policy.tracking
        over = is_over(
            None if tracking is None else tracking.predefined,
            trigger.threshold if tracking is None else tracking.target_value,
            found.serving,
        )
        now = self._deps.clock.now()
        since = rose_at(added_up(self._deps.loads, found.keys, now - LOOK_BACK_S), over)
        if since is not None:
            return since
        first: float | None = None
        for point in reversed(trigger.values):
            if not point.value >= trigger.threshold:
                break
            first = point.at
        return first

    def _waiting(self, wake: Wake, target: ScalableTarget, found: Resource) -> waking.Waiting:
        now = self._deps.clock.now()
        seconds = added_up(self._deps.loads, found.keys, now - LOOK_BACK_S)
        at_once = max(
            (
                it.target_value
                for it in self._tracking(target)
                if "ConcurrentRequests" in (it.predefined or "")
            ),
            default=1.0,
        )
        return waking.Waiting(held=wake.held, service_s=mean_service_s(seconds), at_once=at_once)

    def _tracking(self, target: ScalableTarget) -> list[TargetTracking]:
        every = (it.value for it in self._state.scaling_policies.list(target.scope))
        place = (target.resource_id, target.dimension)
        mine = [it for it in every if (it.resource_id, it.dimension) == place]
        return [it.tracking for it in mine if it.tracking is not None]

    def _base_of(self, wake: Wake) -> str | None:
        """The component whose copies answer for what was woken: its base, for an adapter."""
        if wake.key.component_name is None:
            return None
        stored = self._state.components.get(wake.key.scope, wake.key.component_name)
        if stored is None:
            return None
        adapter = stored.value.adapter
        return stored.value.name if adapter is None else adapter.base_name

    def _lasts(self, trigger: Trigger) -> bool:
        stored = self._state.metric_alarms.get(trigger.scope, trigger.alarm_name)
        return stored is not None and stored.value.status.state is AlarmState.ALARM

    def _soon(self, attempt: Callable[[], None]) -> Retry:
        until = self._deps.steady.now() + WAKE_RETRY_S
        return Retry(attempt=attempt, still=lambda: self._deps.steady.now() < until)

    def _try_again(self) -> None:
        for scope, name in list(self._unsettled):
            self.settle(scope, name)
        for key, retry in list(self._retries.items()):
            (scope, name), _ = key
            stored = self._state.scalable_targets.get(scope, name)
            if stored is None or not retry.still():
                self._retries.pop(key, None)
                continue
            target = stored.value
            found = self.capacities.find(target.scope, target.resource_id, target.dimension)
            if found is None or found.is_settled or found.may_grow:
                self._retries.pop(key, None)  # it comes back where it still cannot be done
                try:
                    retry.attempt()
                except RetryableError as error:
                    LOG.info("%s: will be tried again: %s", name, error)
