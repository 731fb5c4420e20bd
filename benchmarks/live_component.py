"""A real platform with one LLM component on it, for measurements of scaling."""

import contextlib
import io
import tarfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.integration.platform import Platform

from hostelry.base.clock import monotonic_s

ENDPOINT, COMPONENT, VARIANT, MODEL = "chat", "assistant", "AllTraffic", "model"
NO_ADAPTERS: Mapping[str, Path] = {}
IMAGE = "763104351884.dkr.ecr.{region}.amazonaws.com/djl-inference:0.29.0-lmi11.0.0-cu124"
READY_S = 180.0


@contextlib.contextmanager
def running_component(
    scratch: Path,
    model: Path,
    *flags: str,
    cpus: float = 1.0,
    copies: int = 1,
    adapters: Mapping[str, Path] = NO_ADAPTERS,
    **options: str,
) -> Iterator[Platform]:
    """A platform whose endpoint `chat` has the component `assistant`, in service.

    `options` are variables of the container, `flags` are flags of `hostelry up`, and `adapters` by
    name go into the model's archive.
    """
    with Platform(scratch / "home", *flags) as platform:
        put_model(platform, model)
        archive: dict[str, str] = {}
        if adapters:
            archive["ModelDataUrl"] = put_adapters(platform, adapters)
            options["OPTION_ENABLE_LORA"] = "true"
        client = platform.boto3("sagemaker")
        region = client.meta.region_name
        container = {
            "Image": IMAGE.format(region=region),
            "Environment": {"OPTION_MODEL_ID": "s3://models/llm/", **options},
            **archive,
        }
        role = "arn:aws:iam::111122223333:role/HostelryExecutionRole"
        client.create_model(ModelName=MODEL, ExecutionRoleArn=role, PrimaryContainer=container)
        client.create_endpoint_config(
            EndpointConfigName="config",
            ExecutionRoleArn=role,
            ProductionVariants=[
                {
                    "VariantName": VARIANT,
                    "InstanceType": "ml.m5.24xlarge",
                    "InitialInstanceCount": 1,
                    "RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
                }
            ],
        )
        client.create_endpoint(EndpointName=ENDPOINT, EndpointConfigName="config")
        wait_until_settled(
            lambda: client.describe_endpoint(EndpointName=ENDPOINT)["EndpointStatus"]
        )
        client.create_inference_component(
            InferenceComponentName=COMPONENT,
            EndpointName=ENDPOINT,
            VariantName=VARIANT,
            Specification={
                "ModelName": MODEL,
                "ComputeResourceRequirements": {
                    "NumberOfCpuCoresRequired": cpus,
                    "MinMemoryRequiredInMb": 512,
                },
            },
            RuntimeConfig={"CopyCount": copies},
        )
        wait_until_settled(lambda: component_status(client))
        yield platform


def put_model(platform: Platform, model: Path) -> None:
    """Put the model's files where components find them: `s3://models/llm/`."""
    s3 = platform.boto3("s3", s3={"addressing_style": "path"})
    s3.create_bucket(Bucket="models")
    for file in model.iterdir():
        if file.is_file():
            with file.open("rb") as body:
                s3.put_object(Bucket="models", Key=f"llm/{file.name}", Body=body)


def put_adapters(platform: Platform, adapters: Mapping[str, Path]) -> str:
    """Put an archive with the adapters into S3, and return its address."""
    content = io.BytesIO()
    # A shelf's adapters share files by hard links, which an archive of a model may not have.
    with tarfile.open(fileobj=content, mode="w:gz", compresslevel=1, dereference=True) as packed:
        for name, folder in adapters.items():
            packed.add(folder, f"adapters/{name}")
    s3 = platform.boto3("s3", s3={"addressing_style": "path"})
    s3.put_object(Bucket="models", Key="adapters.tar.gz", Body=content.getvalue())
    return "s3://models/adapters.tar.gz"


def component_status(client: Any) -> str:
    """InferenceComponentStatus of the component."""
    found = client.describe_inference_component(InferenceComponentName=COMPONENT)
    return str(found["InferenceComponentStatus"])


def wait_until_settled(status: Any) -> None:
    """Wait until `status` is InService. Raises RuntimeError if it fails, or after READY_S."""
    give_up_at_s = monotonic_s() + READY_S
    while (now := status()) != "InService":
        if now == "Failed" or monotonic_s() > give_up_at_s:
            raise RuntimeError(f"it is {now}, not InService")
        time.sleep(0.1)
