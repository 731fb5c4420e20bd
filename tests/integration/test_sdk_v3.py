"""The SageMaker SDK v3's ModelBuilder, as AWS's own examples use it, from build to delete."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.integration.platform import Platform, until
from tests.integration.sdk_rig import (
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
from tests.selection import chosen, first_alone, runs_all

# The first test installs the SDK and starts all programs.
pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

SDK = ("sagemaker==3.27.0", "sagemaker-serve==1.27.0", "sagemaker-train==1.27.0")
# The requirements that ModelBuilder imports. The others would take 500 MB.
NEEDED = ("sagemaker-core==2.27.0", "graphene<4", "psutil", "tqdm", "docker", "deepdiff")
SERVERS = {
    "DJL_SERVING": "djl-inference",
    "TGI": "huggingface-pytorch-tgi-inference",
    "VLLM": "huggingface-vllm",
}
FAILURES = {
    "data": "Failed to download model data for variant AllTraffic",
    "crash": "CannotStartContainerError",
    "image": 'image "no-such.invalid/image:1"',
}


@dataclass(frozen=True, slots=True)
class Running:
    """The programs on their platform, and the answers of the two models without the SDK."""

    platform: Platform
    programs: Programs
    answers: tuple[str, str]


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Running]:
    python = virtual_environment("sdk3-builder", *NEEDED, alone=SDK) / "python"
    folder = tmp_path_factory.mktemp("sdk-v3")
    models = write_models(folder)
    one, two = models
    with Platform(folder / "home", environment=hub_variables(folder)) as platform:
        platform.home.images.write_text(image_rules(str(python)))
        upload(platform, "models", models)
        with Programs(platform, python) as programs:
            for wrong in chosen(pytestconfig, FAILURES):
                programs.start(wrong, "v3/failure.py", wrong)
            programs.start("inference_spec", "v3/inference_spec.py")
            if not runs_all(pytestconfig):
                yield Running(platform, programs, ("", ""))
                return
            prefixes = (f"s3://models/{one}/", f"s3://models/{two}/")
            answers = (
                direct_answer(platform, "direct-one", prefixes[0]),
                direct_answer(platform, "direct-two", prefixes[1]),
            )
            assert answers[0] != answers[1]
            folders = (one, str(models[one]), two, str(models[two]))
            for server in SERVERS:
                programs.start(server, "v3/llm.py", server, *folders)
            programs.start("source_code", "v3/source_code.py")
            programs.start("pass_through", "v3/pass_through.py", *prefixes)
            yield Running(platform, programs, answers)


@pytest.mark.thorough
@pytest.mark.parametrize(("server", "repository"), SERVERS.items())
def test_an_llm_of_the_hub(running: Running, server: str, repository: str) -> None:
    output = running.programs.output(server)
    assert f"/{repository}:" in output["image"]
    assert (output["first"], output["second"]) == running.answers
    assert len(output["pieces"]) > 3
    assert streamed_text(output["pieces"]) == output["first"]


@pytest.mark.thorough
def test_an_image_and_a_models_prefix_as_an_inference_component(running: Running) -> None:
    output = running.programs.output("pass_through")
    assert (output["first"], output["second"]) == running.answers
    assert len(output["pieces"]) > 3
    assert streamed_text(output["pieces"]) == output["first"]
    assert output["copies"] == 2


def test_a_local_model_folder_with_an_inference_spec(running: Running) -> None:
    output = running.programs.output("inference_spec")
    assert "/pytorch-inference:" in output["image"]
    assert output["answer"] == [321, 654]


@pytest.mark.thorough
def test_own_code_packed_beside_the_weights(running: Running) -> None:
    assert running.programs.output("source_code") == {"answer": [321, 654], "packed": True}


@pytest.mark.parametrize(("wrong", "reason"), first_alone(FAILURES.items()))
def test_a_failed_deployment_is_an_exception_with_its_reason(
    running: Running, wrong: str, reason: str
) -> None:
    output = running.programs.output(wrong)
    assert reason in output["reason"]
    assert output["reason"] in output["raised"]


def test_after_delete_nothing_is_left(running: Running) -> None:
    running.programs.finish()
    until(lambda: not what_is_left(running.platform), "all is deleted")
