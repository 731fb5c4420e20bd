"""Snippets: the code contains exactly the request, for any text in it."""

import ast
import json
import shlex
from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.console.snippets import MAX_CURL_BYTES, chat_snippets, invocation_snippets

HARD = (
    "quotes ' \" ''' \"\"\"; $HOME `id` $(id) \\ \\n\n\t!x {y} % ünïcödé 😀 \u2028 \x07 \\N{DASH}"
)


def request(content: str, **more: Any) -> dict[str, Any]:
    streamed = {"stream": True, "stream_options": {"include_usage": True}}
    return {"model": "m", "messages": [{"role": "user", "content": content}], **more, **streamed}


def assigned(code: str, name: str) -> Any:
    """The value that Python code gives a name."""
    for node in ast.parse(code).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name:
            return ast.literal_eval(node.value)
    raise AssertionError(code)


def keywords(code: str) -> dict[str, Any]:
    """The literal keyword arguments of invoke_endpoint."""
    calls = [it for it in ast.walk(ast.parse(code)) if isinstance(it, ast.Call)]
    (call,) = [it for it in calls if getattr(it.func, "attr", "") == "invoke_endpoint"]
    found: dict[str, Any] = {}
    for keyword in call.keywords:
        value = keyword.value
        if isinstance(value, ast.Constant):
            found[keyword.arg or ""] = value.value
        elif keyword.arg == "Body" and isinstance(value, ast.Call):
            encoded = getattr(value.func, "value", None)  # TEXT.encode()
            if isinstance(encoded, ast.Constant):
                found["Body"] = encoded.value
    return found


@pytest.mark.parametrize("content", ["hi", HARD, "x" * 500], ids=["plain", "hostile", "long"])
def test_each_client_sends_the_chat_as_it_was(content: str) -> None:
    asked = request(content, temperature=0, top_k=3, seed=None, logprobs=True)
    code = chat_snippets(asked, "ep")
    words = shlex.split(code["curl"].partition("\n")[2].replace("\\\n", " "))
    assert json.loads(words[words.index("--data-raw") + 1]) == asked
    sent = assigned(code["openai"], "request")
    extra = sent.pop("extra_body")
    assert {**sent, **extra} == asked
    assert extra == {"top_k": 3}
    plain = {k: it for k, it in asked.items() if k not in ("model", "stream", "stream_options")}
    assert assigned(code["boto3"], "request") == plain
    assert keywords(code["boto3"])["InferenceComponentName"] == "m"


def test_an_adapter_of_the_archive_is_named_in_boto3s_body() -> None:
    code = chat_snippets({**request("hi"), "model": "base:fr"}, "ep")
    assert assigned(code["boto3"], "request")["adapters"] == "fr"
    assert keywords(code["boto3"])["InferenceComponentName"] == "base"
    assert assigned(code["openai"], "request")["model"] == "base:fr"


@pytest.mark.parametrize("body", ["1,2\n3,4\n", HARD, ""], ids=["lines", "hostile", "empty"])
def test_each_client_sends_the_invocation_as_it_was(body: str) -> None:
    given = {"EndpointName": "ep", "ContentType": "text/csv", "TargetModel": "a 'b'.tar.gz"}
    code = invocation_snippets(given, body)
    words = shlex.split(code["curl"].partition("\n")[2].replace(" \\\n", " "))
    assert words[words.index("--data-raw") + 1] == body.replace(" \\\n", " ")
    assert "X-Amzn-SageMaker-Target-Model: a 'b'.tar.gz" in words
    assert keywords(code["boto3"]) == {**given, "Body": body}


@cases(
    "body, clients",
    case("as long as an argument may be", "x" * MAX_CURL_BYTES, ["curl", "boto3"]),
    case("too long for a command line", "x" * (MAX_CURL_BYTES + 1), ["boto3"]),
    case("a byte that no argument can have", "a\0b", ["boto3"]),
)
def test_a_body_that_no_command_line_holds_has_no_curl(body: str, clients: list[str]) -> None:
    assert list(invocation_snippets({"EndpointName": "ep"}, body)) == clients
