"""Next step of an endpoint's update, case by case."""

import itertools
from typing import Any

import pytest

from hostelry.reconcile.plan.update_step import UpdatePhase as Phase
from hostelry.reconcile.plan.update_step import UpdateProgress as Progress
from hostelry.reconcile.plan.update_step import UpdateStep as Step
from hostelry.reconcile.plan.update_step import next_step

COMING, BAKING, RETURNING = Phase.COMING, Phase.BAKING, Phase.RETURNING
SHIFTING, REPLACING, JOINING = Phase.SHIFTING, Phase.REPLACING, Phase.JOINING
FLAGS = (
    "is_ready",
    "has_failed",
    "is_late",
    "has_steps",
    "in_batches",
    "is_guarded",
    "is_baked",
    "is_mostly_new",
)


# Source: "Blue/Green Deployments" (provision, shift, bake, terminate), "Use rolling deployments"
# and "Auto-Rollback Configuration and Monitoring" in the SageMaker developer guide.
@pytest.mark.parametrize(
    ("phase", "flags", "expected"),
    [
        pytest.param(COMING, (), Step.WAIT, id="the new instances come up"),
        pytest.param(COMING, ("is_ready",), Step.TAKE_OVER, id="all is up: it takes over"),
        pytest.param(COMING, ("is_ready", "is_guarded"), Step.BAKE, id="all is up: a trial begins"),
        pytest.param(COMING, ("is_guarded",), Step.WAIT, id="no trial before all is up"),
        pytest.param(COMING, ("has_failed",), Step.DROP, id="an alarm before the trial"),
        pytest.param(COMING, ("is_late",), Step.DROP, id="it does not come up in time"),
        pytest.param(COMING, ("is_ready", "is_late"), Step.TAKE_OVER, id="up at the last moment"),
        pytest.param(
            COMING,
            ("is_ready", "has_failed"),
            Step.DROP,
            id="an alarm as all is up: it counts",
        ),
        pytest.param(
            COMING,
            ("is_ready", "has_steps", "is_guarded"),
            Step.SHIFT,
            id="all is up: the first step",
        ),
        pytest.param(COMING, ("has_steps",), Step.WAIT, id="no step before all is up"),
        pytest.param(SHIFTING, ("has_steps",), Step.WAIT, id="a step lasts"),
        pytest.param(
            SHIFTING, ("has_steps", "is_baked", "is_guarded"), Step.SHIFT, id="the next step"
        ),
        pytest.param(SHIFTING, ("is_baked", "is_guarded"), Step.BAKE, id="all traffic, on trial"),
        pytest.param(SHIFTING, ("is_baked",), Step.TAKE_OVER, id="all traffic, without a trial"),
        pytest.param(SHIFTING, ("is_late",), Step.WAIT, id="a step ends by its own time alone"),
        pytest.param(
            SHIFTING,
            ("has_failed", "is_ready", "is_baked", "has_steps"),
            Step.GO_BACK,
            id="an alarm at the end of a step counts",
        ),
        pytest.param(
            SHIFTING, ("has_failed",), Step.RETURN, id="an alarm in a step: the old one cannot yet"
        ),
        pytest.param(
            COMING, ("is_ready", "in_batches", "has_steps"), Step.SHIFT, id="the first batch is up"
        ),
        pytest.param(
            SHIFTING,
            ("in_batches", "has_steps", "is_baked"),
            Step.REPLACE,
            id="a batch has baked: its old instances leave",
        ),
        pytest.param(
            SHIFTING, ("in_batches", "is_baked"), Step.TAKE_OVER, id="the last batch has baked"
        ),
        pytest.param(
            SHIFTING, ("in_batches", "has_steps"), Step.WAIT, id="a batch bakes before others"
        ),
        pytest.param(REPLACING, ("is_baked",), Step.WAIT, id="old instances have requests yet"),
        pytest.param(REPLACING, ("is_ready",), Step.PROVISION, id="they are gone: the next batch"),
        pytest.param(REPLACING, ("is_late",), Step.PROVISION, id="they cannot be terminated"),
        pytest.param(REPLACING, ("has_failed",), Step.RETURN, id="an alarm as old instances leave"),
        pytest.param(JOINING, ("is_baked",), Step.WAIT, id="a batch comes up"),
        pytest.param(JOINING, ("is_ready",), Step.SHIFT, id="a batch is up: it gets its traffic"),
        pytest.param(JOINING, ("is_late",), Step.RETURN, id="a batch does not come up in time"),
        pytest.param(JOINING, ("has_failed", "is_late"), Step.RETURN, id="a batch cannot come up"),
        pytest.param(
            RETURNING,
            ("is_late", "is_mostly_new"),
            Step.KEEP,
            id="the old one cannot come up: what serves most is kept",
        ),
        pytest.param(
            RETURNING, ("is_ready", "is_late", "is_mostly_new"), Step.GO_BACK, id="up after all"
        ),
        pytest.param(RETURNING, ("is_mostly_new",), Step.WAIT, id="it may come up yet"),
        pytest.param(BAKING, (), Step.WAIT, id="the trial runs"),
        pytest.param(BAKING, ("is_baked",), Step.FINISH, id="the trial is over"),
        pytest.param(BAKING, ("is_late",), Step.WAIT, id="a trial ends by its own time alone"),
        pytest.param(
            BAKING,
            ("has_failed", "is_ready"),
            Step.GO_BACK,
            id="an alarm: the old one can serve",
        ),
        pytest.param(BAKING, ("has_failed",), Step.RETURN, id="an alarm: the old one cannot yet"),
        pytest.param(
            BAKING,
            ("has_failed", "is_ready", "is_baked"),
            Step.GO_BACK,
            id="an alarm in the trial's last moment counts",
        ),
        pytest.param(RETURNING, (), Step.WAIT, id="the old one comes up again"),
        pytest.param(RETURNING, ("is_ready",), Step.GO_BACK, id="the old one can serve again"),
        pytest.param(
            RETURNING,
            ("is_late",),
            Step.GO_BACK,
            id="the old one is late: its configuration holds",
        ),
        pytest.param(
            RETURNING, ("is_baked",), Step.WAIT, id="a failed trial is not saved by its time"
        ),
    ],
)
def test_next_step(phase: Phase, flags: tuple[str, ...], expected: Step) -> None:
    assert next_step(progress(phase, flags)) is expected


def progress(phase: Phase, flags: tuple[str, ...]) -> Progress:
    named: dict[str, Any] = dict.fromkeys(flags, True)
    return Progress(phase=phase, **named)


EVERYTHING = [
    progress(phase, flags)
    for phase in Phase
    for count in range(len(FLAGS) + 1)
    for flags in itertools.combinations(FLAGS, count)
]


def test_what_is_not_ready_takes_no_requests_but_at_a_deadline() -> None:
    serves = (Step.SHIFT, Step.TAKE_OVER, Step.BAKE, Step.GO_BACK)
    for progress in EVERYTHING:
        if progress.phase is SHIFTING and not progress.has_failed:
            continue  # one that is not ready any more has failed
        if not progress.is_ready and next_step(progress) in (*serves, Step.KEEP):
            assert (progress.phase, progress.is_late) == (RETURNING, True)


def test_what_has_failed_never_serves_for_good() -> None:
    for progress in EVERYTHING:
        if progress.has_failed or progress.phase is RETURNING:
            more = (Step.SHIFT, Step.TAKE_OVER, Step.BAKE, Step.FINISH)
            assert next_step(progress) not in more


def test_every_phase_ends_once_its_time_is_over() -> None:
    for progress in EVERYTHING:
        by_itself = progress.phase in (BAKING, SHIFTING)
        over = progress.is_baked if by_itself else progress.is_late
        if over:
            assert next_step(progress) is not Step.WAIT
