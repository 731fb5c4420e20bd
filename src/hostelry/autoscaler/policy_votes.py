"""What each policy of a target says now: the one that was triggered, and the others beside it."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hostelry.autoscaler.protocol import Proposal, Trigger
from hostelry.domain.alarm import AlarmState
from hostelry.domain.scaling import ScalableTarget, ScalingPolicy, TargetTracking
from hostelry.scaling_policy import step, target_tracking
from hostelry.scaling_policy.combine import Vote, Voter
from hostelry.scaling_policy.decision import Capacity, Situation, unchanged
from hostelry.scaling_policy.tracking_alarms import AlarmSide, side_of
from hostelry.store.records import State

# A proposal is made again as long as its reason lasts; for so long it keeps capacity up.
PROPOSAL_S = 30.0
MAX_WORDS = 10_000

AlarmKey = tuple[str, str]  # the policy's ARN, the alarm's name


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """A proposal that was made at `at`, by a clock that never jumps."""

    proposal: Proposal
    at: float


class PolicyVotes:
    """The last trigger of every alarm, and the last proposal for every target. Thread-safe.

    Kept in memory only: an alarm that lasts triggers again within a minute. Until then a policy
    whose word is not known speaks against scaling in.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._lock = threading.Lock()
        self._triggers: dict[AlarmKey, Trigger] = {}
        self._floors: dict[tuple[object, ...], Floor] = {}

    def record(self, trigger: Trigger) -> None:
        """Remember what an alarm said last."""
        with self._lock:
            self._triggers.pop((trigger.policy_arn, trigger.alarm_name), None)
            self._triggers[trigger.policy_arn, trigger.alarm_name] = trigger
            if len(self._triggers) > MAX_WORDS:
                del self._triggers[next(iter(self._triggers))]

    def record_proposal(self, proposal: Proposal, steady_now: float) -> None:
        """Remember what was proposed last."""
        place = (proposal.scope, proposal.resource_id, proposal.dimension)
        with self._lock:
            self._floors[place] = Floor(proposal=proposal, at=steady_now)
            self._floors = {
                it: floor
                for it, floor in self._floors.items()
                if steady_now - floor.at <= PROPOSAL_S
            }

    def of_alarm(self, policy: ScalingPolicy, side: AlarmSide) -> Trigger | None:
        """What one of a target-tracking policy's alarms said, while it still is in ALARM."""
        for name in policy.alarm_names:
            if side_of(name) is not side:
                continue
            stored = self._state.metric_alarms.get(policy.scope, name)
            if stored is not None and stored.value.status.state is AlarmState.ALARM:
                with self._lock:
                    return self._triggers.get((policy.arn, name))
        return None

    def votes(
        self,
        policies: Sequence[ScalingPolicy],
        trigger: Trigger,
        at: Situation,
    ) -> list[Vote]:
        """Every policy's vote, the triggered one's by what its alarm says now."""
        found: list[Vote] = []
        for policy in policies:
            triggered = policy.arn == trigger.policy_arn
            if policy.tracking is not None:
                mine = trigger if triggered else self._standing(policy)
                found.append(tracking_vote(policy, policy.tracking, mine, at))
            elif policy.stepping is not None and triggered:
                values = [it.value for it in trigger.values]
                decision = step.decide(policy.stepping, trigger.threshold, values, at)
                found.append(Vote(by=policy.name, voter=Voter.STEP, decision=decision))
        return found

    def floor(self, target: ScalableTarget, capacity: Capacity, steady_now: float) -> list[Vote]:
        """What was proposed for a target a short time ago, within the bounds that it has now."""
        with self._lock:
            floor = self._floors.get((target.scope, target.resource_id, target.dimension))
        if floor is None or steady_now - floor.at > PROPOSAL_S:
            return []
        made = floor.proposal
        within = replace(made.decision, desired=capacity.clamped(made.decision.desired))
        return [Vote(by=made.by, voter=Voter.PROPOSAL, decision=within)]

    def _standing(self, policy: ScalingPolicy) -> Trigger | None:
        return self.of_alarm(policy, AlarmSide.HIGH) or self.of_alarm(policy, AlarmSide.LOW)


def tracking_vote(
    policy: ScalingPolicy, tracking: TargetTracking, trigger: Trigger | None, at: Situation
) -> Vote:
    """What a target-tracking policy wants; the present number where no alarm of its lasts."""
    if trigger is None:
        decision = unchanged(at.capacity, f"{policy.name} is not ready to scale in.", {})
    else:
        side = side_of(trigger.alarm_name) or AlarmSide.HIGH
        values = [it.value for it in trigger.values]
        decision = target_tracking.decide(tracking, side.direction, values, at)
    return Vote(
        by=policy.name,
        voter=Voter.TRACKING,
        decision=decision,
        may_scale_in=not tracking.disable_scale_in,
    )
