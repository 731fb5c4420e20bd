"""`hostelry accounts`, `users` and `keys`, against control's routes and the API in this process."""

import asyncio
import io
import json
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import typer
from starlette.applications import Starlette
from tests.cases import case, cases
from tests.unit.audit.samples import opened_trail
from typer.main import get_command
from typer.testing import CliRunner

from hostelry.audit.trail import AuditTrail
from hostelry.aws.access_keys import AccessKeySecrets
from hostelry.base.clock import ManualClock
from hostelry.base.errors import HostelryError, UsageError
from hostelry.base.ids import read_key_account
from hostelry.cli import completion
from hostelry.cli.accounts.keys import parse_lifetime_s
from hostelry.cli.main import app
from hostelry.control.account_routes import build_account_routes
from hostelry.domain.event_schedule import ScheduleGroup
from hostelry.domain.scope import Scope
from hostelry.home.home import Home, UpConfig, new_credentials
from hostelry.metrics.series.store import MemoryMetrics
from hostelry.store.memory import MemoryStore
from hostelry.store.records import open_state

FIRST = "111122223333"
CREDENTIALS = new_credentials(FIRST, "us-east-1")
TEAM = "444455556666"
WIDE = Scope(TEAM, "aws-global")


class Rig:
    """A home whose control has the routes of accounts, and commands on it."""

    def __init__(self, folder: Path, audit: AuditTrail) -> None:
        self.home = Home(folder)
        self.home.config.write_bytes(msgspec.json.encode(UpConfig(control_port=9)))
        self.home.credentials.write_bytes(msgspec.json.encode(CREDENTIALS))
        self.clock = ManualClock()
        self.state = open_state(MemoryStore())
        self.audit = audit
        metrics = MemoryMetrics(self.clock)
        self._routes = build_account_routes(
            self.state, CREDENTIALS, self.audit, self.clock, metrics
        )

    def request(self, method: str, url: str, **request: Any) -> httpx.Response:
        """Answer a request of a command to control."""
        kept = {name: it for name, it in request.items() if name in ("json", "params", "content")}

        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(app=Starlette(routes=list(self._routes)))
            async with httpx.AsyncClient(transport=transport) as client:
                return await client.request(method, url, **kept)

        return asyncio.run(ask())

    def run(self, *words: str) -> str:
        """The standard output of a command. Raises the error that it ends with."""
        line = [*words, "--home", str(self.home.root)]
        result = CliRunner().invoke(app, line)
        if result.exception is not None:
            raise result.exception
        assert result.exit_code == 0, result.output
        return str(result.stdout)

    def json(self, *words: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run(*words, "--json"))
        return found


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    with opened_trail(tmp_path) as audit:
        rig = Rig(tmp_path, audit)
        monkeypatch.setattr(httpx, "request", rig.request)
        yield rig


def test_an_account_lives_from_create_to_delete(rig: Rig) -> None:
    made = rig.json("accounts", "create", "Team", "--id", TEAM)
    assert (made["account"], made["name"]) == (TEAM, "Team")
    assert read_key_account(made["key"]) == TEAM
    assert made["secret"] == AccessKeySecrets(CREDENTIALS.internal_key).derive(made["key"])
    assert rig.state.roles.get(WIDE, "hostelryexecutionrole") is not None
    lines = rig.run("accounts", "list").splitlines()
    assert [it.split()[:3] for it in lines[1:]] == [[FIRST, "-", "first"], [TEAM, "Team", "open"]]
    rig.run("accounts", "rename", TEAM, "Crew")
    rig.run("users", "create", "ada", "--account", "crew", "--policy", "AmazonS3ReadOnlyAccess")
    with pytest.raises(HostelryError, match="is open: close it first"):
        rig.run("accounts", "delete", "crew", "--yes")
    assert "is closed" in rig.run("accounts", "close", "crew")
    assert rig.json("accounts", "list")["accounts"][1]["is_closed"] is True
    rig.run("accounts", "open", "crew")
    rig.run("accounts", "close", "crew")
    here = Scope(TEAM, "us-east-1")
    group = ScheduleGroup(scope=here, name="g", created_at=0.0)
    version = rig.state.schedule_groups.put(here, "g", group, expect=None).version
    with pytest.raises(HostelryError, match="still has 1 schedule_group"):
        rig.run("accounts", "delete", "crew", "--yes")
    rig.state.schedule_groups.delete(here, "g", expect=version)
    rig.run("accounts", "delete", "crew", "--yes")
    assert [it["id"] for it in rig.json("accounts", "list")["accounts"]] == [FIRST]
    assert [*rig.state.users.list(WIDE), *rig.state.roles.list(WIDE)] == []


def test_a_users_keys_are_made_disabled_rotated_and_deleted(rig: Rig) -> None:
    rig.run("users", "create", "ada")
    lines = rig.run("keys", "create", "--user", "ada").splitlines()
    assert [it.partition("=")[0] for it in lines] == [
        "export AWS_ACCESS_KEY_ID",
        "export AWS_SECRET_ACCESS_KEY",
    ]
    key = lines[0].partition("=")[2]
    assert "is disabled" in rig.run("keys", "disable", key)
    assert rig.json("keys", "list", "--user", "ada")["keys"][0]["is_active"] is False
    rig.run("keys", "enable", key)
    second = rig.json("keys", "rotate", key)
    assert (second["user"], second["account"]) == ("ada", FIRST)
    with pytest.raises(HostelryError, match="AccessKeysPerUser: 2"):
        rig.run("keys", "create", "--user", "ada")
    rig.run("keys", "delete", key, "--yes")
    assert [it["id"] for it in rig.json("keys", "list")["keys"]] == [second["key"]]
    third = rig.json("keys", "rotate", second["key"], "--now")
    assert [it["id"] for it in rig.json("keys", "list")["keys"]] == [third["key"]]
    rig.run("users", "delete", "ada", "--yes")
    assert "There is no key" in rig.run("keys", "list")
    outcomes = [(it.act, it.target) for it in rig.audit.newest(100)]
    assert ("rotate-key", f"key {key}") in outcomes
    assert not any(second["secret"] in repr(it) for it in rig.audit.newest(100))


def test_openai_keys_have_models_and_an_end(rig: Rig) -> None:
    rig.run("users", "create", "ada")
    options = ("--user", "ada", "--openai", "--models", "chat, base", "--expires", "30d")
    made = rig.json("keys", "create", *options, "--name", "notebook")
    (key,) = rig.state.users.list()[0].value.openai_keys
    assert key.digest == sha256(made["secret"].encode()).hexdigest()
    assert (key.models, key.name) == (("chat", "base"), "notebook")
    assert key.expires_at == rig.clock.now() + 30 * 86_400
    rig.clock.advance(31 * 86_400)
    assert " expired " in rig.run("keys", "list")
    new = rig.json("keys", "rotate", key.id, "--now")
    (rotated,) = rig.state.users.list()[0].value.openai_keys
    assert rotated.id == new["key"]
    assert (rotated.models, rotated.name) == (key.models, key.name)
    assert rotated.expires_at == rig.clock.now() + 30 * 86_400
    rig.run("keys", "disable", rotated.id)
    assert " disabled " in rig.run("keys", "list")
    assert rig.run("keys", "create", "--user", "ada", "--openai").startswith(
        "export OPENAI_API_KEY=sk-"
    )
    rig.run("keys", "delete", rotated.id, "--yes")


def test_policies_are_attached_by_name_or_arn(rig: Rig) -> None:
    rig.run("users", "create", "ada")
    arn = "arn:aws:iam::aws:policy/AmazonSageMakerReadOnly"
    assert f"{arn} is attached to user ada" in rig.run(
        "users", "attach", "ada", "AmazonSageMakerReadOnly"
    )
    assert "AmazonSageMakerReadOnly" in rig.run("users", "list")
    rig.run("users", "attach", "ada", arn, "--detach")
    assert rig.json("users", "list")["users"][0]["policies"] == []


@cases(
    "words, error, text",
    case("no such account", "users create eve --account none", HostelryError, "no account none"),
    case("a list of none", "keys list --account none", HostelryError, "there is no account none"),
    case("no such key", "keys disable AKIANONE", HostelryError, "There is no key AKIANONE"),
    case("no such user", "keys create --user eve", HostelryError, "The user with name eve cannot"),
    case("a user again", "users create ADA", HostelryError, "User with name ADA already exists"),
    case("a policy", "users create eve --policy None", HostelryError, "is not attachable"),
    case("a name taken", "accounts create TEAM", HostelryError, "already has the name TEAM"),
    case("an id taken", f"accounts create b --id {TEAM}", HostelryError, "There is an account"),
    case("the first id", f"accounts create b --id {FIRST}", HostelryError, "There is an account"),
    case("no id", "accounts create b --id 12", HostelryError, "12 is not an account id"),
    case("a name of an id", f"accounts create {FIRST}", HostelryError, "is not a name for an acc"),
    case("an odd name", "accounts create a/b", HostelryError, "is not a name for an account"),
    case("the first account", f"accounts close {FIRST}", HostelryError, "cannot be changed"),
    case("the first root's keys", "keys create", HostelryError, "key in the platform's home"),
    case("models of no OpenAI key", "keys create --models a", UsageError, "add --openai"),
    case("no user of an OpenAI key", "keys create --openai", UsageError, "add --user NAME"),
    case("a delete without yes", "users delete ada", HostelryError, "add --yes"),
)
def test_errors_name_the_thing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, words: str, error: type[Exception], text: str
) -> None:
    rig.run("accounts", "create", "team", "--id", TEAM)
    rig.run("users", "create", "ada")
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with pytest.raises(error, match=text):
        rig.run(*words.split())


@cases(
    "text, seconds",
    case("minutes", "15m", 900),
    case("hours", "12h", 43_200),
    case("days", "30d", 2_592_000),
)
def test_lifetimes(text: str, seconds: float) -> None:
    assert parse_lifetime_s(text) == seconds


@pytest.mark.parametrize("text", ["", "d", "0d", "1w", "-1d", "1.5h", "9999999d", "٣d"])
def test_other_lifetimes_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected"):
        parse_lifetime_s(text)


def test_names_and_keys_are_completed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.run("accounts", "create", "team", "--id", TEAM)
    rig.run("users", "create", "ada")
    key = rig.json("keys", "create", "--user", "ada")["key"]
    listed = rig.request("GET", "http://control/internal/accounts").json()
    monkeypatch.setattr(completion, "_ask", lambda *_: listed)
    context = typer.Context(get_command(typer.Typer(callback=lambda: None)))
    context.params["home"] = rig.home.root
    assert completion.accounts(context, "") == [FIRST, "team"]
    assert completion.users(context, "a") == ["ada"]
    assert completion.keys(context, key[:8]) == [key]


def test_a_body_that_is_no_act_is_refused(rig: Rig) -> None:
    for content in (b"{", b'{"act": "burn", "who": "x"}', b'{"act": "create-key"}'):
        answer = rig.request("POST", "http://control/internal/account-acts", content=content)
        assert answer.status_code == 400
        assert "no act" in answer.json()["error"]
