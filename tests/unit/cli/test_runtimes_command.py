"""`hostelry runtimes`: its output and its refusals."""

from pathlib import Path

import pytest
from tests.cases import case, cases
from typer.testing import CliRunner

from hostelry.base.errors import TerminalError
from hostelry.cli.main import app


@pytest.mark.parametrize("command", [[], ["install"], ["list"], ["remove"]])
def test_help(command: list[str]) -> None:
    assert "Usage" in CliRunner().invoke(app, ["runtimes", *command, "--help"]).output


@cases(
    "arguments, text",
    case("an unknown runtime", ["install", "sglang"], "NAME is 'sglang'"),
    case("an unknown device", ["install", "vllm", "--device", "tpu"], "cpu, cuda"),
    case("one that is not there", ["remove", "vllm"], "there is no runtime vllm"),
)
def test_refusals(arguments: list[str], text: str, tmp_path: Path) -> None:
    runner = CliRunner(env={"HOSTELRY_RUNTIMES_DIR": str(tmp_path)})
    result = runner.invoke(app, ["runtimes", *arguments])
    assert isinstance(result.exception, TerminalError)
    assert text in str(result.exception)


def test_a_folder_without_a_good_record_is_not_listed_and_can_be_removed(tmp_path: Path) -> None:
    runner = CliRunner(env={"HOSTELRY_RUNTIMES_DIR": str(tmp_path)})
    (tmp_path / "vllm" / "bin").mkdir(parents=True)
    (tmp_path / "vllm" / "hostelry.json").write_text("{")
    assert "There is none in" in runner.invoke(app, ["runtimes", "list"]).output
    assert runner.invoke(app, ["runtimes", "list", "--json"]).output.strip() == "[]"
    assert "Removed" in runner.invoke(app, ["runtimes", "remove", "vllm"]).output
    assert not (tmp_path / "vllm").exists()
