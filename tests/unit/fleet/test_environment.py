from dataclasses import replace
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
    machine_cpus=4,
)


def spec(
    environment: dict[str, str],
    requirements: Requirements | None = None,
    device_ids: tuple[int, ...] = (),
) -> CopySpec:
    return CopySpec(
        id="c-1",
        owner="component/x",
        container=Container(image="lmi", environment=environment),
        requirements=requirements,
        download_timeout_s=60.0,
        startup_timeout_s=60.0,
        device_ids=device_ids,
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
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "NUMEXPR_NUM_THREADS": "1",
        "RAYON_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "NVIDIA_VISIBLE_DEVICES": "void",
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


@pytest.mark.parametrize(
    ("cpus", "operator", "container", "threads"),
    [
        pytest.param(0.0, {}, {}, "1", id="nothing reserved is one thread"),
        pytest.param(1.5, {}, {}, "2", id="a part of a CPU is a thread"),
        pytest.param(48.0, {}, {}, "4", id="not more than the machine has"),
        pytest.param(3.0, {"OMP_NUM_THREADS": "2"}, {}, "2", id="not more than the operator says"),
        pytest.param(3.0, {"OMP_NUM_THREADS": "2,1"}, {}, "3", id="nested counts do not bound"),
        pytest.param(3.0, {}, {"OMP_NUM_THREADS": "7"}, "7", id="the container's own word"),
    ],
)
def test_threads_follow_the_reservation(
    cpus: float, operator: dict[str, str], container: dict[str, str], threads: str
) -> None:
    given = spec(container, Requirements(min_memory_bytes=1, cpus=cpus))
    assert copy_environment(operator, given, PLACE, {})["OMP_NUM_THREADS"] == threads


@pytest.mark.parametrize(
    ("accelerators", "device_ids", "own", "visible"),
    [
        pytest.param(2, (1, 3), "4567", "5,7", id="its own devices by their real names"),
        pytest.param(2, (), "45", "4,5", id="a spec without ids sees the instance's"),
        pytest.param(0, (), "45", "", id="a copy without accelerators sees none"),
        pytest.param(1, (0,), "", "", id="a machine without accelerators has none to see"),
    ],
)
def test_a_copy_sees_the_accelerators_it_reserved(
    accelerators: int, device_ids: tuple[int, ...], own: str, visible: str
) -> None:
    reserved = Requirements(min_memory_bytes=1, accelerators=accelerators)
    given = spec({"CUDA_VISIBLE_DEVICES": "0,1,2"}, reserved, device_ids)
    place = replace(PLACE, devices=tuple(own))
    made = copy_environment({"CUDA_VISIBLE_DEVICES": "9"}, given, place, {})
    assert made["CUDA_VISIBLE_DEVICES"] == visible
    assert refused_variables(given) == ["CUDA_VISIBLE_DEVICES"]


def test_a_copy_without_requirements_sees_every_accelerator_of_its_instance() -> None:
    made = copy_environment({}, spec({}), replace(PLACE, devices=("2", "3")), {})
    assert made["CUDA_VISIBLE_DEVICES"] == made["NVIDIA_VISIBLE_DEVICES"] == "2,3"


def test_local_folders_replace_what_was_named_by_uri() -> None:
    given = spec({"HF_MODEL_ID": "s3://b/p/"})
    made = copy_environment({}, given, PLACE, {"HF_MODEL_ID": "/cache/x"})
    assert made["HF_MODEL_ID"] == "/cache/x"
