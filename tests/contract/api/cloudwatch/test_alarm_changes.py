"""Alarms that change: states set by hand, switches, ends, histories and tags."""

import json
from typing import Any

import pytest
from tests.cases import case, cases
from tests.contract.api.cloudwatch.alarm_samples import (
    TOPIC,
    Call,
    composite,
    described,
    make,
    refusal,
)

from hostelry.base.clock import ManualClock
from hostelry.base.errors import ServiceError
from hostelry.domain.alarm import AlarmState
from hostelry.domain.scope import Scope
from hostelry.store.records import State


def test_setting_a_state_leaves_its_actions_to_be_done(
    cloudwatch: Call, state: State, scope: Scope, clock: ManualClock
) -> None:
    make(cloudwatch, "high", AlarmActions=[TOPIC])
    clock.advance(5)
    cloudwatch(
        "SetAlarmState",
        AlarmName="high",
        StateValue="ALARM",
        StateReason="a test",
        StateReasonData='{"recentDatapoints":[9.0]}',
    )
    found = state.metric_alarms.get(scope, "high")
    assert found is not None
    assert found.value.status.acted_at is None
    assert found.value.status.previous is AlarmState.INSUFFICIENT_DATA
    clock.advance(5)
    cloudwatch("SetAlarmState", AlarmName="high", StateValue="ALARM", StateReason="again")
    shown = described(cloudwatch)
    assert shown["StateReason"] == "again"
    assert shown["StateUpdatedTimestamp"] == shown["StateTransitionedTimestamp"] + 5


@cases(
    "params, code",
    case("an unknown alarm", {"AlarmName": "gone"}, "ResourceNotFound"),
    case("data that is not JSON", {"StateReasonData": "{"}, "InvalidFormat"),
)
def test_a_state_that_cannot_be_set(cloudwatch: Call, params: dict[str, Any], code: str) -> None:
    make(cloudwatch, "high")
    asked = {"AlarmName": "high", "StateValue": "OK", "StateReason": "", **params}
    assert refusal(cloudwatch, "SetAlarmState", **asked).code == code


def test_actions_are_switched_off_and_on(cloudwatch: Call, state: State, scope: Scope) -> None:
    make(cloudwatch, "high", AlarmActions=[TOPIC])
    cloudwatch("DisableAlarmActions", AlarmNames=["high", "gone", "high"])
    assert described(cloudwatch)["ActionsEnabled"] is False
    cloudwatch("SetAlarmState", AlarmName="high", StateValue="ALARM", StateReason="a test")
    cloudwatch("EnableAlarmActions", AlarmNames=["high"])
    assert described(cloudwatch)["ActionsEnabled"] is True
    found = state.metric_alarms.get(scope, "high")
    assert found is not None
    assert found.value.status.acted_at is not None, "what was missed is not made up for"


def test_deleting_is_all_or_nothing(cloudwatch: Call, state: State) -> None:
    make(cloudwatch, "a", "b", "c")
    composite(cloudwatch, "both", "ALARM(a) AND ALARM(b)")
    composite(cloudwatch, "other", "TRUE")
    # The words of AWS: cloud-custodian issue 7763, aws-nuke issue 462.
    refused = refusal(cloudwatch, "DeleteAlarms", AlarmNames=["c", "b", "a"])
    assert "Cannot delete a,b as there are composite alarm(s) depending on them." in refused.message
    refused = refusal(cloudwatch, "DeleteAlarms", AlarmNames=["both", "other", "c"])
    assert "one composite alarm" in refused.message
    assert len(state.metric_alarms.list()) == 3
    cloudwatch("DeleteAlarms", AlarmNames=["both", "a", "b", "gone"])
    assert [it.value.name for it in state.metric_alarms.list()] == ["c"]
    assert [it.value.name for it in state.composite_alarms.list()] == ["other"]


def test_history_records_what_happened_and_outlives_the_alarm(
    cloudwatch: Call, clock: ManualClock
) -> None:
    make(cloudwatch, "high")
    clock.advance(1)
    cloudwatch(
        "SetAlarmState",
        AlarmName="high",
        StateValue="OK",
        StateReason="a test",
        StateReasonData=json.dumps({"recentDatapoints": [1.0] * 500}),
    )
    clock.advance(1)
    make(cloudwatch, "high", Threshold=2.0)
    clock.advance(1)
    cloudwatch("DeleteAlarms", AlarmNames=["high"])
    items = cloudwatch("DescribeAlarmHistory", AlarmName="high")["AlarmHistoryItems"]
    assert [it["HistorySummary"] for it in items] == [
        'Alarm "high" deleted',
        'Alarm "high" updated',
        "Alarm updated from INSUFFICIENT_DATA to OK",
        'Alarm "high" created',
    ]
    moved = json.loads(items[2]["HistoryData"])
    assert moved["oldState"]["stateValue"] == "INSUFFICIENT_DATA"
    assert moved["newState"]["stateReason"] == "a test"
    oldest = cloudwatch("DescribeAlarmHistory", ScanBy="TimestampAscending", MaxRecords=3)
    assert [it["HistoryItemType"] for it in oldest["AlarmHistoryItems"]] == [
        "ConfigurationUpdate",
        "StateUpdate",
        "ConfigurationUpdate",
    ]
    rest = cloudwatch(
        "DescribeAlarmHistory",
        ScanBy="TimestampAscending",
        MaxRecords=3,
        NextToken=oldest["NextToken"],
    )
    assert [it["HistorySummary"] for it in rest["AlarmHistoryItems"]] == ['Alarm "high" deleted']
    states = cloudwatch("DescribeAlarmHistory", HistoryItemType="StateUpdate")
    assert len(states["AlarmHistoryItems"]) == 1
    later = cloudwatch("DescribeAlarmHistory", StartDate=clock.now() - 1, EndDate=clock.now())
    assert len(later["AlarmHistoryItems"]) == 2


def test_histories_are_of_metric_alarms_unless_others_are_asked_for(cloudwatch: Call) -> None:
    composite(cloudwatch, "both", "TRUE")
    assert cloudwatch("DescribeAlarmHistory")["AlarmHistoryItems"] == []
    found = cloudwatch("DescribeAlarmHistory", AlarmTypes=["CompositeAlarm"])["AlarmHistoryItems"]
    assert [it["AlarmType"] for it in found] == ["CompositeAlarm"]


def test_a_history_is_bounded(cloudwatch: Call, state: State, clock: ManualClock) -> None:
    for number in range(110):
        clock.advance(1)
        make(cloudwatch, "high", Threshold=float(number))
    assert len(state.alarm_histories.list()[0].value.items) == 100
    clock.advance(31 * 86_400)
    make(cloudwatch, "high")
    assert len(state.alarm_histories.list()[0].value.items) == 1


def test_tags_of_an_alarm(cloudwatch: Call, state: State) -> None:
    make(cloudwatch, "high", Tags=[{"Key": "team", "Value": "a"}])
    make(cloudwatch, "high", Tags=[{"Key": "team", "Value": "ignored"}])
    arn = described(cloudwatch)["AlarmArn"]
    cloudwatch("TagResource", ResourceARN=arn, Tags=[{"Key": "tier", "Value": "1"}])
    assert cloudwatch("ListTagsForResource", ResourceARN=arn)["Tags"] == [
        {"Key": "team", "Value": "a"},
        {"Key": "tier", "Value": "1"},
    ]
    cloudwatch("UntagResource", ResourceARN=arn, TagKeys=["team", "gone"])
    assert len(cloudwatch("ListTagsForResource", ResourceARN=arn)["Tags"]) == 1
    cloudwatch("DeleteAlarms", AlarmNames=["high"])
    assert state.tags.list() == []
    assert (
        refusal(cloudwatch, "ListTagsForResource", ResourceARN=arn).code
        == "ResourceNotFoundException"
    )
    odd = refusal(cloudwatch, "ListTagsForResource", ResourceARN="high").code
    assert odd == "InvalidParameterValueException"


def test_alarms_belong_to_an_account_in_a_region(
    call_as: Call, cloudwatch: Call, scope: Scope
) -> None:
    make(cloudwatch, "high")
    elsewhere = Scope(scope.account, "eu-west-1")
    assert call_as(elsewhere, "DescribeAlarms", "cloudwatch")["MetricAlarms"] == []
    with pytest.raises(ServiceError, match="no alarm named"):
        call_as(
            elsewhere,
            "SetAlarmState",
            "cloudwatch",
            AlarmName="high",
            StateValue="OK",
            StateReason="",
        )
