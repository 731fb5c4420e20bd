"""DescribeScalingActivities. botocore's models check requests and answers.

DSA means DescribeScalingActivities in the Application Auto Scaling API reference, 7.7 a section of
our own reference.
"""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from tests.contract.api.rig import Api

from hostelry.base.clock import ManualClock
from hostelry.domain.scaling import ActivityStatus, Dimension, NotScaled, ScalingActivity
from hostelry.domain.scope import Scope
from hostelry.store.records import State

Book = Callable[..., None]
WEEK_S = 7 * 86_400.0


@pytest.fixture
def book(state: State, scope: Scope, clock: ManualClock) -> Book:
    """`book(id, seconds ago, **fields)` writes an activity as the scaler does."""

    def write(name: str, ago_s: float, **fields: Any) -> None:
        activity = ScalingActivity(
            scope=scope,
            id=name,
            resource_id="inference-component/base",
            dimension=Dimension.COPIES,
            from_capacity=1,
            to_capacity=2,
            cause="monitor alarm a in state ALARM triggered policy p",
            description="Setting desired copy count to 2.",
            status=ActivityStatus.SUCCESSFUL,
            started_at=clock.now() - ago_s,
        )
        state.scaling_activities.put(scope, name, replace(activity, **fields), expect=None)

    return write


def ids(api: Api, **params: Any) -> list[str]:
    found = api.scaling("DescribeScalingActivities", **params)["ScalingActivities"]
    return [it["ActivityId"] for it in found]


def test_an_act_is_described(api: Api, book: Book) -> None:
    now = api.clock.now()
    message = (
        "Successfully set desired copy count to 2. Change successfully fulfilled by sagemaker."
    )
    book("a", 60.0, ended_at=now - 30.0, status_message=message, details="{}")
    assert api.scaling("DescribeScalingActivities")["ScalingActivities"] == [
        {
            "ActivityId": "a",
            "ServiceNamespace": "sagemaker",
            "ResourceId": "inference-component/base",
            "ScalableDimension": "sagemaker:inference-component:DesiredCopyCount",
            "Description": "Setting desired copy count to 2.",
            "Cause": "monitor alarm a in state ALARM triggered policy p",
            "StartTime": now - 60.0,
            "EndTime": now - 30.0,
            "StatusCode": "Successful",
            "StatusMessage": message,
            "Details": "{}",
        }
    ]


def test_what_is_under_way_has_no_end(api: Api, book: Book) -> None:
    book("a", 60.0, status=ActivityStatus.IN_PROGRESS)
    (shown,) = api.scaling("DescribeScalingActivities")["ScalingActivities"]
    assert not {"EndTime", "Details", "StatusMessage", "NotScaledReasons"} & set(shown)


def test_the_newest_comes_first_and_six_weeks_are_kept(api: Api, book: Book) -> None:
    # 7.7
    for name, ago_s in (("old", 5 * WEEK_S), ("new", 1.0), ("b", 9.0), ("gone", 6 * WEEK_S + 1)):
        book(name, ago_s)
    assert ids(api) == ["new", "b", "old"]


def test_what_was_not_done_is_shown_where_it_is_asked_for(api: Api, book: Book) -> None:
    # DSA: IncludeNotScaledActivities.
    reason = NotScaled(code="AlreadyAtMaxCapacity", max_capacity=4, current_capacity=4)
    book("not", 1.0, not_scaled=(reason,))
    book("done", 2.0)
    assert ids(api) == ["done"]
    shown = api.scaling("DescribeScalingActivities", IncludeNotScaledActivities=True)
    assert shown["ScalingActivities"][0]["NotScaledReasons"] == [
        {"Code": "AlreadyAtMaxCapacity", "MaxCapacity": 4, "CurrentCapacity": 4}
    ]
    assert len(shown["ScalingActivities"]) == 2


def test_filters(api: Api, book: Book) -> None:
    book("a", 1.0)
    book("b", 2.0, resource_id="endpoint/v/variant/main", dimension=Dimension.INSTANCES)
    assert ids(api, ResourceId="endpoint/v/variant/main") == ["b"]
    of = {"ScalableDimension": "sagemaker:variant:DesiredInstanceCount"}
    assert ids(api, ResourceId="endpoint/v/variant/main", **of) == ["b"]
    assert ids(api, ResourceId="inference-component/base", **of) == []
    assert ids(api, ServiceNamespace="ecs") == []
    assert api.scaling_refusal("DescribeScalingActivities", **of)[0] == "ValidationException"


def test_pages_hold_still_while_new_acts_come(api: Api, book: Book) -> None:
    for number in range(120):
        book(f"{number:03}", float(number + 1))
    book("000b", 1.0)  # at the same instant as another
    seen: list[str] = []
    token: dict[str, str] = {}
    while True:
        page = api.scaling("DescribeScalingActivities", **token)
        seen += [it["ActivityId"] for it in page["ScalingActivities"]]
        if "NextToken" not in page:
            break
        token = {"NextToken": page["NextToken"]}
        book(f"later{len(seen)}", 0.5)
    assert seen == ["000b", *(f"{number:03}" for number in range(120))]


def test_tokens_are_bound_to_their_question(api: Api, book: Book) -> None:
    for number in range(3):
        book(f"{number}", float(number))
    token = api.scaling("DescribeScalingActivities", MaxResults=2)["NextToken"]
    other = {"NextToken": token, "IncludeNotScaledActivities": True}
    assert (
        api.scaling_refusal("DescribeScalingActivities", **other)[0] == "InvalidNextTokenException"
    )
    for garbled in (token[:-4], token + "\u00e9", "[]", "W10=", "\x20"):
        code, _ = api.scaling_refusal("DescribeScalingActivities", NextToken=garbled)
        assert code == "InvalidNextTokenException"
