"""The watching of alarms on a clock that is set by hand."""

import asyncio
import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.scaling.loop.alarm_rig import (
    ALARM,
    HOOK,
    NO_DATA,
    OK,
    POLICY,
    SCOPE,
    TOPIC,
    Rig,
    rule_of,
)

from hostelry.base.errors import Conflict, RetryableError
from hostelry.domain.alarm import AlarmActions, MissingData
from hostelry.domain.metric import Datapoint, MetricQuery, MetricStat
from hostelry.domain.scope import Scope
from hostelry.metrics.series.store import MemoryMetrics
from hostelry.store.memory import MemoryStore
from hostelry.store.protocol import Key, Record


def test_an_alarm_is_written_once_and_asks_its_policy_every_ten_seconds() -> None:
    rig = Rig()
    rig.put()
    rig.measure(1.0, 20)
    assert rig.alarm().status.state is OK
    assert rig.scaler.triggers == []
    rig.measure(9.0, 40)
    alarm = rig.alarm()
    assert alarm.status.state is ALARM
    assert alarm.status.previous is OK
    assert alarm.status.reason.startswith("Threshold Crossed: 1 out of the last 1 datapoints [9.0")
    found = rig.state.metric_alarms.get(SCOPE, "high")
    assert found is not None
    version = found.version
    asked = [it.at for it in rig.scaler.triggers]
    # User Guide: scaling actions are invoked again while the alarm stays in its state.
    assert 3 <= len(asked) <= 4
    assert {round(later - at) for at, later in pairwise(asked)} == {10}
    first = rig.scaler.triggers[0]
    assert (first.policy_arn, first.alarm_name, first.state) == (POLICY, "high", ALARM)
    assert (first.threshold, [it.value for it in first.values]) == (5.0, [9.0])
    rig.measure(9.0, 20)
    again = rig.state.metric_alarms.get(SCOPE, "high")
    assert again is not None
    assert again.version == version, "only a transition is written"
    rig.measure(1.0, 20)
    assert rig.alarm().status.state is OK
    num = len(rig.scaler.triggers)
    rig.measure(1.0, 20)
    assert len(rig.scaler.triggers) == num
    assert rig.history() == [
        "Alarm updated from ALARM to OK",
        f"Successfully executed action {POLICY}",
        "Alarm updated from OK to ALARM",
        "Alarm updated from INSUFFICIENT_DATA to OK",
    ]


def test_an_alarm_of_minutes_asks_its_policy_each_minute() -> None:
    rig = Rig()
    rig.put(period_s=60)
    rig.measure(9.0, 300)
    asked = [it.at for it in rig.scaler.triggers]
    assert 3 <= len(asked) <= 4
    assert {round(later - at) for at, later in pairwise(asked)} == {60}


def test_load_is_seen_within_a_period_and_a_few_seconds() -> None:
    rig = Rig()
    rig.put(num=3)
    rig.measure(1.0, 60)
    rig.advance(3)
    rig.measure(9.0, 37)  # from 3 s into a period: the third whole one ends 30 to 40 s later
    assert rig.alarm().status.state is ALARM


def test_a_control_that_starts_again_asks_at_once() -> None:
    rig = Rig()
    rig.put()
    rig.measure(9.0, 15)
    num = len(rig.scaler.triggers)
    rig.restart()
    rig.look()
    assert len(rig.scaler.triggers) == num + 1
    assert sum("executed" in it for it in rig.history()) == 1, "a repetition is no news"


def test_a_kill_between_state_and_action_loses_no_action() -> None:
    rig = Rig()
    rig.put()
    rig.measure(1.0, 12)
    rig.scaler.fails = [KeyboardInterrupt("killed")]  # type: ignore[list-item]
    with pytest.raises(KeyboardInterrupt):
        rig.measure(9.0, 20)
    assert rig.alarm().status.state is ALARM, "the state was written first"
    assert rig.scaler.triggers == []
    rig.restart()
    rig.look()
    assert [it.state for it in rig.scaler.triggers] == [ALARM]


def test_a_policy_that_cannot_be_asked_now_is_asked_again() -> None:
    rig = Rig()
    rig.put()
    rig.scaler.fails = [RetryableError("the disk is full")]
    rig.measure(9.0, 12)
    assert rig.scaler.triggers == []
    assert rig.history()[0] == f"Failed to execute action {POLICY}"
    rig.measure(9.0, 12)
    assert len(rig.scaler.triggers) >= 1


def test_web_actions_are_marked_once_they_are_done() -> None:
    rig = Rig(topics={"alerts": ("http://127.0.0.1:1/a", "http://127.0.0.1:1/b")})
    rig.put(actions=AlarmActions(alarm=(TOPIC, HOOK, POLICY)))
    rig.sample(9.0)
    (alarm,) = rig.look_for(12)[:1]
    assert alarm.status.state is ALARM
    assert rig.alarm().status.acted_at is None
    assert len(rig.scaler.triggers) == 1, "a policy does not wait for the web"
    rig.notify([alarm])
    assert sorted(it[0] for it in rig.web.posted) == [
        "http://127.0.0.1:1/a",
        "http://127.0.0.1:1/b",
        HOOK,
    ]
    assert rig.alarm().status.acted_at is not None
    assert rig.look_for(1) == []
    assert f"Successfully executed action {TOPIC}" in rig.history()


def test_a_kill_before_the_mark_resends_with_the_same_message_id() -> None:
    rig = Rig()
    rig.put(actions=AlarmActions(alarm=(HOOK,)))
    rig.sample(9.0)
    first = rig.look_for(12)
    rig.restart()
    again = rig.look()
    assert [it.name for it in again] == ["high"]
    rig.notify([first[0], *again])
    ids = {json.loads(body)["MessageId"] for _, _, body in rig.web.posted}
    assert len(ids) == 1


def test_a_state_set_by_hand_is_acted_on_before_the_next_evaluation_corrects_it() -> None:
    rig = Rig()
    rig.put(actions=AlarmActions(alarm=(HOOK, POLICY)))
    rig.measure(1.0, 15)
    rig.force("high", ALARM, '{"recentDatapoints": [7.0, 8.0], "threshold": 5.0}')
    notified = rig.look()
    assert [it.status.state for it in notified] == [ALARM]
    (asked,) = rig.scaler.triggers
    # SetAlarmState: policies take what StateReasonData says.
    assert [it.value for it in asked.values] == [7.0, 8.0]
    rig.measure(1.0, 15)
    assert rig.alarm().status.state is OK
    assert len(rig.scaler.triggers) == 1


def test_a_state_set_by_hand_without_data_is_acted_on_with_what_was_measured() -> None:
    rig = Rig()
    rig.put()
    rig.measure(1.0, 15)
    rig.force("high", ALARM, "no JSON")
    rig.look()
    assert [it.value for it in rig.scaler.triggers[0].values] == [1.0]
    assert rig.alarm().status.acted_at is not None


async def test_the_loop_notifies_and_survives_a_store_that_cannot_write() -> None:
    class Once(MemoryStore):
        failed = 0

        def put(self, key: Key, body: bytes, *, expect: int | None) -> Record:
            if key.kind == "metric_alarm" and expect is not None and not self.failed:
                self.failed += 1
                raise RetryableError("the disk is full")
            return super().put(key, body, expect=expect)

    store = Once()
    rig = Rig(store)
    rig.steady = rig.clock
    rig.restart()
    rig.put(actions=AlarmActions(alarm=(HOOK,)))
    rig.sample(9.0)
    watching = asyncio.create_task(rig.watch.run())
    async with asyncio.timeout(20):
        while not rig.web.posted:
            rig.sample(9.0)
            await asyncio.sleep(0)
    watching.cancel()
    await asyncio.wait([watching])
    assert store.failed == 1
    assert rig.alarm().status.state is ALARM


def test_disabled_actions_are_not_done_while_states_go_on() -> None:
    rig = Rig()
    rig.put(actions=AlarmActions(enabled=False, alarm=(POLICY, HOOK)))
    rig.sample(9.0)
    assert rig.look_for(12) == []
    assert rig.alarm().status.state is ALARM
    assert rig.scaler.triggers == []


class Contested(MemoryStore):
    """A store in which another writer writes the alarm just before, a number of times."""

    contests = 0

    def put(self, key: Key, body: bytes, *, expect: int | None) -> Record:
        if key.kind == "metric_alarm" and expect is not None and self.contests > 0:
            self.contests -= 1
            raise Conflict("another writer was faster")
        return super().put(key, body, expect=expect)


def test_a_lost_race_is_run_again() -> None:
    store = Contested()
    rig = Rig(store)
    rig.put()
    store.contests = 3
    rig.measure(9.0, 10)
    rig.measure(9.0, 8)
    assert store.contests == 0
    assert rig.alarm().status.state is ALARM
    assert sum("updated from" in it for it in rig.history()) == 1


def test_a_metric_gap_ends_in_no_data_and_nothing_is_done() -> None:
    rig = Rig()
    rig.put()
    rig.measure(9.0, 15)
    rig.look_for(25)
    assert rig.alarm().status.state is ALARM, "the range is wider than what is evaluated"
    rig.look_for(20)
    assert rig.alarm().status.state is NO_DATA
    num = len(rig.scaler.triggers)
    rig.look_for(60)
    assert len(rig.scaler.triggers) == num


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0], ids=["an hour ahead", "an hour back"])
def test_a_clock_that_is_set_moves_no_alarm_and_leaves_none_stuck(jump_s: float) -> None:
    rig = Rig()
    rig.measure(1.0, 60)
    rig.put("quiet", num=3, missing=MissingData.BREACHING)
    rig.put("late", num=3)
    rig.put("slow", num=5, period_s=60)
    rig.measure(1.0, 400)
    before = {it: rig.alarm(it).status for it in ("quiet", "late", "slow")}
    assert {it.state for it in before.values()} == {OK}
    rig.clock.advance(jump_s)
    rig.measure(1.0, 60)
    assert {it: rig.alarm(it).status for it in before} == before
    assert rig.scaler.triggers == []
    rig.measure(9.0, 40)
    assert rig.alarm("quiet").status.state is ALARM
    assert rig.alarm("late").status.state is ALARM
    asked = len(rig.scaler.triggers)
    rig.measure(9.0, 30)
    assert asked + 4 <= len(rig.scaler.triggers) <= asked + 8, "as often as ever"
    rig.measure(9.0, 540)
    assert rig.alarm("slow").status.state is ALARM


def test_a_clock_that_creeps_is_not_set() -> None:
    rig = Rig()
    rig.put()
    for _ in range(30):
        rig.clock.advance(0.5)
        rig.measure(9.0)
    assert rig.alarm().status.state is ALARM


class Faulty(MemoryMetrics):
    """Metrics of which one cannot be computed."""

    def datapoints(
        self, scope: Scope, stat: MetricStat, start: float, end: float
    ) -> Sequence[Datapoint]:
        if stat.metric.name == "Faulty":
            raise ZeroDivisionError("a defect")
        return super().datapoints(scope, stat, start, end)


def test_an_alarm_that_fails_does_not_keep_others_from_being_evaluated() -> None:
    rig = Rig()
    rig.metrics = Faulty(rig.clock)
    rig.restart()
    rig.put("a", metric="Faulty")
    rig.put("b")
    rig.sample(9.0)
    rig.advance(12)
    with pytest.raises(ZeroDivisionError):
        rig.look()
    rig.look()
    assert rig.alarm("b").status.state is ALARM


def test_an_expression_is_watched_and_one_that_cannot_be_computed_has_no_data() -> None:
    rig = Rig()
    stat = rule_of().stat
    ratio = (
        MetricQuery(id="m1", stat=stat, return_data=False),
        MetricQuery(id="e1", expression="m1 * 2"),
    )
    rig.put("double", stat=None, queries=ratio)
    rig.put("broken", stat=None, queries=(ratio[0], MetricQuery(id="e1", expression="m9")))
    rig.sample(4.0)
    rig.advance(12)
    rig.look()
    assert rig.alarm("double").status.state is ALARM
    assert rig.alarm("broken").status.state is NO_DATA


def test_percentiles_of_few_samples_keep_the_state() -> None:
    rig = Rig()
    stat = rule_of().stat
    assert stat is not None
    rig.put(stat=replace(stat, statistic="p90"), ignores_few_samples=True)
    rig.measure(9.0, 25)
    assert rig.alarm().status.state is NO_DATA
    for _ in range(12):
        for _ in range(20):
            rig.sample(9.0)
        rig.measure(9.0)
    assert rig.alarm().status.state is ALARM


def test_more_than_a_batch_is_evaluated_in_several_passes() -> None:
    rig = Rig()
    for number in range(1100):
        rig.put(f"a{number:04d}", actions=AlarmActions())
    rig.sample(9.0)
    rig.advance(12)
    for expected in (500, 1000, 1100):
        rig.look()
        found = [it.value for it in rig.state.metric_alarms.list()]
        assert sum(it.status.state is ALARM for it in found) == expected


def test_a_changed_alarm_is_evaluated_again_and_one_that_is_gone_is_forgotten() -> None:
    rig = Rig()
    rig.put()
    rig.measure(4.0, 13)
    assert rig.alarm().status.state is OK
    found = rig.state.metric_alarms.get(SCOPE, "high")
    assert found is not None
    changed = replace(
        found.value, rule=rule_of(threshold=3.0), configured_at=rig.clock.now(), owner=None
    )
    rig.state.metric_alarms.put(SCOPE, "high", changed, expect=found.version)
    rig.look()
    assert rig.alarm().status.state is ALARM
    found = rig.state.metric_alarms.get(SCOPE, "high")
    assert found is not None
    rig.state.metric_alarms.delete(SCOPE, "high", expect=found.version)
    rig.measure(9.0, 3)
    assert rig.state.metric_alarms.list() == []


def test_a_composite_follows_its_children_and_theirs() -> None:
    rig = Rig()
    rig.put("a", actions=AlarmActions())
    rig.put("b", metric="Other", actions=AlarmActions())
    rig.put_composite("both", "ALARM(a) AND ALARM(b)")
    rig.put_composite("above", "ALARM(both)", actions=AlarmActions())
    rig.sample(9.0)
    rig.sample(1.0, "Other")
    rig.advance(12)
    rig.look()
    assert (rig.alarm("both").status.state, rig.alarm("above").status.state) == (OK, OK)
    rig.sample(9.0)
    rig.sample(9.0, "Other")
    notified = rig.look_for(12)
    assert rig.alarm("both").status.state is ALARM
    assert rig.alarm("above").status.state is ALARM, "in the same pass"
    assert {it.name for it in notified} == {"both"}
    reason = rig.alarm("both").status.reason
    assert reason.startswith("arn:aws:cloudwatch:us-west-2:123456789012:alarm:")
    assert "transitioned to ALARM at" in reason
    data = json.loads(rig.alarm("both").status.reason_data or "")
    assert {it["state"]["value"] for it in data["triggeringAlarms"]} == {"ALARM"}


def test_a_composite_that_was_set_by_hand_stays_until_a_child_changes() -> None:
    rig = Rig()
    rig.put("a", actions=AlarmActions())
    rig.put_composite("both", "ALARM(a)", actions=AlarmActions())
    rig.measure(1.0, 13)
    rig.force("both", ALARM)
    rig.measure(1.0, 30)
    assert rig.alarm("both").status.state is ALARM
    rig.measure(9.0, 13)
    rig.measure(1.0, 25)
    assert rig.alarm("both").status.state is OK


def test_a_composite_waits_for_its_suppressor() -> None:
    rig = Rig()
    rig.put("a", actions=AlarmActions())
    rig.put("quiet", metric="Quiet", actions=AlarmActions())
    rig.put_composite(
        "both",
        "ALARM(a)",
        suppressor="quiet",
        suppressor_wait_s=20.0,
        suppressor_extension_s=15.0,
        actions=AlarmActions(alarm=(HOOK,)),
    )
    rig.sample(9.0)
    rig.advance(12)
    assert rig.look() == []
    assert rig.alarm("both").status.state is ALARM
    rig.force("quiet", ALARM)
    found = rig.state.metric_alarms.get(SCOPE, "quiet")
    assert found is not None
    for _ in range(40):
        rig.sample(9.0)
        rig.sample(9.0, "Quiet")
        assert rig.look_for(1) == [], "the suppressor alarms"
    rig.force("quiet", OK)
    waited = 0
    while not rig.look():
        rig.sample(9.0)
        rig.sample(1.0, "Quiet")
        rig.advance(1)
        waited += 1
    assert 14 <= waited <= 40


def test_histories_of_alarms_that_are_gone_are_forgotten_in_time() -> None:
    rig = Rig()
    rig.put("a")
    rig.put("gone")
    rig.sample(9.0)
    rig.advance(12)
    rig.look()
    found = rig.state.metric_alarms.get(SCOPE, "gone")
    assert found is not None
    rig.state.metric_alarms.delete(SCOPE, "gone", expect=found.version)
    rig.advance(3601)
    rig.look()
    assert rig.history("gone"), "it outlives its alarm"
    rig.advance(31 * 86_400)
    rig.look()
    assert rig.history("gone") == []
    assert rig.history("a")


def test_a_store_that_cannot_write_now_loses_no_transition() -> None:
    class Full(MemoryStore):
        is_full = False

        def put(self, key: Key, body: bytes, *, expect: int | None) -> Record:
            if self.is_full:
                raise RetryableError("the disk is full")
            return super().put(key, body, expect=expect)

    store = Full()
    rig = Rig(store)
    rig.put()
    rig.measure(1.0, 13)
    store.is_full = True
    failed: list[Any] = []
    for _ in range(20):
        rig.sample(9.0)
        rig.advance(1)
        try:
            rig.look()
        except RetryableError as error:
            failed.append(error)
    assert failed
    store.is_full = False
    rig.measure(9.0, 12)
    assert rig.alarm().status.state is ALARM
    assert rig.scaler.triggers
