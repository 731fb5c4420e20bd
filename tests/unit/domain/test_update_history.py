"""The history of an endpoint's updates, from each change of its record."""

from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.reconcile.samples import NOW, deployment, endpoint, variant

from hostelry.domain.endpoint import (
    Bake,
    Endpoint,
    EndpointStatus,
    PastStep,
    PastUpdate,
    Shift,
    ShiftStage,
    UpdateGuard,
    UpdateOutcome,
)
from hostelry.domain.traffic import FleetSize, FleetUnit, TrafficPolicy, TrafficType
from hostelry.domain.update_history import MAX_STEPS, MAX_UPDATES, append_history, known_updates

ONE = FleetSize(unit=FleetUnit.INSTANCE_COUNT, value=1)
LINEAR = TrafficPolicy(type=TrafficType.LINEAR, size=ONE, wait_s=300.0)
GUARD = UpdateGuard(alarm_names=("errors",), bake_s=60.0, traffic=LINEAR)
OLD = deployment(variant(model="a", count=2))
NEW = replace(deployment(variant(model="b", count=2), generation=2), guard=GUARD)
UPDATING = EndpointStatus.UPDATING
QUIET = endpoint(OLD, EndpointStatus.IN_SERVICE)
COMING = replace(QUIET, status=UPDATING, pending=NEW)
SHIFTING = replace(COMING, shift=Shift(step=1, since=NOW + 10.0))
ON_TRIAL = replace(QUIET, status=UPDATING, active=NEW, bake=Bake(before=OLD, since=NOW + 20.0))
RETURNING = replace(SHIFTING, shift=Shift(step=1, since=NOW + 10.0, failure="an alarm"))
ROLLING = UpdateGuard(alarm_names=("errors",), traffic=replace(LINEAR, type=TrafficType.ROLLING))
BATCH = Shift(step=2, since=NOW + 10.0)
IN_BATCHES = replace(COMING, pending=replace(NEW, guard=ROLLING), shift=BATCH)
LEAVING = replace(BATCH, step=1, stage=ShiftStage.LEAVING)
TAKEN = replace(QUIET, active=NEW)
BACK = replace(QUIET, failure_reason="an alarm")
DELETING = replace(SHIFTING, status=EndpointStatus.DELETING)
COMING_UP = ("coming up", 0.0, 10.0, 0.0)
FIRST = ("step 1 of 2", 10.0, 20.0, 0.5)


def history(*walk: Endpoint) -> tuple[PastUpdate, ...]:
    """The kept history after the endpoint was each of `walk`, every 10 seconds."""
    now, found = NOW, walk[0]
    for following in walk[1:]:
        now += 10.0
        changed = append_history(found, replace(following, updates=found.updates), now)
        assert changed is not None
        found = changed
    return found.updates


def seconds(at: float | None) -> float | None:
    return None if at is None else at - NOW


def steps(update: PastUpdate) -> list[tuple[str, float | None, float | None, float]]:
    return [
        (step.name, seconds(step.began_at), seconds(step.ended_at), step.most_share)
        for step in update.steps
    ]


@cases(
    "walk, outcome, cause, expected",
    case(
        "each step of an update that ends well",
        (COMING, SHIFTING, ON_TRIAL, TAKEN),
        UpdateOutcome.COMPLETE,
        None,
        [COMING_UP, FIRST, ("step 2 of 2", 20.0, 30.0, 1.0)],
    ),
    case(
        "a rollback in its first step",
        (COMING, SHIFTING, BACK),
        UpdateOutcome.ROLLED_BACK,
        "an alarm",
        [COMING_UP, FIRST],
    ),
    case(
        "a rollback that waits for the old fleet",
        (COMING, SHIFTING, RETURNING, BACK),
        UpdateOutcome.ROLLED_BACK,
        "an alarm",
        [COMING_UP, FIRST, ("returning", 20.0, 30.0, 1.0)],
    ),
    case(
        "one that still waits",
        (COMING, SHIFTING, RETURNING),
        UpdateOutcome.UNDER_WAY,
        "an alarm",
        [COMING_UP, FIRST, ("returning", 20.0, None, 1.0)],
    ),
    case(
        "a batch that is taken back: those before it go later",
        (IN_BATCHES, replace(IN_BATCHES, shift=replace(BATCH, failure="an alarm")), BACK),
        UpdateOutcome.ROLLED_BACK,
        "an alarm",
        [("batch 2 of 2", 10.0, 10.0, 1.0), ("returning", 10.0, 20.0, 0.5)],
    ),
    case(
        "a batch that has baked is on the way back",
        (
            replace(IN_BATCHES, shift=LEAVING),
            replace(IN_BATCHES, shift=replace(LEAVING, failure="an alarm")),
        ),
        UpdateOutcome.UNDER_WAY,
        "an alarm",
        [("batch 1 of 2", 10.0, 10.0, 0.5), ("returning", 10.0, None, 0.5)],
    ),
    case(
        "the stages of a batch are one step",
        (
            replace(IN_BATCHES, shift=replace(LEAVING, stage=ShiftStage.BAKING)),
            replace(IN_BATCHES, shift=LEAVING),
            replace(IN_BATCHES, shift=replace(LEAVING, stage=ShiftStage.COMING)),
            IN_BATCHES,
        ),
        UpdateOutcome.UNDER_WAY,
        None,
        [("batch 1 of 2", 10.0, 30.0, 0.5), ("batch 2 of 2", 10.0, None, 1.0)],
    ),
    case(
        "one that never came up", (COMING, BACK), UpdateOutcome.ROLLED_BACK, "an alarm", [COMING_UP]
    ),
    case(
        "all at once, without a trial", (COMING, TAKEN), UpdateOutcome.COMPLETE, None, [COMING_UP]
    ),
    case(
        "a pass that changes no step",
        (COMING, COMING, SHIFTING, SHIFTING),
        UpdateOutcome.UNDER_WAY,
        None,
        [("coming up", 0.0, 20.0, 0.0), ("step 1 of 2", 10.0, None, 0.5)],
    ),
)
def test_an_update_is_kept_with_its_steps(
    walk: tuple[Endpoint, ...],
    outcome: UpdateOutcome,
    cause: str | None,
    expected: list[tuple[str, float, float | None, float]],
) -> None:
    (found,) = history(*walk)
    assert (found.from_config, found.to_config) == ("config-1", "config-2")
    assert (found.outcome, found.cause, found.alarm_names) == (outcome, cause, ("errors",))
    assert (found.ended_at is None) is (outcome is UpdateOutcome.UNDER_WAY)
    assert steps(found) == expected


@cases(
    "walk",
    case("none", (QUIET, QUIET)),
    case("one that has just begun is known from the endpoint", (QUIET, COMING)),
    case("an endpoint that is being deleted", (DELETING, DELETING)),
)
def test_nothing_is_kept_where_no_step_ended(walk: tuple[Endpoint, ...]) -> None:
    assert history(*walk) == ()


def test_the_update_under_way_is_known_from_its_begin() -> None:
    (found,) = known_updates(COMING)
    assert (found.outcome, steps(found)) == (
        UpdateOutcome.UNDER_WAY,
        [("coming up", 0.0, None, 0.0)],
    )
    kept = replace(SHIFTING, updates=history(COMING, SHIFTING))
    assert known_updates(kept) == kept.updates
    assert known_updates(QUIET) == ()


def test_a_new_endpoint_and_one_that_is_gone_have_no_history() -> None:
    assert append_history(None, COMING, NOW) is COMING
    assert append_history(COMING, None, NOW) is None


def test_the_newest_updates_and_steps_are_kept() -> None:
    found = history(*(COMING, BACK) * (MAX_UPDATES + 2))
    assert len(found) == MAX_UPDATES
    assert [seconds(it.ended_at) for it in found] == [50.0, 70.0, 90.0, 110.0, 130.0]
    many = tuple(PastStep(name=f"step {it}", began_at=NOW) for it in range(MAX_STEPS))
    long = replace(known_updates(SHIFTING)[0], steps=many)
    full = replace(SHIFTING, updates=(long,))
    after = append_history(full, replace(ON_TRIAL, updates=full.updates), NOW)
    assert after is not None
    (kept,) = after.updates
    assert (len(kept.steps), kept.steps_left_out) == (MAX_STEPS, 1)
    assert (kept.steps[0].name, kept.steps[-1].name) == ("step 1", "step 2 of 2")
