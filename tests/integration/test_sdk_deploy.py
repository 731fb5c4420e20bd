"""SageMaker SDK programs that deploy, predict and delete, unmodified, with the real model."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.platform import CLI, Platform, until
from tests.integration.sdk_rig import (
    MODELS,
    SHORT_WAITS,
    Programs,
    direct_answer,
    hub_variables,
    image_rules,
    streamed_text,
    upload,
    what_is_left,
    write_models,
)
from tests.integration.virtual_environments import virtual_environment
from tests.selection import runs_all

from hostelry.cli.demo import demo_model_folder

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PROGRAMS = Path(__file__).parent / "sdk_programs"
OWN_CODE = ("PyTorchModel", "SKLearnModel", "Model")
LLMS = {"DJLModel": "djl-inference", "HuggingFaceModel": "huggingface-pytorch-tgi-inference"}
ADAPTERS = Path(__file__).resolve().parents[2] / "examples" / "adapters"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sdk-deploy")


@pytest.fixture(scope="module")
def platform(folder: Path) -> Iterator[Platform]:
    with Platform(folder / "home", environment=hub_variables(folder)) as running:
        running.home.images.write_text(image_rules())
        yield running


def no_endpoint_is_left(platform: Platform) -> None:
    """DeleteEndpoint answers before the endpoint is deleted, and SDK 2 does not wait for it."""
    sagemaker = platform.boto3("sagemaker")
    until(lambda: sagemaker.list_endpoints()["Endpoints"] == [], "the endpoint is gone")


def run(platform: Platform, python: Path, program: str, *arguments: str) -> dict[str, str]:
    """The JSON that the program prints last."""
    command = [str(python), "-W", "ignore", str(PROGRAMS / program), *arguments]
    done = subprocess.run(
        [*CLI, "exec", "--home", str(platform.home.root), "--", *command],
        env={**platform.environment, **SHORT_WAITS},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    output: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return output


@pytest.mark.timeout(600)  # the first one installs the SDK
def test_sdk_2_deploys_a_component_with_adapters_and_predicts(platform: Platform) -> None:
    python = virtual_environment("sdk2", "sagemaker<3", "awscli") / "python"
    output = run(platform, python, "sdk2_deploy.py", str(demo_model_folder()), str(ADAPTERS))
    assert output["pirate"].startswith("Arr")
    assert not output["plain"].startswith("Arr")
    no_endpoint_is_left(platform)


@pytest.mark.thorough
@pytest.mark.timeout(600)  # the first one installs the SDK
def test_sdk_3_resource_classes_deploy_invoke_and_delete(platform: Platform) -> None:
    python = virtual_environment("sdk3", "sagemaker-core>=2") / "python"
    s3 = platform.boto3("s3", s3={"addressing_style": "path"})
    s3.create_bucket(Bucket="models")
    for file in demo_model_folder().iterdir():
        with file.open("rb") as body:
            s3.put_object(Bucket="models", Key=f"base/{file.name}", Body=body)
    output = run(platform, python, "sdk3_deploy.py", "s3://models/base/")
    assert "Paris" in output["answer"]
    no_endpoint_is_left(platform)


@pytest.fixture(scope="module")
def programs(
    platform: Platform, folder: Path, pytestconfig: pytest.Config
) -> Iterator[tuple[Programs, str]]:
    """The programs of SDK 2, and the model's answer without the SDK."""
    python = virtual_environment("sdk2", "sagemaker<3", "awscli") / "python"
    answer, model_id = "", next(iter(MODELS))
    llms = LLMS if runs_all(pytestconfig) else {}
    if llms:
        upload(platform, "hub", write_models(folder))
        answer = direct_answer(platform, "direct", f"s3://hub/{model_id}/")
    with Programs(platform, python) as started:
        for kind in llms:
            started.start(kind, "sdk2_llm.py", kind, model_id)
        for kind in OWN_CODE if llms else ():
            started.start(kind, "sdk2_entry_point.py", kind)
        started.start("failure", "sdk2_failure.py")
        yield started, answer
        started.finish()
        until(lambda: not what_is_left(platform), "all is deleted")


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", OWN_CODE)
def test_sdk_2_deploys_and_updates_own_code(programs: tuple[Programs, str], kind: str) -> None:
    output = programs[0].output(kind)
    assert output == {"first": [321, 654], "second": [642, 1308]}


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("kind", "repository"), LLMS.items())
def test_sdk_2_deploys_and_streams_an_llm_of_the_hub(
    programs: tuple[Programs, str], kind: str, repository: str
) -> None:
    output = programs[0].output(kind)
    assert f"/{repository}:" in output["image"]
    assert output["first"] == programs[1]
    assert len(output["pieces"]) > 3
    assert streamed_text(output["pieces"]) == output["first"]


@pytest.mark.timeout(600)
@pytest.mark.thorough
def test_sdk_2_ends_a_failed_deployment_with_its_reason(programs: tuple[Programs, str]) -> None:
    output = programs[0].output("failure")
    assert "this server does not want to start" in output["reason"]
    assert output["reason"] in output["raised"]
