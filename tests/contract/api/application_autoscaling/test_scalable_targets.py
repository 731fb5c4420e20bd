"""Scalable targets through the API. botocore's models check requests and answers.

RST means RegisterScalableTarget in the Application Auto Scaling API reference, 7.1 the section on
targets in our own reference.
"""

import re
from typing import Any

import pytest
from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.base.errors import ServiceError
from hostelry.domain.component import ComponentStatus
from hostelry.domain.endpoint import EndpointStatus
from hostelry.domain.scope import Scope

COPIES = {
    "ResourceId": "inference-component/base",
    "ScalableDimension": "sagemaker:inference-component:DesiredCopyCount",
}
INSTANCES = {
    "ResourceId": "endpoint/v/variant/main",
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
}
BOUNDS = {"MinCapacity": 1, "MaxCapacity": 4}
TRACKING = {
    "PolicyName": "p",
    "PolicyType": "TargetTrackingScaling",
    "TargetTrackingScalingPolicyConfiguration": {
        "TargetValue": 5.0,
        "PredefinedMetricSpecification": {
            "PredefinedMetricType": "SageMakerInferenceComponentInvocationsPerCopy"
        },
    },
}

pytestmark = pytest.mark.usefixtures("served")


def described(api: Api, **params: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.scaling("DescribeScalableTargets", **params)[
        "ScalableTargets"
    ]
    return found


def test_a_target_is_described_as_it_was_registered(api: Api) -> None:
    arn = api.scaling("RegisterScalableTarget", **COPIES, **BOUNDS)["ScalableTargetARN"]
    prefix = "arn:aws:application-autoscaling:us-west-2:123456789012:scalable-target/0ec5"
    assert re.fullmatch(re.escape(prefix) + "[0-9a-f]{30}", arn)
    assert described(api) == [
        {
            "ServiceNamespace": "sagemaker",
            **COPIES,
            **BOUNDS,
            "RoleARN": "arn:aws:iam::123456789012:role/aws-service-role/"
            "sagemaker.application-autoscaling.amazonaws.com/"
            "AWSServiceRoleForApplicationAutoScaling_SageMakerEndpoint",
            "CreationTime": api.clock.now(),
            "SuspendedState": {
                "DynamicScalingInSuspended": False,
                "DynamicScalingOutSuspended": False,
                "ScheduledScalingSuspended": False,
            },
            "ScalableTargetARN": arn,
        }
    ]


def test_a_second_registration_changes_what_it_gives_and_keeps_the_rest(api: Api) -> None:
    arn = api.scaling("RegisterScalableTarget", **COPIES, **BOUNDS, RoleARN="arn:role")
    suspended = {"SuspendedState": {"DynamicScalingInSuspended": True}}
    again = api.scaling("RegisterScalableTarget", **COPIES, MaxCapacity=9, **suspended)
    assert again == arn
    (target,) = described(api)
    assert (target["MinCapacity"], target["MaxCapacity"]) == (1, 9)
    assert target["RoleARN"] == "arn:role"
    api.scaling(
        "RegisterScalableTarget",
        **COPIES,
        SuspendedState={"ScheduledScalingSuspended": True},
    )
    assert described(api)[0]["SuspendedState"] == {
        "DynamicScalingInSuspended": True,
        "DynamicScalingOutSuspended": False,
        "ScheduledScalingSuspended": True,
    }


def test_registering_writes_what_is_wanted_and_no_capacity(api: Api) -> None:
    before = api.component("base")
    api.scaling("RegisterScalableTarget", **COPIES, MinCapacity=3, MaxCapacity=4)
    assert api.component("base") == before
    revision = api.state.store.revision()
    api.scaling("RegisterScalableTarget", **COPIES)
    assert api.state.store.revision() > revision, "the scaler looks at the number again"


@cases(
    "params, message",
    case("no minimum", {**COPIES, "MaxCapacity": 4}, "MinCapacity is required"),
    case("no maximum", {**COPIES, "MinCapacity": 4}, "MaxCapacity is required"),
    case("bounds crossed", {**COPIES, "MinCapacity": 5, "MaxCapacity": 4},
        "Maximum capacity cannot be less than minimum capacity"),
    case("less than nothing", {**COPIES, "MinCapacity": -1, "MaxCapacity": 4},
        "cannot be less than 0"),
    case("more than any machine has", {**COPIES, "MinCapacity": 1, "MaxCapacity": 10**9},
        "at most 1000"),
    case("a variant at zero (7.1)", {**INSTANCES, "MinCapacity": 0, "MaxCapacity": 4},
        "a real-time variant needs at least 1 instance"),
    case("no such component (RST)",
        {**COPIES, **BOUNDS, "ResourceId": "inference-component/absent"},
        "Could not find inference component"),
    case("an adapter", {**COPIES, **BOUNDS, "ResourceId": "inference-component/es"},
        "is an adapter, which has no copies of its own; scale its base,"
        " inference-component/base"),
    case("no such endpoint", {**INSTANCES, **BOUNDS, "ResourceId": "endpoint/absent/variant/main"},
        "Could not find endpoint"),
    case("no such variant", {**INSTANCES, **BOUNDS, "ResourceId": "endpoint/v/variant/absent"},
        "its variants are main, other"),
    case("a component with a variant's dimension",
        {**INSTANCES, **BOUNDS, "ResourceId": "inference-component/base"},
        "Unsupported service namespace, resource type or scalable dimension"),
    case("a variant with a component's dimension",
        {**COPIES, **BOUNDS, "ResourceId": "endpoint/v/variant/main"},
        "Unsupported service namespace"),
    case("a bare name", {**COPIES, **BOUNDS, "ResourceId": "base"}, "Unsupported"),
    case("an empty name", {**COPIES, **BOUNDS, "ResourceId": "inference-component/"},
        "Could not find"),
    case("a path for a name", {**COPIES, **BOUNDS, "ResourceId": "inference-component/../x"},
        "Unsupported"),
    case("provisioned concurrency of instances", {**INSTANCES, **BOUNDS, "ScalableDimension":
        "sagemaker:variant:DesiredProvisionedConcurrency"},
        "has instances, and no provisioned concurrency. Register it with"),
    case("of ECS", {"ResourceId": "service/c/s", "ScalableDimension": "ecs:service:DesiredCount",
        "ServiceNamespace": "ecs", **BOUNDS}, "Hostelry scales sagemaker"),
    case("our dimension in another namespace", {**COPIES, **BOUNDS, "ServiceNamespace": "ecs"},
        "Unsupported"),
)  # fmt: skip
def test_what_cannot_be_registered(api: Api, params: dict[str, Any], message: str) -> None:
    code, text = api.scaling_refusal("RegisterScalableTarget", **params)
    assert code == "ValidationException"
    assert message in text


@cases(
    "status, is_refused",
    case("not there yet (7.1)", ComponentStatus.CREATING, True),
    case("failed", ComponentStatus.FAILED, True),
    case("going", ComponentStatus.DELETING, True),
    case("updating, perhaps because it is scaled", ComponentStatus.UPDATING, False),
)
def test_a_component_must_serve(api: Api, status: ComponentStatus, is_refused: bool) -> None:
    api.change_component("base", status=status)
    if is_refused:
        _, text = api.scaling_refusal("RegisterScalableTarget", **COPIES, **BOUNDS)
        assert f"in status {status.value}" in text
        assert described(api) == []
    else:
        api.scaling("RegisterScalableTarget", **COPIES, **BOUNDS)


def test_an_endpoint_must_serve(api: Api) -> None:
    api.change_endpoint("v", status=EndpointStatus.CREATING)
    _, text = api.scaling_refusal("RegisterScalableTarget", **INSTANCES, **BOUNDS)
    assert "in status Creating; wait until it is InService" in text


def test_a_variant_whose_instances_follow_components_is_refused(api: Api) -> None:
    managed = {"Status": "ENABLED", "MinInstanceCount": 1, "MaxInstanceCount": 2}
    api.make.endpoint("managed", {"ManagedInstanceScaling": managed})
    api.change_endpoint("managed", status=EndpointStatus.IN_SERVICE)
    params = {**INSTANCES, "ResourceId": "endpoint/managed/variant/main"}
    _, text = api.scaling_refusal("RegisterScalableTarget", **params, **BOUNDS)
    assert "ManagedInstanceScaling ENABLED" in text


def test_a_component_may_go_to_zero(api: Api) -> None:
    api.scaling("RegisterScalableTarget", **COPIES, MinCapacity=0, MaxCapacity=0)
    assert described(api)[0]["MaxCapacity"] == 0


def test_a_partial_update_that_contradicts_changes_nothing(api: Api) -> None:
    api.scaling("RegisterScalableTarget", **COPIES, **BOUNDS)
    _, text = api.scaling_refusal("RegisterScalableTarget", **COPIES, MinCapacity=5)
    assert "MaxCapacity is 4, MinCapacity 5" in text
    assert described(api)[0]["MinCapacity"] == 1


def test_describing_by_resource_and_dimension(api: Api) -> None:
    for params in (COPIES, INSTANCES):
        api.scaling("RegisterScalableTarget", **params, **BOUNDS)
    ids = ["endpoint/v/variant/main", "inference-component/base"]
    assert [it["ResourceId"] for it in described(api)] == ids
    assert len(described(api, ResourceIds=[ids[1], "inference-component/absent"])) == 1
    dimension = INSTANCES["ScalableDimension"]
    assert len(described(api, ResourceIds=ids, ScalableDimension=dimension)) == 1
    assert described(api, ResourceIds=ids, ScalableDimension="ecs:service:DesiredCount") == []
    assert described(api, ServiceNamespace="ecs") == []
    code, _ = api.scaling_refusal("DescribeScalableTargets", ScalableDimension=dimension)
    assert code == "ValidationException", (
        "a dimension needs a resource id (DescribeScalableTargets)"
    )


def test_pages_and_tokens(api: Api) -> None:
    for params in (COPIES, INSTANCES):
        api.scaling("RegisterScalableTarget", **params, **BOUNDS)
    first = api.scaling("DescribeScalableTargets", MaxResults=1)
    second = api.scaling("DescribeScalableTargets", MaxResults=1, NextToken=first["NextToken"])
    assert "NextToken" not in second
    shown = [it["ResourceId"] for it in first["ScalableTargets"] + second["ScalableTargets"]]
    assert shown == ["endpoint/v/variant/main", "inference-component/base"]
    for token in ("nonsense", "", first["NextToken"] + "x"):
        if token:
            code, _ = api.scaling_refusal("DescribeScalableTargets", NextToken=token)
            assert code == "InvalidNextTokenException"
    for operation in ("DescribeScalingPolicies", "DescribeScalingActivities"):
        code, _ = api.scaling_refusal(operation, NextToken=first["NextToken"])
        assert code == "InvalidNextTokenException", "a token of another list"
    for size in (0, 51, -3):
        code, text = api.scaling_refusal("DescribeScalableTargets", MaxResults=size)
        assert (code, f"Value '{size}' at 'maxResults'" in text) == ("ValidationException", True)


def test_targets_of_another_account_are_not_seen(api: Api) -> None:
    api.scaling("RegisterScalableTarget", **COPIES, **BOUNDS)
    other = api.call_as(
        Scope("210987654321", "us-west-2"),
        "DescribeScalableTargets",
        "application-autoscaling",
        ServiceNamespace="sagemaker",
    )
    assert other["ScalableTargets"] == []


def test_deregistering_takes_policies_alarms_and_schedules_along(api: Api) -> None:
    arn = api.scaling("RegisterScalableTarget", **COPIES, **BOUNDS, Tags={"a": "b"})
    api.scaling("RegisterScalableTarget", **INSTANCES, **BOUNDS)
    api.scaling("PutScalingPolicy", **COPIES, **TRACKING)
    action = {"Schedule": "rate(1 hour)", "ScalableTargetAction": {"MinCapacity": 2}}
    for params in (COPIES, INSTANCES):
        api.scaling("PutScheduledAction", ScheduledActionName="n", **params, **action)
    assert len(api.state.metric_alarms.list(api.scope)) == 2
    assert api.scaling("DeregisterScalableTarget", **COPIES) == {}
    assert [it["ResourceId"] for it in described(api)] == [INSTANCES["ResourceId"]]
    assert api.state.metric_alarms.list(api.scope) == []
    assert api.scaling("DescribeScalingPolicies")["ScalingPolicies"] == []
    (kept,) = api.scaling("DescribeScheduledActions")["ScheduledActions"]
    assert kept["ResourceId"] == INSTANCES["ResourceId"]
    assert api.state.tags.get(api.scope, arn["ScalableTargetARN"]) is None


def test_deregistering_what_is_not_registered(api: Api) -> None:
    assert api.scaling_refusal("DeregisterScalableTarget", **COPIES) == (
        "ObjectNotFoundException",
        "No scalable target found for service namespace: sagemaker, resource ID:"
        " inference-component/base, scalable dimension:"
        " sagemaker:inference-component:DesiredCopyCount",
    )


STEPPING = {
    "PolicyName": "s",
    "PolicyType": "StepScaling",
    "StepScalingPolicyConfiguration": {
        "AdjustmentType": "ChangeInCapacity",
        "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}],
    },
}
HOURLY = {"Schedule": "rate(1 hour)", "ScalableTargetAction": {"MinCapacity": 2}}


def scale(api: Api, resource: dict[str, str], name: str) -> None:
    """Give a resource a target with everything that can belong to one."""
    api.scaling("RegisterScalableTarget", **resource, **BOUNDS, Tags={"a": "b"})
    metric = "SageMakerVariantInvocationsPerInstance"
    if resource["ResourceId"].startswith("inference-component"):
        metric = "SageMakerInferenceComponentInvocationsPerCopy"
    tracking = {"TargetValue": 5.0, "PredefinedMetricSpecification": {
        "PredefinedMetricType": metric}}  # fmt: skip
    member = "TargetTrackingScalingPolicyConfiguration"
    api.scaling("PutScalingPolicy", **resource, **{**TRACKING, member: tracking})
    policy = api.scaling("PutScalingPolicy", **resource, **STEPPING)["PolicyARN"]
    api.scaling("PutScheduledAction", ScheduledActionName="n", **resource, **HOURLY)
    rule = {"MetricName": "M", "Namespace": "N", "Statistic": "Sum", "Period": 60,
            "EvaluationPeriods": 1, "Threshold": 1.0,
            "ComparisonOperator": "GreaterThanThreshold"}  # fmt: skip
    actions = {"AlarmActions": [policy, "http://example.com/on"], "OKActions": [policy]}
    api.call("PutMetricAlarm", "cloudwatch", AlarmName=name, **rule, **actions)


def scaled(api: Api) -> dict[str, list[str]]:
    """The resources of every target, policy and scheduled action."""
    found = {
        "targets": described(api),
        "policies": api.scaling("DescribeScalingPolicies")["ScalingPolicies"],
        "actions": api.scaling("DescribeScheduledActions")["ScheduledActions"],
    }
    return {kind: sorted(it["ResourceId"] for it in rows) for kind, rows in found.items()}


OTHER = {**INSTANCES, "ResourceId": "endpoint/v2/variant/main"}


@pytest.mark.parametrize(
    ("resource", "deletes"),
    [
        # "Delete endpoints configured for auto scaling" in the SageMaker developer guide.
        pytest.param(INSTANCES, [("DeleteEndpoint", {"EndpointName": "v"})], id="an endpoint"),
        pytest.param(COPIES, [("DeleteInferenceComponent", {"InferenceComponentName": name})
            for name in ("es", "base")], id="a component"),
    ],
)  # fmt: skip
def test_what_is_deleted_is_no_scalable_target_any_more(
    api: Api,
    resource: dict[str, str], deletes: list[tuple[str, dict[str, str]]]
) -> None:  # fmt: skip
    api.make.endpoint("v2", {"ModelName": "m"})
    api.change_endpoint("v2", status=EndpointStatus.IN_SERVICE)
    scale(api, resource, "own")
    scale(api, OTHER, "other")
    (own,) = described(api, ResourceIds=[resource["ResourceId"]])
    for operation, params in deletes:
        api.call(operation, **params)
    kept = OTHER["ResourceId"]
    assert scaled(api) == {"targets": [kept], "policies": [kept] * 2, "actions": [kept]}
    assert api.state.tags.get(api.scope, own["ScalableTargetARN"]) is None
    alarms = {it.value.name: it.value for it in api.state.metric_alarms.list(api.scope)}
    assert {"own", "other"} < alarms.keys()
    assert len(alarms) == 4, "the two of the other's tracking policy stay"
    assert len(alarms["other"].actions.alarm) == 2


def test_a_user_s_alarm_stays_without_the_policy_that_is_deleted(api: Api) -> None:
    # DeleteScalingPolicy: a step policy's alarm action goes, its alarm stays.
    scale(api, COPIES, "own")
    api.clock.advance(5.0)
    api.scaling("DeleteScalingPolicy", **COPIES, PolicyName="s")
    (own,) = api.call("DescribeAlarms", "cloudwatch", AlarmNames=["own"])["MetricAlarms"]
    assert (own["AlarmActions"], own["OKActions"]) == (["http://example.com/on"], [])
    items = api.call("DescribeAlarmHistory", "cloudwatch", AlarmName="own")["AlarmHistoryItems"]
    assert items[0]["HistorySummary"] == 'Alarm "own" updated'


@cases(
    "resource",
    case("an endpoint", INSTANCES),
    case("a component", COPIES),
)  # fmt: skip
def test_a_target_that_an_earlier_version_kept_does_not_act_on_a_later_resource(
    api: Api, resource: dict[str, str]
) -> None:
    scale(api, resource, "own")
    for records, name in ((api.state.components, "es"), (api.state.components, "base"),
                          (api.state.endpoints, "v")):  # fmt: skip
        found = records.get(api.scope, name)
        assert found is not None
        records.delete(api.scope, name, expect=found.version)
    assert scaled(api)["targets"] == [resource["ResourceId"]]
    api.make.component("base")
    api.call("CreateEndpoint", EndpointName="v", EndpointConfigName="v-config")
    assert scaled(api) == {"targets": [], "policies": [], "actions": []}


@cases(
    "variant, message",
    case("the variant is dropped (7.1)", {"VariantName": "other", "ModelName": "m"},
        "has no such variant"),
    case("the variant stays", {"VariantName": "main", "ModelName": "m"}, None),
)  # fmt: skip
def test_an_update_must_keep_scaled_variants(api: Api, variant: Any, message: str | None) -> None:
    api.scaling("RegisterScalableTarget", **INSTANCES, **BOUNDS)
    api.make.config("next", variant)
    update = {"EndpointName": "v", "EndpointConfigName": "next"}
    if message is None:
        api.call("UpdateEndpoint", **update)
        return
    text = api.refusal("UpdateEndpoint", **update)
    assert message in text
    assert "Deregister endpoint/v/variant/main from Application Auto Scaling first" in text
    api.scaling("DeregisterScalableTarget", **INSTANCES)
    api.call("UpdateEndpoint", **update)


def test_an_update_must_not_hand_scaled_instances_to_components(api: Api) -> None:
    target = {**INSTANCES, "ResourceId": "endpoint/e/variant/main"}
    api.scaling("RegisterScalableTarget", **target, **BOUNDS)
    managed = {"Status": "ENABLED", "MinInstanceCount": 1, "MaxInstanceCount": 2}
    api.make.config("next", {"ManagedInstanceScaling": managed})
    text = api.refusal("UpdateEndpoint", EndpointName="e", EndpointConfigName="next")
    assert "manages its instances" in text


def test_tags(api: Api) -> None:
    arn = api.scaling("RegisterScalableTarget", **COPIES, **BOUNDS, Tags={"a": "1"})
    name = {"ResourceARN": arn["ScalableTargetARN"]}

    def tagging(operation: str, **params: Any) -> dict[str, Any]:
        return api.call_as(api.scope, operation, "application-autoscaling", **name, **params)

    assert tagging("TagResource", Tags={"b": "2", "a": "3"}) == {}
    assert tagging("ListTagsForResource") == {"Tags": {"a": "3", "b": "2"}}
    tagging("UntagResource", TagKeys=["a", "absent"])
    assert tagging("ListTagsForResource") == {"Tags": {"b": "2"}}
    api.scaling("RegisterScalableTarget", **COPIES, Tags={"c": "4"})
    assert tagging("ListTagsForResource") == {"Tags": {"b": "2", "c": "4"}}


@cases(
    "tags, code",
    case("too many", {f"k{at}": "" for at in range(51)}, "TooManyTagsException"),
    case("a reserved prefix", {"AWS:x": "1"}, "ValidationException"),
)
def test_tags_that_cannot_be(api: Api, tags: dict[str, str], code: str) -> None:
    assert api.scaling_refusal("RegisterScalableTarget", **COPIES, **BOUNDS, Tags=tags)[0] == code
    assert described(api) == [], "nothing is registered by a call that is refused"


def test_tags_of_what_is_not_registered(api: Api) -> None:
    arn = "arn:aws:application-autoscaling:us-west-2:123456789012:scalable-target/0ec5"
    for operation, more in (
        ("ListTagsForResource", {}),
        ("TagResource", {"Tags": {"a": "b"}}),
        ("UntagResource", {"TagKeys": ["a"]}),
    ):
        with pytest.raises(ServiceError) as caught:
            api.call_as(api.scope, operation, "application-autoscaling", ResourceARN=arn, **more)
        assert caught.value.code == "ResourceNotFoundException"
        assert caught.value.members == {"ResourceName": arn}
