"""Updates that alarms guard: taken back while they run or bake, and left alone otherwise."""

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from tests.selection import numbers
from tests.unit.reconcile.samples import (
    SCOPE,
    Town,
    component,
    component_spec,
    deployment,
    endpoint,
    needs,
    variant,
)
from tests.unit.reconcile.test_reconcile_faults import (
    FaultyStore,
    Killed,
    create_model_endpoint,
    live,
)
from tests.unit.reconcile.test_reconciler import beside, play

from hostelry.base.clock import SystemClock
from hostelry.base.errors import Conflict
from hostelry.domain.alarm import (
    AlarmActions,
    AlarmRule,
    AlarmState,
    Comparison,
    CompositeAlarm,
    MetricAlarm,
    alarm_arn,
)
from hostelry.domain.component import (
    CapacitySize,
    CapacityUnit,
    ComponentStatus,
    RollingUpdate,
    Rollout,
)
from hostelry.domain.endpoint import Endpoint, EndpointStatus, UpdateGuard
from hostelry.domain.metric import Metric, MetricStat
from hostelry.domain.resize import is_only_resized
from hostelry.fleet.fake import FakeFleet
from hostelry.reconcile.plan.endpoint_state import GroupKey
from hostelry.reconcile.plan.plan import next_plan_at
from hostelry.reconcile.reconciler import Reconciler
from hostelry.reconcile.record import find_guarded_keys, load_all
from hostelry.scaling.decide.alarm_events import build_status, move_status
from hostelry.store.records import State

ALARM, OK, NO_DATA = AlarmState.ALARM, AlarmState.OK, AlarmState.INSUFFICIENT_DATA
UPDATING, IN_SERVICE = EndpointStatus.UPDATING, EndpointStatus.IN_SERVICE
NEW = 9


def set_alarm(town: Town, state: AlarmState) -> None:
    """An alarm "errors", in that state."""
    put_alarm(town.state, state, town.clock.now())


def put_alarm(records: State, state: AlarmState, now: float, name: str = "errors") -> None:
    found = records.metric_alarms.get(SCOPE, name)
    alarm = MetricAlarm(
        scope=SCOPE,
        name=name,
        arn=alarm_arn(SCOPE, name),
        rule=AlarmRule(
            evaluation_periods=1,
            datapoints_to_alarm=1,
            threshold=1.0,
            comparison=Comparison.GREATER,
            stat=MetricStat(
                metric=Metric(namespace="Own", name="Errors"), period_s=10, statistic="Sum"
            ),
        ),
        actions=AlarmActions(),
        status=move_status(build_status(now), state, "a test", None, now),
        configured_at=now,
        given={},
    )
    records.metric_alarms.put(SCOPE, name, alarm, expect=found.version if found else None)


def roll(town: Town, wait_s: float = 10.0) -> None:
    found = town.component()
    policy = RollingUpdate(
        max_batch=CapacitySize(unit=CapacityUnit.COPY_COUNT, value=1),
        wait_s=wait_s,
        alarm_names=("errors",),
    )
    town.change_component(
        status=ComponentStatus.UPDATING,
        spec=component_spec(needs(), "new:1", NEW),
        previous_spec=found.spec,
        rollout=Rollout(policy=policy, started_at=town.clock.now()),
    )


def components_serving(town: Town) -> None:
    town.add(endpoint(deployment(variant(count=2))), component(copies=4))
    town.settle()
    assert len(town.routed_copies()) == 4


def generations(town: Town) -> set[int]:
    routed = set(town.routed_copies())
    return {it.generation for it in town.copy_records() if it.spec.id in routed}


@pytest.mark.parametrize(
    "state", [OK, NO_DATA, None], ids=["all is well", "no data", "the alarm is gone"]
)
def test_a_rolling_update_goes_on_while_no_alarm_alarms(
    town: Town, state: AlarmState | None
) -> None:
    components_serving(town)
    if state is not None:
        set_alarm(town, state)
    roll(town, wait_s=1.0)
    town.turn(200, seconds=0.5)
    found = town.component()
    assert (found.status, found.failure_reason) == (ComponentStatus.IN_SERVICE, None)
    assert generations(town) == {NEW}


@pytest.mark.parametrize("turns", [0, 6, 40], ids=["at the start", "early", "after batches"])
def test_an_alarm_takes_a_rolling_update_back(town: Town, turns: int) -> None:
    components_serving(town)
    set_alarm(town, OK if turns else ALARM)
    roll(town)
    town.turn(turns, seconds=0.5)
    assert (NEW in generations(town)) is (turns > 0)
    set_alarm(town, ALARM)
    for _ in range(200):
        town.turn(seconds=0.5)
        assert len(town.routed_copies()) >= 3, "at most a batch is away"
        town.check_integrity()
    found = town.component()
    assert found.status is ComponentStatus.IN_SERVICE
    assert found.failure_reason == (
        'CloudWatch alarm "errors" went into ALARM state; the update was rolled back.'
    )
    assert generations(town) == {1}
    assert len(town.routed_copies()) == 4


def models_serving(town: Town) -> None:
    town.add(endpoint(deployment(variant(model="m"))))
    town.settle()
    assert town.status() is IN_SERVICE


def update(town: Town, **guard: object) -> None:
    pending = replace(
        deployment(variant(model="m2"), generation=2),
        started_at=town.clock.now(),
        guard=UpdateGuard(**guard),  # type: ignore[arg-type] # fields by name
    )
    town.change_endpoint(status=UPDATING, pending=pending)


def config(town: Town) -> str:
    return town.endpoint.active.config.name


def routed(town: Town) -> set[int]:
    route = town.endpoint_route()
    ids = {it.id for it in route.variants[0].copies}
    return {it.generation for it in town.copy_records(None) if it.spec.id in ids}  # type: ignore[arg-type] # a model's


def test_a_new_deployment_bakes_beside_the_old_one(town: Town) -> None:
    models_serving(town)
    update(town, bake_s=30.0)
    town.turn(60, seconds=0.2)
    assert town.endpoint.bake is not None
    assert town.status() is UPDATING
    assert not is_only_resized(town.endpoint), "it cannot be scaled meanwhile"
    assert routed(town) == {2}
    assert len(town.fleet.machines) == 2, "the old one is kept"
    (state,) = load_all(town.state)
    all_observed = next_plan_at(state, town.context())
    assert all_observed is not None
    assert all_observed <= town.endpoint.bake.since + 30.0
    before = town.state.store.revision()
    town.turn(5)
    assert town.state.store.revision() == before, "a bake is not written again and again"
    town.clock.advance(30)
    town.settle()
    assert (town.status(), config(town)) == (IN_SERVICE, "config-2")
    assert town.endpoint.failure_reason is None
    assert len(town.fleet.machines) == 1


def test_pace_shortens_a_bake(town: Town) -> None:
    models_serving(town)
    town.pace = 10.0
    update(town, bake_s=30.0)
    town.turn(60, seconds=0.2)
    town.settle()
    assert town.status() is IN_SERVICE


@pytest.mark.parametrize("is_baking", [False, True], ids=["while it comes up", "while it bakes"])
def test_an_alarm_takes_an_endpoints_update_back(town: Town, is_baking: bool) -> None:
    models_serving(town)
    set_alarm(town, OK)
    town.switches.slow = not is_baking
    update(town, bake_s=60.0, alarm_names=("errors",))
    town.turn(60, seconds=0.2)
    assert routed(town) == ({2} if is_baking else {1})
    town.switches.slow = False
    set_alarm(town, ALARM)
    for _ in range(40):
        town.turn(seconds=0.2)
        assert routed(town), "at no instant is there nothing to route to"
    assert (town.status(), config(town), routed(town)) == (IN_SERVICE, "config-1", {1})
    assert town.endpoint.bake is None
    assert '"errors" went into ALARM' in (town.endpoint.failure_reason or "")
    town.settle()
    assert len(town.fleet.machines) == 1


def test_an_alarm_that_alarms_at_the_start_takes_the_update_back_at_once(town: Town) -> None:
    models_serving(town)
    set_alarm(town, ALARM)
    update(town, alarm_names=("other", "errors"))
    town.turn(2)
    assert (town.status(), config(town)) == (IN_SERVICE, "config-1")


def test_a_composite_alarm_guards_as_well(town: Town) -> None:
    models_serving(town)
    now = town.clock.now()
    alarm = CompositeAlarm(
        scope=SCOPE,
        name="any",
        arn=alarm_arn(SCOPE, "any"),
        expression="TRUE",
        actions=AlarmActions(),
        status=move_status(build_status(now), ALARM, "a test", None, now),
        configured_at=now,
        given={},
    )
    town.state.composite_alarms.put(SCOPE, "any", alarm, expect=None)
    update(town, alarm_names=("any",))
    town.turn(2)
    assert (town.status(), config(town)) == (IN_SERVICE, "config-1")


def test_an_update_that_takes_too_long_goes_back(town: Town) -> None:
    models_serving(town)
    update(town, bake_s=550.0, max_execution_s=600.0)
    town.turn(60, seconds=0.2)
    assert town.endpoint.bake is not None
    town.clock.advance(580)
    town.turn(3)
    assert config(town) == "config-2", "the bake ended in time"
    update(town, max_execution_s=600.0)
    town.switches.slow = True
    town.change_endpoint(deadline_at=town.clock.now() + 3600)
    town.clock.advance(601)
    town.turn(2)
    assert town.status() is IN_SERVICE
    assert "MaximumExecutionTimeoutInSeconds, 600" in (town.endpoint.failure_reason or "")


def given_up(town: Town) -> None:
    update(town, bake_s=30.0, max_execution_s=6.0)


@pytest.mark.parametrize(
    "fault", [Conflict("moved"), Killed()], ids=["a conflict", "control is killed"]
)
def test_a_fault_at_each_write_of_an_update_that_is_taken_back(
    fault: Exception, pytestconfig: pytest.Config
) -> None:
    def led(fails_at: int | None) -> tuple[object, int]:
        store = FaultyStore(fault)
        store.fails_at = fails_at
        town = Town(store=store)
        try:
            return live(town, [create_model_endpoint, given_up], store), store.num_writes
        finally:
            town.close()

    expected, num_writes = led(None)
    for number in numbers(pytestconfig, num_writes):
        assert led(number)[0] == expected


def test_an_endpoint_is_deleted_in_the_middle_of_a_bake(town: Town) -> None:
    models_serving(town)
    update(town, bake_s=600.0)
    town.turn(60, seconds=0.2)
    town.change_endpoint(status=EndpointStatus.DELETING, deadline_at=None)
    town.settle()
    assert town.find_endpoint() is None
    assert town.fleet.machines == {}


def test_an_instance_of_either_deployment_that_is_lost_comes_again(town: Town) -> None:
    models_serving(town)
    update(town, bake_s=600.0)
    town.turn(60, seconds=0.2)
    town.restart_control()
    town.turn(40, seconds=0.2)
    assert len(town.fleet.machines) == 2
    assert routed(town) == {2}


def test_an_alarm_wakes_the_endpoints_that_it_guards(town: Town) -> None:
    components_serving(town)
    assert find_guarded_keys(town.state, SCOPE, "errors") == set()
    roll(town)
    assert find_guarded_keys(town.state, SCOPE, "errors") == {GroupKey(SCOPE, "ep")}
    assert find_guarded_keys(town.state, SCOPE, "other") == set()


def test_a_transition_takes_an_update_back_at_once() -> None:
    async def scenario(state: State, fleet: FakeFleet, reconciler: Reconciler) -> None:
        async def until(holds: Callable[[Endpoint], bool]) -> None:
            while True:
                found = state.endpoints.get(SCOPE, "ep")
                if found is not None and holds(found.value):
                    return
                await asyncio.sleep(0.01)

        now = SystemClock().now()
        put_alarm(state, OK, now)
        state.endpoints.put(SCOPE, "ep", endpoint(deployment(variant(model="m"))), expect=None)
        await until(lambda it: it.status is IN_SERVICE)
        guard = UpdateGuard(alarm_names=("errors",), bake_s=3600.0)
        pending = deployment(variant(model="m2"), generation=2)
        found = state.endpoints.get(SCOPE, "ep")
        assert found is not None
        updated = replace(
            found.value,
            status=UPDATING,
            pending=replace(pending, guard=guard, started_at=now),
            deadline_at=now + 600,
        )
        state.endpoints.put(SCOPE, "ep", updated, expect=found.version)
        await until(lambda it: it.bake is not None)
        put_alarm(state, ALARM, now)
        # Everything is looked at every 30 s. The alarm's record wakes this endpoint before that.
        async with asyncio.timeout(10):
            await until(lambda it: it.status is IN_SERVICE)

    play(lambda state, fleet: beside(state, fleet, scenario))
