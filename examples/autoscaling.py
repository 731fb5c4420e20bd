"""The two auto scaling programs of AWS's post of 2024-07-26, unchanged, under a real load.

    hostelry demo-model ./smollm2
    hostelry up --detach --pace 30
    hostelry exec -- python examples/autoscaling.py --model ./smollm2

One LLM as a model on a variant, one as an inference component. Each is registered to be scaled by
its concurrent requests (TargetValue 5, high resolution, cooldowns of 180 s), is invoked by a dozen
callers until it has scaled out, and left alone until it has scaled in. Then `hostelry scaling
timeline` draws its history. With `--pace 30` the 15 minutes without load, after which AWS scales
in, take half a minute; scaling out takes as long as on AWS, three datapoints of 10 s. Resources
that an interrupted run left are removed first.
"""

import argparse
import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from leftovers import deregister, remove

IMAGE = "763104351884.dkr.ecr.{region}.amazonaws.com/djl-inference:0.29.0-lmi11.0.0-cu124"
MODEL_ENDPOINT, COMPONENT_ENDPOINT = "scaled-model", "scaled-components"
COMPONENT, VARIANT, INSTANCE_TYPE = "scaled-llm", "AllTraffic", "ml.m5.2xlarge"
VARIANT_RESOURCE = f"endpoint/{MODEL_ENDPOINT}/variant/{VARIANT}"
COMPONENT_RESOURCE = f"inference-component/{COMPONENT}"
CALLERS = 12
PATIENCE_S = 600.0

sm_client = boto3.client("sagemaker")
smr_client = boto3.client(
    "sagemaker-runtime",
    config=Config(max_pool_connections=CALLERS, retries={"total_max_attempts": 1}),
)
region = sm_client.meta.region_name
account = boto3.client("sts").get_caller_identity()["Account"]
role = f"arn:aws:iam::{account}:role/HostelryExecutionRole"
bucket = f"sagemaker-{region}-{account}"
as_min_capacity, as_max_capacity = 1, 2


def scale_the_variant(resource_id: str) -> None:
    """The post's first program."""
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
            "TargetValue": 5.0,  # Scaling triggers when endpoint receives 5 ConcurrentRequestsPerModel  # noqa: E501 - as published
            "PredefinedMetricSpecification": {
                "PredefinedMetricType": "SageMakerVariantConcurrentRequestsPerModelHighResolution"
            },
            "ScaleInCooldown": 180,  # Cooldown period after scale-in activity
            "ScaleOutCooldown": 180,  # Cooldown period after scale-out activity
        },
    )
    report(scalable_target, target_tracking_policy_response)


def scale_the_component(resource_id: str) -> None:
    """The post's second program."""
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
            "TargetValue": 5.0,  # Scaling triggers when endpoint receives 5 ConcurrentRequestsPerCopy  # noqa: E501 - as published
            "PredefinedMetricSpecification": {
                "PredefinedMetricType": "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution"  # noqa: E501
            },
            "ScaleInCooldown": 180,  # Cooldown period after scale-in activity
            "ScaleOutCooldown": 180,  # Cooldown period after scale-out activity
        },
    )
    report(scalable_target, target_tracking_policy_response)


def report(target: dict[str, Any], policy: dict[str, Any]) -> None:
    print(f"registered {target['ScalableTargetARN']}")
    for alarm in policy["Alarms"]:
        print(f"  alarm {alarm['AlarmName']}")


def upload(model_folder: Path) -> None:
    s3 = boto3.client("s3")
    with suppress(s3.exceptions.BucketAlreadyOwnedByYou):
        s3.create_bucket(Bucket=bucket)
    for file in sorted(model_folder.iterdir()):
        s3.upload_file(str(file), bucket, f"models/autoscaling/{file.name}")


def container() -> dict[str, Any]:
    return {
        "Image": IMAGE.format(region=region),
        "Environment": {
            "HF_MODEL_ID": f"s3://{bucket}/models/autoscaling/",
            "OPTION_ROLLING_BATCH": "lmi-dist",
            "OPTION_MAX_ROLLING_BATCH_SIZE": "4",
        },
    }


def create_endpoint(name: str, variant: dict[str, Any], **more: Any) -> None:
    common = {
        "VariantName": VARIANT,
        "InstanceType": INSTANCE_TYPE,
        "InitialInstanceCount": 1,
        "RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
    }
    sm_client.create_endpoint_config(
        EndpointConfigName=name, ProductionVariants=[common | variant], **more
    )
    sm_client.create_endpoint(EndpointName=name, EndpointConfigName=name)
    sm_client.get_waiter("endpoint_in_service").wait(
        EndpointName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 300}
    )


def remove_variant() -> None:
    deregister(VARIANT_RESOURCE, "variant:DesiredInstanceCount")
    remove(MODEL_ENDPOINT, models=[MODEL_ENDPOINT])


def run_variant() -> None:
    remove_variant()
    sm_client.create_model(
        ModelName=MODEL_ENDPOINT, ExecutionRoleArn=role, PrimaryContainer=container()
    )
    create_endpoint(MODEL_ENDPOINT, {"ModelName": MODEL_ENDPOINT})

    def instances() -> int:
        (variant,) = sm_client.describe_endpoint(EndpointName=MODEL_ENDPOINT)["ProductionVariants"]
        return int(variant["CurrentInstanceCount"])

    scale_the_variant(VARIANT_RESOURCE)
    out_and_in(instances, MODEL_ENDPOINT)
    remove_variant()


def remove_component() -> None:
    deregister(COMPONENT_RESOURCE, "inference-component:DesiredCopyCount")
    remove(COMPONENT_ENDPOINT, [COMPONENT])


def run_component() -> None:
    remove_component()
    create_endpoint(COMPONENT_ENDPOINT, {}, ExecutionRoleArn=role)
    sm_client.create_inference_component(
        InferenceComponentName=COMPONENT,
        EndpointName=COMPONENT_ENDPOINT,
        VariantName=VARIANT,
        Specification={
            "Container": container(),
            "ComputeResourceRequirements": {
                "NumberOfCpuCoresRequired": 1,
                "MinMemoryRequiredInMb": 2048,
            },
        },
        RuntimeConfig={"CopyCount": 1},
    )

    def described() -> dict[str, Any]:
        found: dict[str, Any] = sm_client.describe_inference_component(
            InferenceComponentName=COMPONENT
        )
        return found

    until(lambda: described()["InferenceComponentStatus"] == "InService", "the component serves")
    scale_the_component(COMPONENT_RESOURCE)
    out_and_in(
        lambda: int(described()["RuntimeConfig"]["CurrentCopyCount"]),
        COMPONENT_ENDPOINT,
        InferenceComponentName=COMPONENT,
    )
    remove_component()


def out_and_in(serving: Callable[[], int], endpoint: str, **name: str) -> None:
    """Load until the capacity has doubled, then no load until it is as before."""
    began = time.perf_counter()
    load = Load(endpoint, name)
    until(lambda: serving() == as_max_capacity, "it has scaled out")
    print(f"{endpoint}: scaled out after {time.perf_counter() - began:.0f} s of load")
    time.sleep(15.0)
    answered, failed = load.stop()
    print(f"{endpoint}: {answered} requests answered, {failed} failed; now silence")
    began = time.perf_counter()
    until(lambda: serving() == as_min_capacity, "it has scaled in")
    print(f"{endpoint}: scaled in after {time.perf_counter() - began:.0f} s of silence")
    print_timeline(endpoint)


class Load:
    """Callers that invoke without pause."""

    def __init__(self, endpoint: str, name: dict[str, str]) -> None:
        self.answered, self.failed = 0, 0
        self._call = {"EndpointName": endpoint, "ContentType": "application/json", **name}
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(CALLERS)]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        asked = {"inputs": "Cats are", "parameters": {"max_new_tokens": 32}}
        while not self._stop.is_set():
            try:
                smr_client.invoke_endpoint(**self._call, Body=json.dumps(asked))["Body"].read()
                self.answered += 1
            except (BotoCoreError, ClientError) as error:
                self.failed += 1
                print(f"a request failed: {error}")

    def stop(self) -> tuple[int, int]:
        """Requests answered, and failed."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        return self.answered, self.failed


def print_timeline(endpoint: str) -> None:
    beside_python = Path(sys.executable).parent
    hostelry = shutil.which("hostelry") or shutil.which("hostelry", path=beside_python)
    if hostelry is None:
        print("hostelry is neither on the PATH nor beside this python: no timeline")
        return
    subprocess.run([hostelry, "scaling", "timeline", endpoint, "--since", "10m"], check=True)


def until(check: Callable[[], bool], what: str) -> None:
    deadline = time.perf_counter() + PATIENCE_S
    while not check():
        if time.perf_counter() > deadline:
            raise SystemExit(f"{what}: not within {PATIENCE_S:.0f} s")
        time.sleep(1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="the model's folder")
    parser.add_argument("--only", choices=("variant", "component"), help="one of the programs")
    arguments = parser.parse_args()
    upload(arguments.model)
    if arguments.only != "component":
        run_variant()
    if arguments.only != "variant":
        run_component()


if __name__ == "__main__":
    main()
