"""Endpoint configurations: described fields and refusals."""

from typing import Any

import pytest
from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.domain.endpoint_config import RoutingStrategy

ARN = "arn:aws:sagemaker:us-west-2:123456789012:"
ROLE = "arn:aws:iam::123456789012:role/HostelryExecutionRole"
MAIN = {"VariantName": "main", "InstanceType": "ml.g5.12xlarge", "InitialInstanceCount": 1}
OF_MODEL = {**MAIN, "ModelName": "m"}
NONE_AT_LEAST = {"MinInstanceCount": 0, "MaxInstanceCount": 2}
POOLED = {"VariantName": "main", "InitialInstanceCount": 1}


def pool(instance_type: str, priority: int, model: str | None = None) -> dict[str, Any]:
    named = {} if model is None else {"ModelNameOverride": model}
    return {"InstanceType": instance_type, "Priority": priority, **named}


def serverless(memory_mb: int = 2048, most: int = 5, **more: Any) -> dict[str, Any]:
    config = {"MemorySizeInMB": memory_mb, "MaxConcurrency": most, **more}
    return {"VariantName": "main", "ModelName": "m", "ServerlessConfig": config}


GPU_POOL = pool("ml.g5.12xlarge", 2)


def test_a_configuration_is_echoed_with_its_arn_and_time(api: Api) -> None:
    more = {
        "KmsKeyId": "key",
        "VpcConfig": {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]},
        "MetricsConfig": {"EnableEnhancedMetrics": True},
        "DataCaptureConfig": {
            "EnableCapture": False,
            "InitialSamplingPercentage": 1,
            "DestinationS3Uri": "s3://b/k",
            "CaptureOptions": [{"CaptureMode": "Input"}],
        },
    }
    variant = {
        "InferenceAmiVersion": "al2-ami-sagemaker-inference-gpu-2",
        "VolumeSizeInGB": 30,
        "EnableSSMAccess": False,
    }
    api.make.config("My-Config", variant, **more)
    shown = api.call("DescribeEndpointConfig", EndpointConfigName="My-Config")
    assert shown["EndpointConfigArn"] == ARN + "endpoint-config/my-config"
    assert shown["CreationTime"] == api.clock.now()
    assert shown["ProductionVariants"] == [{**MAIN, **variant}]
    assert {name: shown[name] for name in more} == more
    assert shown["ExecutionRoleArn"] == ROLE
    api.call("DeleteEndpointConfig", EndpointConfigName="My-Config")
    assert api.call("ListEndpointConfigs")["EndpointConfigs"] == []


@pytest.mark.parametrize("period_s", [10, 30, 60, 120, 180, 240, 300])
def test_metrics_are_published_at_a_period_that_is_asked_for(api: Api, period_s: int) -> None:
    # api.md 2.2: MetricsConfig
    asked = {"EnableEnhancedMetrics": True, "MetricPublishFrequencyInSeconds": period_s}
    api.make.config("c", MetricsConfig=asked)
    assert api.call("DescribeEndpointConfig", EndpointConfigName="c")["MetricsConfig"] == asked


@pytest.mark.parametrize("period_s", [0, -10, 1, 15, 61, 301, 2**31 - 1])
def test_another_period_of_metrics_is_refused(api: Api, period_s: int) -> None:
    reported = api.refusal(
        "CreateEndpointConfig",
        EndpointConfigName="c",
        ExecutionRoleArn=ROLE,
        ProductionVariants=[MAIN],
        MetricsConfig={"MetricPublishFrequencyInSeconds": period_s},
    )
    assert f"is {period_s}; valid values are 10, 30, 60, 120, 180, 240, 300." in reported


def test_a_variant_is_stored_as_it_is_given(api: Api) -> None:
    api.make.config(
        "c",
        {
            "InitialVariantWeight": 0.5,
            "ModelDataDownloadTimeoutInSeconds": 600,
            "ContainerStartupHealthCheckTimeoutInSeconds": 300,
            "ManagedInstanceScaling": {"Status": "ENABLED", "MaxInstanceCount": 3},
            "RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
        },
    )
    stored = api.state.endpoint_configs.get(api.scope, "c")
    assert stored is not None
    (variant,) = stored.value.variants
    assert (variant.weight, variant.download_timeout_s, variant.startup_timeout_s) == (
        0.5,
        600.0,
        300.0,
    )
    assert variant.routing is RoutingStrategy.LEAST_OUTSTANDING_REQUESTS
    assert variant.scaling is not None
    assert (variant.scaling.enabled, variant.scaling.max_instances) == (True, 3)


@cases(
    "params, message",
    case("one name", {"ProductionVariants": [OF_MODEL, OF_MODEL]}, '"main" was given 2 times'),
    case(
        "a model that is not there",
        {"ProductionVariants": [{**OF_MODEL, "ModelName": "gone"}]},
        f'Could not find model "{ARN}model/gone".',
    ),
    case(
        "with and without a model",
        {"ProductionVariants": [OF_MODEL, {**MAIN, "VariantName": "other"}]},
        "never share an endpoint",
    ),
    case(
        "two variants for components",
        {"ProductionVariants": [MAIN, {**MAIN, "VariantName": "other"}]},
        "exactly one production variant",
    ),
    case(
        "no role for components",
        {"ProductionVariants": [MAIN], "ExecutionRoleArn": None},
        "ExecutionRoleArn is required",
    ),
    case(
        "managed scaling of a model",
        {"ProductionVariants": [{**OF_MODEL, "ManagedInstanceScaling": {"Status": "ENABLED"}}]},
        "ManagedInstanceScaling is only supported for inference component endpoints.",
    ),
    case(
        "bounds that contradict",
        {
            "ProductionVariants": [
                {
                    **MAIN,
                    "ManagedInstanceScaling": {
                        "Status": "ENABLED",
                        "MinInstanceCount": 3,
                        "MaxInstanceCount": 2,
                    },
                }
            ]
        },
        "MinInstanceCount 3 is greater than MaxInstanceCount 2",
    ),
    case(
        "down to nothing, with managed scaling off",
        {
            "ProductionVariants": [
                {**MAIN, "ManagedInstanceScaling": {"Status": "DISABLED", **NONE_AT_LEAST}}
            ]
        },
        "MinInstanceCount 0 needs Status ENABLED",
    ),
    case(
        "down to nothing, with managed scaling not said to be on",
        {"ProductionVariants": [{**MAIN, "ManagedInstanceScaling": NONE_AT_LEAST}]},
        "MinInstanceCount 0 needs Status ENABLED",
    ),
    case(
        "no instance type",
        {"ProductionVariants": [{"VariantName": "main", "InitialInstanceCount": 1}]},
        "InstanceType and ProductionVariants.1.InstancePools is required for production variant"
        ' "main"; none was given',
    ),
    case(
        "no instance count",
        {
            "ProductionVariants": [
                {"VariantName": "main", "ModelName": "m", "InstanceType": "ml.m5.xlarge"}
            ]
        },
        "InitialInstanceCount is required",
    ),
    case(
        "a weight that is no number",
        {"ProductionVariants": [{**OF_MODEL, "InitialVariantWeight": float("nan")}]},
        "'ProductionVariants.1.InitialVariantWeight' must be a finite number",
    ),
    case(
        "an instance type and pools",
        {"ProductionVariants": [{**MAIN, "InstancePools": [pool("ml.m5.xlarge", 1)]}]},
        "both were given",
    ),
    case(
        "two pools of one instance type",
        {"ProductionVariants": [{**POOLED, "InstancePools": [pool("ml.m5.xlarge", 1)] * 2}]},
        "name ml.m5.xlarge 2 times; each instance type needs one pool",
    ),
    case(
        "a pool's own model where components are placed",
        {
            "ProductionVariants": [
                {**POOLED, "InstancePools": [pool("ml.m5.xlarge", 1, "m"), GPU_POOL]}
            ]
        },
        'ModelNameOverride "m" cannot be given where the variant has no ModelName',
    ),
    case(
        "a pool's model that is not there",
        {
            "ProductionVariants": [
                {
                    **POOLED,
                    "ModelName": "m",
                    "InstancePools": [pool("ml.m5.xlarge", 1, "gone"), GPU_POOL],
                }
            ]
        },
        f'Could not find model "{ARN}model/gone".',
    ),
    case(
        "routing by prefix",
        {"ProductionVariants": [{**MAIN, "RoutingConfig": {"RoutingStrategy": "PREFIX_AWARE"}}]},
        "RoutingStrategy=PREFIX_AWARE is not supported",
    ),
    case(
        "network isolation",
        {"EnableNetworkIsolation": True, "ProductionVariants": [MAIN]},
        "EnableNetworkIsolation=true is not supported",
    ),
)
def test_a_configuration_that_cannot_be_is_refused(
    api: Api, params: dict[str, Any], message: str
) -> None:
    api.make.model()
    given = {"ExecutionRoleArn": ROLE, **params}
    given = {name: value for name, value in given.items() if value is not None}
    assert message in api.refusal("CreateEndpointConfig", EndpointConfigName="c", **given)
    assert api.call("ListEndpointConfigs")["EndpointConfigs"] == []


def test_a_second_configuration_of_a_name_is_refused(api: Api) -> None:
    api.make.config("c")
    text = api.refusal(
        "CreateEndpointConfig",
        EndpointConfigName="C",
        ExecutionRoleArn=ROLE,
        ProductionVariants=[MAIN],
    )
    assert text == (
        f'Cannot create already existing endpoint configuration "{ARN}endpoint-config/c".'
    )


ASYNC = {"OutputConfig": {"S3OutputPath": "s3://b/out"}}
CAPTURE = {
    "EnableCapture": False,
    "InitialSamplingPercentage": 1,
    "DestinationS3Uri": "s3://b/k",
    "CaptureOptions": [{"CaptureMode": "Input"}],
}


@pytest.mark.parametrize(
    ("variants", "more", "message"),
    [
        pytest.param(
            [serverless(1536)],
            {},
            "ProductionVariants.1.ServerlessConfig.MemorySizeInMB is 1536; valid values are 1024,"
            " 2048, 3072, 4096, 5120, 6144.",
            id="memory between the steps",
        ),
        pytest.param(
            [serverless(2048, 4, ProvisionedConcurrency=5)],
            {},
            "ServerlessConfig.ProvisionedConcurrency is 5; it cannot be more than MaxConcurrency,"
            " which is 4.",
            id="more kept ready than may be",
        ),
        *(
            pytest.param(
                [{**serverless(), member: value}],
                {},
                f"ProductionVariants.1.{member} cannot be given beside"
                " ProductionVariants.1.ServerlessConfig; leave one of them out.",
                id=f"beside {member}",
            )
            for member, value in (
                ("InstanceType", "ml.m5.xlarge"),
                ("InitialInstanceCount", 1),
                ("InstancePools", [pool("ml.m5.xlarge", 1)]),
                ("ManagedInstanceScaling", {"Status": "ENABLED"}),
            )
        ),
        *(
            pytest.param(
                [serverless()],
                {member: value},
                f"{member} cannot be given beside ProductionVariants.1.ServerlessConfig",
                id=f"with {member}",
            )
            for member, value in (
                ("AsyncInferenceConfig", ASYNC),
                ("DataCaptureConfig", {**CAPTURE, "EnableCapture": True}),
                ("ShadowProductionVariants", [{**OF_MODEL, "VariantName": "shadow"}]),
                ("VpcConfig", {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]}),
                ("EnableNetworkIsolation", True),
            )
        ),
        pytest.param(
            [{**serverless(), "ModelName": None}],
            {},
            "ProductionVariants.1.ModelName is required beside",
            id="for inference components",
        ),
        pytest.param(
            [OF_MODEL, {**serverless(), "VariantName": "other"}],
            {},
            "exactly one production variant; 2 were given, of which ProductionVariants.2 has",
            id="beside another variant",
        ),
    ],
)
def test_a_serverless_variant_is_refused_with_what_it_cannot_have(
    api: Api, variants: list[dict[str, Any]], more: dict[str, Any], message: str
) -> None:
    # api.md 2.8
    api.make.model("m")
    given = [{name: it for name, it in one.items() if it is not None} for one in variants]
    reported = api.refusal(
        "CreateEndpointConfig",
        EndpointConfigName="c",
        ExecutionRoleArn=ROLE,
        ProductionVariants=given,
        **more,
    )
    assert message in reported
