"""Next step of an endpoint's update, case by case."""

import itertools
from typing import Any

from tests.cases import case, cases

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
@cases(
    "phase, flags, expected",
    case("the new instances come up", COMING, (), Step.WAIT),
    case("all is up: it takes over", COMING, ("is_ready",), Step.TAKE_OVER),
    case("all is up: a trial begins", COMING, ("is_ready", "is_guarded"), Step.BAKE),
    case("no trial before all is up", COMING, ("is_guarded",), Step.WAIT),
    case("an alarm before the trial", COMING, ("has_failed",), Step.DROP),
    case("it does not come up in time", COMING, ("is_late",), Step.DROP),
    case("up at the last moment", COMING, ("is_ready", "is_late"), Step.TAKE_OVER),
    case("an alarm as all is up: it counts", COMING, ("is_ready", "has_failed"), Step.DROP),
    case("all is up: the first step", COMING, ("is_ready", "has_steps", "is_guarded"), Step.SHIFT),
    case("no step before all is up", COMING, ("has_steps",), Step.WAIT),
    case("a step lasts", SHIFTING, ("has_steps",), Step.WAIT),
    case("the next step", SHIFTING, ("has_steps", "is_baked", "is_guarded"), Step.SHIFT),
    case("all traffic, on trial", SHIFTING, ("is_baked", "is_guarded"), Step.BAKE),
    case("all traffic, without a trial", SHIFTING, ("is_baked",), Step.TAKE_OVER),
    case("a step ends by its own time alone", SHIFTING, ("is_late",), Step.WAIT),
    case(
        "an alarm at the end of a step counts",
        SHIFTING,
        ("has_failed", "is_ready", "is_baked", "has_steps"),
        Step.GO_BACK,
    ),
    case("an alarm in a step: the old one cannot yet", SHIFTING, ("has_failed",), Step.RETURN),
    case("the first batch is up", COMING, ("is_ready", "in_batches", "has_steps"), Step.SHIFT),
    case(
        "a batch has baked: its old instances leave",
        SHIFTING,
        ("in_batches", "has_steps", "is_baked"),
        Step.REPLACE,
    ),
    case("the last batch has baked", SHIFTING, ("in_batches", "is_baked"), Step.TAKE_OVER),
    case("a batch bakes before others", SHIFTING, ("in_batches", "has_steps"), Step.WAIT),
    case("old instances have requests yet", REPLACING, ("is_baked",), Step.WAIT),
    case("they are gone: the next batch", REPLACING, ("is_ready",), Step.PROVISION),
    case("they cannot be terminated", REPLACING, ("is_late",), Step.PROVISION),
    case("an alarm as old instances leave", REPLACING, ("has_failed",), Step.RETURN),
    case("a batch comes up", JOINING, ("is_baked",), Step.WAIT),
    case("a batch is up: it gets its traffic", JOINING, ("is_ready",), Step.SHIFT),
    case("a batch does not come up in time", JOINING, ("is_late",), Step.RETURN),
    case("a batch cannot come up", JOINING, ("has_failed", "is_late"), Step.RETURN),
    case(
        "the old one cannot come up: what serves most is kept",
        RETURNING,
        ("is_late", "is_mostly_new"),
        Step.KEEP,
    ),
    case("up after all", RETURNING, ("is_ready", "is_late", "is_mostly_new"), Step.GO_BACK),
    case("it may come up yet", RETURNING, ("is_mostly_new",), Step.WAIT),
    case("the trial runs", BAKING, (), Step.WAIT),
    case("the trial is over", BAKING, ("is_baked",), Step.FINISH),
    case("a trial ends by its own time alone", BAKING, ("is_late",), Step.WAIT),
    case("an alarm: the old one can serve", BAKING, ("has_failed", "is_ready"), Step.GO_BACK),
    case("an alarm: the old one cannot yet", BAKING, ("has_failed",), Step.RETURN),
    case(
        "an alarm in the trial's last moment counts",
        BAKING,
        ("has_failed", "is_ready", "is_baked"),
        Step.GO_BACK,
    ),
    case("the old one comes up again", RETURNING, (), Step.WAIT),
    case("the old one can serve again", RETURNING, ("is_ready",), Step.GO_BACK),
    case("the old one is late: its configuration holds", RETURNING, ("is_late",), Step.GO_BACK),
    case("a failed trial is not saved by its time", RETURNING, ("is_baked",), Step.WAIT),
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
