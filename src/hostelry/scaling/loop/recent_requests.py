"""Memory of the last trigger of every alarm and the last proposal for every target."""

import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hostelry.domain.alarm import AlarmState
from hostelry.domain.scaling import ScalableTarget, ScalingPolicy
from hostelry.scaling.decide.decision import PROPOSAL_S, Proposal, Trigger
from hostelry.scaling.decide.tracking_alarms import AlarmSide, find_alarm_side
from hostelry.store.records import State

MAX_TRIGGERS = 10_000

AlarmKey = tuple[str, str]  # the policy's ARN, the alarm's name


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedProposal:
    """A proposal that was made at `at`, by a clock that never jumps."""

    proposal: Proposal
    at: float


class RecentRequests:
    """Kept in memory only: an alarm that lasts triggers again within a minute. Thread-safe.

    Until then a policy whose trigger is not known votes against scaling in.
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
