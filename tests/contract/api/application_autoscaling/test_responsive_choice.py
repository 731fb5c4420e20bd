"""The responsive policy is chosen by calls that an unmodified client can make."""

from typing import Any

import pytest
from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.domain.scope import Scope
from hostelry.scaling.loop.responsive_targets import find_responsive_targets

COPIES = {
    "ResourceId": "inference-component/base",
    "ScalableDimension": "sagemaker:inference-component:DesiredCopyCount",
}
INSTANCES = {
    "ResourceId": "endpoint/v/variant/main",
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
}
OF_COMPONENT = {
    "MetricName": "ExpectedConcurrencyPerCopy",
    "Dimensions": [{"Name": "InferenceComponentName", "Value": "base"}],
}
OF_VARIANT = {
    "MetricName": "ExpectedConcurrencyPerModel",
    "Dimensions": [
        {"Name": "VariantName", "Value": "main"},
        {"Name": "EndpointName", "Value": "v"},
    ],
}


def tag(value: str) -> list[dict[str, str]]:
    return [{"Key": "hostelry:responsive", "Value": value}]


@pytest.fixture(autouse=True)
def registered(served: None, api: Api) -> None:
    for params in (COPIES, INSTANCES):
        api.scaling("RegisterScalableTarget", **params, MinCapacity=1, MaxCapacity=9)


@cases(
    "place, metric",
    case("a component's copies", COPIES, OF_COMPONENT),
    case("a variant's instances", INSTANCES, OF_VARIANT),
)
def test_by_a_policy_on_its_own_metric(
    api: Api, place: dict[str, str], metric: dict[str, Any]
) -> None:
    assert not find_responsive_targets(api.state).watched
    put = api.scaling(
        "PutScalingPolicy",
        **place,
        PolicyName="fast",
        PolicyType="TargetTrackingScaling",
        TargetTrackingScalingPolicyConfiguration={
            "TargetValue": 3.0,
            "CustomizedMetricSpecification": {
                "Namespace": "Hostelry",
                "Statistic": "Average",
                **metric,
            },
        },
    )
    assert len(put["Alarms"]) == 2
    (watched,) = find_responsive_targets(api.state).watched.values()
    assert (watched.resource_id, watched.options.target) == (place["ResourceId"], 3.0)
    assert watched.is_tracked
    assert (watched.capacity.minimum, watched.capacity.maximum) == (1, 9)
    api.scaling("DeleteScalingPolicy", **place, PolicyName="fast")
    assert not find_responsive_targets(api.state).watched


@cases(
    "kind, name, watched",
    case("component", "inference-component", "base", ["inference-component/base"]),
    case("endpoint of components", "endpoint", "e", ["inference-component/base"]),
    case("endpoint of models", "endpoint", "v", ["endpoint/v/variant/main"]),
)
def test_by_a_tag(api: Api, kind: str, name: str, watched: list[str]) -> None:
    arn = api.scope.arn(kind, name)
    api.call("AddTags", ResourceArn=arn, Tags=tag("5"))
    assert [it.resource_id for it in find_responsive_targets(api.state).watched.values()] == watched
    api.call("DeleteTags", ResourceArn=arn, TagKeys=["hostelry:responsive"])
    assert not find_responsive_targets(api.state).watched


@cases(
    "value, message",
    case("no number", "fast", '"fast" is no number'),
    case("no concurrency", "0", "target is 0"),
    case("nothing", "", "wanted concurrency per copy"),
    case("a setting out of bounds", "5 scale-in-after-s=1", "scale_in_after_s is 1"),
    case("a setting twice", "5 max-growth=2 max-growth=3", "given twice"),
    case("a setting without a value", "5 max-growth=", "is no number"),
)
def test_a_tag_that_cannot_be_is_refused_and_changes_nothing(
    api: Api, value: str, message: str
) -> None:
    arn = api.scope.arn("inference-component", "base")
    api.call("AddTags", ResourceArn=arn, Tags=tag("5"))
    assert message in api.refusal("AddTags", ResourceArn=arn, Tags=tag(value))
    assert [it.options.target for it in find_responsive_targets(api.state).watched.values()] == [
        5.0
    ]


def test_a_variant_that_is_not_registered_is_not_watched(api: Api) -> None:
    """Of endpoint "v" only the variant "main" is registered."""
    api.call(
        "AddTags",
        ResourceArn=Scope("123456789012", "us-west-2").arn("endpoint", "v"),
        Tags=tag("5"),
    )
    found = find_responsive_targets(api.state)
    assert [it.resource_id for it in found.watched.values()] == ["endpoint/v/variant/main"]
    assert not found.refused
