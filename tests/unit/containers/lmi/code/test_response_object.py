"""A response as a formatter sees it, and what a formatter's result becomes."""

import json
from typing import Any

import pytest

from hostelry.containers.lmi.code.hook_values import (
    ResponseRecord,
    formatted_text,
    response_object,
)

OPENAI = json.dumps({"id": "1", "choices": [{"text": "hi", "logprobs": None}]}).encode()
LMI = json.dumps({"generated_text": "hi"}).encode()


def rename(response: Any) -> Any:
    response["generated_text"] += "!"
    return response


def retext(response: Any) -> Any:
    response.choices[0].text += "?"
    return response


def label(response: Any) -> Any:
    response.by = "me"
    return response


@pytest.mark.parametrize(
    ("change", "written"),
    [
        pytest.param(rename, {"generated_text": "hi!"}, id="LMI's form by key"),
        pytest.param(
            retext, {"id": "1", "choices": [{"text": "hi?", "logprobs": None}]}, id="OpenAI's"
        ),
        pytest.param(
            label, {"id": "1", "choices": [{"text": "hi", "logprobs": None}], "by": "me"}, id="new"
        ),
        pytest.param(lambda it: it, {"generated_text": "hi"}, id="nothing"),
        pytest.param(lambda it: {"n": len(it.choices)}, {"n": 1}, id="another dictionary"),
        pytest.param(lambda it: it.model_dump_json(), {"generated_text": "hi"}, id="its JSON"),
    ],
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
