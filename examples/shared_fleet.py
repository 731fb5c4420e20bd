"""Twenty inference components of mixed sizes and many adapters on four shared instances.

    hostelry demo-model ./smollm2
    python examples/echo_server.py --image-rule >> ~/.hostelry/images.toml
    hostelry up --detach --pace 60
    hostelry exec -- python examples/shared_fleet.py --model ./smollm2 --release-within 120

Plain boto3. Two LLMs with adapters and 18 small servers (`examples/echo_server.py`) share up to
four ml.g5.12xlarge (48 CPUs, 192 GiB, 4 accelerators each, declared). They are scaled out and in,
one that fits nowhere is created, and each time `hostelry explain` shows where copies are and why.
`--pace 60` turns minutes of cooldown into seconds, so that the release of instances can be watched.
Resources that an interrupted run left are removed first.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from leftovers import remove, remove_all

HERE = Path(__file__).resolve().parent
ENDPOINT, VARIANT, INSTANCE_TYPE = "shared-fleet", "AllTraffic", "ml.g5.12xlarge"
LMI_IMAGE = "763104351884.dkr.ecr.{region}.amazonaws.com/djl-inference:0.29.0-lmi11.0.0-cu124"
ECHO_IMAGE = "{account}.dkr.ecr.{region}.amazonaws.com/shared-fleet-echo:1"
MAX_INSTANCES = 4
PATIENCE_S = 300.0


@dataclass(frozen=True)
class Size:
    """Reservation of one copy of a component; an LLM runs the real model server."""

    name: str
    accelerators: int
    memory_mb: int
    cpus: float
    strategy: str = "BINPACK"
    llm: bool = False


LLMS = [Size(f"llm-{it}", 2, 16 * 1024, 4, "SPREAD", llm=True) for it in ("a", "b")]
SERVERS = [
    *[Size(f"vision-{it}", 2, 24 * 1024, 8) for it in (1, 2)],
    *[Size(f"rank-{it}", 1, 8 * 1024 * it, 4, "SPREAD") for it in (1, 2, 3)],
    *[Size(f"speech-{it}", 1, 12 * 1024, 2) for it in (1, 2, 3)],
    *[Size(f"embed-{it}", 0, 1024 * 2**it, 0.5 * 2**it) for it in (0, 1, 2, 3, 4)],
    *[Size(f"classify-{it}", 0, 1024 * it, 1) for it in (1, 2, 3, 4, 5)],
]
TOO_MUCH = Size("late-comer", 2, 16 * 1024, 4)

sm_client = boto3.client("sagemaker")
smr_client = boto3.client("sagemaker-runtime")
s3 = boto3.client("s3")
account = boto3.client("sts").get_caller_identity()["Account"]
region = sm_client.meta.region_name
role = f"arn:aws:iam::{account}:role/HostelryExecutionRole"
bucket = f"sagemaker-{region}-{account}"


def upload(model_folder: Path, adapters_folder: Path) -> list[str]:
    """Put the base model and each adapter's archive into the bucket; the adapters' names."""
    with suppress(s3.exceptions.BucketAlreadyOwnedByYou):
        s3.create_bucket(Bucket=bucket)
    for file in sorted(model_folder.iterdir()):
        s3.upload_file(str(file), bucket, f"shared-fleet/base/{file.name}")
    folders = sorted(it.parent for it in adapters_folder.glob("*/adapter_config.json"))
    with tempfile.TemporaryDirectory() as scratch:
        for folder in folders:
            packed = Path(scratch) / f"{folder.name}.tar.gz"
            with tarfile.open(packed, "w:gz") as archive:
                archive.add(folder, ".")
            s3.upload_file(str(packed), bucket, f"shared-fleet/adapters/{packed.name}")
    return [it.name for it in folders]


def create_endpoint() -> None:
    """Create an endpoint of one instance; more are added as components need them, up to four."""
    sm_client.create_endpoint_config(
        EndpointConfigName=ENDPOINT,
        ExecutionRoleArn=role,
        ProductionVariants=[
            {
                "VariantName": VARIANT,
                "InstanceType": INSTANCE_TYPE,
                "InitialInstanceCount": 1,
                "ManagedInstanceScaling": {
                    "Status": "ENABLED",
                    "MinInstanceCount": 1,
                    "MaxInstanceCount": MAX_INSTANCES,
                    "ScaleInPolicy": {
                        "Strategy": "CONSOLIDATION",
                        "MaximumStepSize": 1,
                        "CooldownInMinutes": 10,
                    },
                },
                "RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
            }
        ],
    )
    sm_client.create_endpoint(EndpointName=ENDPOINT, EndpointConfigName=ENDPOINT)
    wait_for("the endpoint is InService", lambda: endpoint()["EndpointStatus"] == "InService")


def create(size: Size) -> None:
    """Create an inference component with one copy."""
    requirements: dict[str, float] = {
        "MinMemoryRequiredInMb": size.memory_mb,
        "NumberOfCpuCoresRequired": size.cpus,
    }
    if size.accelerators:
        requirements["NumberOfAcceleratorDevicesRequired"] = size.accelerators
    container: dict[str, Any] = {
        "Image": ECHO_IMAGE.format(account=account, region=region),
        "Environment": {"ECHO_NAME": size.name},
    }
    if size.llm:
        container = {
            "Image": LMI_IMAGE.format(region=region),
            "Environment": {
                "OPTION_MODEL_ID": f"s3://{bucket}/shared-fleet/base/",
                "OPTION_ENABLE_LORA": "true",
                "OPTION_MAX_LORA_RANK": "64",
            },
        }
    sm_client.create_inference_component(
        InferenceComponentName=size.name,
        EndpointName=ENDPOINT,
        VariantName=VARIANT,
        Specification={
            "Container": container,
            "ComputeResourceRequirements": requirements,
            "SchedulingConfig": {"PlacementStrategy": size.strategy},
        },
        RuntimeConfig={"CopyCount": 1},
    )


def create_adapter(base: str, adapter: str) -> str:
    """Create an adapter as a component, in each copy of its base; its name."""
    name = f"{base}-{adapter}"
    sm_client.create_inference_component(
        InferenceComponentName=name,
        EndpointName=ENDPOINT,
        Specification={
            "BaseInferenceComponentName": base,
            "Container": {"ArtifactUrl": f"s3://{bucket}/shared-fleet/adapters/{adapter}.tar.gz"},
        },
    )
    return name


def scale(name: str, copies: int) -> None:
    """Set a component's desired number of copies."""
    sm_client.update_inference_component_runtime_config(
        InferenceComponentName=name, DesiredRuntimeConfig={"CopyCount": copies}
    )


def endpoint() -> dict[str, Any]:
    """DescribeEndpoint."""
    shown: dict[str, Any] = sm_client.describe_endpoint(EndpointName=ENDPOINT)
    return shown


def instances() -> int:
    """Number of the endpoint's instances."""
    return int(endpoint()["ProductionVariants"][0]["CurrentInstanceCount"])


def components() -> dict[str, str]:
    """The status of each component by its name."""
    pages = sm_client.get_paginator("list_inference_components").paginate(
        EndpointNameEquals=ENDPOINT
    )
    shown = (it for page in pages for it in page["InferenceComponents"])
    return {it["InferenceComponentName"]: it["InferenceComponentStatus"] for it in shown}


def wait_for(what: str, holds: Callable[[], bool], within_s: float = PATIENCE_S) -> float:
    """Wait until `holds` is true; the seconds it took. Exits after `within_s`."""
    started = time.perf_counter()
    while not holds():
        if time.perf_counter() - started > within_s:
            raise SystemExit(f"{what}: not within {within_s:g} s")
        time.sleep(0.2)
    return time.perf_counter() - started


def wait_in_service(names: Iterable[str]) -> float:
    """Wait until each is InService; the seconds it took. Exits with the reason of a failure."""
    names = set(names)

    def all_serve() -> bool:
        statuses = components()
        for name in sorted(names):
            if statuses.get(name) == "Failed":
                shown = sm_client.describe_inference_component(InferenceComponentName=name)
                raise SystemExit(f"{name} failed: {shown['FailureReason']}")
        return all(statuses.get(name) == "InService" for name in names)

    return wait_for("all are InService", all_serve)


def invoke(name: str) -> str:
    """Invoke a component; the body of the response."""
    body = {"inputs": "The fleet", "parameters": {"max_new_tokens": 8}}
    answer = smr_client.invoke_endpoint(
        EndpointName=ENDPOINT,
        InferenceComponentName=name,
        ContentType="application/json",
        Body=json.dumps(body),
    )
    return str(answer["Body"].read().decode())


def explain(title: str, *component: str) -> None:
    """Run `hostelry explain`, where the command is on the PATH."""
    print(f"\n--- {title}: {' '.join(['hostelry explain', *component])}", flush=True)
    command = shutil.which("hostelry")
    if command is None:
        print("(the hostelry command is not on the PATH)")
        return
    subprocess.run([command, "explain", "--endpoint", ENDPOINT, *component], check=False)
    sys.stdout.flush()


def ask_for_too_much() -> None:
    """A component that fits nowhere stays Creating with a FailureReason, and can be deleted."""
    create(TOO_MUCH)

    def has_reason() -> bool:
        shown = sm_client.describe_inference_component(InferenceComponentName=TOO_MUCH.name)
        return "FailureReason" in shown

    wait_for(f"{TOO_MUCH.name} has a FailureReason", has_reason)
    explain("one more that fits nowhere", TOO_MUCH.name)
    remove_all("inference_component", [TOO_MUCH.name])


def scale_out_and_in(release_within_s: float) -> None:
    """More copies, one too many, then fewer, each explained."""
    scale("llm-a", 2)
    for name in ("embed-1", "classify-1"):
        scale(name, 4)
    took_s = wait_in_service(["llm-a", "embed-1", "classify-1"])
    print(f"\nScaled out in {took_s:.1f} s")
    explain("a second copy of the LLM", "llm-a")
    ask_for_too_much()
    scale("llm-a", 1)
    few = [f"{name}-{it}" for name in ("rank", "speech") for it in (1, 2)]
    for name in few:
        scale(name, 0)
    took_s = wait_in_service(["llm-a", *few])
    print(f"\nScaled in after {took_s:.1f} s, on {instances()} instances")
    if release_within_s > 0:
        before = instances()
        took_s = wait_for("an instance goes", lambda: instances() < before, release_within_s)
        print(f"Its copies moved, one of {before} instances was released after {took_s:.1f} s")
        wait_for("the endpoint is at rest", lambda: endpoint()["EndpointStatus"] == "InService")
    explain("fewer copies")


def main() -> None:
    """Run the example from upload to clean-up."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="folder of the base model")
    parser.add_argument("--adapters", type=Path, default=HERE / "adapters")
    parser.add_argument("--release-within", type=float, default=0.0, metavar="SECONDS",
                        help="wait so long for an instance to be released")  # fmt: skip
    arguments = parser.parse_args()
    sizes = [*LLMS, *SERVERS]
    own = [it.name for it in [*sizes, TOO_MUCH]]
    remove(ENDPOINT, own)
    print("Uploading a base model and its adapters ...", flush=True)
    names = upload(arguments.model, arguments.adapters)
    print("Creating the endpoint with one instance ...", flush=True)
    create_endpoint()
    print(f"Creating {len(sizes)} inference components ...", flush=True)
    for size in sizes:
        create(size)
    took_s = wait_in_service(it.name for it in sizes)
    adapters = [create_adapter(base.name, it) for base in LLMS for it in names]
    wait_in_service(adapters)
    print(f"{len(sizes)} components serve after {took_s:.1f} s on {instances()} instances")
    explain("as created")
    answers = {name: invoke(name) for name in [*(it.name for it in sizes), *adapters]}
    print(f"\n{len(answers)} components answered, among them:")
    for name in ("llm-a", adapters[0], "vision-1", "embed-4"):
        print(f"  {name}: {answers[name][:80]}")
    scale_out_and_in(arguments.release_within)
    print("\nCleaning up ...", flush=True)
    remove(ENDPOINT, own)


if __name__ == "__main__":
    main()
