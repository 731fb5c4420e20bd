import dataclasses
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.base.operator_secrets import SecretPurpose
from hostelry.domain.copy import CopySpec
from hostelry.domain.model import Container
from hostelry.domain.shape import Requirements, Shape
from hostelry.fleet.launch.environment import CopyPlace, build_program_environment
from hostelry.fleet.rules.copy_user import EACH_ITS_OWN, FIRST_NUMBER, RunAs
from hostelry.fleet.rules.images import (
    DRILL_RULE,
    GRAPH_RULE,
    LMI_RULE,
    TRITON_RULE,
    ImageRule,
    framework_rule,
)

PLACE = CopyPlace(
    folder=Path("/i/copies/c-1"),
    model_folder=Path("/i/copies/c-1/model"),
    port=4321,
    region="eu-west-1",
    shape=Shape(cpus=8, memory_bytes=1000, accelerators=2),
    machine_cpus=4,
)


FRAMEWORK = framework_rule("sagemaker-scikit-learn:1.2-1")
assert FRAMEWORK is not None
OPERATORS = ImageRule(kind="operator", argv=("/srv/x",), probe=LMI_RULE.probe)


def made_of(
    operator: dict[str, str],
    given: CopySpec,
    place: CopyPlace = PLACE,
    rule: ImageRule = LMI_RULE,
    **substitutes: str,
) -> dict[str, str]:
    return build_program_environment(operator, given, rule, place, substitutes)


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
    made = made_of(
        {"HOSTELRY_RUNTIMES_DIR": "/op/runtimes"}, spec({"OPTION_MODEL_ID": "hub/id"}, reserved)
    )
    assert made == {
        "PYTHONUNBUFFERED": "1",
        "PYTHONSAFEPATH": "1",
        "PYTHONNOUSERSITE": "1",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "AWS_EC2_METADATA_DISABLED": "true",
        "SAGEMAKER_BIND_HOST": "127.0.0.1",
        "SAGEMAKER_BIND_TO_PORT": "4321",
        "SAGEMAKER_REGION": "eu-west-1",
        "AWS_REGION": "eu-west-1",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "HOSTELRY_MODEL_DIR": "/i/copies/c-1/model",
        "HOSTELRY_RUNTIMES_DIR": "/op/runtimes",
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
        "GOMP_SPINCOUNT": "5000",
        "KMP_BLOCKTIME": "0",
        "CUDA_VISIBLE_DEVICES": "",
        "NVIDIA_VISIBLE_DEVICES": "void",
    }


def test_a_copy_without_requirements_has_its_instance_to_itself() -> None:
    made = made_of({}, spec({}))
    assert (made["HOSTELRY_CPUS"], made["HOSTELRY_ACCELERATORS"]) == ("8", "2")
    assert made["HOSTELRY_MEMORY_BYTES"] == "1000"


def test_a_container_of_several_has_its_part_of_the_memory_and_all_cpus() -> None:
    made = made_of({}, spec({}), dataclasses.replace(PLACE, num_sharing=3))
    assert made["HOSTELRY_MEMORY_BYTES"] == "333"
    assert (made["HOSTELRY_CPUS"], made["HOSTELRY_ACCELERATORS"]) == ("8", "2")
    reserved = made_of(
        {}, spec({}, Requirements(min_memory_bytes=512)), dataclasses.replace(PLACE, num_sharing=3)
    )
    assert reserved["HOSTELRY_MEMORY_BYTES"] == "512"


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
    assert name not in made_of({name: "secret"}, spec({}))


SECRETS = {"HF_TOKEN": "t", "HF_TOKEN_PATH": "/o/token", "HTTPS_PROXY": "http://me:pw@proxy:1"}
NO_SECRETS = {"HF_TOKEN_PATH": "/dev/null", "HTTPS_PROXY": "http://proxy:1"}
TRUSTED = {"HOSTELRY_CUSTOM_CODE": "trusted"}


@cases(
    "rule, operator, seen",
    case("the LLM server downloads, and runs no code", LMI_RULE, {}, SECRETS),
    case("nor does code that the kernel confines see its variables", LMI_RULE,
        {"HOSTELRY_CUSTOM_CODE": "confined"}, SECRETS),
    case("code that is trusted is its own user", LMI_RULE, TRUSTED, NO_SECRETS),
    case("framework models are code", FRAMEWORK, {}, NO_SECRETS),
    case("and so are Triton's", TRITON_RULE, {}, NO_SECRETS),
    case("a graph has functions", GRAPH_RULE, {}, NO_SECRETS),
    case("a drill needs none", DRILL_RULE, {}, NO_SECRETS),
    case("an operator's command may run code", OPERATORS, {}, NO_SECRETS),
    case("unless the operator says what it is to have",
        replace(OPERATORS, secrets=(SecretPurpose.HUB,)), {},
        {"HF_TOKEN": "t", "HF_TOKEN_PATH": "/o/token", "HTTPS_PROXY": "http://proxy:1"}),
)  # fmt: skip
def test_each_server_has_the_secrets_that_it_has_a_purpose_for(
    rule: ImageRule, operator: dict[str, str], seen: dict[str, str]
) -> None:
    made = made_of({**SECRETS, **operator}, spec({}), rule=rule)
    assert {name: it for name, it in made.items() if name in SECRETS} == seen


@pytest.mark.parametrize("rule", [LMI_RULE, FRAMEWORK, TRITON_RULE], ids=lambda it: it.kind)
def test_a_token_in_the_models_own_environment_is_its_authors(rule: ImageRule) -> None:
    assert made_of(SECRETS, spec({"HF_TOKEN": "own"}), rule=rule)["HF_TOKEN"] == "own"


@pytest.mark.parametrize("name", ["PATH", "HOME", "HF_HOME", "HF_TOKEN", "HF_HUB_OFFLINE"])
def test_what_a_model_server_needs_is_passed_on(name: str) -> None:
    assert made_of({name: "x"}, spec({}))[name] == "x"


# What SDK v3's ModelBuilder sets for TGI, TEI, DJL and pass-through models.
SDK_PLACES = {
    "HF_HOME": "/tmp",
    "HF_HUB_CACHE": "/tmp",
    "HUGGINGFACE_HUB_CACHE": "/tmp",
    "TRANSFORMERS_CACHE": "/opt/ml/model/",
    "HF_HUB_OFFLINE": "0",
    "HF_MODEL_ID": "org/tiny",
}


@pytest.mark.parametrize("rule", [LMI_RULE, OPERATORS], ids=lambda it: it.kind)
@cases(
    "operator, offline",
    case("who downloads", {"HF_HOME": "/o/hf"}, "0"),
    case("who says so", {"HF_HOME": "/o/hf", "HF_HUB_OFFLINE": "0"}, "0"),
    case("who is offline", {"HF_HOME": "/o/hf", "HF_HUB_OFFLINE": "1"}, "1"),
)
def test_no_author_of_a_model_moves_the_operators_hub_cache(
    operator: dict[str, str], offline: str, rule: ImageRule
) -> None:
    made = made_of(operator, spec(SDK_PLACES), rule=rule)
    assert (made["HF_HOME"], made["HF_HUB_OFFLINE"]) == ("/o/hf", offline)
    assert not {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE"} & made.keys()
    assert made["HF_MODEL_ID"] == "org/tiny"
    its_own = RunAs(user=EACH_ITS_OWN, gid=FIRST_NUMBER, work=Path("/w")).environment(made)
    assert its_own.get("HF_HOME") == ("/o/hf" if offline == "1" else None)


@pytest.mark.parametrize("rule", [LMI_RULE, OPERATORS], ids=lambda it: it.kind)
@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("SAGEMAKER_BIND_HOST", "127.0.0.1"),
        ("SAGEMAKER_BIND_TO_PORT", "4321"),
        ("HOSTELRY_MODEL_DIR", "/i/copies/c-1/model"),
        ("PATH", "/bin"),
        ("HF_ENDPOINT", "https://hub.example"),
        ("LD_PRELOAD", None),
        ("PYTHONPYCACHEPREFIX", None),
        ("https_proxy", None),
    ],
)
def test_a_container_does_not_set_what_is_the_platforms(
    name: str, there: str | None, rule: ImageRule
) -> None:
    operator = {"PATH": "/bin", "HF_ENDPOINT": "https://hub.example"}
    made = made_of(operator, spec({name: "/tmp/evil", "SERVING_FINE": "1"}), rule=rule)
    assert made.get(name) == there
    assert made["SERVING_FINE"] == "1"


@cases(
    "given, token",
    case("the operator's without another", {}, {"HF_TOKEN": "operator's"}),
    case("the caller's own alone", {"HF_TOKEN": "own"}, {"HF_TOKEN": "own"}),
    case("the caller's own under its older name, of which the hub's client asks last",
        {"HUGGING_FACE_HUB_TOKEN": "own"}, {"HUGGING_FACE_HUB_TOKEN": "own"}),
)  # fmt: skip
def test_one_token_is_in_a_copy(given: dict[str, str], token: dict[str, str]) -> None:
    operator = {"HF_TOKEN": "operator's", "HF_TOKEN_PATH": "/root/token"}
    made = made_of(operator, spec(given))
    assert {name: it for name, it in made.items() if name.endswith("_TOKEN")} == token
    assert ("HF_TOKEN_PATH" in made) == (not given)


def test_an_operators_command_keeps_its_python() -> None:
    made = made_of({}, spec({"MY_MODEL": "x"}), rule=OPERATORS)
    assert made["MY_MODEL"] == "x"
    assert "PYTHONSAFEPATH" not in made


@cases(
    "cpus, operator, container, threads",
    case("nothing reserved is every CPU", 0.0, {}, {}, "4"),
    case("that the operator allows", 0.0, {"OMP_NUM_THREADS": "2"}, {}, "2"),
    case("a part of a CPU is a thread", 1.5, {}, {}, "2"),
    case("not more than the machine has", 48.0, {}, {}, "4"),
    case("not more than the operator says", 3.0, {"OMP_NUM_THREADS": "2"}, {}, "2"),
    case("nested counts do not bound", 3.0, {"OMP_NUM_THREADS": "2,1"}, {}, "3"),
    case("the container's own word", 1.0, {}, {"OMP_NUM_THREADS": "3"}, "3"),
    case("which has a bound", 3.0, {}, {"OMP_NUM_THREADS": "99999"}, "4"),
    case("and must be a number", 3.0, {}, {"OMP_NUM_THREADS": "-1"}, "3"),
)
def test_threads_follow_the_reservation(
    cpus: float, operator: dict[str, str], container: dict[str, str], threads: str
) -> None:
    given = spec(container, Requirements(min_memory_bytes=1, cpus=cpus))
    assert made_of(operator, given)["OMP_NUM_THREADS"] == threads


@cases(
    "accelerators, device_ids, own, visible",
    case("its own devices by their real names", 2, (1, 3), "4567", "5,7"),
    case("a spec without ids sees the instance's", 2, (), "45", "4,5"),
    case("a copy without accelerators sees none", 0, (), "45", ""),
    case("a machine without accelerators has none to see", 1, (0,), "", ""),
)
def test_a_copy_sees_the_accelerators_it_reserved(
    accelerators: int, device_ids: tuple[int, ...], own: str, visible: str
) -> None:
    reserved = Requirements(min_memory_bytes=1, accelerators=accelerators)
    given = spec({"CUDA_VISIBLE_DEVICES": "0,1,2"}, reserved, device_ids)
    place = dataclasses.replace(PLACE, devices=tuple(own))
    made = made_of({"CUDA_VISIBLE_DEVICES": "9"}, given, place)
    assert made["CUDA_VISIBLE_DEVICES"] == visible


def test_a_copy_without_requirements_sees_every_accelerator_of_its_instance() -> None:
    made = made_of({}, spec({}), dataclasses.replace(PLACE, devices=("2", "3")))
    assert made["CUDA_VISIBLE_DEVICES"] == made["NVIDIA_VISIBLE_DEVICES"] == "2,3"


@cases(
    "requirements, held, containers, share",
    case("alone on its devices", Requirements(min_memory_bytes=1, accelerators=2), ("23",), 1, "1"),
    case("with another instance", Requirements(min_memory_bytes=1, accelerators=2), ("23", "3"), 1,
        "0.5"),
    case("with two containers of the same copy", None, ("23",), 3, "0.3333"),
    case("without an accelerator", Requirements(min_memory_bytes=1), ("23",), 1, None),
)  # fmt: skip
def test_a_copy_gets_its_share_of_each_accelerator(
    requirements: Requirements | None, held: tuple[str, ...], containers: int, share: str | None
) -> None:
    place = dataclasses.replace(
        PLACE, devices=("2", "3"), held_devices=tuple(map(tuple, held)), num_sharing=containers
    )
    made = made_of({}, spec({}, requirements))
    assert "HOSTELRY_ACCELERATOR_SHARE" not in made, "this machine has no accelerator"
    made = made_of({}, spec({}, requirements), place)
    assert made.get("HOSTELRY_ACCELERATOR_SHARE") == share


def test_local_folders_replace_what_was_named_by_uri() -> None:
    given = spec({"HF_MODEL_ID": "s3://b/p/"})
    made = made_of({}, given, HF_MODEL_ID="/cache/x")
    assert made["HF_MODEL_ID"] == made["HOSTELRY_ARTIFACT_HF_MODEL_ID"] == "/cache/x"
