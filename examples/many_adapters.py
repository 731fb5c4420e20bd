"""One base model, many LoRA adapters, one endpoint: plain boto3, as written for SageMaker.

    hostelry demo-model ./smollm2
    hostelry exec -- python examples/many_adapters.py --model ./smollm2

Uploads a base model and three adapters, puts two base models on one endpoint as inference
components, and invokes adapters in both ways: packed in the model archive and named in the body,
and each as an inference component of its own. Prints the answers and the
measurements. Resources that an interrupted run left are removed first, its own at the end.
"""

import argparse
import json
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import boto3
from leftovers import remove

HERE = Path(__file__).resolve().parent
STYLES = ("es", "fr", "pirate")
QUESTION = "Give me a creative excuse to skip the party."
IMAGE = "763104351884.dkr.ecr.{region}.amazonaws.com/djl-inference:0.27.0-deepspeed0.12.6-cu121"
ENDPOINT, VARIANT = "many-adapters", "AllTraffic"
BASES = ["smollm2-a", "smollm2-b"]

s3 = boto3.client("s3")
sm_client = boto3.client("sagemaker")
smr_client = boto3.client("sagemaker-runtime")
account = boto3.client("sts").get_caller_identity()["Account"]
role = f"arn:aws:iam::{account}:role/HostelryExecutionRole"
bucket = f"sagemaker-{sm_client.meta.region_name}-{account}"


def upload(model_folder: Path, adapters_folder: Path) -> None:
    """Put the base model (files as they are) and the adapters (archives) into the bucket."""
    with suppress(s3.exceptions.BucketAlreadyOwnedByYou):
        s3.create_bucket(Bucket=bucket)
    for file in sorted(model_folder.iterdir()):
        s3.upload_file(str(file), bucket, f"models/base/{file.name}")
    with tempfile.TemporaryDirectory() as scratch:
        everything = Path(scratch) / "adapters.tar.gz"
        with tarfile.open(everything, "w:gz") as archive:
            for style in STYLES:
                archive.add(adapters_folder / style, f"adapters/{style}")
        s3.upload_file(str(everything), bucket, "models/adapters.tar.gz")
        for style in STYLES:
            single = Path(scratch) / f"{style}.tar.gz"
            with tarfile.open(single, "w:gz") as archive:
                archive.add(adapters_folder / style, ".")
            s3.upload_file(str(single), bucket, f"adapters/{style}.tar.gz")


def create_endpoint() -> None:
    """Create an endpoint for inference components."""
    sm_client.create_endpoint_config(
        EndpointConfigName=ENDPOINT,
        ExecutionRoleArn=role,
        ProductionVariants=[
            {
                "VariantName": VARIANT,
                "InstanceType": "ml.g5.12xlarge",
                "InitialInstanceCount": 1,
                "ModelDataDownloadTimeoutInSeconds": 1200,
                "ContainerStartupHealthCheckTimeoutInSeconds": 1200,
                "ManagedInstanceScaling": {
                    "Status": "ENABLED",
                    "MinInstanceCount": 1,
                    "MaxInstanceCount": 2,
                },
                "RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
            }
        ],
    )
    sm_client.create_endpoint(EndpointName=ENDPOINT, EndpointConfigName=ENDPOINT)
    sm_client.get_waiter("endpoint_in_service").wait(
        EndpointName=ENDPOINT, WaiterConfig={"Delay": 1, "MaxAttempts": 300}
    )


def create_base(name: str, dtype: str) -> None:
    """Create a base model on two accelerators; its archive holds the adapters."""
    sm_client.create_model(
        ModelName=name,
        ExecutionRoleArn=role,
        PrimaryContainer={
            "Image": IMAGE.format(region=sm_client.meta.region_name),
            "Environment": {
                "OPTION_MODEL_ID": f"s3://{bucket}/models/base/",
                "OPTION_TENSOR_PARALLEL_DEGREE": "2",
                "OPTION_ROLLING_BATCH": "lmi-dist",
                "OPTION_MAX_ROLLING_BATCH_SIZE": "32",
                "OPTION_DTYPE": dtype,
                "OPTION_ENABLE_LORA": "true",
                "OPTION_MAX_LORA_RANK": "64",
                "OPTION_MAX_CPU_LORAS": "4",
            },
            "ModelDataUrl": f"s3://{bucket}/models/adapters.tar.gz",
        },
    )
    sm_client.create_inference_component(
        InferenceComponentName=name,
        EndpointName=ENDPOINT,
        VariantName=VARIANT,
        Specification={
            "ModelName": name,
            "StartupParameters": {
                "ModelDataDownloadTimeoutInSeconds": 1200,
                "ContainerStartupHealthCheckTimeoutInSeconds": 1200,
            },
            "ComputeResourceRequirements": {
                "NumberOfAcceleratorDevicesRequired": 2,
                "MinMemoryRequiredInMb": 4 * 1024,
            },
        },
        RuntimeConfig={"CopyCount": 1},
    )


def create_adapter(style: str, base: str) -> str:
    """Create an adapter as an inference component; its name."""
    name = f"{base}-{style}"
    sm_client.create_inference_component(
        InferenceComponentName=name,
        EndpointName=ENDPOINT,
        Specification={
            "BaseInferenceComponentName": base,
            "Container": {"ArtifactUrl": f"s3://{bucket}/adapters/{style}.tar.gz"},
        },
    )
    return name


def wait_in_service(*components: str) -> None:
    """Wait until every component is InService; exits with the reason of a failure."""
    waiting = list(components)
    while waiting:
        shown = sm_client.describe_inference_component(InferenceComponentName=waiting[0])
        if shown["InferenceComponentStatus"] == "Failed":
            raise SystemExit(f"{waiting[0]} failed: {shown['FailureReason']}")
        if shown["InferenceComponentStatus"] == "InService":
            waiting.pop(0)
        else:
            time.sleep(0.25)


def prompt(question: str) -> str:
    """The question in the base model's own chat form, for the `inputs` schema."""
    system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    turns = [("system", system), ("user", question)]
    text = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in turns)
    return text + "<|im_start|>assistant\n"


def invoke(component: str, body: dict[str, Any]) -> Any:
    """InvokeEndpoint with a JSON body; the decoded answer."""
    response_model = smr_client.invoke_endpoint(
        InferenceComponentName=component,
        EndpointName=ENDPOINT,
        Body=json.dumps(body),
        ContentType="application/json",
    )
    return json.loads(response_model["Body"].read().decode("utf8"))


def stream(component: str, body: dict[str, Any]) -> Iterator[str]:
    """InvokeEndpointWithResponseStream in the chat schema; pieces of text."""
    response = smr_client.invoke_endpoint_with_response_stream(
        InferenceComponentName=component,
        EndpointName=ENDPOINT,
        Body=json.dumps({**body, "stream": True}),
        ContentType="application/json",
    )
    pending = b""
    for event in response["Body"]:
        pending += event["PayloadPart"]["Bytes"]
        *lines, pending = pending.split(b"\n")
        for line in filter(None, lines):
            for choice in json.loads(line)["choices"]:
                yield choice["delta"].get("content") or ""


def ask_packed_adapters(base: str) -> None:
    """Adapters inside the archive, named in the body; one call may name several."""
    parameters = {"max_new_tokens": 40}
    for style in STYLES:
        answer = invoke(
            base,
            {"inputs": [prompt(QUESTION)], "adapters": [style], "parameters": parameters},
        )
        print(f"  {base} {style:7s} {answer[0]['generated_text'].strip()}")
    answers = invoke(
        base,
        {
            "inputs": [prompt("What is the ocean?")] * 3,
            "adapters": list(STYLES),
            "parameters": parameters,
        },
    )
    print(f"  {base} all three in one call:")
    for style, answer in zip(STYLES, answers, strict=True):
        print(f"    {style:7s} {answer['generated_text'].strip()}")


def stream_answer(component: str) -> tuple[float, float]:
    """Print an answer as it streams; seconds to the first token, and tokens/s after it."""
    body = {
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": 48,
        "temperature": 0,
    }
    started, first, pieces = time.perf_counter(), 0.0, 0
    print(f"  {component}: ", end="", flush=True)
    for text in stream(component, body):
        first = first or time.perf_counter() - started
        pieces += 1
        print(text, end="", flush=True)
    print()
    spent = time.perf_counter() - started - first
    return first, (pieces - 1) / spent if spent else 0.0


def copy_memory_mb() -> dict[str, float]:
    """Resident memory of each component's copy in MB, as `hostelry status` measures it."""
    command = shutil.which("hostelry")
    if command is None:
        return {}
    shown = subprocess.run([command, "status", "--json"], capture_output=True, check=True)
    return {
        copy["owner"].removeprefix("component/"): copy["memory_bytes"] / 1e6
        for endpoint in json.loads(shown.stdout)["state"]["endpoints"]
        for copy in endpoint["copies"]
    }


def show(rows: list[tuple[str, str]]) -> None:
    """Print a table."""
    width = max(len(label) for label, _ in rows)
    print()
    for label, value in rows:
        print(f"  {label:{width}s}  {value}")


def timed(action: Any, *arguments: Any) -> float:
    """Duration of `action` in seconds."""
    started = time.perf_counter()
    action(*arguments)
    return time.perf_counter() - started


def main() -> None:
    """Run the example from upload to clean-up."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="folder of the base model")
    parser.add_argument("--adapters", type=Path, default=HERE / "adapters")
    arguments = parser.parse_args()
    remove(ENDPOINT, BASES, models=BASES)
    print("Uploading the base model and three adapters ...", flush=True)
    upload_s = timed(upload, arguments.model, arguments.adapters)
    print("Creating the endpoint ...", flush=True)
    endpoint_s = timed(create_endpoint)
    print("Creating two base inference components ...", flush=True)
    started = time.perf_counter()
    create_base(BASES[0], "bf16")
    create_base(BASES[1], "fp16")
    wait_in_service(*BASES)
    bases_s = time.perf_counter() - started
    print("Adding three adapters as inference components ...", flush=True)
    started = time.perf_counter()
    adapters = [create_adapter(style, BASES[0]) for style in STYLES]
    wait_in_service(*adapters)
    adapters_s = time.perf_counter() - started

    print(f'\nAdapters named in the body. Asked: "{QUESTION}"')
    for base in BASES:
        ask_packed_adapters(base)
    print("\nAdapters as inference components, streamed:")
    measured = [stream_answer(component) for component in [BASES[0], *adapters]]
    first_s, tokens_per_s = (
        sorted(column)[len(column) // 2] for column in zip(*measured, strict=True)
    )
    memory_mb = copy_memory_mb()
    rows = [
        ("upload (270 MB and adapters)", f"{upload_s:.1f} s"),
        ("endpoint to InService", f"{endpoint_s:.1f} s"),
        ("two base components to InService", f"{bases_s:.1f} s"),
        ("three adapter components to InService", f"{adapters_s:.1f} s"),
        ("time to first token (median)", f"{first_s * 1e3:.0f} ms"),
        ("tokens/s of one stream (median)", f"{tokens_per_s:.0f}"),
    ]
    if set(BASES) <= set(memory_mb):
        one, other = memory_mb[BASES[0]], memory_mb[BASES[1]]
        count = len(adapters)
        rows.append((f"memory, one base with {count} adapters", f"{one:.0f} MB"))
        rows.append(
            (
                f"memory, {count} separate models",
                f"{count * other:.0f} MB ({count} x the {other:.0f} MB measured of the second)",
            )
        )
    print("\nCleaning up ...", flush=True)
    rows.append(("clean-up", f"{timed(remove, ENDPOINT, BASES, BASES):.1f} s"))
    show(rows)


if __name__ == "__main__":
    main()
