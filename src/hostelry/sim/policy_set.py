"""Policies of a replayed component: AWS's, ours beside them, or another system's rule."""

from dataclasses import dataclass

from hostelry.domain.alarm import AlarmRule
from hostelry.domain.scaling import Dimension, ScalingPolicy, ScheduledAction
from hostelry.scaling.decide.responsive.options import ResponsiveOptions
from hostelry.sim.peers import KnativeRule, RayServeRule


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedAlarm:
    """A user's alarm, and the policy (by its name) that it triggers."""

    name: str
    rule: AlarmRule
    policy_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySet:
    """All that scales one component; every model of a trace gets the same.

    `rule` is another system's, which then has the number to itself. Without anything the number
    stays at `minimum`.
    """

    name: str
    minimum: int = 1
    maximum: int = 10
    dimension: Dimension = Dimension.COPIES
    policies: tuple[ScalingPolicy, ...] = ()
    alarms: tuple[NamedAlarm, ...] = ()
    schedules: tuple[ScheduledAction, ...] = ()
    responsive: ResponsiveOptions | None = None
    rule: KnativeRule | RayServeRule | None = None

    @property
    def concurrency(self) -> float | None:
        """The concurrency per copy that is aimed at, where any of them says one."""
        for policy in self.policies:
            tracking = policy.tracking
            if tracking is not None and "ConcurrentRequests" in (tracking.predefined or ""):
                return tracking.target_value
        if self.responsive is not None:
            return self.responsive.target
        return None if self.rule is None else self.rule.target
