"""The playground's routes: who may ask a model, and which requests are refused."""

from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Route
from tests.unit.console.console_sample import OWN, SampleConsole
from tests.unit.console.test_playground_calls import CHAT, ScriptedModels

from hostelry.console.playground_calls import PlaygroundCalls
from hostelry.console.routes import PlaygroundRoutes
from hostelry.console.visits import SessionGate

PATH = "/console/api/playground"


@pytest.fixture
def console(tmp_path: Path) -> SampleConsole:
    sample = SampleConsole(tmp_path)
    gate = SessionGate(sample.sessions, sample.clock.now)
    models = ScriptedModels([b'data: {"a": 1}\n\n'])
    routes = PlaygroundRoutes(PlaygroundCalls(sample.port, models), gate)
    without = PlaygroundRoutes(None, gate)
    sample.app = Starlette(
        routes=[
            Route(PATH, routes.targets, methods=["GET"]),
            Route(f"{PATH}/{{kind}}", routes.call, methods=["POST"]),
            Route("/without", without.targets, methods=["GET"]),
        ]
    )
    return sample


def test_a_session_that_reads_may_chat(console: SampleConsole) -> None:
    answer = console.ask("POST", f"{PATH}/chat", {**OWN, **console.shown()}, CHAT)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert 'data: {"a": 1}\n\n' in answer.text
    assert answer.text.endswith("event: ended\ndata: {}\n\n")


@pytest.mark.parametrize(
    ("kind", "headers", "body", "status"),
    [
        pytest.param("chat", {"cookie": ""}, CHAT, 401, id="no session"),
        pytest.param("chat", {"x-hostelry-csrf": "other"}, CHAT, 401, id="another token"),
        pytest.param("chat", {"origin": "http://evil"}, CHAT, 403, id="another page"),
        pytest.param("other", {}, CHAT, 404, id="another kind of call"),
        pytest.param("chat", {}, {}, 400, id="no chat"),
        pytest.param("invoke", {}, CHAT, 400, id="no invocation"),
        pytest.param("chat", {}, b"x", 400, id="no JSON"),
        pytest.param("chat", {}, b" " * 2**20 + b"{}", 413, id="a body that is too large"),
    ],
)
def test_refusals(
    console: SampleConsole, kind: str, headers: dict[str, str], body: Any, status: int
) -> None:
    given = {**OWN, **console.shown(), **headers}
    assert console.ask("POST", f"{PATH}/{kind}", given, body).status_code == status


@pytest.mark.parametrize(
    ("path", "status"),
    [
        pytest.param(PATH, 502, id="control does not answer"),
        pytest.param("/without", 404, id="a console that asks no models"),
    ],
)
def test_no_targets(console: SampleConsole, path: str, status: int) -> None:
    assert console.ask("GET", path, console.shown()).status_code == status
    assert console.ask("GET", path).status_code == 401
