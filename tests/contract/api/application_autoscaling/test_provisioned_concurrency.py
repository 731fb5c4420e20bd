"""Provisioned concurrency of serverless variants as a scalable dimension.

Sources: "Automatically scale Provisioned Concurrency for a serverless endpoint" in the SageMaker
developer guide, and RegisterScalableTarget in the Application Auto Scaling API reference.
"""

from collections.abc import Callable
from typing import Any

import pytest
from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.base.errors import ServiceError
from hostelry.domain.endpoint import EndpointStatus

Call = Callable[..., dict[str, Any]]
PRIMARY = {"Image": "sagemaker-scikit-learn:1.2-1-cpu-py3", "ModelDataUrl": "s3://b/model.tar.gz"}
PLACE = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": "endpoint/e/variant/main",
    "ScalableDimension": "sagemaker:variant:DesiredProvisionedConcurrency",
}
BOUNDS = {"MinCapacity": 1, "MaxCapacity": 5}
TRACKING = {
    "PolicyName": "track",
    "PolicyType": "TargetTrackingScaling",
    "TargetTrackingScalingPolicyConfiguration": {
        "TargetValue": 0.7,
        "PredefinedMetricSpecification": {
            "PredefinedMetricType": "SageMakerVariantProvisionedConcurrencyUtilization"
        },
    },
}
STEPPING = {
    "PolicyName": "step",
    "PolicyType": "StepScaling",
    "StepScalingPolicyConfiguration": {
        "AdjustmentType": "ChangeInCapacity",
        "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}],
    },
}


@pytest.fixture
def on_variant(api: Api) -> Call:
    """`on_variant(operation, **params)`: a call of Application Auto Scaling for the variant."""

    def on_variant(operation: str, **params: Any) -> dict[str, Any]:
        return api.call(operation, "application-autoscaling", **{**PLACE, **params})

    return on_variant


@pytest.fixture
def create(api: Api) -> Callable[[int], None]:
    """`create(ready)` creates the serverless endpoint "e" with `ready` provisioned environments."""

    def create(ready: int) -> None:
        config = {"MemorySizeInMB": 1024, "MaxConcurrency": 5}
        if ready:
            config["ProvisionedConcurrency"] = ready
        variant = {"VariantName": "main", "ModelName": "m", "ServerlessConfig": config}
        api.make.model("m", PrimaryContainer=PRIMARY)
        api.call("CreateEndpointConfig", EndpointConfigName="c", ProductionVariants=[variant])
        api.call("CreateEndpoint", EndpointName="e", EndpointConfigName="c")
        api.change_endpoint(status=EndpointStatus.IN_SERVICE, deadline_at=None)

    return create


def test_it_is_registered_tracked_stepped_and_scheduled(
    api: Api, on_variant: Call, create: Callable[[int], None]
) -> None:
    create(1)
    on_variant("RegisterScalableTarget", **BOUNDS)
    (target,) = api.call(
        "DescribeScalableTargets", "application-autoscaling", ServiceNamespace="sagemaker"
    )["ScalableTargets"]
    assert (target["MinCapacity"], target["MaxCapacity"]) == (1, 5)
    assert len(on_variant("PutScalingPolicy", **TRACKING)["Alarms"]) == 2
    on_variant("PutScalingPolicy", **STEPPING)
    on_variant(
        "PutScheduledAction",
        ScheduledActionName="morning",
        Schedule="cron(0 8 * * ? *)",
        ScalableTargetAction={"MinCapacity": 2, "MaxCapacity": 5},
    )


@cases(
    "ready, params, message",
    case("none at all", 1, {"MinCapacity": 0, "MaxCapacity": 5},
        "MinCapacity is 0; of provisioned concurrency at least 1 is needed"),
    case("more than may run", 1, {"MinCapacity": 1, "MaxCapacity": 6},
        "MaxCapacity is 6; at most 5 (MaxConcurrency) are possible"),
    case("a variant without any", 0, BOUNDS, "has no ProvisionedConcurrency; give it some by"),
    case("its instances", 1,
        {**BOUNDS, "ScalableDimension": "sagemaker:variant:DesiredInstanceCount"},
        "is serverless: the platform chooses its instances"),
)  # fmt: skip
def test_what_cannot_be_registered(
    on_variant: Call,
    create: Callable[[int], None],
    ready: int,
    params: dict[str, Any],
    message: str,
) -> None:
    create(ready)
    with pytest.raises(ServiceError) as caught:
        on_variant("RegisterScalableTarget", **params)
    assert caught.value.code == "ValidationException"
    assert message in caught.value.message


def test_a_schedule_cannot_ask_for_more_than_may_run(
    on_variant: Call, create: Callable[[int], None]
) -> None:
    create(1)
    on_variant("RegisterScalableTarget", **BOUNDS)
    with pytest.raises(ServiceError) as caught:
        on_variant(
            "PutScheduledAction",
            ScheduledActionName="noon",
            Schedule="cron(0 12 * * ? *)",
            ScalableTargetAction={"MaxCapacity": 9},
        )
    assert "MaxCapacity is 9; at most 5 (MaxConcurrency)" in caught.value.message


def test_a_registered_variant_keeps_its_provisioned_concurrency(
    api: Api, on_variant: Call, create: Callable[[int], None]
) -> None:
    create(1)
    on_variant("RegisterScalableTarget", **BOUNDS)
    config = {"MemorySizeInMB": 2048, "MaxConcurrency": 5}
    variant = {"VariantName": "main", "ModelName": "m", "ServerlessConfig": config}
    api.call("CreateEndpointConfig", EndpointConfigName="bare", ProductionVariants=[variant])
    with pytest.raises(ServiceError) as caught:
        api.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="bare")
    assert "registered as a scalable target" in caught.value.message
    assert "has no ProvisionedConcurrency there" in caught.value.message
