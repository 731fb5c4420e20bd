"""The two boto3 programs of AWS's post on high-resolution metrics, unchanged, on the operations.

Source: "Amazon SageMaker inference launches faster auto scaling for generative AI models"
(2024-07-26). Its line breaks, which the stored copy has lost, are put back.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ClientError
from tests.cases import case, cases

from hostelry.base.clock import ManualClock
from hostelry.domain.scope import Scope

Client = Callable[[str], Any]

VARIANT = """
autoscaling_client = boto3.client("application-autoscaling", region_name=region)

# Register scalable target
scalable_target = autoscaling_client.register_scalable_target(
    ServiceNamespace="sagemaker",
    ResourceId=resource_id,
    ScalableDimension="sagemaker:variant:DesiredInstanceCount",
    MinCapacity=as_min_capacity,
    MaxCapacity=as_max_capacity,  # Replace with your desired maximum instances
)

# Create Target Tracking Scaling Policy
target_tracking_policy_response = autoscaling_client.put_scaling_policy(
    PolicyName="SageMakerEndpointScalingPolicy",
    ServiceNamespace="sagemaker",
    ResourceId=resource_id,
    ScalableDimension="sagemaker:variant:DesiredInstanceCount",
    PolicyType="TargetTrackingScaling",
    TargetTrackingScalingPolicyConfiguration={
        "TargetValue": 5.0,  # Scaling triggers when endpoint receives 5 ConcurrentRequestsPerModel
        "PredefinedMetricSpecification": {
            "PredefinedMetricType": "SageMakerVariantConcurrentRequestsPerModelHighResolution"
        },
        "ScaleInCooldown": 180,  # Cooldown period after scale-in activity
        "ScaleOutCooldown": 180,  # Cooldown period after scale-out activity
    },
)
"""
COMPONENT = """
autoscaling_client = boto3.client("application-autoscaling", region_name=region)

# Register scalable target
scalable_target = autoscaling_client.register_scalable_target(
    ServiceNamespace="sagemaker",
    ResourceId=resource_id,
    ScalableDimension="sagemaker:inference-component:DesiredCopyCount",
    MinCapacity=as_min_capacity,
    MaxCapacity=as_max_capacity,  # Replace with your desired maximum instances
)

# Create Target Tracking Scaling Policy
target_tracking_policy_response = autoscaling_client.put_scaling_policy(
    PolicyName="SageMakerInferenceComponentScalingPolicy",
    ServiceNamespace="sagemaker",
    ResourceId=resource_id,
    ScalableDimension="sagemaker:inference-component:DesiredCopyCount",
    PolicyType="TargetTrackingScaling",
    TargetTrackingScalingPolicyConfiguration={
        "TargetValue": 5.0,  # Scaling triggers when endpoint receives 5 ConcurrentRequestsPerCopy
        "PredefinedMetricSpecification": {
            "PredefinedMetricType": "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution"
        },
        "ScaleInCooldown": 180,  # Cooldown period after scale-in activity
        "ScaleOutCooldown": 180,  # Cooldown period after scale-out activity
    },
)
"""  # noqa: E501 - as it stands there


@pytest.fixture
def run(
    scope: Scope, answer: Callable[..., AWSResponse], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, Any]]:
    """`run(program, resource_id)` returns the program's variables. boto3 itself is real."""
    session = boto3.Session(aws_access_key_id="key", aws_secret_access_key="secret")
    session.events.register("before-send", answer)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", session)

    def run(program: str, resource_id: str) -> dict[str, Any]:
        names: dict[str, Any] = {
            "boto3": boto3,
            "region": scope.region,
            "resource_id": resource_id,
            "as_min_capacity": 1,
            "as_max_capacity": 4,
        }
        exec(program, names)
        return names

    return run


@pytest.mark.usefixtures("served")
@cases(
    "program, resource_id, metric, dimensions",
    case(
        "variant",
        VARIANT,
        "endpoint/v/variant/main",
        "ConcurrentRequestsPerModel",
        [{"Name": "EndpointName", "Value": "v"}, {"Name": "VariantName", "Value": "main"}],
    ),
    case(
        "component",
        COMPONENT,
        "inference-component/base",
        "ConcurrentRequestsPerCopy",
        [{"Name": "InferenceComponentName", "Value": "base"}],
    ),
)
def test_the_program_runs_as_it_stands_there(
    run: Callable[..., dict[str, Any]],
    client: Client,
    clock: ManualClock,
    program: str,
    resource_id: str,
    metric: str,
    dimensions: list[dict[str, str]],
) -> None:
    names = run(program, resource_id)
    run(program, resource_id)  # a second time changes nothing
    scaling, cloudwatch = client("application-autoscaling"), client("cloudwatch")
    (target,) = scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"]
    assert target["ScalableTargetARN"] == names["scalable_target"]["ScalableTargetARN"]
    assert (target["MinCapacity"], target["MaxCapacity"]) == (1, 4)
    assert target["CreationTime"] == datetime.fromtimestamp(clock.now(), UTC)
    made = names["target_tracking_policy_response"]
    alarms = cloudwatch.describe_alarms(AlarmNamePrefix=f"TargetTracking-{resource_id}")
    by_name = {it["AlarmName"]: it for it in alarms["MetricAlarms"]}
    assert sorted(by_name) == sorted(it["AlarmName"] for it in made["Alarms"])
    for alarm in by_name.values():
        assert alarm["AlarmActions"] == [made["PolicyARN"]]
        assert (alarm["MetricName"], alarm["Period"]) == (metric, 10)
        assert alarm["Dimensions"] == dimensions
    (policy,) = scaling.describe_scaling_policies(ServiceNamespace="sagemaker")["ScalingPolicies"]
    tracking = policy["TargetTrackingScalingPolicyConfiguration"]
    assert (tracking["ScaleInCooldown"], tracking["ScaleOutCooldown"]) == (180, 180)


def test_errors_have_the_types_that_boto3_knows(client: Client) -> None:
    scaling = client("application-autoscaling")
    of = {
        "ServiceNamespace": "sagemaker",
        "ResourceId": "inference-component/absent",
        "ScalableDimension": "sagemaker:inference-component:DesiredCopyCount",
    }
    with pytest.raises(scaling.exceptions.ObjectNotFoundException):
        scaling.deregister_scalable_target(**of)
    with pytest.raises(scaling.exceptions.ValidationException, match="Could not find inference"):
        scaling.register_scalable_target(**of, MinCapacity=1, MaxCapacity=2)
    with pytest.raises(scaling.exceptions.InvalidNextTokenException):
        scaling.describe_scaling_policies(ServiceNamespace="sagemaker", NextToken="x")
    with pytest.raises(ClientError, match=r"does not implement .*GetPredictiveScalingForecast"):
        scaling.get_predictive_scaling_forecast(**of, PolicyName="p", StartTime=0, EndTime=9)


@pytest.mark.usefixtures("served")
def test_boto3s_paginators_lead_through_every_page(
    run: Callable[..., dict[str, Any]], client: Client
) -> None:
    run(VARIANT, "endpoint/v/variant/main")
    run(COMPONENT, "inference-component/base")
    scaling = client("application-autoscaling")
    pages = scaling.get_paginator("describe_scaling_policies").paginate(
        ServiceNamespace="sagemaker", PaginationConfig={"PageSize": 1}
    )
    assert [len(it["ScalingPolicies"]) for it in pages] == [1, 1]
