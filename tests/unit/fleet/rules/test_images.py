import sys
from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.base.operator_secrets import SecretPurpose
from hostelry.fleet.rules.images import (
    GRAPH_RULE,
    LMI_RULE,
    UNKNOWN_PROBE,
    ImageRules,
    Probe,
    apply_own_probe,
    describe_unknown_image,
    parse_repository,
)

RULE = """
[[image]]
pattern = "*/my-server:*"
command = ["python", "-m", "my_server"]
[image.probe]
content_type = "application/json"
body = "{}"
"""


@pytest.mark.parametrize(
    "image",
    [
        "763104351884.dkr.ecr.us-west-2.amazonaws.com/djl-inference:0.27.0-deepspeed0.12.6-cu121",
        "763104351884.dkr.ecr.eu-north-1.amazonaws.com/djl-inference@sha256:0123",
        "localhost:5000/lmi",
        "localhost/team/lmi:dev",
        "djl-lmi",
    ],
)
def test_llm_images_run_on_the_built_in_server(image: str) -> None:
    rule = ImageRules.load(None).resolve(image)
    assert rule is not None
    assert rule.kind == "lmi"
    assert rule.argv == (sys.executable, "-P", "-s", "-m", "hostelry.containers.lmi")
    assert rule.probe.json_field == "generated_text"
    assert b'"max_new_tokens": 1' in rule.probe.body


@pytest.mark.parametrize(
    "image",
    [
        "vllm/vllm-openai:latest",
        "public.ecr.aws/deep-learning-containers/vllm:0.11-gpu-py312",
        "763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm:0.20.2-gpu-py312-sagemaker",
    ],
)
def test_vllm_images_run_on_the_built_in_server_in_the_manner_of_vllm(image: str) -> None:
    rule = ImageRules.load(None).resolve(image)
    assert rule is not None
    assert rule.kind == "lmi"
    assert rule.argv[-2:] == ("hostelry.containers.lmi", "--vllm")


@pytest.mark.parametrize(
    "image",
    [
        "763104351884.dkr.ecr.us-east-1.amazonaws.com/huggingface-pytorch-tgi-inference:2.7.0-tgi3",
        "ghcr.io/huggingface/text-generation-inference:3.3.6",
    ],
)
def test_tgi_images_run_on_the_built_in_server_in_the_manner_of_tgi(image: str) -> None:
    rule = ImageRules.load(None).resolve(image)
    assert rule is not None
    assert rule.kind == "lmi"
    assert rule.argv[-2:] == ("hostelry.containers.lmi", "--tgi")


@cases(
    "image, kind",
    case("as drills name it", "hostelry/drill", "drill"),
    case("with a registry and a tag", "localhost/hostelry/drill:1", "drill"),
    case("a graph", "hostelry/graph:1", "graph"),
    case("somebody else's graph", "team/hostelry/graph", "container"),
    case("somebody else's", "team/hostelry/drill", "container"),
    case("another name", "hostelry/drills", "container"),
    case("AWS's Triton",
        "785573368785.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:24.09-py3", "triton"),
    case("NVIDIA's", "nvcr.io/nvidia/tritonserver:24.10-py3", "triton"),
    case("a bare name of it", "tritonserver", "triton"),
    case("a longer name", "nvcr.io/nvidia/tritonserver-tools:1", "container"),
)  # fmt: skip
def test_built_in_servers_of_one_repository(image: str, kind: str) -> None:
    rule = ImageRules.load(None).resolve(image)
    assert rule is not None
    assert rule.kind == kind


@cases(
    "image",
    case("lmi inside a word", "filmivore:1"),
    case("lmi in the tag only", "registry.example/sklearn:lmi"),
    case("lmi in the registry only", "lmi.example.com/sklearn:1"),
    case("vllm in the digest only", "sklearn@sha256:vllm"),
    case("no image", ""),
)
def test_other_images_run_as_containers(image: str) -> None:
    rule = ImageRules.load(None).resolve(image)
    assert rule is not None
    assert rule.is_container
    assert (rule.argv, rule.network, rule.engine, rule.pull) == (("serve",), "none", None, True)
    assert rule.probe == UNKNOWN_PROBE
    assert rule.probe.any_answer


def test_the_operator_may_allow_no_containers(tmp_path: Path) -> None:
    file = tmp_path / "images.toml"
    file.write_text("[containers]\nenabled = false\n")
    assert ImageRules.load(file).resolve("sklearn:1") is None
    llm = ImageRules.load(file).resolve("lmi:1")
    assert llm is not None
    assert llm.kind == "lmi"


def test_the_operator_decides_how_containers_run(tmp_path: Path) -> None:
    file = tmp_path / "images.toml"
    file.write_text(
        '[containers]\nengine = "docker"\npull = false\nnetwork = "bridge"\n'
        '[[image]]\npattern = "alone:*"\ncontainer = true\nnetwork = "none"\n'
        'command = ["run-me"]\n[image.probe]\ncontent_type = "text/csv"\nbody = "1,2"\n'
        '[[image]]\npattern = "vllm:*"\ncontainer = true\n'
    )
    rules = ImageRules.load(file)
    alone, other, llm = (rules.resolve(image) for image in ("alone:1", "other:1", "vllm:1"))
    assert alone is not None
    assert other is not None
    assert llm is not None
    assert (alone.engine, alone.pull, alone.network) == ("docker", False, "none")
    assert alone.argv == ("run-me",)
    assert alone.probe == Probe(content_type="text/csv", body=b"1,2")
    assert (other.engine, other.pull, other.network) == ("docker", False, "bridge")
    assert llm.is_container, "a rule of the operator comes before the built-in server"


def test_a_rule_names_the_secrets_of_its_command(tmp_path: Path) -> None:
    file = tmp_path / "images.toml"
    probe = '[image.probe]\ncontent_type = "text/csv"\nbody = "1,2"\n'
    file.write_text(f'[[image]]\npattern = "a:*"\ncommand = ["a"]\nsecrets = ["hub"]\n{probe}')
    rule = ImageRules.load(file).resolve("a:1")
    assert rule is not None
    assert rule.secrets == (SecretPurpose.HUB,)
    file.write_text('[[image]]\npattern = "a:*"\ncontainer = true\nsecrets = ["hub"]\n')
    with pytest.raises(TerminalError, match="has secrets and is a container"):
        ImageRules.load(file)


@cases(
    "environment, body, content_type",
    case("nothing is known", {}, b"{}", "application/json"),
    case("a body", {"HOSTELRY_PROBE_BODY": "[1]"}, b"[1]", "application/json"),
    case(
        "a body and its type",
        {"HOSTELRY_PROBE_BODY": "1,2", "HOSTELRY_PROBE_CONTENT_TYPE": "text/csv"},
        b"1,2",
        "text/csv",
    ),
    case(
        "a type without a body",
        {"HOSTELRY_PROBE_CONTENT_TYPE": "text/csv"},
        b"{}",
        "application/json",
    ),
)
def test_a_container_may_bring_its_own_probe(
    environment: dict[str, str], body: bytes, content_type: str
) -> None:
    rule = ImageRules.load(None).resolve("mine:1")
    assert rule is not None
    probe = apply_own_probe(rule, environment).probe
    assert (probe.body, probe.content_type) == (body, content_type)
    assert probe.any_answer == (body == b"{}")


def test_a_graph_may_bring_a_real_call_as_its_probe() -> None:
    rule = apply_own_probe(GRAPH_RULE, {"HOSTELRY_PROBE_BODY": "[1]"})
    assert (rule.probe.content_type, rule.probe.body) == ("application/json", b"[1]")
    assert rule.again == rule
    assert apply_own_probe(GRAPH_RULE, {}) == GRAPH_RULE


def test_a_graph_that_was_ready_is_proven_without_its_targets() -> None:
    assert GRAPH_RULE.again.probe.content_type == f"{GRAPH_RULE.probe.content_type}; again"
    assert LMI_RULE.again == LMI_RULE


@pytest.mark.parametrize("image", ["lmi:1", "x/my-server:1"])
def test_a_probe_of_the_operators_is_not_replaced(tmp_path: Path, image: str) -> None:
    file = tmp_path / "images.toml"
    file.write_text(RULE)
    rule = ImageRules.load(file).resolve(image)
    assert rule is not None
    assert apply_own_probe(rule, {"HOSTELRY_PROBE_BODY": "[1]"}) == rule


def test_the_failure_names_the_image_and_the_file() -> None:
    text = describe_unknown_image("sklearn:1", Path("/home/me/images.toml"))
    assert '"sklearn:1"' in text
    assert "[[image]]" in text
    assert "/home/me/images.toml" in text


@pytest.mark.parametrize(
    ("image", "repository"),
    [
        ("host:5000/a/b:tag@sha256:1", "a/b"),
        ("a/b:tag", "a/b"),
        ("b", "b"),
        ("x.y/b", "b"),
    ],
)
def test_repository_of(image: str, repository: str) -> None:
    assert parse_repository(image) == repository


def test_an_operators_rule_comes_before_the_built_in_ones(tmp_path: Path) -> None:
    file = tmp_path / "images.toml"
    file.write_text(RULE.replace("*/my-server:*", "*vllm*"))
    rule = ImageRules.load(file).resolve("vllm:1")
    assert rule is not None
    assert rule.kind == "operator"
    assert rule.argv == ("python", "-m", "my_server")
    assert rule.probe.body == b"{}"


def test_an_operators_rule_may_name_the_variables_it_takes(tmp_path: Path) -> None:
    file = tmp_path / "images.toml"
    file.write_text(RULE.replace("[image.probe]", 'environment = ["MY_*"]\n[image.probe]'))
    rule = ImageRules.load(file).resolve("a/my-server:1")
    assert rule is not None
    assert (rule.environment, rule.is_built_in) == (("MY_*",), False)


def test_a_missing_file_leaves_the_built_in_rules(tmp_path: Path) -> None:
    assert ImageRules.load(tmp_path / "images.toml").resolve("lmi:1") is not None


@cases(
    "text, fault",
    case("no TOML", "[[image]", "line 1"),
    case("no command", '[[image]]\npattern = "x"', "command"),
    case("no probe: nothing is proven", '[[image]]\npattern = "x"\ncommand = ["y"]', "probe"),
    case("a string", RULE.replace('["python", "-m", "my_server"]', '"sh"'), "array"),
    case("no program", RULE.replace('["python", "-m", "my_server"]', "[]"), "empty"),
    case("an empty pattern", RULE.replace("*/my-server:*", " "), "empty pattern"),
    case("no media type", RULE.replace("application/json", "json"), "media type"),
    case("a misspelt key", RULE + "comand = 1\n", "comand"),
    case("a misspelt table", "[[images]]\n", "images"),
    case("no network", '[[image]]\npattern = "x"\ncontainer = true\nnetwork = "all"', "all"),
    case(
        "the network of a program",
        RULE.replace("[image.probe]", 'network = "host"\n[image.probe]'),
        "no container",
    ),
    case(
        "names that are no list",
        RULE.replace("[image.probe]", 'environment = "MY_*"\n[image.probe]'),
        "array",
    ),
    case(
        "a container's variables are its own",
        '[[image]]\npattern = "x"\ncontainer = true\nenvironment = ["A"]',
        "whole Environment",
    ),
    case("endless nesting", "a = " + "[" * 5000, "recursion"),
    case("an engine without a name", '[containers]\nengine = " "', "engine"),
    case("a misspelt option", '[containers]\nnetworks = "none"', "networks"),
)
def test_a_faulty_file_is_refused_with_its_fault(tmp_path: Path, text: str, fault: str) -> None:
    file = tmp_path / "images.toml"
    file.write_text(text)
    with pytest.raises(TerminalError) as caught:
        ImageRules.load(file)
    assert str(file) in str(caught.value)
    assert fault in str(caught.value)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "images.toml"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(TerminalError, match=r"images\.toml"):
        ImageRules.load(file)
