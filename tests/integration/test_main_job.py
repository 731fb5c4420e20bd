"""The main job with the real model: the README's example, the demo's program, OpenAI clients."""

import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.integration.drill import ROLE
from tests.integration.platform import Platform, until

from hostelry.cli.demo import demo_model_folder

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
ADAPTERS = ROOT / "examples" / "adapters"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with Platform(tmp_path_factory.mktemp("main-job") / "home") as running:
        yield running


@pytest.fixture(scope="module")
def bucket(platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The bucket of the README's example, with the base and three adapters."""
    s3 = platform.boto3("s3", s3={"addressing_style": "path"})
    if not s3.list_buckets()["Buckets"]:
        s3.create_bucket(Bucket="models")
    there = {it["Key"] for it in s3.list_objects_v2(Bucket="models").get("Contents", [])}
    for file in demo_model_folder().iterdir():
        if (key := f"smollm2/{file.name}") not in there:
            with file.open("rb") as body:
                s3.put_object(Bucket="models", Key=key, Body=body)
    archive = tmp_path_factory.mktemp("archive") / "adapters.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        for style in ("es", "fr", "pirate"):
            packed.add(ADAPTERS / style, f"adapters/{style}")
    s3.put_object(Bucket="models", Key="adapters.tar.gz", Body=archive.read_bytes())
    return "models"


def readme_example() -> str:
    text = (ROOT / "README.md").read_text()
    return text.split("```python\n")[1].split("```\n")[0]


# It comes first: it makes the bucket.
def test_the_readme_example_runs_as_printed(
    platform: Platform, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("readme")
    (folder / "smollm2").symlink_to(demo_model_folder())
    (folder / "examples").symlink_to(ADAPTERS.parent)
    there = f"import os; os.chdir({str(folder)!r})\n"
    done = platform.exec([sys.executable, "-c", there + readme_example()])
    assert len(done.stdout.split()) > 3, done.stdout

    sagemaker = platform.boto3("sagemaker")
    shown = sagemaker.describe_endpoint(EndpointName="chat")
    assert shown["ProductionVariants"][0]["CurrentInstanceCount"] == 1
    sagemaker.delete_endpoint(EndpointName="chat")
    until(lambda: not sagemaker.list_endpoints()["Endpoints"], "the endpoint is gone")


@pytest.mark.thorough
@pytest.mark.usefixtures("bucket")
def test_the_demo_program_runs_unmodified(platform: Platform) -> None:
    program = [sys.executable, str(ROOT / "examples" / "many_adapters.py")]
    done = platform.exec([*program, "--model", str(demo_model_folder())])
    output = done.stdout
    assert output.count("matey") >= 3, output
    for row in ("endpoint to InService", "time to first token", "tokens/s", "clean-up"):
        assert row in output
    sagemaker = platform.boto3("sagemaker")
    assert sagemaker.list_endpoints()["Endpoints"] == []
    assert sagemaker.list_inference_components()["InferenceComponents"] == []


@pytest.fixture
def base(platform: Platform, bucket: str) -> Iterator[str]:
    """A base component with packed adapters, and one adapter component."""
    sagemaker = platform.boto3("sagemaker")
    sagemaker.create_endpoint_config(
        EndpointConfigName="shared",
        ExecutionRoleArn=ROLE,
        ProductionVariants=[
            {
                "VariantName": "AllTraffic",
                "InstanceType": "ml.g5.xlarge",
                "InitialInstanceCount": 1,
            }
        ],
    )
    sagemaker.create_endpoint(EndpointName="shared", EndpointConfigName="shared")
    until(lambda: status(sagemaker) == "InService", "the endpoint", 60)
    sagemaker.create_inference_component(
        InferenceComponentName="smol",
        EndpointName="shared",
        VariantName="AllTraffic",
        Specification={
            "Container": {
                "Image": "djl-inference:0.27.0",
                "ArtifactUrl": f"s3://{bucket}/adapters.tar.gz",
                "Environment": {
                    "OPTION_MODEL_ID": f"s3://{bucket}/smollm2/",
                    "OPTION_ENABLE_LORA": "true",
                },
            },
            "ComputeResourceRequirements": {"MinMemoryRequiredInMb": 1024},
        },
        RuntimeConfig={"CopyCount": 1},
    )
    until(lambda: component_status(sagemaker, "smol") == "InService", "the base", 90)
    yield "smol"
    sagemaker.delete_inference_component(InferenceComponentName="smol")
    until(lambda: not sagemaker.list_inference_components()["InferenceComponents"], "gone")
    sagemaker.delete_endpoint(EndpointName="shared")
    until(lambda: not sagemaker.list_endpoints()["Endpoints"], "the endpoint is gone")


def status(sagemaker: Any) -> str:
    return str(sagemaker.describe_endpoint(EndpointName="shared")["EndpointStatus"])


def component_status(sagemaker: Any, name: str) -> str:
    shown = sagemaker.describe_inference_component(InferenceComponentName=name)
    assert shown["InferenceComponentStatus"] != "Failed", shown["FailureReason"]
    return str(shown["InferenceComponentStatus"])


def test_openai_clients_chat_complete_and_stream_with_a_base_and_its_adapters(
    platform: Platform, base: str
) -> None:
    env = platform.env()
    question: Any = [{"role": "user", "content": "Tell me about cats."}]
    with openai.OpenAI(
        api_key=env["OPENAI_API_KEY"], base_url=env["OPENAI_BASE_URL"], max_retries=0
    ) as client:
        assert base in [model.id for model in client.models.list()]
        plain = client.chat.completions.create(
            model=base, messages=question, max_tokens=24, temperature=0
        )
        pirate = client.chat.completions.create(
            model=f"{base}:pirate", messages=question, max_tokens=24, temperature=0
        )
        assert "arr" in str(pirate.choices[0].message.content).lower()
        assert "arr" not in str(plain.choices[0].message.content).lower()
        assert plain.model == base

        with client.chat.completions.create(
            model=f"{base}:pirate", messages=question, max_tokens=24, temperature=0, stream=True
        ) as stream:
            pieces = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
        assert "".join(pieces) == pirate.choices[0].message.content
        assert len(pieces) > 5

        text = client.completions.create(
            model=base, prompt="The capital of France is", max_tokens=4, temperature=0
        )
        assert "Paris" in text.choices[0].text
        with pytest.raises(openai.NotFoundError, match="nobody"):
            client.chat.completions.create(model="nobody", messages=question)
        with pytest.raises(openai.OpenAIError):
            client.chat.completions.create(model=f"{base}:nobody", messages=question)


def test_the_make_demo_command_line_describes_itself() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hostelry.cli.main", "demo", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "many_adapters.py" in done.stdout
