"""A platform with a tiny LLM, its adapters and an echo, for tests of the commands on models."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.integration.drill import ROLE
from tests.integration.echo_image import ECHO_IMAGE
from tests.integration.lmi_rig import byte_model
from tests.integration.platform import Platform, until

LLM_IMAGE = "djl-inference:0.33.0-lmi15.0.0-cu128"
BUCKET = "verbs"
ENDPOINT, BASE, ECHO = "shop", "tiny", "echo"


@contextmanager
def verbs_platform(folder: Path) -> Iterator[Platform]:
    """The platform, with endpoint `shop` of base `tiny`, and model endpoint `echo`, in service."""
    home = folder / "home"
    home.mkdir(mode=0o700, parents=True)
    (home / "images.toml").write_text(ECHO_IMAGE)
    model = byte_model(folder)
    with Platform(home) as platform:
        upload(platform, model)
        sagemaker = platform.boto3("sagemaker")
        component_endpoint(sagemaker, ENDPOINT)
        model_endpoint(sagemaker, ECHO)
        wait_endpoint(sagemaker, ENDPOINT)
        base_component(sagemaker, BASE)
        wait_endpoint(sagemaker, ECHO)
        wait_component(sagemaker, BASE)
        yield platform


def upload(platform: Platform, model: Path) -> None:
    """Upload the model's files without its adapters."""
    s3 = platform.boto3("s3", s3={"addressing_style": "path"})
    s3.create_bucket(Bucket=BUCKET)
    for file in model.iterdir():
        if file.is_file():
            s3.put_object(Bucket=BUCKET, Key=f"tiny/{file.name}", Body=file.read_bytes())


def component_endpoint(sagemaker: Any, name: str) -> None:
    """An endpoint for components, with one instance."""
    variant = {"VariantName": "AllTraffic", "InstanceType": "ml.m5.4xlarge"}
    sagemaker.create_endpoint_config(
        EndpointConfigName=name,
        ExecutionRoleArn=ROLE,
        ProductionVariants=[{**variant, "InitialInstanceCount": 1}],
    )
    sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)


def base_component(sagemaker: Any, name: str, endpoint: str = ENDPOINT) -> None:
    """Create the tiny LLM as a component for adapters. Two copies fit on an instance."""
    address = f"s3://{BUCKET}/tiny/"
    sagemaker.create_inference_component(
        InferenceComponentName=name,
        EndpointName=endpoint,
        VariantName="AllTraffic",
        Specification={
            "Container": {
                "Image": LLM_IMAGE,
                "Environment": {"OPTION_MODEL_ID": address, "OPTION_ENABLE_LORA": "true"},
            },
            "ComputeResourceRequirements": {
                "MinMemoryRequiredInMb": 512,
                "NumberOfCpuCoresRequired": 6,
            },
        },
        RuntimeConfig={"CopyCount": 1},
    )


def model_endpoint(sagemaker: Any, name: str, mode: str = "ok") -> None:
    """Create an endpoint with one model that echoes."""
    container = {"Image": "echo:1", "Environment": {"ECHO_MODE": mode}}
    sagemaker.create_model(ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=container)
    variant = {"VariantName": "AllTraffic", "ModelName": name, "InstanceType": "ml.m5.large"}
    sagemaker.create_endpoint_config(
        EndpointConfigName=name, ProductionVariants=[{**variant, "InitialInstanceCount": 1}]
    )
    sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)


def wait_endpoint(sagemaker: Any, name: str, within_s: float = 60.0) -> None:
    """Wait until the endpoint is InService."""

    def ready() -> bool:
        shown = sagemaker.describe_endpoint(EndpointName=name)
        assert shown["EndpointStatus"] != "Failed", shown.get("FailureReason")
        return bool(shown["EndpointStatus"] == "InService")

    until(ready, f"endpoint {name}", within_s)


def wait_component(sagemaker: Any, name: str, within_s: float = 90.0) -> None:
    """Wait until the component is InService."""

    def ready() -> bool:
        shown = sagemaker.describe_inference_component(InferenceComponentName=name)
        assert shown["InferenceComponentStatus"] != "Failed", shown.get("FailureReason")
        return bool(shown["InferenceComponentStatus"] == "InService")

    until(ready, f"component {name}", within_s)
