"""`hostelry restart` and `drain`: the question before an act, and how it is refused."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.cli.acts import (
    act_lines,
    act_rows,
    done_line,
    drain,
    drain_target,
    restart,
    restart_target,
)
from hostelry.cli.status_text import drain_lines, restart_lines
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
OWN = ("111122223333", "us-east-1")


class FakeControl:
    """Control's answers to the command, and the requests that it got."""

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


@cases(
    "stdin, why",
    case("no", Terminal("n\n"), "nothing was done"),
    case("no terminal", io.StringIO(), "add --yes if there is no terminal"),
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


@cases(
    "refusal, why",
    case("refused", httpx.Response(409, json={"error": "It is ending."}), "It is"),
    case("an old control", httpx.Response(403, text="<Error/>"), "of another version"),
    case("full", httpx.Response(507, json={"error": "disk \x1b[2J full"}), "disk"),
)
def test_a_refusal_is_the_reason(
    monkeypatch: pytest.MonkeyPatch, home: Path, refusal: httpx.Response, why: str
) -> None:
    control = use(monkeypatch, io.StringIO(), refusal)
    with pytest.raises(TerminalError, match=why) as caught:
        restart("base", yes=True, home=home)
    assert control.done == []
    assert "\x1b" not in str(caught.value)


def endpoint(name: str, *components: str, region: str = "us-east-1") -> dict[str, Any]:
    return {
        "name": name,
        "account": "111122223333",
        "region": region,
        "components": [{"name": it} for it in components],
        "copies": [{"id": f"c-{name}-{region}"}],
        "instances": [{"id": f"i-{name}-{region}"}],
    }


ENDPOINTS = [
    endpoint("chat", "base", region="eu-west-1"),
    endpoint("chat", "base", "spanish"),
    endpoint("other"),
]


@cases(
    "name, found",
    case("a copy", "c-other-us-east-1", {"copy": "c-other-us-east-1"}),
    case("a component", "base", {"component": "base"}),
    case("an endpoint", "other", {"endpoint": "other"}),
    case("an endpoint by its kind", "endpoint/chat", {"endpoint": "chat"}),
    case("an adapter component", "base:spanish", {"component": "spanish"}),
)
def test_a_restart_is_of(name: str, found: dict[str, str]) -> None:
    scope = {"account": OWN[0], "region": OWN[1]}
    assert restart_target(name, ENDPOINTS, OWN) == {**scope, **found}


def test_the_own_region_comes_first_and_another_ones_copy_is_found() -> None:
    assert restart_target("chat", ENDPOINTS, OWN)["region"] == "us-east-1"
    assert restart_target("c-chat-eu-west-1", ENDPOINTS, OWN)["region"] == "eu-west-1"


@cases(
    "name, why",
    case("a near miss", "chta", "did you mean chat"),
    case("inside an archive", "base:mine", "`hostelry restart base` restarts it"),
)
def test_a_name_that_is_none_is_refused(name: str, why: str) -> None:
    with pytest.raises(TerminalError, match=why):
        restart_target(name, ENDPOINTS, OWN)


def test_a_drain_is_of_an_instance() -> None:
    found = drain_target("i-other-us-east-1", ENDPOINTS, OWN)
    assert found == {"account": OWN[0], "region": OWN[1], "instance": "i-other-us-east-1"}
    with pytest.raises(TerminalError, match="did you mean i-other-us-east-1"):
        drain_target("i-othr-us-east-1", ENDPOINTS, OWN)
    with pytest.raises(TerminalError, match="`hostelry status` shows all"):
        drain_target("zzz", [], OWN)


def act(*ways: str) -> dict[str, Any]:
    return {
        "act": "restart",
        "target": "component base",
        "endpoint": "chat",
        "summary": f"{len(ways)} copies are replaced.",
        "already": False,
        "steps": [
            {
                "copy": f"c-{number}",
                "owner": "component/base",
                "instance": "i-1",
                "way": way,
                "text": "a new copy comes up",
            }
            for number, way in enumerate(ways)
        ],
    }


def test_each_copy_has_its_step() -> None:
    assert act_lines(act("beside")) == [
        "Restart component base of endpoint chat",
        "  1 copies are replaced.",
        "  c-0  component/base on i-1",
        "    a new copy comes up",
    ]


def test_what_it_costs_is_the_last_line() -> None:
    lines = act_lines(act("beside", "ended_first", "ended_first"))
    assert lines[-1].startswith("There is no room beside c-1, c-2: each ends before the new one")


def test_many_copies_are_counted() -> None:
    lines = act_lines(act(*["beside"] * 25))
    assert lines[-1] == "  ... and 5 more copies"


def test_a_repeat_is_reported() -> None:
    assert done_line(act()).startswith("Recorded: `hostelry status --endpoint chat`")
    assert done_line({**act(), "already": True}).startswith("It was asked for before")


def test_acts_of_the_log_are_rows_without_control_characters() -> None:
    entry = {
        "at": 0.0,
        "act": "drain",
        "target": "instance i-1",
        "who": "user \x1b[31mada",
        "outcome": "accepted",
    }
    head, row = act_rows("chat", [entry])
    assert head.text == "acts on chat"
    assert row.text.endswith("drain instance i-1 by user [31mada: accepted")
    assert act_rows("chat", []) == []


def test_progress_is_a_line_of_the_status() -> None:
    drain = {"since": 5.0, "copies_left": 1, "serving": 0, "reason": "its copies end"}
    assert drain_lines({"drain": drain}, 17.0, "  ") == [
        "  draining for 12s, 1 copy left: its copies end"
    ]
    restart = {"asked_at": 5.0, "failed": True, "reason": "no driver"}
    assert restart_lines({"restart": restart}, 17.0, "  ") == [
        "  restart asked for 12s ago, given up: no driver"
    ]
    assert drain_lines({"drain": None}, 0.0, "") == restart_lines({}, 0.0, "") == []
