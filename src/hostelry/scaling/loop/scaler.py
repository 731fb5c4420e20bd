"""The scaler: for each request it loads a snapshot of the target, decides, and acts.

One request at a time for a target, on the caller's thread. A request that cannot be carried out now
is kept and handled again once the resource has settled. `tick` does that, and follows acts under
way.
"""

import logging
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import msgspec
from msgspec.structs import replace

from hostelry.base.clock import Clock
from hostelry.base.errors import RetryableError
from hostelry.base.ids import new_request_id
from hostelry.domain.alarm import AlarmState
from hostelry.domain.load import Wake
from hostelry.domain.scaling import (
    ActivityStatus,
    Dimension,
    ScalableTarget,
    ScalingActivity,
    ScalingPolicy,
    target_name,
)
from hostelry.domain.scope import Scope
from hostelry.scaling.decide.decide import (
    PlannedAction,
    ScalingPlan,
    TargetSnapshot,
    decide,
    get_look_back_s,
)
from hostelry.scaling.decide.decision import (
    PROPOSAL_S,
    WAKE,
    BoundsCheck,
    Proposal,
    Request,
    Trigger,
    find_last_acts,
    find_last_wake,
)
from hostelry.scaling.decide.tracking_alarms import AlarmSide, find_alarm_side
from hostelry.scaling.loop.activities import ActivityBook, get_place
from hostelry.scaling.loop.capacity import Capacities, RefuseFewer, build_component_id
from hostelry.scaling.loop.loads import Crashes, LoadReader, RecentShifts, add_loads
from hostelry.scaling.loop.scaling_executor import ActivityTracker, ScalingExecutor
from hostelry.store.records import State

LOG = logging.getLogger(__name__)


class Scaler(Protocol):
    """The only component that changes capacity by itself: decides, records the activity, acts.

    Thread-safe. Requests for one target are handled one after the other. No method raises for a
    user's mistake: an activity records the failure.
    """

    def trigger(self, trigger: Trigger) -> None:
        """Let the triggered policy decide, together with the target's other policies, and act."""
        ...

    def propose(self, proposal: Proposal) -> None:
        """Raise the target's capacity, never below what AWS's policies ask for."""
        ...

    def wake(self, wake: Wake) -> None:
        """Start the first copies of a name that has none, at once."""
        ...


MAX_TRIGGERS = 10_000

AlarmKey = tuple[str, str]  # the policy's ARN, the alarm's name


class TimedProposal(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal that was made at `at`, by a clock that never jumps."""

    proposal: Proposal
    at: float


class RecentRequests:
    """The newest triggers and proposals, kept in memory only. Thread-safe.

    After a restart, an alarm that lasts triggers again within a minute. Until then a policy whose
    trigger is not known votes against scaling in.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._lock = threading.Lock()
        self._triggers: dict[AlarmKey, Trigger] = {}
        self._proposals: dict[tuple[object, ...], TimedProposal] = {}

    def record(self, trigger: Trigger) -> None:
        """Remember the newest trigger of an alarm."""
        with self._lock:
            self._triggers.pop((trigger.policy_arn, trigger.alarm_name), None)
            self._triggers[trigger.policy_arn, trigger.alarm_name] = trigger
            if len(self._triggers) > MAX_TRIGGERS:
                del self._triggers[next(iter(self._triggers))]

    def record_proposal(self, proposal: Proposal, steady_now: float) -> None:
        """Remember the newest proposal for a target."""
        place = (proposal.scope, proposal.resource_id, proposal.dimension)
        with self._lock:
            self._proposals[place] = TimedProposal(proposal=proposal, at=steady_now)
            known = self._proposals.items()
            self._proposals = {at: it for at, it in known if steady_now - it.at <= PROPOSAL_S}

    def standing(self, policies: Sequence[ScalingPolicy]) -> Mapping[str, Trigger]:
        """By ARN of a target-tracking policy: the trigger of its alarm that is in ALARM now.

        AlarmHigh goes before AlarmLow.
        """
        tracking = (it for it in policies if it.tracking is not None)
        found = {
            policy.arn: self._build_alarm_trigger(policy, AlarmSide.HIGH)
            or self._build_alarm_trigger(policy, AlarmSide.LOW)
            for policy in tracking
        }
        return {arn: trigger for arn, trigger in found.items() if trigger is not None}

    def proposal(
        self, target: ScalableTarget, steady_now: float, since: float = -math.inf
    ) -> Proposal | None:
        """The proposal, not older than `since`, that keeps a target's capacity up now."""
        with self._lock:
            known = self._proposals.get((target.scope, target.resource_id, target.dimension))
        if known is None or steady_now - known.at > PROPOSAL_S or known.at < since:
            return None
        return known.proposal

    def _build_alarm_trigger(self, policy: ScalingPolicy, side: AlarmSide) -> Trigger | None:
        for name in policy.alarm_names:
            if find_alarm_side(name) is not side:
                continue
            stored = self._state.metric_alarms.get(policy.scope, name)
            if stored is not None and stored.value.status.state is AlarmState.ALARM:
                with self._lock:
                    return self._triggers.get((policy.arn, name))
        return None


WAKE_RETRY_S = 60.0
MAX_RETRIES = 1000

Place = tuple[Scope, str]
NO_POLICIES: Sequence[ScalingPolicy] = ()


class ScalerDeps(msgspec.Struct, frozen=True, kw_only=True):
    """Dependencies of the scaler. `steady` never jumps, and `pace` divides cooldowns."""

    state: State
    aggregator: LoadReader
    clock: Clock
    steady: Clock
    refuse_fewer: RefuseFewer
    pace: float = 1.0
    new_id: Callable[[], str] = new_request_id


class LastDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The last decision for a target and its time, even if nothing was changed."""

    at: float
    text: str


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is handled again, by `attempt`, while `is_desired` is true.

    Of several requests `by` one policy for one target, the newest is kept.
    """

    by: str
    attempt: Callable[[], None]
    is_desired: Callable[[], bool]


class TargetScaler:
    """`Scaler` over the records of a store. Nothing else in the process sets capacity."""

    def __init__(self, deps: ScalerDeps) -> None:
        self._deps = deps
        self._state = deps.state
        self.book = ActivityBook(deps.state)
        self.capacities = Capacities(deps.state, deps.refuse_fewer)
        self._executor = ScalingExecutor(self.book, self.capacities, deps.clock, deps.new_id)
        self._tracker = ActivityTracker(self.book, self.capacities, deps.aggregator, self._executor)
        self._recent = RecentRequests(deps.state)
        self._crashes = Crashes()
        self._shifts = RecentShifts()
        self._lock = threading.Lock()
        self._target_locks: dict[Place, threading.Lock] = {}
        self._retries: dict[tuple[Place, str], Retry] = {}
        self._last: dict[Place, LastDecision] = {}
        self._unsettled: set[Place] = set()

    def recover(self) -> None:
        """Finish the acts of a predecessor, and move capacity inside its bounds."""
        for activity in self.book.every():
            with self._one_at_a_time(get_place(activity)):
                self._recover(activity)
        self.settle_all()

    def trigger(self, trigger: Trigger) -> None:
        """Let the triggered policy decide, together with the target's other policies, and act."""
        policies = [it.value for it in self._state.scaling_policies.list(trigger.scope)]
        policy = next((it for it in policies if it.arn == trigger.policy_arn), None)
        if policy is None or trigger.state is not AlarmState.ALARM:
            return
        self._recent.record(trigger)
        retry = Retry(
            by=policy.name,
            attempt=lambda: self.trigger(replace(trigger, at=self._deps.clock.now())),
            is_desired=lambda: self._lasts(trigger),
        )
        own = _select_policies(policies, policy.resource_id, policy.dimension)
        place = (trigger.scope, target_name(policy.resource_id, policy.dimension))
        self._handle(place, trigger, own, retry)

    def propose(self, proposal: Proposal) -> None:
        """Raise the target's capacity, and keep it up for as long as that is proposed again.

        It is lowered only where the proposal says so and no target-tracking policy scales in.
        """
        self._recent.record_proposal(proposal, self._deps.steady.now())
        retry = self._soon(proposal.by, lambda: self.propose(proposal))
        self._request(proposal.scope, proposal.resource_id, proposal.dimension, proposal, retry)

    def wake(self, wake: Wake) -> None:
        """Start the first copies of a name that has none, at once."""
        name = self._find_base(wake)
        if name is not None:
            retry = self._soon(WAKE, lambda: self.wake(wake))
            self._request(wake.key.scope, build_component_id(name), Dimension.COPIES, wake, retry)

    def settle(self, scope: Scope, name: str) -> None:
        """Move a target's capacity inside its bounds, at once or when its resource can take that.

        Cooldowns and suspensions do not delay it.
        """
        self._unsettled.discard((scope, name))
        if not self._handle((scope, name), BoundsCheck(), NO_POLICIES, None):
            self._unsettled.add((scope, name))

    def settle_all(self) -> None:
        """Move every target's capacity inside its bounds."""
        for stored in self._state.scalable_targets.list():
            target = stored.value
            self.settle(target.scope, target_name(target.resource_id, target.dimension))

    def record_bounds(self, target: ScalableTarget, action_name: str) -> None:
        """Record bounds that a scheduled action set, and move the capacity inside."""
        self._executor.record_bounds(target, action_name)
        self.settle(target.scope, target_name(target.resource_id, target.dimension))

    def tick(self) -> None:
        """Look at everything under way. One thread calls it about once a second."""
        now, steady_now = self._deps.clock.now(), self._deps.steady.now()
        self._crashes.see((it.value for it in self._state.copies.list()), steady_now)
        self._shifts.see((it.value for it in self._state.endpoints.list()), steady_now)
        for activity in self.book.open_ones():
            with self._one_at_a_time(get_place(activity)):
                # Activities are written under the target's lock: one that is pending here was left
                # by a failure.
                self._recover(self.book.present(activity))
                self._tracker.look(self.book.present(activity), now, steady_now)
        self.book.close_those(lambda it: not self._tracker.is_open(it, now, steady_now))
        self._try_again()

    def last_decision(self, target: ScalableTarget) -> LastDecision | None:
        """The last decision for a target since it was registered and this process began."""
        last = self._last.get((target.scope, target_name(target.resource_id, target.dimension)))
        return None if last is None or last.at < target.created_at else last

    def _request(
        self, scope: Scope, resource_id: str, dimension: Dimension, request: Request, retry: Retry
    ) -> None:
        policies = [it.value for it in self._state.scaling_policies.list(scope)]
        own = _select_policies(policies, resource_id, dimension)
        self._handle((scope, target_name(resource_id, dimension)), request, own, retry)

    def _handle(
        self, place: Place, request: Request, policies: Sequence[ScalingPolicy], retry: Retry | None
    ) -> bool:
        """Load, decide, act. False if the request has to be handled again."""
        now = self._deps.clock.now()
        with self._one_at_a_time(place):
            known = self._load(place, request, policies, now)
            if known is None:
                return True
            plan = decide(known, request, now)
            if plan.decision is not None:
                self._last[place] = LastDecision(at=now, text=plan.decision.reason)
                self._retries.pop((place, "" if retry is None else retry.by), None)
            is_done = self._act(known, plan)
            if retry is not None and not is_done and len(self._retries) < MAX_RETRIES:
                self._retries[place, retry.by] = retry
            return is_done

    def _load(
        self, place: Place, request: Request, policies: Sequence[ScalingPolicy], now: float
    ) -> TargetSnapshot | None:
        """The snapshot that `decide` needs. None if no target is registered."""
        stored = self._state.scalable_targets.get(*place)
        if stored is None:
            return None
        target = stored.value
        found = self.capacities.find(target.scope, target.resource_id, target.dimension)
        # Acts of a deleted resource of the same name do not count.
        age_s = math.inf if found is None or found.created_at > now else now - found.created_at
        made_at, steady_now = now - age_s, self._deps.steady.now()
        activities = [
            activity
            for activity in self.book.of(target.scope, target.resource_id, target.dimension)
            if activity.started_at >= made_at
        ]
        known = TargetSnapshot(
            target=target,
            resource=found,
            policies=policies,
            standing=self._recent.standing(policies) if isinstance(request, Trigger) else {},
            proposal=self._recent.proposal(target, steady_now, steady_now - age_s),
            acts=find_last_acts(activities, now),
            woken=find_last_wake(activities, now),
            num_crashed=self._crashes.among(found.keys, steady_now - age_s) if found else 0,
            had_two_fleets=found is not None and self._shifts.among(found.keys, steady_now - age_s),
            pace=self._deps.pace,
        )
        span_s = get_look_back_s(known, request, now)
        if found is None or not span_s:
            return known
        since = max(now - span_s, made_at)
        return replace(known, seconds=add_loads(self._deps.aggregator, found.keys, since))

    def _act(self, known: TargetSnapshot, plan: ScalingPlan) -> bool:
        """Carry out a plan. False if its resource takes no such number now."""
        target, found, decision = known.target, known.resource, plan.decision
        if plan.action is PlannedAction.GONE:
            self._executor.record_gone(target, found, plan.cause)
        if found is None or decision is None:
            return True
        match plan.action:
            case PlannedAction.REFUSE:
                self._executor.refuse(
                    target, found.desired, decision.not_scaled, plan.cause, decision.reason
                )
            case PlannedAction.POSTPONE:
                self._executor.postpone(target, found, plan.cause)
                return False
            case PlannedAction.SET:
                return self._executor.set(target, found, decision, plan.cause)
        return True

    def _recover(self, activity: ScalingActivity) -> None:
        """Finish a decision that was not carried out to its end."""
        if activity.status is not ActivityStatus.PENDING:
            return
        stored = self._state.scalable_targets.get(*get_place(activity))
        found = self.capacities.find(activity.scope, activity.resource_id, activity.dimension)
        self._executor.recover(None if stored is None else stored.value, found, activity)

    @contextmanager
    def _one_at_a_time(self, place: Place) -> Iterator[None]:
        with self._lock:
            lock = self._target_locks.setdefault(place, threading.Lock())
        with lock:
            yield

    def _find_base(self, wake: Wake) -> str | None:
        """The component whose copies answer for a woken name: for an adapter, its base."""
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

    def _soon(self, by: str, attempt: Callable[[], None]) -> Retry:
        until = self._deps.steady.now() + WAKE_RETRY_S
        return Retry(by=by, attempt=attempt, is_desired=lambda: self._deps.steady.now() < until)

    def _try_again(self) -> None:
        for scope, name in list(self._unsettled):
            self.settle(scope, name)
        for key, retry in list(self._retries.items()):
            (scope, name), _ = key
            stored = self._state.scalable_targets.get(scope, name)
            if stored is None or not retry.is_desired():
                self._retries.pop(key, None)
                continue
            target = stored.value
            found = self.capacities.find(target.scope, target.resource_id, target.dimension)
            if found is None or found.is_settled or found.may_grow:
                self._retries.pop(key, None)  # it comes back if it still cannot be done
                try:
                    retry.attempt()
                except RetryableError as error:
                    LOG.info("%s: the next attempt follows: %s", name, error)


def _select_policies(
    policies: Sequence[ScalingPolicy], resource_id: str, dimension: Dimension
) -> list[ScalingPolicy]:
    return [it for it in policies if (it.resource_id, it.dimension) == (resource_id, dimension)]
