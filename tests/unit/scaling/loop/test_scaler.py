"""The scaler over records: its decisions and its records, in order."""

import json
from typing import Any

import pytest
from tests.cases import case, cases
from tests.unit.reconcile.samples import NOW, SCOPE
from tests.unit.scaling.loop.scaling_town import (
    INVOCATIONS,
    KEY,
    NAME,
    RESOURCE,
    ScalingTown,
)

from hostelry.domain.component import ComponentStatus
from hostelry.domain.endpoint import Shift
from hostelry.domain.load import Wake
from hostelry.domain.scaling import ActivityStatus
from hostelry.scaling.decide.tracking_alarms import AlarmSide, build_alarm_name


def test_a_target_tracking_alarm_scales_out_in_proportion_and_records_it() -> None:
    # Source: "Scaling activities for Application Auto Scaling" (texts), section "Target tracking".
    town = ScalingTown(copies=1)
    policy = town.track()
    town.alarm(policy, 12.0, 12.0, 12.0)
    assert town.desired == 3
    assert town.base.status is ComponentStatus.UPDATING
    (act,) = town.activities
    name = build_alarm_name(RESOURCE, AlarmSide.HIGH, "tracking")
    assert act.status is ActivityStatus.IN_PROGRESS
    assert act.description == "Setting desired copy count to 3."
    assert act.cause == f"monitor alarm {name} in state ALARM triggered policy tracking"
    assert act.status_message == (
        "Successfully set desired copy count to 3. Waiting for change to be fulfilled by sagemaker."
    )
    town.serve(3)
    town.pass_time(5)
    (act,) = town.activities
    assert act.status is ActivityStatus.SUCCESSFUL
    assert act.ended_at == NOW + 5
    assert act.status_message == (
        "Successfully set desired copy count to 3. Change successfully fulfilled by sagemaker."
    )


def test_a_larger_number_replaces_one_that_is_coming_up() -> None:
    town = ScalingTown(copies=1)
    policy = town.track()
    town.alarm(policy, 12.0)
    town.pass_time(10)
    town.alarm(policy, 30.0)
    assert town.desired == 6
    newer, older = town.activities
    assert older.status is ActivityStatus.OVERRIDDEN
    assert newer.id in older.status_message
    assert (newer.from_capacity, newer.to_capacity) == (3, 6)
    town.pass_time(10)
    town.alarm(policy, 31.0)
    assert town.desired == 7, "counted from the one copy before both acts"


def test_during_the_cooldown_the_same_load_asks_for_no_more() -> None:
    town = ScalingTown(copies=1)
    policy = town.track()
    town.alarm(policy, 12.0)
    town.serve(3)
    town.pass_time(60)
    town.alarm(policy, 12.0)
    assert town.desired == 3
    town.pass_time(200)
    town.alarm(policy, 12.0)
    assert town.desired == 8, "after it the metric counts for the three that serve"


def test_a_pace_divides_the_cooldown() -> None:
    town = ScalingTown(copies=1, pace=20.0)
    policy = town.track()
    town.alarm(policy, 12.0)
    town.serve(3)
    town.pass_time(1)
    town.pass_time(9.5)
    town.alarm(policy, 12.0)
    assert town.desired == 8


def test_scale_in_waits_until_every_tracking_policy_is_ready_for_it() -> None:
    # Source: "Multiple target tracking scaling policies", Application Auto Scaling user guide.
    town = ScalingTown(copies=4)
    one, other = town.track("one"), town.track("other", metric=INVOCATIONS, target=100.0)
    town.alarm(one, 1.0, 1.0, side=AlarmSide.LOW)
    assert town.desired == 4
    assert town.activities == []
    town.alarm(other, 50.0, 40.0, side=AlarmSide.LOW)
    assert town.desired == 2, "the larger of both numbers"
    assert town.activities[0].policy_name == "other"


def test_a_policy_without_a_trigger_since_a_restart_votes_against_scale_in() -> None:
    town = ScalingTown(copies=4)
    one, other = town.track("one"), town.track("other", metric=INVOCATIONS, target=100.0)
    town.alarm(one, 1.0, side=AlarmSide.LOW)
    town.start()
    town.alarm(other, 10.0, side=AlarmSide.LOW)
    assert town.desired == 4
    town.alarm(one, 1.0, side=AlarmSide.LOW)
    assert town.desired == 1


@cases(
    "seconds",
    case("half of the requests fail", {"finished": 10, "errors_5xx": 5}),
    case("requests are refused for want of a copy", {"no_capacity": 3}),
    case("a request waits for four seconds", {"held": 1, "oldest_held_s": 4.0}),
    case("streams are cut off", {"finished": 30, "broken_streams": 4}),
)
def test_the_guard_vetoes_a_scale_in_while(seconds: dict[str, Any]) -> None:
    # Source: the 2024-07-26 post on faster auto scaling: concurrency falls because copies die.
    town = ScalingTown(copies=4)
    policy = town.track()
    town.loads.add(town.now - 2, **seconds)
    town.alarm(policy, 0.5, side=AlarmSide.LOW)
    assert town.desired == 4
    town.loads.seconds.clear()
    town.alarm(policy, 0.5, side=AlarmSide.LOW)
    assert town.desired == 1


def test_copies_that_die_veto_a_scale_in_for_a_minute() -> None:
    town = ScalingTown(copies=4)
    policy = town.track()
    town.pass_time(1)
    town.put_copy("c-1", restarts=1)
    town.pass_time(1)
    town.alarm(policy, 0.5, side=AlarmSide.LOW)
    assert town.desired == 4
    last = town.scaler.last_decision(town.state.scalable_targets.list()[0].value)
    assert last is not None
    assert "1 copies died in the last 60 s" in last.text
    town.pass_time(61)
    town.alarm(policy, 0.5, side=AlarmSide.LOW)
    assert town.desired == 1


def test_an_updates_two_fleets_veto_a_scale_in_until_later_metrics_are_there() -> None:
    town = ScalingTown(copies=4)
    policy = town.track()
    town.change_host(shift=Shift(step=1, since=town.now))
    town.pass_time(1)
    town.change_host(shift=None)
    town.pass_time(149)
    town.alarm(policy, 0.5, side=AlarmSide.LOW)
    assert town.desired == 4
    last = town.scaler.last_decision(town.state.scalable_targets.list()[0].value)
    assert last is not None
    assert "an update's two fleets served" in last.text
    town.pass_time(2)
    town.alarm(policy, 0.5, side=AlarmSide.LOW)
    assert town.desired == 1


@cases(
    "side, suspended",
    case("out is suspended", AlarmSide.HIGH, "scale_out"),
    case("in is suspended", AlarmSide.LOW, "scale_in"),
)
def test_suspended_scaling_changes_nothing_when(side: AlarmSide, suspended: str) -> None:
    town = ScalingTown(copies=4)
    policy = town.track()
    town.register(**{suspended: True})
    town.alarm(policy, 20.0 if side is AlarmSide.HIGH else 0.0, side=side)
    assert town.desired == 4
    town.register()
    town.alarm(policy, 20.0 if side is AlarmSide.HIGH else 0.0, side=side)
    assert town.desired != 4


def test_at_the_maximum_a_reason_is_recorded_once() -> None:
    town = ScalingTown(copies=4)
    policy = town.track()
    town.register(high=4)
    for _ in range(3):
        town.alarm(policy, 9.0)
        town.pass_time(60)
    (refused,) = town.activities
    (reason,) = refused.not_scaled
    assert (reason.code, reason.max_capacity) == ("AlreadyAtMaxCapacity", 4)
    assert refused.status is ActivityStatus.FAILED
    assert refused.description == "Attempting to scale due to alarm triggered"


def test_what_cannot_be_scaled_now_is_recorded_and_done_once_it_can() -> None:
    town = ScalingTown(copies=1)
    policy = town.track()
    town.change(status=ComponentStatus.UPDATING, previous_spec=town.base.spec)
    town.alarm(policy, 12.0)
    assert town.desired == 1
    (refused,) = town.activities
    assert refused.not_scaled[0].code == "TargetServicePutResourceAsUnscalable"
    town.pass_time(1)
    assert town.desired == 1
    town.serve(1, previous_spec=None)
    town.pass_time(1)
    assert town.desired == 3, "the alarm still is in ALARM"


def test_what_could_not_be_scaled_is_left_where_the_alarm_is_over() -> None:
    town = ScalingTown(copies=1)
    policy = town.track()
    town.change(status=ComponentStatus.UPDATING, previous_spec=town.base.spec)
    town.alarm(policy, 12.0)
    town.ok(policy, AlarmSide.HIGH)
    town.serve(1, previous_spec=None)
    town.pass_time(1)
    assert town.desired == 1


def test_a_scale_in_waits_for_copies_that_come_up_but_not_for_want_of_room() -> None:
    town = ScalingTown(copies=1)
    policy = town.track(scale_in_cooldown_s=0.0)
    town.alarm(policy, 20.0)
    town.alarm(policy, 0.0, side=AlarmSide.LOW)
    assert town.desired == 4
    assert town.activities[0].not_scaled[0].code == "TargetServicePutResourceAsUnscalable"
    town.change(placement_note="no instance has 8 CPUs free")
    town.pass_time(1)
    assert town.desired == 1


def test_a_deleted_resource_is_recorded_once() -> None:
    town = ScalingTown(copies=1)
    policy = town.track()
    found = town.state.components.get(SCOPE, "base")
    assert found is not None
    town.state.components.delete(SCOPE, "base", expect=found.version)
    for _ in range(3):
        town.alarm(policy, 12.0)
        town.pass_time(60)
    (recorded,) = town.activities
    assert recorded.status is ActivityStatus.FAILED
    assert "inference-component/base does not exist any more" in recorded.status_message


def test_a_resource_that_is_deleted_meanwhile_ends_its_act() -> None:
    town = ScalingTown(copies=1)
    policy = town.track()
    town.alarm(policy, 12.0)
    town.change(status=ComponentStatus.DELETING)
    town.pass_time(1)
    assert town.activities[0].status is ActivityStatus.FAILED


def test_an_act_without_room_is_unfulfilled_with_the_placement_s_reason() -> None:
    town = ScalingTown(copies=1)
    policy = town.track()
    town.alarm(policy, 12.0)
    town.serve(2, failure_reason="CapacityError: no instance has 8 CPUs free", desired_copies=3)
    town.pass_time(1)
    (act,) = town.activities
    assert act.status is ActivityStatus.UNFULFILLED
    assert "2 serve: CapacityError: no instance has 8 CPUs free" in act.status_message


def test_an_act_is_never_under_way_for_ever() -> None:
    town = ScalingTown(copies=1)
    policy = town.track()
    town.alarm(policy, 12.0)
    town.pass_time(1)
    town.pass_time(1801)
    assert town.activities[0].status is ActivityStatus.UNFULFILLED


def test_a_number_set_by_hand_overrides_an_act() -> None:
    town = ScalingTown(copies=1)
    policy = town.track()
    town.alarm(policy, 12.0)
    town.change(desired_copies=2)
    town.pass_time(1)
    assert town.activities[0].status is ActivityStatus.OVERRIDDEN


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0], ids=["forward", "back"])
def test_a_clock_that_jumps_an_hour_ends_no_act_and_starts_none(jump_s: float) -> None:
    town = ScalingTown(copies=1)
    policy = town.track()
    town.alarm(policy, 12.0)
    town.pass_time(1)
    town.clock.advance(jump_s)
    town.pass_time(1)
    assert town.activities[0].status is ActivityStatus.IN_PROGRESS
    town.alarm(policy, 12.0)
    assert town.desired == 3
    town.serve(3)
    town.pass_time(1)
    acts = [it for it in town.activities if not it.not_scaled]
    assert [it.status for it in acts] == [ActivityStatus.SUCCESSFUL]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_no_number_changes_nothing(value: float) -> None:
    town = ScalingTown(copies=2)
    policy = town.track()
    town.alarm(policy, value)
    town.alarm(policy, value, side=AlarmSide.LOW)
    assert town.desired == 2
    assert town.activities == []


def test_no_data_changes_nothing() -> None:
    town = ScalingTown(copies=2)
    policy = town.track()
    town.alarm(policy)
    town.alarm(policy, side=AlarmSide.LOW)
    assert town.desired == 2


def test_a_step_policy_leaves_zero_and_is_counted_from_the_first_request_without_a_copy() -> None:
    # Source: the scale-to-zero sample: alarm on NoCapacityInvocationFailures, step policy of +1.
    town = ScalingTown(copies=0)
    town.register(low=0)
    policy = town.step()
    town.loads.add(town.now - 20, no_capacity=1)
    town.alarm(policy, 1.0, threshold=1.0, name="no-capacity")
    assert town.desired == 1
    receipt = town.activities[0].receipt
    assert receipt is not None
    assert receipt.load_rose_at == town.now - 20
    assert (
        town.activities[0].cause
        == "monitor alarm no-capacity in state ALARM triggered policy steps"
    )


def test_a_receipt_has_when_load_rose_and_when_a_new_copy_first_answered() -> None:
    town = ScalingTown(copies=1)
    policy = town.track()
    for second in range(40, 0, -1):
        town.loads.add(town.now - second, in_flight_max=3 if second > 22 else 12)
    town.alarm(policy, 12.0, 12.0)
    receipt = town.activities[0].receipt
    assert receipt is not None
    assert receipt.load_rose_at == NOW - 22
    assert receipt.signal["metric"] == 12.0
    town.loads.add(NOW + 1, errors_5xx=1, delayed=2, first_answer_at_by_copy={"c-0": NOW + 1.1})
    town.loads.add(NOW + 3, first_answer_at_by_copy={"c-0": NOW + 3.1, "c-2": NOW + 3.4})
    town.loads.add(NOW + 4, errors_5xx=7, first_answer_at_by_copy={"c-2": NOW + 4.1})
    town.serve(3)
    town.pass_time(5)
    (act,) = town.activities
    details = json.loads(act.details)
    assert (details["t0"], details["t1"], details["t2"]) == (NOW - 22, NOW, NOW + 3.4)
    assert details["detection_s"] == 22.0
    assert details["start_s"] == pytest.approx(3.4)
    assert (details["requests_delayed"], details["requests_failed"]) == (2, 1)


def test_a_receipt_still_takes_the_first_answer_that_comes_after_its_act() -> None:
    town = ScalingTown(copies=1)
    policy = town.track()
    town.alarm(policy, 12.0)
    town.serve(3)
    town.pass_time(5)
    assert town.activities[0].status is ActivityStatus.SUCCESSFUL
    town.loads.add(town.now, first_answer_at_by_copy={"c-1": town.now + 0.5})
    town.pass_time(2)
    receipt = town.activities[0].receipt
    assert receipt is not None
    assert receipt.answered_at == NOW + 5.5


@cases(
    "copies, low, high, expected, cause",
    case("up to the minimum", 1, 3, 5, 3, "minimum capacity was set to 3"),
    case("down to the maximum", 8, 1, 5, 5, "maximum capacity was set to 5"),
)
def test_new_bounds_move_the_number_inside(
    copies: int, low: int, high: int, expected: int, cause: str
) -> None:
    # Source: RegisterScalableTarget in the Application Auto Scaling API reference.
    town = ScalingTown(copies=copies)
    town.register(low, high, scale_in=True, scale_out=True)
    town.scaler.settle(SCOPE, NAME)
    assert town.desired == expected
    assert town.activities[0].cause == cause


def test_bounds_that_cannot_be_kept_now_are_kept_once_they_can() -> None:
    town = ScalingTown(copies=8)
    town.change(status=ComponentStatus.UPDATING, previous_spec=town.base.spec)
    town.register(1, 5)
    town.scaler.settle(SCOPE, NAME)
    assert town.desired == 8
    town.serve(8, previous_spec=None)
    town.pass_time(1)
    assert town.desired == 5


def test_a_target_that_is_deregistered_is_left_alone() -> None:
    town = ScalingTown(copies=1)
    policy = town.track()
    found = town.state.scalable_targets.get(SCOPE, NAME)
    assert found is not None
    town.state.scalable_targets.delete(SCOPE, NAME, expect=found.version)
    town.alarm(policy, 12.0)
    town.scaler.wake(Wake(key=KEY, held=1, at=NOW))
    town.scaler.settle(SCOPE, NAME)
    assert town.desired == 1
    assert town.activities == []


@cases(
    "is_later",
    case("the same component waits out its cooldown", False),
    case("a later one of its name begins without one", True),
)  # fmt: skip
def test_what_a_deleted_component_did_is_no_act_of_a_later_one(is_later: bool) -> None:
    town = ScalingTown(copies=4)
    policy = town.track()
    town.alarm(policy, 1.0, side=AlarmSide.LOW)
    assert town.desired == 1
    town.serve(1)
    town.pass_time(1)
    if is_later:
        town.change(created_at=town.now, desired_copies=4)
    else:
        town.change(desired_copies=4)
    town.serve(4)
    town.alarm(policy, 1.0, side=AlarmSide.LOW)
    assert town.desired == (1 if is_later else 4)


def test_failures_and_crashes_of_a_deleted_component_do_not_veto_a_later_one() -> None:
    town = ScalingTown(copies=4)
    policy = town.track()
    town.scaler.tick()
    town.put_copy("c-3", restarts=1)
    town.loads.add(town.now, finished=10, errors_5xx=5)
    town.pass_time(2)
    town.alarm(policy, 1.0, side=AlarmSide.LOW)
    assert town.desired == 4
    town.pass_time(2)
    town.change(created_at=town.now)
    town.alarm(policy, 1.0, side=AlarmSide.LOW)
    assert town.desired == 1


def test_a_maximum_beyond_what_a_machine_can_keep_fails_with_the_limit() -> None:
    town = ScalingTown(copies=900)
    policy = town.track()
    town.register(high=5000)
    town.alarm(policy, 12.0)
    assert town.desired == 900
    assert town.activities[0].status is ActivityStatus.FAILED
    assert "at most 1000 are possible" in town.activities[0].status_message
