"""Updates that a verdict decides: taken back, or on to the next step before its time."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.reconcile.samples import SCOPE, Town, deployment, endpoint, variant
from tests.unit.reconcile.test_reconcile_guards import put_alarm, set_alarm
from tests.unit.reconcile.test_reconcile_shifts import config, is_back, reason, serving, share

from hostelry.comparison.fleet_verdict import StepVerdict, WatchedUpdate
from hostelry.comparison.verdict import VersionOutcome
from hostelry.domain.alarm import AlarmActions, AlarmState, CompositeAlarm, alarm_arn
from hostelry.domain.endpoint import EndpointStatus, UpdateGuard
from hostelry.domain.traffic import Allowance, FleetSize, FleetUnit, TrafficPolicy, TrafficType
from hostelry.reconcile.plan.guards import LEAST_STEP_S, find_watched_update
from hostelry.reconcile.record import EVALUATION_S, get_alarm_view_s
from hostelry.scaling.decide.alarm_events import build_status

WAIT_S = 600.0
HALF = FleetSize(unit=FleetUnit.CAPACITY_PERCENT, value=50)
LINEAR = TrafficPolicy(type=TrafficType.LINEAR, size=HALF, wait_s=WAIT_S)
ROLLING = replace(LINEAR, type=TrafficType.ROLLING)
GUARD = UpdateGuard(bake_s=WAIT_S, traffic=LINEAR, allowance=Allowance())
UPDATING, IN_SERVICE = EndpointStatus.UPDATING, EndpointStatus.IN_SERVICE
WORSE, NO_WORSE, UNDECIDED = (
    VersionOutcome.WORSE,
    VersionOutcome.NO_WORSE,
    VersionOutcome.UNDECIDED,
)
Look = Callable[[WatchedUpdate], StepVerdict]


def saying(outcome: VersionOutcome) -> Look:
    def look(update: WatchedUpdate) -> StepVerdict:
        known = UNDECIDED if update.since is None else outcome
        return StepVerdict(
            generation=update.generation,
            since=update.since,
            outcome=known,
            text=known.value,
            failure="It is worse." if known is WORSE else None,
        )

    return look


def update(town: Town, guard: UpdateGuard = GUARD) -> None:
    pending = deployment(variant(model="m2", count=4), generation=2)
    pending = replace(pending, started_at=town.clock.now(), guard=guard)
    town.change_endpoint(status=UPDATING, pending=pending, deadline_at=None)
    town.turn(20, seconds=0.1)


def step(town: Town) -> tuple[float, bool]:
    """The new fleet's share, and whether it is on trial."""
    found = town.endpoint
    return share(town), found.bake is not None


@cases(
    "guard",
    case("in a step", GUARD),
    case("on trial", UpdateGuard(bake_s=WAIT_S, allowance=Allowance())),
    case("in a batch", UpdateGuard(traffic=ROLLING, allowance=Allowance())),
)
def test_a_worse_fleet_is_taken_back_at_once(town: Town, guard: UpdateGuard) -> None:
    serving(town)
    update(town, guard)
    assert town.status() is UPDATING
    town.verdict_of = saying(WORSE)
    town.turn(2)
    assert is_back(town)
    assert reason(town) == "It is worse."


def test_a_fleet_that_is_no_worse_has_all_traffic_after_the_least_time_of_each_step(
    town: Town,
) -> None:
    serving(town)
    town.verdict_of = saying(NO_WORSE)
    update(town)
    seen = []
    for _ in range(100):
        town.turn(seconds=0.5)
        seen.append(step(town))
        if town.status() is IN_SERVICE:
            break
    assert [seen.count(it) for it in ((0.5, False), (1.0, True))] == pytest.approx(
        [2 * LEAST_STEP_S] * 2, abs=5
    )
    assert config(town) == "config-2"
    assert reason(town) == ""
    (past,) = town.endpoint.updates
    assert [it.verdict for it in past.steps] == [None, "no worse", "no worse"]


@pytest.mark.parametrize(
    "look", [lambda _: None, saying(UNDECIDED)], ids=["none is known", "it is undecided"]
)
def test_without_a_verdict_a_step_lasts_its_time(
    town: Town, look: Callable[[WatchedUpdate], StepVerdict | None]
) -> None:
    serving(town)
    town.verdict_of = look
    update(town)
    town.turn(5, seconds=WAIT_S / 8)
    assert step(town) == (0.5, False)
    town.turn(4, seconds=WAIT_S / 8)
    assert step(town) == (1.0, True)


@cases(
    "outcome, change",
    case("of another step", NO_WORSE, {"since": 1.0}),
    case("of another update", WORSE, {"generation": 99}),
)
def test_a_verdict_counts_for_its_own_step(
    town: Town, outcome: VersionOutcome, change: dict[str, Any]
) -> None:
    serving(town)
    town.verdict_of = lambda it: replace(saying(outcome)(it), **change)
    update(town)
    town.turn(20, seconds=LEAST_STEP_S / 10)
    assert (step(town), reason(town)) == ((0.5, False), "")


def test_alarms_see_each_step_before_it_ends(town: Town) -> None:
    serving(town)
    town.verdict_of = saying(NO_WORSE)
    update(town, replace(GUARD, alarm_names=("errors",)))
    assert get_alarm_view_s(town.state, SCOPE, ["errors"]) == 2 * 10 + EVALUATION_S
    town.turn(27, seconds=1.0)
    assert step(town) == (0.5, False)
    town.turn(5, seconds=1.0)
    assert step(town) == (1.0, True)
    set_alarm(town, AlarmState.ALARM)
    town.turn(2)
    assert is_back(town)
    assert 'CloudWatch alarm "errors" went into ALARM' in reason(town)


@cases(
    "names, view_s",
    case("no alarm", [], 0.0),
    case("an alarm that is deleted", ["gone"], 0.0),
    case("a composite alarm is as slow as what it names", ["any"], 30.0),
)
def test_the_slowest_alarm_counts(town: Town, names: list[str], view_s: float) -> None:
    now = town.clock.now()
    put_alarm(town.state, AlarmState.OK, now)
    composite = CompositeAlarm(
        scope=SCOPE,
        name="any",
        arn=alarm_arn(SCOPE, "any"),
        expression="ALARM(errors) OR ALARM(gone)",
        actions=AlarmActions(),
        status=build_status(now),
        configured_at=now,
        given={},
    )
    town.state.composite_alarms.put(SCOPE, "any", composite, expect=None)
    assert get_alarm_view_s(town.state, SCOPE, names) == view_s


@pytest.mark.parametrize("outcome", [NO_WORSE, WORSE], ids=["no worse", "worse"])
def test_batches_are_decided_by_a_verdict_each(town: Town, outcome: VersionOutcome) -> None:
    serving(town)
    rolling = replace(LINEAR, type=TrafficType.ROLLING)
    town.verdict_of = saying(outcome)
    update(town, UpdateGuard(traffic=rolling, allowance=Allowance()))
    seen: list[tuple[float | None, bool]] = []
    for _ in range(120):
        watched = find_watched_update(town.endpoint)
        if watched is not None and (watched.since, watched.is_trial) not in seen:
            seen.append((watched.since, watched.is_trial))
        town.turn(seconds=0.2)
    name = "config-2" if outcome is NO_WORSE else "config-1"
    assert (town.status(), town.endpoint.active.config.name) == (IN_SERVICE, name)
    if outcome is NO_WORSE:
        trials = [is_trial for since, is_trial in seen if since is not None]
        assert trials == [False, True], "one verdict a batch; none of the old one's are the last's"


def test_what_is_compared_are_the_variants_of_both() -> None:
    old = deployment(variant(model="a", name="A"), variant(model="b", name="B"))
    new = deployment(variant(model="a", name="A"), variant(model="c", name="C"), generation=2)
    found = endpoint(old, status=UPDATING)
    assert find_watched_update(replace(found, pending=new)) is None, "without an allowance"
    watched = find_watched_update(replace(found, pending=replace(new, guard=GUARD)))
    assert watched is not None
    assert (watched.variants, watched.since, watched.is_trial) == (("A",), None, False)
    assert (watched.old_config, watched.new_config) == ("config-1", "config-2")
