"""The author's code: packages and places, and the response that its formatters get."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.containers.code.code_process import code_environment, readable_places
from hostelry.containers.lmi.code.author_code import RequirementsError, parse_requirements
from hostelry.containers.lmi.code.hook_values import (
    ResponseRecord,
    formatted_text,
    response_object,
)

OPENAI = json.dumps({"id": "1", "choices": [{"text": "hi", "logprobs": None}]}).encode()
LMI = json.dumps({"generated_text": "hi"}).encode()
SERVER = {
    "HOSTELRY_COPY_KEY": "k", "OPTION_HF_TOKEN": "t",
    "HOSTELRY_MODEL_DIR": "/m", "HF_TOKEN": "t", "AWS_ACCESS_KEY_ID": "a",
    "AWS_SECRET_ACCESS_KEY": "s", "OPTION_DTYPE": "fp32", "SAGEMAKER_REGION": "r", "LANG": "C",
    "OMP_NUM_THREADS": "2", "HTTPS_PROXY": "http://u:p@proxy", "HOME": "/root",
}  # fmt: skip


def rename(response: Any) -> Any:
    response["generated_text"] += "!"
    return response


def retext(response: Any) -> Any:
    response.choices[0].text += "?"
    return response


def label(response: Any) -> Any:
    response.by = "me"
    return response


@cases(
    "change, written",
    case("LMI's form by key", rename, {"generated_text": "hi!"}),
    case("OpenAI's", retext, {"id": "1", "choices": [{"text": "hi?", "logprobs": None}]}),
    case("new", label, {"id": "1", "choices": [{"text": "hi", "logprobs": None}], "by": "me"}),
    case("nothing", lambda it: it, {"generated_text": "hi"}),
    case("another dictionary", lambda it: {"n": len(it.choices)}, {"n": 1}),
    case("its JSON", lambda it: it.model_dump_json(), {"generated_text": "hi"}),
)
def test_the_form_that_was_changed_is_written(change: Any, written: dict[str, Any]) -> None:
    assert json.loads(formatted_text(change(response_object(OPENAI, LMI)))) == written


def test_a_response_of_openai_has_fields_of_both_kinds() -> None:
    response = response_object(OPENAI, None)
    assert response["choices"][0].text == response.choices[0]["text"] == "hi"
    assert not hasattr(response, "usage")
    assert not hasattr(response.choices[0], "delta")
    del response.id
    assert "id" not in response.model_dump()


def test_a_text_is_written_as_it_is() -> None:
    assert formatted_text("data: x") == "data: x"


@pytest.mark.parametrize("result", [None, 1, [], b"x", {"a": float("nan")}, {"a": {1}}])
def test_what_is_no_response(result: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        formatted_text(result)


def test_records_nest() -> None:
    assert isinstance(response_object(b'{"a": [{"b": {}}]}', None).a[0].b, ResponseRecord)


@cases(
    "is_adapter, is_confined, seen",
    case("the model's code sees its settings", False, True,
        {"OPTION_DTYPE", "SAGEMAKER_REGION", "LANG", "OMP_NUM_THREADS", "HOME"}),
    case("an adapter's none", True, True, {"LANG", "OMP_NUM_THREADS", "HOME"}),
    case("nor one that is trusted", True, False, {"LANG", "OMP_NUM_THREADS"}),
    case("the model's that is trusted has its Environment's keys", False, False,
        {"OPTION_DTYPE", "SAGEMAKER_REGION", "LANG", "OMP_NUM_THREADS", "HOME",
         "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}),
)  # fmt: skip
def test_the_variables_of_the_code(is_adapter: bool, is_confined: bool, seen: set[str]) -> None:
    found = code_environment(SERVER, is_adapter=is_adapter, is_confined=is_confined, scratch=None)
    assert found.keys() & SERVER.keys() == seen
    assert found.get("HOME") != "/root" or not is_confined


def test_the_code_reads_its_folder_and_the_tokenizer(tmp_path: Path) -> None:
    found = readable_places(Path("/model/adapters/a"), tmp_path)
    assert "/model/adapters/a" in found
    assert str(tmp_path / "tokenizer.json") in found
    assert str(tmp_path) not in found
    assert "/" not in found
    assert "/proc" not in found


def test_requirements_that_are_accepted() -> None:
    text = "# packages\nnumpy\nboto3==1.2.3  # pinned\nx[a,b] >= 1, < 2 ; python_version > '3'\n\n"
    assert parse_requirements(text) == (
        "numpy", "boto3==1.2.3", "x[a,b] >= 1, < 2 ; python_version > '3'",
    )  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        "--index-url http://x", "-r other.txt", "-e .", "./wheel.whl", "/root/x.whl", "x @ file:///x",
        "git+https://x/y", "--no-binary=:all:", "x --hash=sha256:0", "http://x/y.whl",
    ],
)  # fmt: skip
def test_other_lines_are_refused(line: str) -> None:
    with pytest.raises(RequirementsError, match="no URL, path or option"):
        parse_requirements(f"numpy\n{line}")
