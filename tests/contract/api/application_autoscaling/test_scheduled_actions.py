"""Scheduled actions through the API. botocore's models check requests and answers.

PSA means PutScheduledAction in the Application Auto Scaling API reference, 7.6 a section of our own
reference.
"""

from typing import Any

import pytest
from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.domain.scaling import ScheduledAction
from hostelry.domain.scope import Scope
from hostelry.scaling.decide.schedule import find_due_firing
from hostelry.store.records import State

COPIES = {
    "ResourceId": "inference-component/base",
    "ScalableDimension": "sagemaker:inference-component:DesiredCopyCount",
}
INSTANCES = {
    "ResourceId": "endpoint/v/variant/main",
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
}
NIGHT: dict[str, Any] = {
    "ScheduledActionName": "night",
    "Schedule": "cron(0 22 * * ? *)",
    "ScalableTargetAction": {"MinCapacity": 0, "MaxCapacity": 0},
}
HOUR_S = 3600.0


@pytest.fixture(autouse=True)
def registered(served: None, api: Api) -> None:
    for params in (COPIES, INSTANCES):
        api.scaling("RegisterScalableTarget", **params, MinCapacity=1, MaxCapacity=9)


def described(api: Api, **params: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.scaling("DescribeScheduledActions", **params)[
        "ScheduledActions"
    ]
    return found


def stored(state: State, scope: Scope) -> ScheduledAction:
    (found,) = state.scheduled_actions.list(scope)
    return found.value


def test_an_action_is_described_as_it_was_put(api: Api) -> None:
    times = {"StartTime": api.clock.now() + HOUR_S, "EndTime": api.clock.now() + 99 * HOUR_S}
    assert (
        api.scaling("PutScheduledAction", **COPIES, **NIGHT, **times, Timezone="Asia/Tokyo") == {}
    )
    (shown,) = described(api)
    arn = shown.pop("ScheduledActionARN")
    assert arn.startswith("arn:aws:autoscaling:us-west-2:123456789012:scheduledAction:")
    assert arn.endswith(":resource/sagemaker/inference-component/base:scheduledActionName/night")
    assert shown == {
        **NIGHT,
        **COPIES,
        **times,
        "ServiceNamespace": "sagemaker",
        "Timezone": "Asia/Tokyo",
        "CreationTime": api.clock.now(),
    }


def test_putting_again_changes_what_it_gives_and_deletes_times_not_given(api: Api) -> None:
    # PSA: start and end times that are not given again are deleted. Other fields stay.
    times = {"StartTime": api.clock.now() + HOUR_S, "EndTime": api.clock.now() + 99 * HOUR_S}
    api.scaling("PutScheduledAction", **COPIES, **NIGHT, **times, Timezone="Asia/Tokyo")
    before = described(api)[0]
    api.clock.advance(60.0)
    api.scaling(
        "PutScheduledAction",
        **COPIES,
        ScheduledActionName="night",
        ScalableTargetAction={"MaxCapacity": 2},
    )
    (after,) = described(api)
    assert after["ScalableTargetAction"] == {"MaxCapacity": 2}
    for name in ("Schedule", "Timezone", "ScheduledActionARN", "CreationTime"):
        assert after[name] == before[name]
    assert "StartTime" not in after
    assert "EndTime" not in after


def test_a_new_schedule_does_not_make_up_for_what_it_would_have_done(api: Api) -> None:
    api.scaling("PutScheduledAction", **COPIES, **NIGHT)
    assert stored(api.state, api.scope).fired_at is None
    api.clock.advance(240 * HOUR_S)
    api.scaling("PutScheduledAction", **COPIES, **{**NIGHT, "Schedule": "rate(1 minute)"})
    assert find_due_firing(stored(api.state, api.scope), api.clock.now()) is None
    assert find_due_firing(stored(api.state, api.scope), api.clock.now() + 60.0) is not None


def test_the_same_schedule_again_forgets_no_firing(api: Api) -> None:
    api.scaling("PutScheduledAction", **COPIES, **NIGHT)
    api.clock.advance(240 * HOUR_S)
    missed = find_due_firing(stored(api.state, api.scope), api.clock.now())
    api.scaling("PutScheduledAction", **COPIES, **NIGHT)
    assert missed is not None
    assert find_due_firing(stored(api.state, api.scope), api.clock.now()) == missed


@cases(
    "params, message",
    case("no schedule (PSA)", {"Schedule": None}, "Schedule is required"),
    case("a line of crontab", {"Schedule": "0 22 * * *"}, "it must be at("),
    case("no question mark", {"Schedule": "cron(0 22 * * * *)"}, "must be ?"),
    case("no rate", {"Schedule": "rate(0 hours)"}, "whole number from 1"),
    case("a time in the past", {"Schedule": "at(2001-01-01T00:00:00)"}, "would not fire any more"),
    case("30 February", {"Schedule": "cron(0 0 30 2 ? *)"}, "would not fire"),
    case("over before it began", {"EndTime": 1.0}, "would not fire"),
    case("no time zone", {"Timezone": "Mars/Olympus"}, "is not the name of an IANA time zone"),
    case("a path for a time zone", {"Timezone": "../../../etc/passwd"}, "IANA"),
    case("ends before it starts", {"StartTime": 9e9, "EndTime": 8e9},
        "StartTime must be before EndTime"),
    case("ends as it starts", {"StartTime": 9e9, "EndTime": 9e9}, "must be before"),
    case("starts beyond every calendar", {"StartTime": 8e9}, "would not fire"),
    case("no action", {"ScalableTargetAction": None}, "ScalableTargetAction is required"),
    case("an empty action (PSA)", {"ScalableTargetAction": {}}, "ScalableTargetAction is required"),
    case("bounds crossed", {"ScalableTargetAction": {"MinCapacity": 3, "MaxCapacity": 2}},
        "Maximum capacity cannot be less"),
    case("less than nothing", {"ScalableTargetAction": {"MinCapacity": -1}},
        "cannot be less than 0"),
    case("at most less than nothing", {"ScalableTargetAction": {"MaxCapacity": -1}},
        "cannot be less"),
    case("too many", {"ScalableTargetAction": {"MaxCapacity": 10**8}}, "at most 1000"),
)  # fmt: skip
def test_what_is_no_scheduled_action(api: Api, params: dict[str, Any], message: str) -> None:
    given = {name: value for name, value in {**NIGHT, **params}.items() if value is not None}
    code, text = api.scaling_refusal("PutScheduledAction", **COPIES, **given)
    assert code == "ValidationException"
    assert message in text
    assert described(api) == []


@pytest.mark.parametrize("bounds", [{"MinCapacity": 0}, {"MaxCapacity": 0}])
def test_a_variant_is_not_put_to_zero(api: Api, bounds: dict[str, int]) -> None:
    action = {**NIGHT, "ScalableTargetAction": bounds}
    code, _ = api.scaling_refusal("PutScheduledAction", **INSTANCES, **action)
    assert code == "ValidationException"


def test_what_is_not_there(api: Api) -> None:
    of = {**COPIES, "ResourceId": "inference-component/es"}
    where = (
        "for service namespace: sagemaker, resource ID: inference-component/es, scalable dimension:"
        " sagemaker:inference-component:DesiredCopyCount"
    )
    assert api.scaling_refusal("PutScheduledAction", **of, **NIGHT) == (
        "ObjectNotFoundException",
        f"No scalable target registered {where}",
    )
    assert api.scaling_refusal("DeleteScheduledAction", **of, ScheduledActionName="night") == (
        "ObjectNotFoundException",
        f"No scheduled action found {where}, scheduled action name: night",
    )


def test_describing_and_deleting(api: Api) -> None:
    api.scaling("PutScheduledAction", **COPIES, **NIGHT)
    api.scaling("PutScheduledAction", **COPIES, **{**NIGHT, "ScheduledActionName": "noon"})
    day = {"ScalableTargetAction": {"MinCapacity": 2}}
    api.scaling("PutScheduledAction", **INSTANCES, **{**NIGHT, **day})
    assert len(described(api)) == 3
    assert len(described(api, ScheduledActionNames=["night"])) == 2
    assert len(described(api, **COPIES)) == 2
    assert described(api, ServiceNamespace="ecs") == []
    assert (
        api.scaling_refusal(
            "DescribeScheduledActions", ScalableDimension=COPIES["ScalableDimension"]
        )[0]
        == "ValidationException"
    )
    page = api.scaling("DescribeScheduledActions", MaxResults=2)
    rest = api.scaling("DescribeScheduledActions", MaxResults=2, NextToken=page["NextToken"])
    assert (len(rest["ScheduledActions"]), "NextToken" in rest) == (1, False)
    assert (
        api.scaling_refusal("DescribeScheduledActions", NextToken="x")[0]
        == "InvalidNextTokenException"
    )
    assert api.scaling("DeleteScheduledAction", **COPIES, ScheduledActionName="night") == {}
    assert [it["ScheduledActionName"] for it in described(api, **COPIES)] == ["noon"]


def test_two_hundred_actions_of_a_target(api: Api) -> None:
    # 7.1: quotas.
    for number in range(200):
        api.scaling(
            "PutScheduledAction", **COPIES, **{**NIGHT, "ScheduledActionName": f"n{number}"}
        )
    code, text = api.scaling_refusal("PutScheduledAction", **COPIES, **NIGHT)
    assert (code, "at most 200" in text) == ("LimitExceededException", True)
    api.scaling("PutScheduledAction", **COPIES, **{**NIGHT, "ScheduledActionName": "n7"})
