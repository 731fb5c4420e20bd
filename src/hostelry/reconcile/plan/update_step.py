"""What an endpoint's update to another deployment does next, decided from plain values.

The new deployment comes up beside the one that serves, then takes over, for good or on trial. What
fails before that leaves all as it was. What fails during the trial leads back to the deployment
before, which was kept: at once where it can serve as it stands, else as soon as it can.

Source: "Blue/Green Deployments" and "Auto-Rollback Configuration and Monitoring" in the SageMaker
developer guide.
"""

from dataclasses import dataclass
from enum import Enum


class Phase(Enum):
    """How far an update has come."""

    COMING = "coming"  # the new deployment comes up; the old one serves
    BAKING = "baking"  # the new one serves on trial; the old one is kept
    RETURNING = "returning"  # the trial failed; the new one serves until the old one can


class Step(Enum):
    """What an update does next."""

    WAIT = "wait"
    DROP = "drop"  # the old deployment serves on, the new one goes
    TAKE_OVER = "take over"  # the new one serves, the old one goes
    BAKE = "bake"  # the new one serves, the old one is kept
    FINISH = "finish"  # the trial is over: the old one goes
    RETURN = "return"  # the trial failed, and the old one has to come up again
    GO_BACK = "go back"  # the old one serves again, the new one goes


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where an update stands.

    `is_ready`: the deployment that would serve next, which is the old one once the new one serves,
    can take all requests now. `has_failed`: an alarm, a time limit or the new instances end the
    update. `is_late`: the deadline of the phase has passed. `is_guarded` tells, while it comes up,
    that a trial follows, and `is_baked` that the trial's time is over.
    """

    phase: Phase
    is_ready: bool = False
    has_failed: bool = False
    is_late: bool = False
    is_guarded: bool = False
    is_baked: bool = False


def next_step(now: Progress) -> Step:
    """The one thing to do next; a failure counts before everything that goes well."""
    if now.phase is Phase.COMING:
        return _after_coming(now)
    if now.phase is Phase.RETURNING:
        return Step.GO_BACK if now.is_ready or now.is_late else Step.WAIT
    if now.has_failed:
        return Step.GO_BACK if now.is_ready else Step.RETURN
    return Step.FINISH if now.is_baked else Step.WAIT


def _after_coming(now: Progress) -> Step:
    if now.has_failed:
        return Step.DROP
    if now.is_ready:
        return Step.BAKE if now.is_guarded else Step.TAKE_OVER
    return Step.DROP if now.is_late else Step.WAIT
