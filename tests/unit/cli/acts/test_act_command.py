"""`hostelry restart` and `drain`: the question before an act, and how it is refused."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from hostelry.base.errors import TerminalError
from hostelry.cli.acts import drain, restart
from hostelry.home.home import Home, UpConfig, new_credentials

STATE = {
    "endpoints": [
        {
            "name": "chat",
            "account": "111122223333",
            "region": "us-east-1",
            "components": [{"name": "base"}],
            "copies": [{"id": "c-1"}],
            "instances": [{"id": "i-1"}],
        }
    ]
}
ACT = {
    "act": "restart",
    "target": "component base",
    "endpoint": "chat",
    "summary": "1 copy is replaced.",
    "already": False,
    "steps": [],
}


class FakeControl:
    """Control's answers to the command, and what it was asked to do."""

    def __init__(self, refusal: httpx.Response | None = None) -> None:
        self.asked: list[dict[str, Any]] = []
        self.refusal = refusal

    def request(self, method: str, url: str, **request: Any) -> httpx.Response:
        if method == "GET":
            return httpx.Response(200, json=STATE)
        self.asked.append({"act": url.rpartition("/")[2], **request["json"]})
        return self.refusal or httpx.Response(200, json=ACT)

    @property
    def done(self) -> list[str]:
        return [it["act"] for it in self.asked if not it.get("dry_run")]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def home(tmp_path: Path) -> Path:
    found = Home(tmp_path)
    found.config.write_bytes(msgspec.json.encode(UpConfig(control_port=9)))
    credentials = new_credentials("111122223333", "us-east-1")
    found.credentials.write_bytes(msgspec.json.encode(credentials))
    return tmp_path


def use(
    monkeypatch: pytest.MonkeyPatch, stdin: io.StringIO, refusal: httpx.Response | None = None
) -> FakeControl:
    control = FakeControl(refusal)
    monkeypatch.setattr(httpx, "request", control.request)
    monkeypatch.setattr(sys, "stdin", stdin)
    return control


def test_yes_acts_in_the_name_of_the_user(
    monkeypatch: pytest.MonkeyPatch, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    control = use(monkeypatch, io.StringIO())
    restart("base", yes=True, home=home)
    first, second = control.asked
    assert first == {**second, "dry_run": True}
    assert (second["component"], second["account"]) == ("base", "111122223333")
    assert second["who"].startswith("user ")
    assert "Restart component base of endpoint chat" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("cancel", "act"), [(False, "drain"), (True, "undrain")], ids=["drain", "cancel"]
)
def test_a_question_that_is_answered_acts(
    monkeypatch: pytest.MonkeyPatch, home: Path, cancel: bool, act: str
) -> None:
    control = use(monkeypatch, Terminal("y\n"))
    drain("i-1", cancel=cancel, home=home)
    assert control.done == [act]


@pytest.mark.parametrize(
    ("stdin", "why"),
    [
        pytest.param(Terminal("n\n"), "nothing was done", id="no"),
        pytest.param(io.StringIO(), "add --yes where there is no terminal", id="no terminal"),
    ],
)
def test_without_a_yes_nothing_is_done(
    monkeypatch: pytest.MonkeyPatch, home: Path, stdin: io.StringIO, why: str
) -> None:
    control = use(monkeypatch, stdin)
    with pytest.raises(TerminalError, match=why):
        restart("base", home=home)
    assert control.done == []


def test_json_without_yes_is_what_would_happen(
    monkeypatch: pytest.MonkeyPatch, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    control = use(monkeypatch, io.StringIO())
    restart("base", home=home, as_json=True)
    assert json.loads(capsys.readouterr().out) == ACT
    assert control.done == []
    restart("base", yes=True, home=home, as_json=True)
    assert json.loads(capsys.readouterr().out) == ACT
    assert control.done == ["restart"]


@pytest.mark.parametrize(
    ("refusal", "why"),
    [
        pytest.param(httpx.Response(409, json={"error": "It is ending."}), "It is", id="refused"),
        pytest.param(
            httpx.Response(403, text="<Error/>"), "of another version", id="an old control"
        ),
        pytest.param(httpx.Response(507, json={"error": "disk \x1b[2J full"}), "disk", id="full"),
    ],
)
def test_a_refusal_is_the_reason(
    monkeypatch: pytest.MonkeyPatch, home: Path, refusal: httpx.Response, why: str
) -> None:
    control = use(monkeypatch, io.StringIO(), refusal)
    with pytest.raises(TerminalError, match=why) as caught:
        restart("base", yes=True, home=home)
    assert control.done == []
    assert "\x1b" not in str(caught.value)
