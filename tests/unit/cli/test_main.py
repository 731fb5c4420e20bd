import errno
import json
import pwd
from pathlib import Path

import pytest
from tests.cases import case, cases
from typer.testing import CliRunner

from hostelry import __version__
from hostelry.base.errors import TerminalError, UsageError
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


@cases(
    "failure, code, text",
    case("arguments", UsageError("--port 0: a port is a number"), 2, "--port 0: a port"),
    case("expected", TerminalError("it is not there"), 1, "it is not there"),
    case(
        "a file of another user",
        PermissionError(errno.EACCES, "Permission denied", "/h/x"),
        1,
        "/h/x: Permission denied. Run the command as the user who owns it",
    ),
    case(
        "a full disk",
        OSError(errno.ENOSPC, "No space left on device"),
        1,
        "No space left on device. Make room on the disk of the home and of ",
    ),
    case(
        "a full disk of a known file",
        OSError(errno.ENOSPC, "No space left on device", "/h/x"),
        1,
        "/h/x: No space left on device. Make room there",
    ),
    case(
        "no temporary folder",
        FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']"),
        1,
        "no temporary folder can be written",
    ),
    case(
        "a failure with words of its own",
        OSError("10.0.0.1:80 cannot be listened on"),
        1,
        "10.0.0.1:80 cannot be listened on\n",
    ),
)
def test_a_failure_is_one_sentence_with_its_exit_code(
    failure: Exception, code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> None:
        raise failure

    assert run(fails) == code
    assert capsys.readouterr().err.startswith(f"hostelry: {text}")


@cases(
    "command",
    case("a port that is too high", ["up", "--port", "80000"]),
    case("in the background, too", ["up", "--detach", "--logs-days", "0"]),
    case("an unknown order", ["top", "--sort", "nosuch"]),
    case("nothing to scale to", ["scale", "chat"]),
    case("a value below the least", ["load", "chat", "--rate", "0"]),
    case("a value that no bound refuses", ["load", "chat", "--rate", "nan"]),
    case("a search without a limit", ["load", "chat", "--find"]),
    case("a limit of zero", ["load", "chat", "--find", "--max-latency-ms", "0"]),
    case("a negative limit", ["load", "chat", "--find", "--max-token-ms", "-1"]),
    case("a limit that is no number", ["load", "chat", "--find", "--max-latency-ms", "nan"]),
    case("errors above all", ["load", "chat", "--find", "--max-errors-percent", "101"]),
    case("a limit without a search", ["load", "chat", "--max-latency-ms", "50"]),
    case("a sweep without values", ["load", "chat", "--sweep", "concurrency"]),
    case("a sweep of an unknown option", ["load", "chat", "--sweep", "threads=1,2"]),
    case("a sweep of a given option", ["load", "x", "--rate", "5", "--sweep", "rate=1,2"]),
    case("a sweep of the input", ["load", "x", "--body", "-", "--sweep", "concurrency=1,2"]),
    case("a sweep of a missing file", ["load", "x", "--sweep", "body=/missing.csv"]),
    case("a sweep that is compared", ["load", "x", "--sweep", "rate=1", "--compare", "a.json"]),
    case("copies with adapters", ["load", "x", "--sweep", "copies=1", "--adapters", "a"]),
    case("tokens of a file", ["load", "x", "--body", "x", "--max-tokens", "5"]),
    case("a content type without a file", ["load", "x", "--content-type", "text/csv"]),
    case("a search with a rate", ["load", "x", "--find", "--max-token-ms", "9", "--rate", "5"]),
    case("an age that all are above", ["prune", "--older-than-hours", "nan"]),
    case("a backup without a folder", ["backup", "verify"]),
    case("two options that exclude each other", ["trace", "--slowest", "--failed"]),
    case("an unknown option", ["status", "--nosuch"]),
)
def test_wrong_usage_has_one_exit_code(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTELRY_HOME", str(tmp_path / "none"))

    codes = []
    try:
        codes.append(run(lambda: app(command)))
    except SystemExit as ended:
        codes.append(int(str(ended.code)))
    assert codes == [2]
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("command", ["status", "env", "ls", "doctor", "up"])
def test_a_user_without_a_home_folder_gets_the_ways_to_name_one(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.delenv("HOSTELRY_HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: {}[uid])
    error = CliRunner().invoke(app, [command]).exception
    assert isinstance(error, TerminalError)
    assert str(error).endswith("Set HOME, or name a folder with --home or HOSTELRY_HOME")


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


def test_a_backup_of_a_user_who_is_not_there_is_refused() -> None:
    error = CliRunner().invoke(app, ["backup", "verify", "~nobody-of-this-name/b"]).exception
    assert isinstance(error, TerminalError)
    assert "that user has no home folder here" in str(error)


@cases(
    "arguments",
    case("an unknown command", ["nonsense"]),
    case("a port that is no number", ["up", "--port", "many"]),
    case("an unknown option", ["status", "--nonsense"]),
    case("exec of nothing", ["exec"]),
    case("a negative number of lines", ["logs", "-n", "-1"]),
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
