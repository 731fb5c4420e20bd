"""Copies whose engine is the real vLLM, where `hostelry runtimes install vllm` was run.

boto3 alone: a base with an adapter, the kill of vLLM's own process, and a model that neither
engine reads.
"""

import io
import json
import os
import signal
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.platform import Platform, command_line, until
from tests.models import random_adapter, tiny_llama
from tests.unit.containers.lmi.tiny import write_tokenizer

from hostelry.base.runtimes import VARIABLE, find_installed, runtimes_folder

FOLDER = runtimes_folder(os.environ)
START_S = 400.0
pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(
        find_installed(FOLDER, "vllm") is None,
        reason=f"vLLM is not installed in {FOLDER}: hostelry runtimes install vllm",
    ),
]
ROLE = "arn:aws:iam::111122223333:role/HostelryExecutionRole"
IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/djl-inference:0.36.0-lmi20.0.0-cu128"
KNOWN_MEANWHILE = ("ModelError", "ServiceUnavailable", "ValidationError", "ModelNotReadyException")
PROMPT = {"inputs": "hello world", "parameters": {"max_new_tokens": 8, "do_sample": False}}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`model`, `adapter` of it, and `unknown`, whose architecture nothing reads."""
    root = tmp_path_factory.mktemp("models")
    # Heads of a size that vLLM has CPU kernels for.
    folder = tiny_llama(root / "model", vocab_size=259, max_position_embeddings=2048, head_dim=32)
    write_tokenizer(folder)
    random_adapter(root / "adapter", folder, rank=8, seed=1)
    unknown = tiny_llama(root / "unknown", vocab_size=259)
    write_tokenizer(unknown)
    config = json.loads((unknown / "config.json").read_text())
    renamed = {"architectures": ["OracleForCausalLM"], "model_type": "oracle"}
    (unknown / "config.json").write_text(json.dumps({**config, **renamed}))
    return root


@pytest.fixture(scope="module")
def platform(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    home = tmp_path_factory.mktemp("home")
    with Platform(home / "home", environment={VARIABLE: str(FOLDER)}) as started:
        s3 = started.boto3("s3")
        s3.create_bucket(Bucket="models")
        for name in ("model", "adapter", "unknown"):
            s3.put_object(Bucket="models", Key=f"{name}.tar.gz", Body=packed(models / name))
        endpoint(started)
        yield started


def packed(folder: Path) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        archive.add(folder, arcname=".")
    return content.getvalue()


def endpoint(platform: Platform) -> None:
    sagemaker = platform.boto3("sagemaker")
    variant = {
        "VariantName": "AllTraffic",
        "InstanceType": "ml.m5.4xlarge",
        "InitialInstanceCount": 1,
        "ModelDataDownloadTimeoutInSeconds": 60,
        "ContainerStartupHealthCheckTimeoutInSeconds": int(START_S),
    }
    sagemaker.create_endpoint_config(
        EndpointConfigName="c", ExecutionRoleArn=ROLE, ProductionVariants=[variant]
    )
    sagemaker.create_endpoint(EndpointName="ep", EndpointConfigName="c")
    sagemaker.get_waiter("endpoint_in_service").wait(
        EndpointName="ep", WaiterConfig={"Delay": 1, "MaxAttempts": 60}
    )


def create(platform: Platform, name: str, **specification: Any) -> dict[str, Any]:
    """Create a component. Returns its description once it is InService or Failed."""
    sagemaker = platform.boto3("sagemaker")
    base = "BaseInferenceComponentName" in specification
    placed = {} if base else {"VariantName": "AllTraffic", "RuntimeConfig": {"CopyCount": 1}}
    sagemaker.create_inference_component(
        InferenceComponentName=name, EndpointName="ep", Specification=specification, **placed
    )

    def final() -> dict[str, Any] | None:
        found: dict[str, Any] = sagemaker.describe_inference_component(InferenceComponentName=name)
        return found if found["InferenceComponentStatus"] in ("InService", "Failed") else None

    described: dict[str, Any] = until(final, f"{name} is InService or Failed", START_S)
    return described


def base_of(artifact: str, **environment: str) -> dict[str, Any]:
    return {
        "Container": {
            "Image": IMAGE,
            "ArtifactUrl": f"s3://models/{artifact}.tar.gz",
            "Environment": {"OPTION_POOL_BYTES": str(64 << 20), **environment},
        },
        "ComputeResourceRequirements": {
            "MinMemoryRequiredInMb": 6144,
            "NumberOfCpuCoresRequired": 2,
        },
        "StartupParameters": {"ContainerStartupHealthCheckTimeoutInSeconds": int(START_S)},
    }


def ask(runtime: Any, name: str) -> str:
    answer = runtime.invoke_endpoint(
        EndpointName="ep",
        InferenceComponentName=name,
        ContentType="application/json",
        Body=json.dumps(PROMPT).encode(),
    )
    text: str = json.loads(answer["Body"].read())["generated_text"]
    return text


def vllm_pids(platform: Platform) -> list[int]:
    """The processes of vLLM's interpreter that belong to this platform."""
    python = str(FOLDER / "vllm")
    return [pid for pid in platform.processes() if python in command_line(pid)]


def test_a_base_and_its_adapter_are_served_by_vllm_and_come_back_after_its_death(
    platform: Platform,
) -> None:
    options = {
        "OPTION_ROLLING_BATCH": "vllm",
        "OPTION_ENABLE_LORA": "true",
        "OPTION_BLOCK_SIZE": "32",
        "OPTION_ASYNC_SCHEDULING": "false",
    }
    described = create(platform, "base", **base_of("model", **options))
    assert described["InferenceComponentStatus"] == "InService", described
    adapter = {"Container": {"ArtifactUrl": "s3://models/adapter.tar.gz"}}
    described = create(platform, "es", BaseInferenceComponentName="base", **adapter)
    assert described["InferenceComponentStatus"] == "InService", described
    why = "ep/base: 1 copy has the engine vllm: option.rolling_batch is vllm"
    assert why in platform.cli("explain", "base").stdout
    runtime = platform.boto3("sagemaker-runtime")
    before = {name: ask(runtime, name) for name in ("base", "es")}
    assert before["base"] != before["es"]

    (first, *_) = vllm_pids(platform)
    os.kill(first, signal.SIGKILL)
    until(lambda: first not in vllm_pids(platform), "the killed process is gone")
    quick = platform.boto3("sagemaker-runtime", retries={"total_max_attempts": 1})

    def back() -> dict[str, str] | None:
        try:
            return {name: ask(quick, name) for name in before}
        except quick.exceptions.ClientError as error:
            if error.response["Error"]["Code"] in KNOWN_MEANWHILE:
                return None
            raise

    assert until(back, "both answer again", START_S) == before


def test_a_model_that_neither_engine_reads_fails_with_the_names_of_both(
    platform: Platform,
) -> None:
    described = create(platform, "unknown", **base_of("unknown"))
    assert described["InferenceComponentStatus"] == "Failed"
    reason = described["FailureReason"]
    assert "our own engine does not read this model: UnsupportedModelError: arch" in reason
    assert "vLLM: ValidationError: The checkpoint you are trying to load has model type" in reason
