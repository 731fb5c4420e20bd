"""A file of requests to a model and its adapters, answered as a batch: OpenAI's client, unchanged.

    pip install openai
    hostelry demo-model ./smollm2
    hostelry exec -- python examples/openai_batch.py --model ./smollm2

A base model is deployed with three adapters in its archive. One file has a request for each of some
questions to each of them, and one to an adapter that there is not; `POST /v1/batches` has it run
over the copies that serve the models, beside requests that clients wait for. The answers come in an
output file and what failed in an error file, by `custom_id`. Resources that an interrupted run left
are removed first, its own at the end.
"""

import argparse
import json
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import boto3
from leftovers import remove
from openai import OpenAI
from openai.types import Batch

HERE = Path(__file__).resolve().parent
STYLES = ("es", "fr", "pirate")
QUESTIONS = (
    "What is the ocean?",
    "Why do cats sleep all day?",
    "Give me a creative excuse to skip the party.",
    "How do I make a cup of tea?",
)
IMAGE = "763104351884.dkr.ecr.{region}.amazonaws.com/djl-inference:0.27.0-deepspeed0.12.6-cu121"
NAME, VARIANT = "openai-batch", "AllTraffic"
MODELS = [NAME, *(f"{NAME}:{style}" for style in STYLES)]
ENDED = ("completed", "failed", "expired", "cancelled")
Line = dict[str, Any]

sm_client, s3 = boto3.client("sagemaker"), boto3.client("s3")
account = boto3.client("sts").get_caller_identity()["Account"]
region = sm_client.meta.region_name
role = f"arn:aws:iam::{account}:role/HostelryExecutionRole"
bucket = f"sagemaker-{region}-{account}"


def deploy(model: Path, adapters: Path) -> None:
    """Serve the base model, with the adapters in its archive."""
    with suppress(s3.exceptions.BucketAlreadyOwnedByYou):
        s3.create_bucket(Bucket=bucket)
    for file in sorted(it for it in model.iterdir() if it.is_file()):
        s3.upload_file(str(file), bucket, f"{NAME}/base/{file.name}")
    with tempfile.TemporaryDirectory() as scratch:
        packed = Path(scratch) / "adapters.tar.gz"
        with tarfile.open(packed, "w:gz") as archive:
            for style in STYLES:
                archive.add(adapters / style, f"adapters/{style}")
        s3.upload_file(str(packed), bucket, f"{NAME}/adapters.tar.gz")
    variant = {"VariantName": VARIANT, "InstanceType": "ml.g5.xlarge", "InitialInstanceCount": 1}
    sm_client.create_endpoint_config(
        EndpointConfigName=NAME, ExecutionRoleArn=role, ProductionVariants=[variant]
    )
    sm_client.create_endpoint(EndpointName=NAME, EndpointConfigName=NAME)
    sm_client.get_waiter("endpoint_in_service").wait(
        EndpointName=NAME, WaiterConfig={"Delay": 1, "MaxAttempts": 300}
    )
    options = {"OPTION_MODEL_ID": f"s3://{bucket}/{NAME}/base/", "OPTION_ENABLE_LORA": "true"}
    sm_client.create_inference_component(
        InferenceComponentName=NAME,
        EndpointName=NAME,
        VariantName=VARIANT,
        Specification={
            "Container": {
                "Image": IMAGE.format(region=region),
                "ArtifactUrl": f"s3://{bucket}/{NAME}/adapters.tar.gz",
                "Environment": options,
            },
            "ComputeResourceRequirements": {
                "NumberOfAcceleratorDevicesRequired": 1,
                "MinMemoryRequiredInMb": 4096,
            },
        },
        RuntimeConfig={"CopyCount": 1},
    )
    while (status := described()["InferenceComponentStatus"]) != "InService":
        if status == "Failed":
            raise SystemExit(f"{NAME} failed: {described()['FailureReason']}")
        time.sleep(0.25)


def described() -> dict[str, Any]:
    """The component."""
    shown: dict[str, Any] = sm_client.describe_inference_component(InferenceComponentName=NAME)
    return shown


def requests(max_tokens: int) -> Iterator[Line]:
    """Every question to every model, and one to an adapter that is not there."""
    asked = [(model, text) for text in QUESTIONS for model in MODELS]
    for number, (model, text) in enumerate([*asked, (f"{NAME}:klingon", QUESTIONS[0])]):
        yield {
            "custom_id": f"{number:03}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {
                "model": model,
                "messages": [{"role": "user", "content": text}],
                "max_tokens": max_tokens,
                "temperature": 0,
            },
        }


def run(client: OpenAI, lines: list[Line]) -> Batch:
    """The batch of these requests once it has ended; prints how far it is."""
    content = "".join(json.dumps(line) + "\n" for line in lines).encode()
    file = client.files.create(file=("questions.jsonl", content), purpose="batch")
    batch = client.batches.create(
        input_file_id=file.id,
        endpoint="/v1/chat/completions",
        completion_window="24h",
        metadata={"example": NAME},
    )
    print(f"Batch {batch.id} of {len(lines)} requests", flush=True)
    shown = ""
    while True:
        counts = batch.request_counts
        done = "" if counts is None else f"{counts.completed} answered, {counts.failed} failed"
        if f"{batch.status} {done}" != shown:
            shown = f"{batch.status} {done}"
            print(f"  {batch.status:12s} {done}", flush=True)
        if batch.status in ENDED:
            return batch
        time.sleep(0.25)
        batch = client.batches.retrieve(batch.id)


def results(client: OpenAI, file_id: str | None) -> dict[str, Line]:
    """The lines of a result file by custom_id, in no particular order."""
    if file_id is None:
        return {}
    lines = [json.loads(line) for line in client.files.content(file_id).text.splitlines()]
    return {line["custom_id"]: line for line in lines}


def show(client: OpenAI, batch: Batch, lines: list[Line]) -> int:
    """Print what came of each request; the tokens that were generated."""
    answered = results(client, batch.output_file_id)
    failed = results(client, batch.error_file_id)
    num_tokens = 0
    for line in lines:
        model, question = line["body"]["model"], line["body"]["messages"][0]["content"]
        if model == MODELS[0]:
            print(f"\n{question}")
        if line["custom_id"] in answered:
            body = answered[line["custom_id"]]["response"]["body"]
            num_tokens += body["usage"]["completion_tokens"]
            print(f"  {model:22s} {' '.join(body['choices'][0]['message']['content'].split())}")
        else:
            response = failed[line["custom_id"]]["response"]
            reason = response["body"]["error"]["message"]
            print(f"  {model:22s} {response['status_code']}: {reason}")
    return num_tokens


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", type=Path, required=True, help="folder of the base model")
    parser.add_argument("--adapters", type=Path, default=HERE / "adapters")
    parser.add_argument("--max-tokens", type=int, default=32)
    arguments = parser.parse_args()
    remove(NAME, [NAME])
    try:
        print("Deploying a model with three adapters ...", flush=True)
        deploy(arguments.model, arguments.adapters)
        client = OpenAI()  # `hostelry exec` sets OPENAI_BASE_URL and OPENAI_API_KEY
        lines = list(requests(arguments.max_tokens))
        began = time.perf_counter()
        batch = run(client, lines)
        took_s = time.perf_counter() - began
        num_tokens = show(client, batch, lines)
        print(f"\n{num_tokens} tokens in {took_s:.1f} s: {num_tokens / took_s:.0f} a second")
        for file_id in (batch.input_file_id, batch.output_file_id, batch.error_file_id):
            if file_id is not None:
                client.files.delete(file_id)
    finally:
        print("\nCleaning up ...", flush=True)
        remove(NAME, [NAME])


if __name__ == "__main__":
    main()
