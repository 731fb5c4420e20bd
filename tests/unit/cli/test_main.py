import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hostelry import __version__
from hostelry.base.errors import TerminalError
from hostelry.cli.main import app, run

COMMANDS = (
    "up",
    "down",
    "status",
    "explain",
    "logs",
    "replay",
    "env",
    "exec",
    "check",
    "version",
    "demo",
    "demo-model",
    "doctor",
)
GROUPS = ("chaos", "scaling", "kernel")


def test_the_list_of_commands() -> None:
    text = CliRunner().invoke(app, ["--help"]).output
    assert all(f"\n  {name} " in text for name in COMMANDS), text


@pytest.mark.parametrize(
    "group", [pytest.param([], id="all"), *[pytest.param([it], id=it) for it in GROUPS]]
)
def test_a_list_of_commands_has_whole_sentences(group: list[str]) -> None:
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, [*group, "--help"])
    listed = result.output.partition("Commands:\n")[2].splitlines()
    assert len(listed) > 1
    assert [it for it in listed if not it.endswith(".") or it.endswith("...")] == []


@pytest.mark.parametrize("command", [it for it in COMMANDS if it != "demo"])
def test_every_command_explains_itself_with_an_example(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert f"hostelry {command}" in result.output.replace("Usage: hostelry", "")


def test_version() -> None:
    assert CliRunner().invoke(app, ["version"]).output == f"hostelry {__version__}\n"
    as_json = CliRunner().invoke(app, ["version", "--json"]).output
    assert json.loads(as_json) == {"version": __version__}


@pytest.mark.parametrize(
    "command",
    [
        ["status"],
        ["explain"],
        ["logs"],
        ["env"],
        ["exec", "--", "true"],
        ["down"],
        ["scaling", "status"],
        ["scaling", "timeline", "chat"],
    ],
    ids=lambda command: f"{' '.join(command[:2])} before the first up",
)
def test_before_the_first_up_every_command_names_the_way_to_start(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTELRY_HOME", str(tmp_path / "none"))
    error = CliRunner().invoke(app, command).exception
    assert isinstance(error, TerminalError)
    assert "start one with `hostelry up`" in str(error)
    assert str(tmp_path / "none") in str(error)
    assert not (tmp_path / "none").exists()


def test_an_error_is_one_line_and_exit_code_one(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise TerminalError("port 1 is taken")

    assert run(fail) == 1
    assert capsys.readouterr().err == "hostelry: port 1 is taken\n"


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["nonsense"], id="an unknown command"),
        pytest.param(["up", "--port", "many"], id="a port that is no number"),
        pytest.param(["status", "--nonsense"], id="an unknown option"),
        pytest.param(["exec"], id="exec of nothing"),
        pytest.param(["logs", "-n", "-1"], id="a negative number of lines"),
    ],
)
def test_wrong_usage_is_exit_code_two(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2


@pytest.mark.parametrize(
    ("flag", "default"), [("--invoke-timeout-s", "60.0"), ("--stream-timeout-s", "480.0")]
)
def test_up_explains_its_time_limits(flag: str, default: str) -> None:
    text = CliRunner().invoke(app, ["up", "--help"]).output
    line = next(it for it in text.splitlines() if flag in it)
    after = text[text.index(line) :].split(" --", 2)[1]
    assert "econds" in after
    assert default in after
