"""Next step of an endpoint's update to another deployment, from plain values.

    phase       observed                           step
    ---------   --------------------------------   ---------
    COMING      failed                             DROP
                ready, a step of many follows      SHIFT
                ready, a trial follows             BAKE
                ready                              TAKE_OVER
                late                               DROP
    SHIFTING    failed, the old one can serve      GO_BACK
                failed                             RETURN
                the wait is over, of a batch that
                a further one follows              REPLACE
                the step's wait is over: as COMING where ready
    REPLACING   failed: as SHIFTING
                the old instances are gone, or late
                                                   PROVISION
    JOINING     failed: as SHIFTING
                ready                              SHIFT
                late                               RETURN
    BAKING      failed, the old one can serve      GO_BACK
                failed                             RETURN
                the trial's time is over           FINISH
    RETURNING   the old one can serve              GO_BACK
                late, most of what serves is new   KEEP
                late                               GO_BACK
    any         anything else                      WAIT

A failure counts before everything else: an alarm at the moment that all is up still rolls back.
REPLACING and JOINING are of rolling updates alone, whose old one can serve once all of it came up.

Source: "Blue/Green Deployments", "Use rolling deployments" and "Auto-Rollback Configuration and
Monitoring" in the SageMaker developer guide.
"""

from enum import Enum

import msgspec


class UpdatePhase(Enum):
    """The phase of an update."""

    COMING = "coming"  # the new deployment comes up while the old one serves
    SHIFTING = "shifting"  # both serve: the traffic moves to the new one in steps
    REPLACING = "replacing"  # both serve: the old instances of a batch are being terminated
    JOINING = "joining"  # both serve: the instances of the next batch come up
    BAKING = "baking"  # the new one serves on trial while the old one is kept
    RETURNING = "returning"  # the new one failed, but serves until the old one can


class UpdateStep(Enum):
    """The next step of an update."""

    WAIT = "wait"
    DROP = "drop"  # the old deployment keeps serving, the new one is removed
    SHIFT = "shift"  # the new one gets the next part of the traffic
    REPLACE = "replace"  # the old instances that the batch replaces are terminated
    PROVISION = "provision"  # the instances of the next batch are launched
    TAKE_OVER = "take over"  # the new one serves, the old one is removed
    BAKE = "bake"  # the new one serves, the old one is kept
    FINISH = "finish"  # the trial is over: the old one is removed
    RETURN = "return"  # it failed, and the old one has to come up again
    GO_BACK = "go back"  # the old one serves again, the new one is removed
    KEEP = "keep"  # it failed, the old one cannot come up again: the new one serves


class UpdateProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of an update.

    `is_ready`: the deployment that would serve next (the old one, once the new one serves) can take
    all requests now. If nothing failed, also the present phase can end. `has_failed`: an alarm, a
    time limit or the new instances end the update. `is_late`: the deadline of the phase has passed.
    `has_steps`: the new deployment gets part of the traffic before it gets all. `in_batches`: its
    instances for that come up first. `is_guarded`: a trial follows then. `is_baked`: the time of
    the present step, or of the trial, is over. `is_mostly_new`: the new deployment has most of the
    serving instances.
    """

    phase: UpdatePhase
    is_ready: bool = False
    has_failed: bool = False
    is_late: bool = False
    has_steps: bool = False
    in_batches: bool = False
    is_guarded: bool = False
    is_baked: bool = False
    is_mostly_new: bool = False


def next_step(now: UpdateProgress) -> UpdateStep:
    """The step to take now, by the table above."""
    if now.phase is UpdatePhase.COMING:
        return _next_after_coming(now)
    if now.phase is UpdatePhase.RETURNING:
        return _next_after_returning(now)
    if now.has_failed:
        return UpdateStep.GO_BACK if now.is_ready else UpdateStep.RETURN
    if now.phase is UpdatePhase.REPLACING:
        return UpdateStep.PROVISION if now.is_ready or now.is_late else UpdateStep.WAIT
    if now.phase is UpdatePhase.JOINING:
        return _next_after_joining(now)
    if not now.is_baked:
        return UpdateStep.WAIT
    if now.phase is UpdatePhase.BAKING:
        return UpdateStep.FINISH
    return UpdateStep.REPLACE if now.in_batches and now.has_steps else _next_after_ready(now)


def _next_after_coming(now: UpdateProgress) -> UpdateStep:
    if now.has_failed:
        return UpdateStep.DROP
    if now.is_ready:
        return _next_after_ready(now)
    return UpdateStep.DROP if now.is_late else UpdateStep.WAIT


def _next_after_joining(now: UpdateProgress) -> UpdateStep:
    if now.is_ready:
        return UpdateStep.SHIFT
    return UpdateStep.RETURN if now.is_late else UpdateStep.WAIT


def _next_after_returning(now: UpdateProgress) -> UpdateStep:
    if now.is_ready or (now.is_late and not now.is_mostly_new):
        return UpdateStep.GO_BACK
    return UpdateStep.KEEP if now.is_late else UpdateStep.WAIT


def _next_after_ready(now: UpdateProgress) -> UpdateStep:
    """The step that gives the new deployment more of the traffic."""
    if now.has_steps:
        return UpdateStep.SHIFT
    return UpdateStep.BAKE if now.is_guarded else UpdateStep.TAKE_OVER
