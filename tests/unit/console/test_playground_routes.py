"""The playground's routes: sessions that may call a model, and refused requests."""

from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Route
from tests.cases import case, cases
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


@cases(
    "kind, headers, body, status",
    case("no session", "chat", {"cookie": ""}, CHAT, 401),
    case("another token", "chat", {"x-hostelry-csrf": "other"}, CHAT, 401),
    case("another page", "chat", {"origin": "http://evil"}, CHAT, 403),
    case("another kind of call", "other", {}, CHAT, 404),
    case("no chat", "chat", {}, {}, 400),
    case("no invocation", "invoke", {}, CHAT, 400),
    case("no JSON", "chat", {}, b"x", 400),
    case("a body that is too large", "chat", {}, b" " * 2**20 + b"{}", 413),
)
def test_refusals(
    console: SampleConsole, kind: str, headers: dict[str, str], body: Any, status: int
) -> None:
    given = {**OWN, **console.shown(), **headers}
    assert console.ask("POST", f"{PATH}/{kind}", given, body).status_code == status


@cases(
    "path, status",
    case("control does not answer", PATH, 502),
    case("a console that asks no models", "/without", 404),
)
def test_no_targets(console: SampleConsole, path: str, status: int) -> None:
    assert console.ask("GET", path, console.shown()).status_code == status
    assert console.ask("GET", path).status_code == 401
