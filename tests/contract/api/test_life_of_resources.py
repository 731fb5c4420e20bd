"""Create, describe, list, delete of every resource; botocore's models on both sides."""

from collections.abc import Callable
from typing import Any

import pytest

from hostelry.base.errors import ServiceError

Call = Callable[..., dict[str, Any]]
IMAGE = "763104351884.dkr.ecr.us-west-2.amazonaws.com/djl-inference:0.27.0-deepspeed0.12.6-cu121"
ROLE = "arn:aws:iam::123456789012:role/HostelryExecutionRole"
ARN = "arn:aws:sagemaker:us-west-2:123456789012:"
ARCHIVE = "s3://bucket/model.tar.gz"
NEEDS = {"MinMemoryRequiredInMb": 1024, "NumberOfAcceleratorDevicesRequired": 1}


def make_model(call: Call, name: str = "m", **more: Any) -> None:
    container = {"Image": IMAGE, "ModelDataUrl": ARCHIVE, "Environment": {"A": "1", "B": "2"}}
    call("CreateModel", ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=container, **more)


def make_model_endpoint(call: Call, name: str = "e") -> None:
    make_model(call, f"{name}-model")
    variant = {
        "VariantName": "AllTraffic",
        "ModelName": f"{name}-model",
        "InstanceType": "ml.m5.xlarge",
        "InitialInstanceCount": 2,
    }
    call("CreateEndpointConfig", EndpointConfigName=f"{name}-config", ProductionVariants=[variant])
    call("CreateEndpoint", EndpointName=name, EndpointConfigName=f"{name}-config")


def make_component_endpoint(call: Call, name: str = "e") -> None:
    variant = {
        "VariantName": "main",
        "InstanceType": "ml.g5.12xlarge",
        "InitialInstanceCount": 1,
        "ModelDataDownloadTimeoutInSeconds": 600,
        "ContainerStartupHealthCheckTimeoutInSeconds": 300,
        "ManagedInstanceScaling": {
            "Status": "ENABLED",
            "MinInstanceCount": 1,
            "MaxInstanceCount": 2,
        },
        "RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
    }
    call(
        "CreateEndpointConfig",
        EndpointConfigName=f"{name}-config",
        ExecutionRoleArn=ROLE,
        ProductionVariants=[variant],
    )
    call("CreateEndpoint", EndpointName=name, EndpointConfigName=f"{name}-config")


def make_component(call: Call, name: str = "base", endpoint: str = "e", **more: Any) -> None:
    call(
        "CreateInferenceComponent",
        InferenceComponentName=name,
        EndpointName=endpoint,
        VariantName="main",
        Specification={
            "Container": {"Image": IMAGE, "ArtifactUrl": ARCHIVE},
            "ComputeResourceRequirements": NEEDS,
        },
        RuntimeConfig={"CopyCount": 1},
        **more,
    )


def test_a_component_endpoint_comes_up_creating(call: Call) -> None:
    make_component_endpoint(call)
    shown = call("DescribeEndpoint", EndpointName="e")
    assert shown["EndpointStatus"] == "Creating"
    (variant,) = shown["ProductionVariants"]
    assert (variant["CurrentInstanceCount"], variant["DesiredInstanceCount"]) == (0, 1)
    assert "DeployedImages" not in variant


def test_a_base_component_comes_up_creating(call: Call) -> None:
    make_component_endpoint(call)
    make_component(call)
    shown = call("DescribeInferenceComponent", InferenceComponentName="base")
    assert shown["InferenceComponentStatus"] == "Creating"
    assert shown["RuntimeConfig"] == {"DesiredCopyCount": 1, "CurrentCopyCount": 0}


def test_a_model_endpoint_shows_its_image(call: Call) -> None:
    make_model_endpoint(call)
    shown = call("DescribeEndpoint", EndpointName="e")
    (variant,) = shown["ProductionVariants"]
    assert variant["DeployedImages"][0]["SpecifiedImage"] == IMAGE


@pytest.mark.parametrize(
    ("operation", "member", "words"),
    [
        pytest.param("Model", "ModelName", 'model "{arn}model/gone"', id="model"),
        pytest.param(
            "EndpointConfig",
            "EndpointConfigName",
            'endpoint configuration "{arn}endpoint-config/gone"',
            id="configuration",
        ),
        pytest.param("Endpoint", "EndpointName", 'endpoint "{arn}endpoint/gone"', id="endpoint"),
        pytest.param(
            "InferenceComponent",
            "InferenceComponentName",
            'inference component "{arn}inference-component/gone"',
            id="component",
        ),
    ],
)
def test_what_is_not_there_could_not_be_found(
    call: Call, operation: str, member: str, words: str
) -> None:
    for verb in ("Describe", "Delete"):
        with pytest.raises(ServiceError) as caught:
            call(verb + operation, **{member: "gone"})
        assert caught.value.code == "ValidationException"
        assert caught.value.http_status == 400
        assert caught.value.message == f"Could not find {words.format(arn=ARN)}."
