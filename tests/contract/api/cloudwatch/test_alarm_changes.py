"""Alarms that change: states set by hand, switches, ends, histories and tags."""

import json
from typing import Any

import pytest
from tests.cases import case, cases
from tests.contract.api.cloudwatch.alarm_samples import (
    TOPIC,
    composite,
    described,
    make,
    refusal,
)
from tests.contract.api.rig import Api

from hostelry.base.errors import ServiceError
from hostelry.domain.alarm import AlarmState
from hostelry.domain.scope import Scope


def test_setting_a_state_leaves_its_actions_to_be_done(api: Api) -> None:
    make(api, "high", AlarmActions=[TOPIC])
    api.clock.advance(5)
    api.cloudwatch(
        "SetAlarmState",
        AlarmName="high",
        StateValue="ALARM",
        StateReason="a test",
        StateReasonData='{"recentDatapoints":[9.0]}',
    )
    found = api.state.metric_alarms.get(api.scope, "high")
    assert found is not None
    assert found.value.status.acted_at is None
    assert found.value.status.previous is AlarmState.INSUFFICIENT_DATA
    api.clock.advance(5)
    api.cloudwatch("SetAlarmState", AlarmName="high", StateValue="ALARM", StateReason="again")
    shown = described(api)
    assert shown["StateReason"] == "again"
    assert shown["StateUpdatedTimestamp"] == shown["StateTransitionedTimestamp"] + 5


@cases(
    "params, code",
    case("an unknown alarm", {"AlarmName": "gone"}, "ResourceNotFound"),
    case("data that is not JSON", {"StateReasonData": "{"}, "InvalidFormat"),
)
def test_a_state_that_cannot_be_set(api: Api, params: dict[str, Any], code: str) -> None:
    make(api, "high")
    asked = {"AlarmName": "high", "StateValue": "OK", "StateReason": "", **params}
    assert refusal(api, "SetAlarmState", **asked).code == code


def test_actions_are_switched_off_and_on(api: Api) -> None:
    make(api, "high", AlarmActions=[TOPIC])
    api.cloudwatch("DisableAlarmActions", AlarmNames=["high", "gone", "high"])
    assert described(api)["ActionsEnabled"] is False
    api.cloudwatch("SetAlarmState", AlarmName="high", StateValue="ALARM", StateReason="a test")
    api.cloudwatch("EnableAlarmActions", AlarmNames=["high"])
    assert described(api)["ActionsEnabled"] is True
    found = api.state.metric_alarms.get(api.scope, "high")
    assert found is not None
    assert found.value.status.acted_at is not None, "what was missed is not made up for"


def test_deleting_is_all_or_nothing(api: Api) -> None:
    make(api, "a", "b", "c")
    composite(api, "both", "ALARM(a) AND ALARM(b)")
    composite(api, "other", "TRUE")
    # The words of AWS: cloud-custodian issue 7763, aws-nuke issue 462.
    refused = refusal(api, "DeleteAlarms", AlarmNames=["c", "b", "a"])
    assert "Cannot delete a,b as there are composite alarm(s) depending on them." in refused.message
    refused = refusal(api, "DeleteAlarms", AlarmNames=["both", "other", "c"])
    assert "one composite alarm" in refused.message
    assert len(api.state.metric_alarms.list()) == 3
    api.cloudwatch("DeleteAlarms", AlarmNames=["both", "a", "b", "gone"])
    assert [it.value.name for it in api.state.metric_alarms.list()] == ["c"]
    assert [it.value.name for it in api.state.composite_alarms.list()] == ["other"]


def test_history_records_what_happened_and_outlives_the_alarm(api: Api) -> None:
    make(api, "high")
    api.clock.advance(1)
    api.cloudwatch(
        "SetAlarmState",
        AlarmName="high",
        StateValue="OK",
        StateReason="a test",
        StateReasonData=json.dumps({"recentDatapoints": [1.0] * 500}),
    )
    api.clock.advance(1)
    make(api, "high", Threshold=2.0)
    api.clock.advance(1)
    api.cloudwatch("DeleteAlarms", AlarmNames=["high"])
    items = api.cloudwatch("DescribeAlarmHistory", AlarmName="high")["AlarmHistoryItems"]
    assert [it["HistorySummary"] for it in items] == [
        'Alarm "high" deleted',
        'Alarm "high" updated',
        "Alarm updated from INSUFFICIENT_DATA to OK",
        'Alarm "high" created',
    ]
    moved = json.loads(items[2]["HistoryData"])
    assert moved["oldState"]["stateValue"] == "INSUFFICIENT_DATA"
    assert moved["newState"]["stateReason"] == "a test"
    oldest = api.cloudwatch("DescribeAlarmHistory", ScanBy="TimestampAscending", MaxRecords=3)
    assert [it["HistoryItemType"] for it in oldest["AlarmHistoryItems"]] == [
        "ConfigurationUpdate",
        "StateUpdate",
        "ConfigurationUpdate",
    ]
    rest = api.cloudwatch(
        "DescribeAlarmHistory",
        ScanBy="TimestampAscending",
        MaxRecords=3,
        NextToken=oldest["NextToken"],
    )
    assert [it["HistorySummary"] for it in rest["AlarmHistoryItems"]] == ['Alarm "high" deleted']
    states = api.cloudwatch("DescribeAlarmHistory", HistoryItemType="StateUpdate")
    assert len(states["AlarmHistoryItems"]) == 1
    later = api.cloudwatch(
        "DescribeAlarmHistory", StartDate=api.clock.now() - 1, EndDate=api.clock.now()
    )
    assert len(later["AlarmHistoryItems"]) == 2


def test_histories_are_of_metric_alarms_unless_others_are_asked_for(api: Api) -> None:
    composite(api, "both", "TRUE")
    assert api.cloudwatch("DescribeAlarmHistory")["AlarmHistoryItems"] == []
    found = api.cloudwatch("DescribeAlarmHistory", AlarmTypes=["CompositeAlarm"])[
        "AlarmHistoryItems"
    ]
    assert [it["AlarmType"] for it in found] == ["CompositeAlarm"]


def test_a_history_is_bounded(api: Api) -> None:
    for number in range(110):
        api.clock.advance(1)
        make(api, "high", Threshold=float(number))
    assert len(api.state.alarm_histories.list()[0].value.items) == 100
    api.clock.advance(31 * 86_400)
    make(api, "high")
    assert len(api.state.alarm_histories.list()[0].value.items) == 1


def test_tags_of_an_alarm(api: Api) -> None:
    make(api, "high", Tags=[{"Key": "team", "Value": "a"}])
    make(api, "high", Tags=[{"Key": "team", "Value": "ignored"}])
    arn = described(api)["AlarmArn"]
    api.cloudwatch("TagResource", ResourceARN=arn, Tags=[{"Key": "tier", "Value": "1"}])
    assert api.cloudwatch("ListTagsForResource", ResourceARN=arn)["Tags"] == [
        {"Key": "team", "Value": "a"},
        {"Key": "tier", "Value": "1"},
    ]
    api.cloudwatch("UntagResource", ResourceARN=arn, TagKeys=["team", "gone"])
    assert len(api.cloudwatch("ListTagsForResource", ResourceARN=arn)["Tags"]) == 1
    api.cloudwatch("DeleteAlarms", AlarmNames=["high"])
    assert api.state.tags.list() == []
    assert refusal(api, "ListTagsForResource", ResourceARN=arn).code == "ResourceNotFoundException"
    odd = refusal(api, "ListTagsForResource", ResourceARN="high").code
    assert odd == "InvalidParameterValueException"


def test_alarms_belong_to_an_account_in_a_region(api: Api) -> None:
    make(api, "high")
    elsewhere = Scope(api.scope.account, "eu-west-1")
    assert api.call_as(elsewhere, "DescribeAlarms", "cloudwatch")["MetricAlarms"] == []
    with pytest.raises(ServiceError, match="no alarm named"):
        api.call_as(
            elsewhere,
            "SetAlarmState",
            "cloudwatch",
            AlarmName="high",
            StateValue="OK",
            StateReason="",
        )
