"""Requests of commands to control: its answers, and each reason for a missing answer."""

import contextlib
import socket
import time
from typing import Any

import httpx
import pytest
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.cli.control_requests import control_answer, require_endpoint
from hostelry.home.home import UpConfig, new_credentials

CREDENTIALS = new_credentials("111122223333", "us-east-1")


def answer(monkeypatch: pytest.MonkeyPatch, response: httpx.Response | None) -> dict[str, Any]:
    """The command's view of control, if it sends `response` or refuses the connection."""

    def request(method: str, url: str, **_: Any) -> httpx.Response:
        assert (method, url) == ("GET", "http://127.0.0.1:9/internal/placement")
        if response is None:
            raise httpx.ConnectError("refused")
        return response

    monkeypatch.setattr(httpx, "request", request)
    config = UpConfig(control_port=9, gateway_port=9)
    return control_answer(config, CREDENTIALS, "/internal/placement", knows="where copies are")


def test_an_answer_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    response = httpx.Response(200, json={"endpoints": []})
    assert answer(monkeypatch, response) == {"endpoints": []}


@cases(
    "response, problem",
    case(
        "nothing listens",
        None,
        "control does not answer at .*9, and only it knows where copies are: start it",
    ),
    case(
        "an older control, which takes the route for an AWS call",
        httpx.Response(403, text='{"__type":"MissingAuthenticationToken"}'),
        "of another version than this command and has no /internal/placement: restart it",
    ),
    case("a defect", httpx.Response(500, text="defect"), "control refused: defect"),
    case("no JSON object", httpx.Response(200, text="[]"), "cannot be read"),
)
def test_each_failure_is_an_error_for_people(
    monkeypatch: pytest.MonkeyPatch, response: httpx.Response | None, problem: str
) -> None:
    with pytest.raises(TerminalError, match=problem):
        answer(monkeypatch, response)


@cases(
    "names, error",
    case("it is there", ["chat"], None),
    case("others are", ["wine"], "no call of chat is known, .* There are: wine"),
    case("there are none", [], "There are: none"),
    case("control does not answer", None, None),
)  # fmt: skip
def test_an_empty_list_is_refused_for_an_endpoint_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, names: list[str] | None, error: str | None
) -> None:
    def request(method: str, url: str, **_: Any) -> httpx.Response:
        if names is None:
            raise httpx.ConnectError("refused")
        return httpx.Response(200, json={"endpoints": names})

    monkeypatch.setattr(httpx, "request", request)
    config = UpConfig(control_port=9, gateway_port=9)
    with pytest.raises(TerminalError, match=error) if error else contextlib.nullcontext():
        require_endpoint(config, CREDENTIALS, "chat", "call")


def test_a_control_that_restarts_is_waited_for_while_the_gateway_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = iter([None, None, httpx.Response(200, json={"endpoints": []})])

    def request(*_: str, **__: Any) -> httpx.Response:
        answered = next(answers)
        if answered is None:
            raise httpx.ConnectError("refused")
        return answered

    monkeypatch.setattr(httpx, "request", request)
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    with socket.create_server(("127.0.0.1", 0)) as gateway:
        config = UpConfig(control_port=9, gateway_port=gateway.getsockname()[1])
        found = control_answer(config, CREDENTIALS, "/internal/placement")
    assert found == {"endpoints": []}
    assert len(waits) == 2


def test_a_request_that_may_have_been_taken_is_not_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def request(method: str, *_: str, **__: Any) -> httpx.Response:
        asked.append(method)
        raise httpx.ReadError("closed")

    monkeypatch.setattr(httpx, "request", request)
    with socket.create_server(("127.0.0.1", 0)) as gateway:
        config = UpConfig(control_port=9, gateway_port=gateway.getsockname()[1])
        with pytest.raises(TerminalError, match="does not answer"):
            control_answer(config, CREDENTIALS, "/internal/placement")
    assert asked == ["GET"]
