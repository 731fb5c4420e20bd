from pathlib import Path

import pytest

from hostelry.domain.copy import CopySpec
from hostelry.domain.model import Container
from hostelry.domain.shape import Requirements, Shape
from hostelry.fleet.environment import CopyPlace, copy_environment, refused_variables

PLACE = CopyPlace(
    folder=Path("/i/copies/c-1"),
    model_folder=Path("/i/copies/c-1/model"),
    port=4321,
    region="eu-west-1",
    shape=Shape(cpus=8, memory_bytes=1000, accelerators=2),
)


def spec(environment: dict[str, str], requirements: Requirements | None = None) -> CopySpec:
    return CopySpec(
        id="c-1",
        owner="component/x",
        container=Container(image="lmi", environment=environment),
        requirements=requirements,
        download_timeout_s=60.0,
        startup_timeout_s=60.0,
    )


def test_a_copy_gets_what_the_architecture_promises() -> None:
    reserved = Requirements(min_memory_bytes=512, cpus=0.5, accelerators=1)
    made = copy_environment({}, spec({"OPTION_MODEL_ID": "hub/id"}, reserved), PLACE, {})
    assert made == {
        "PYTHONUNBUFFERED": "1",
        "SAGEMAKER_BIND_TO_PORT": "4321",
        "SAGEMAKER_REGION": "eu-west-1",
        "AWS_REGION": "eu-west-1",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "HOSTELRY_MODEL_DIR": "/i/copies/c-1/model",
        "HOSTELRY_CPUS": "0.5",
        "HOSTELRY_ACCELERATORS": "1",
        "HOSTELRY_MEMORY_BYTES": "512",
        "HOSTELRY_COPY_FOLDER": "/i/copies/c-1",
        "OPTION_MODEL_ID": "hub/id",
    }


def test_a_copy_without_requirements_has_its_instance_to_itself() -> None:
    made = copy_environment({}, spec({}), PLACE, {})
    assert (made["HOSTELRY_CPUS"], made["HOSTELRY_ACCELERATORS"]) == ("8", "2")
    assert made["HOSTELRY_MEMORY_BYTES"] == "1000"


@pytest.mark.parametrize(
    "name",
    [
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_ENDPOINT_URL",
        "AWS_ENDPOINT_URL_S3",
        "HOSTELRY_HOME",
        "OPENAI_API_KEY",
        "GITHUB_TOKEN",
        "LD_PRELOAD",
    ],
)
def test_the_operators_secrets_do_not_reach_a_copy(name: str) -> None:
    assert name not in copy_environment({name: "secret"}, spec({}), PLACE, {})


@pytest.mark.parametrize("name", ["PATH", "HOME", "HF_HOME", "HF_TOKEN", "HF_HUB_OFFLINE"])
def test_what_a_model_server_needs_is_passed_on(name: str) -> None:
    assert copy_environment({name: "x"}, spec({}), PLACE, {})[name] == "x"


@pytest.mark.parametrize(
    "name",
    [
        "SAGEMAKER_BIND_TO_PORT",
        "HOSTELRY_MODEL_DIR",
        "LD_PRELOAD",
        "LD_AUDIT",
        "PYTHONPATH",
        "PATH",
    ],
)
def test_a_container_may_not_set_what_is_the_platforms(name: str) -> None:
    wicked = spec({name: "/tmp/evil", "FINE": "1"})
    made = copy_environment({"PATH": "/bin"}, wicked, PLACE, {})
    assert "/tmp/evil" not in made.values()
    assert made["FINE"] == "1"
    assert refused_variables(wicked) == [name]


def test_local_folders_replace_what_was_named_by_uri() -> None:
    given = spec({"HF_MODEL_ID": "s3://b/p/"})
    made = copy_environment({}, given, PLACE, {"HF_MODEL_ID": "/cache/x"})
    assert made["HF_MODEL_ID"] == "/cache/x"
