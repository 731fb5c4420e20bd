import sys
from pathlib import Path

import pytest

from hostelry.base.errors import TerminalError
from hostelry.fleet.images import ImageRules, repository_of, unknown_image

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
        "vllm/vllm-openai:latest",
        "localhost:5000/lmi",
        "localhost/team/lmi:dev",
        "djl-lmi",
        "public.ecr.aws/deep-learning-containers/vllm:0.11-gpu-py312",
    ],
)
def test_llm_images_run_on_the_built_in_server(image: str) -> None:
    rule = ImageRules.load(None).resolve(image)
    assert rule is not None
    assert rule.kind == "lmi"
    assert rule.argv == (sys.executable, "-m", "hostelry.containers.lmi")
    assert rule.probe.json_field == "generated_text"
    assert b'"max_new_tokens": 1' in rule.probe.body


@pytest.mark.parametrize(
    "image",
    [
        pytest.param("filmivore:1", id="lmi inside a word"),
        pytest.param("registry.example/sklearn:lmi", id="lmi in the tag only"),
        pytest.param("lmi.example.com/sklearn:1", id="lmi in the registry only"),
        pytest.param("sklearn@sha256:vllm", id="vllm in the digest only"),
        pytest.param("", id="no image"),
    ],
)
def test_other_images_have_no_rule(image: str) -> None:
    assert ImageRules.load(None).resolve(image) is None


def test_the_failure_names_the_image_and_the_file() -> None:
    text = unknown_image("sklearn:1", Path("/home/me/images.toml"))
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
    assert repository_of(image) == repository


def test_an_operators_rule_comes_before_the_built_in_ones(tmp_path: Path) -> None:
    file = tmp_path / "images.toml"
    file.write_text(RULE.replace("*/my-server:*", "*vllm*"))
    rule = ImageRules.load(file).resolve("vllm:1")
    assert rule is not None
    assert rule.kind == "operator"
    assert rule.argv == ("python", "-m", "my_server")
    assert rule.probe.body == b"{}"


def test_a_missing_file_leaves_the_built_in_rules(tmp_path: Path) -> None:
    assert ImageRules.load(tmp_path / "images.toml").resolve("lmi:1") is not None


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param("[[image]", "line 1", id="no TOML"),
        pytest.param('[[image]]\npattern = "x"', "command", id="no command"),
        pytest.param(
            '[[image]]\npattern = "x"\ncommand = ["y"]', "probe", id="no probe: nothing is proven"
        ),
        pytest.param(RULE.replace('["python", "-m", "my_server"]', '"sh"'), "array", id="a string"),
        pytest.param(RULE.replace('["python", "-m", "my_server"]', "[]"), "empty", id="no program"),
        pytest.param(RULE.replace("*/my-server:*", " "), "empty pattern", id="an empty pattern"),
        pytest.param(RULE.replace("application/json", "json"), "media type", id="no media type"),
        pytest.param(RULE + "comand = 1\n", "comand", id="a misspelt key"),
        pytest.param("[[images]]\n", "images", id="a misspelt table"),
    ],
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
