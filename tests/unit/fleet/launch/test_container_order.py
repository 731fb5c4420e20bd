"""Orders of containers, and their variables."""

from dataclasses import replace
from pathlib import Path

from tests.cases import case, cases

from hostelry.domain.copy import CopySpec
from hostelry.domain.model import Container
from hostelry.domain.shape import Requirements, Shape
from hostelry.fleet.agent.orders import build_launch_order, describe_order, find_left_out_names
from hostelry.fleet.launch.container_order import (
    ContainerOrder,
    build_container_environment,
    build_container_order,
    find_refused_names,
)
from hostelry.fleet.launch.environment import CopyPlace
from hostelry.fleet.rules.images import ImageRule, ImageRules

MIB = 1024**2
PLACE = CopyPlace(
    folder=Path("/i/copies/c-1"),
    model_folder=Path("/i/copies/c-1/model"),
    port=4321,
    region="eu-west-1",
    shape=Shape(cpus=8, memory_bytes=1000, accelerators=2),
    machine_cpus=4,
    devices=("5", "7"),
)


def rule(network: str = "none") -> ImageRule:
    found = ImageRules.load(None).resolve("mine:1")
    assert found is not None
    return ImageRule(kind=found.kind, argv=found.argv, probe=found.probe, network=network)


def spec(requirements: Requirements | None = None, /, **environment: str) -> CopySpec:
    return CopySpec(
        id="c-1",
        owner="component/x",
        container=Container(image="mine:1", environment=environment),
        requirements=requirements,
        download_timeout_s=60.0,
        startup_timeout_s=60.0,
        device_ids=(1,) if requirements is not None and requirements.accelerators else (),
    )


def ordered(of: CopySpec, network: str = "none") -> ContainerOrder:
    return build_container_order(of, rule(network), PLACE, {"HF_MODEL_ID": "/cache/h"})


def given(of: CopySpec, network: str = "none", place: CopyPlace = PLACE) -> dict[str, str]:
    order = ordered(of, network)
    return build_container_environment(of, order, place, {"HF_MODEL_ID": "/cache/h"})


@cases(
    "cpus, limit",
    case("a share", 1.5, 1.5),
    case("none was reserved", 0.0, None),
    case("the whole machine", 4.0, None),
    case("more than the machine has", 8.0, None),
)
def test_cpus_are_limited_to_a_share_of_the_machine(cpus: float, limit: float | None) -> None:
    assert ordered(spec(Requirements(min_memory_bytes=1, cpus=cpus))).cpus == limit


def test_memory_and_devices_are_those_of_the_reservation() -> None:
    reserved = Requirements(min_memory_bytes=MIB, max_memory_bytes=2 * MIB, cpus=1, accelerators=1)
    order = ordered(spec(reserved))
    assert (order.max_memory_bytes, order.devices) == (2 * MIB, ("7",))
    whole = ordered(spec())
    assert (whole.max_memory_bytes, whole.devices) == (None, ("5", "7"))


def test_artifacts_that_variables_name_lie_in_the_container() -> None:
    order = ordered(spec(HF_MODEL_ID="s3://b/k"))
    assert order.mounts["/opt/ml/artifacts/HF_MODEL_ID"] == Path("/cache/h")
    assert given(spec(HF_MODEL_ID="s3://b/k"))["HF_MODEL_ID"] == "/opt/ml/artifacts/HF_MODEL_ID"


def test_a_container_gets_its_own_paths_and_port() -> None:
    made = given(spec())
    assert made["SAGEMAKER_BIND_TO_PORT"] == "8080"
    assert made["HOSTELRY_MODEL_DIR"] == "/opt/ml/model"
    assert made["AWS_REGION"] == made["SAGEMAKER_REGION"] == "eu-west-1"
    assert "/i/copies" not in "".join(value for value in made.values())
    assert "CUDA_VISIBLE_DEVICES" not in made, "inside, devices are counted from 0"
    assert made["NVIDIA_VISIBLE_DEVICES"] == "5,7"
    assert given(spec(), "host")["SAGEMAKER_BIND_TO_PORT"] == "4321"
    assert "SAGEMAKER_SAFE_PORT_RANGE" not in made


@cases(
    "network, ports",
    case("any of its own", "none", "10000-10999"),
    case("free ones of the machine", "host", "5000-5015"),
)
def test_further_ports_of_a_container(network: str, ports: str) -> None:
    place = replace(PLACE, safe_ports=range(5000, 5016))
    wicked = spec(SAGEMAKER_SAFE_PORT_RANGE="1-2")
    assert given(wicked, network, place)["SAGEMAKER_SAFE_PORT_RANGE"] == ports
    assert find_refused_names(wicked) == ["SAGEMAKER_SAFE_PORT_RANGE"]


def test_an_image_may_set_what_a_program_of_this_machine_may_not() -> None:
    made = given(spec(PATH="/mine", LD_PRELOAD="x.so", PYTHONPATH="/lib"))
    assert (made["PATH"], made["LD_PRELOAD"], made["PYTHONPATH"]) == ("/mine", "x.so", "/lib")


def test_what_is_the_platforms_is_not_the_users() -> None:
    wicked = {
        "HOSTELRY_CPUS": "99",
        "SAGEMAKER_BIND_TO_PORT": "1",
        "NVIDIA_VISIBLE_DEVICES": "all",
        "HOSTELRY_PROBE_BODY": "[1]",
        "A B": "no name",
    }
    made = given(spec(Requirements(min_memory_bytes=1, cpus=2), **wicked))
    assert (made["HOSTELRY_CPUS"], made["SAGEMAKER_BIND_TO_PORT"]) == ("2", "8080")
    assert made["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert "HOSTELRY_PROBE_BODY" not in made
    assert "A B" not in made
    assert find_refused_names(spec(None, **wicked)) == [
        "HOSTELRY_CPUS",
        "NVIDIA_VISIBLE_DEVICES",
        "SAGEMAKER_BIND_TO_PORT",
    ]


@cases(
    "name, value, reaches",
    case("a key in its usual form", "PRIVATE_KEY", "-----BEGIN\nx\n", True),
    case("a line that steers a loader, in there", "LD_PRELOAD", "x.so", True),
    case("several that would the engine's", "LD_PRELOAD", "/a\n/x.so", False),
    case("what the engine itself reads", "CONTAINERS_CONF", "/a\nb", False),
    case("... by the other engine", "DOCKER_HOST", "tcp://x\r", False),
    case("no text", "A", "x\0y", False),
)
def test_a_variable_of_several_lines_reaches_a_container_and_steers_no_engine(
    name: str, value: str, reaches: bool
) -> None:
    desired = spec(None, **{name: value})
    assert (given(desired).get(name) == value) == reaches
    assert find_refused_names(desired) == ([] if reaches else [name])


def test_nothing_of_the_operators_environment_is_an_images() -> None:
    operator = {"HF_TOKEN": "secret", "PATH": "/usr/bin", "HOME": "/root", "HTTPS_PROXY": "p"}
    order = build_launch_order(spec(), rule(), PLACE, {}, operator)
    assert order.container is not None
    assert set(order.environment) & set(operator) == set()
    assert order.argv == ("serve",)
    assert describe_order(order) == "a container of mine:1 (network none)"


def test_a_program_is_ordered_as_before() -> None:
    program = ImageRule(kind="operator", argv=("/srv/x", "--fast"), probe=rule().probe)
    order = build_launch_order(spec(LD_PRELOAD="x"), program, PLACE, {}, {"PATH": "/usr/bin"})
    assert order.container is None
    assert order.environment["PATH"] == "/usr/bin"
    assert describe_order(order) == "/srv/x --fast"
    assert find_left_out_names(spec(LD_PRELOAD="x"), program) == ("LD_PRELOAD",)
    assert find_left_out_names(spec(LD_PRELOAD="x"), rule()) == ()
