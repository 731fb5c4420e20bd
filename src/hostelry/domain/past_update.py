"""Values that record an endpoint's updates: each step with its begin, end and share of traffic."""

from dataclasses import dataclass
from enum import Enum


class UpdateOutcome(Enum):
    """What became of an update."""

    UNDER_WAY = "under way"
    COMPLETE = "complete"
    ROLLED_BACK = "rolled back"


@dataclass(frozen=True, slots=True, kw_only=True)
class PastStep:
    """One step of an update; `ended_at` is None for the present one.

    `least_share` and `most_share` are the shares of traffic, from 0 to 1, that the new fleets of
    the variants had: the smallest and the largest one. `verdict` is the last one on the new fleet,
    where one decides.
    """

    name: str
    began_at: float
    ended_at: float | None = None
    least_share: float = 0.0
    most_share: float = 0.0
    verdict: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PastUpdate:
    """An update from one configuration to another; `cause` is why it was rolled back.

    `alarm_names` are the alarms that guarded it. `steps_left_out` counts the oldest steps, which
    are not kept.
    """

    from_config: str
    to_config: str
    began_at: float
    ended_at: float | None = None
    outcome: UpdateOutcome = UpdateOutcome.UNDER_WAY
    cause: str | None = None
    alarm_names: tuple[str, ...] = ()
    steps: tuple[PastStep, ...] = ()
    steps_left_out: int = 0
