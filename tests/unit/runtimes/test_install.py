"""Installation of runtimes, with packages that need no network."""

import fcntl
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.base.runtimes import find_installed
from hostelry.runtimes import install as installation
from hostelry.runtimes.framework_recipes import Recipe
from hostelry.runtimes.install import (
    UNSOLVED,
    Say,
    find_locked_recipe,
    install,
    list_runtimes,
    lock_packages,
    remove,
    run_step,
)


def test_a_failed_step_ends_with_the_last_lines() -> None:
    script = "for i in $(seq 50); do echo line $i; done; exit 3"
    with pytest.raises(TerminalError, match="exit code 3") as caught:
        run_step(["/bin/sh", "-c", script], lambda _: None)
    assert "line 50" in str(caught.value)
    assert "line 31" in str(caught.value)
    assert "line 30" not in str(caught.value)


def test_downloads_are_reported() -> None:
    lines: list[str] = []
    run_step(
        ["/bin/sh", "-c", "echo 'Downloading torch-2.whl (1 GB), more'; echo other"], lines.append
    )
    assert lines == ["  Downloading torch-2.whl (1 GB)"]


def test_a_failed_installation_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        installation, "find_recipe", lambda *_: Recipe(packages=("x",), imports="x")
    )
    monkeypatch.setattr(installation, "run_step", failing)
    with pytest.raises(TerminalError, match="no such package"):
        install(tmp_path, "vllm", "cpu", lambda _: None)
    assert find_installed(tmp_path, "vllm") is None
    assert [it.name for it in tmp_path.iterdir()] == [".vllm.lock"]


def failing(command: Sequence[str], *_: object) -> None:
    if "venv" in command:
        Path(command[-1]).mkdir()
        return
    raise TerminalError("no such package")


def made(command: Sequence[str], *_: object) -> None:
    """A step that makes the interpreter, and nothing else."""
    if "venv" in command:
        python = Path(command[-1]) / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text("#!/bin/sh\necho '[]'\n")
        python.chmod(0o755)
        (python.parent.parent / "pyvenv.cfg").write_text("version = 3.11.7\n")


def test_the_left_over_of_a_killed_installation_and_a_broken_record_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (".vllm.partial", "vllm"):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "left").write_text("by a killed one")
    (tmp_path / "vllm" / "hostelry.json").write_text("{")
    assert list_runtimes(tmp_path) == []
    monkeypatch.setattr(installation, "find_recipe", lambda *_: Recipe(packages=(), imports="x"))
    monkeypatch.setattr(installation, "run_step", made)
    first = install(tmp_path, "vllm", "cpu", lambda _: None)
    assert list_runtimes(tmp_path) == [first]
    assert sorted(it.name for it in tmp_path.iterdir()) == [".vllm.lock", "vllm"]
    assert not (tmp_path / "vllm" / "left").exists()
    monkeypatch.setattr(installation, "run_step", failing)
    assert install(tmp_path, "vllm", "cpu", lambda _: None) == first, "it is there already"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_an_installation_that_is_interrupted_or_finds_no_room_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def interrupted(command: Sequence[str], *_: object) -> None:
        Path(command[-1]).mkdir()
        raise error

    monkeypatch.setattr(installation, "run_step", interrupted)
    with pytest.raises((KeyboardInterrupt, TerminalError)) as caught:
        install(tmp_path, "vllm", "cpu", lambda _: None)
    if isinstance(error, OSError):
        assert "No space left" in str(caught.value)
        assert "HOSTELRY_RUNTIMES_DIR" in str(caught.value)
    assert [it.name for it in tmp_path.iterdir()] == [".vllm.lock"]


def test_one_installation_at_a_time(tmp_path: Path) -> None:
    with (tmp_path / ".vllm.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(TerminalError, match="another process"):
            install(tmp_path, "vllm", "cpu", lambda _: None)
        with pytest.raises(TerminalError, match="another process"):
            remove(tmp_path, "vllm")


def test_what_is_not_there_is_not_listed_and_not_removed(tmp_path: Path) -> None:
    assert list_runtimes(tmp_path) == []
    assert not remove(tmp_path, "vllm")
    assert not remove(tmp_path / "none", "vllm")
    (tmp_path / "vllm" / "bin").mkdir(parents=True)
    assert remove(tmp_path, "vllm")
    assert not (tmp_path / "vllm").exists()


FIRST = Recipe(
    packages=("torch==1.0+cpu", "extra[all]==2"),
    imports="x",
    pythons=(f"{sys.version_info.major}.{sys.version_info.minor}",),
)
SECOND = replace(FIRST, packages=("torch==1.1", "extra"), lacks="torch is 1.1")


@cases(
    "words, text",
    case("packages that no index has", UNSOLVED,
        "no index has torch==1.0+cpu; torch==1.1 in its place"),
    case("an index that does not answer", "timed out", None),
)  # fmt: skip
def test_a_recipe_stands_in_for_one_whose_packages_no_index_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, text: str | None
) -> None:
    def compiling(command: Sequence[str], *_: object) -> None:
        wanted = Path(command[1]).read_text()
        if "1.0" in wanted:
            raise TerminalError(words)
        Path(command[-1]).write_text("extra==3 \\\ntorch==1.1 \\\n    --hash=sha256:0\n")

    monkeypatch.setattr(installation, "run_step", compiling)
    lines: list[str] = []
    lock, recipe = tmp_path / "a.txt", replace(FIRST, instead=SECOND)
    if text is None:
        with pytest.raises(TerminalError, match="timed out"):
            lock_packages(lock, recipe, lines.append, ["uv"], {})
        assert list(tmp_path.iterdir()) == []
        return
    lock_packages(lock, recipe, lines.append, ["uv"], {})
    assert text in lines
    assert find_locked_recipe(recipe, lock.read_text()) == SECOND
    assert list(tmp_path.iterdir()) == [lock]


def test_a_list_of_the_recipes_own_versions_is_its_own() -> None:
    recipe = replace(FIRST, instead=SECOND)
    assert find_locked_recipe(recipe, "extra==2 \\\ntorch==1.0+cpu \\\n") == recipe
    assert find_locked_recipe(recipe, "of=another\n") == recipe


def test_a_failure_shows_no_password_of_an_index() -> None:
    script = "echo https://me:secret@pypi.example/simple is away; exit 1"
    with pytest.raises(TerminalError) as caught:
        run_step(["/bin/sh", "-c", script], lambda _: None)
    assert "https://pypi.example/simple is away" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_python_that_the_machine_lacks_is_brought_by_uv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ".python"

    def brought(command: Sequence[str], _: Say, variables: Mapping[str, str]) -> None:
        assert command[-4:] == ["python", "install", "--no-bin", "9.8"]
        python = Path(variables["UV_PYTHON_INSTALL_DIR"]) / "cpython-9.8.1-x" / "bin" / "python9.8"
        python.parent.mkdir(parents=True)
        python.write_text("#!/bin/sh\necho 9.8\n")
        python.chmod(0o755)

    monkeypatch.setattr(installation, "run_step", brought)
    reported: list[str] = []
    variables = {"UV_PYTHON_INSTALL_DIR": str(folder)}
    found = installation.get_interpreter(["9.8", "9.7"], reported.append, variables)
    assert found == folder / "cpython-9.8.1-x" / "bin" / "python9.8"
    assert reported == ["this machine has no Python 9.8 or 9.7: uv brings 9.8"]
    monkeypatch.setattr(installation, "run_step", failing)
    assert installation.get_interpreter(["9.8"], reported.append, variables) == found, "it is kept"
    with pytest.raises(TerminalError, match=r"has none of them.*; uv cannot bring one: "):
        installation.get_interpreter(["9.6"], reported.append, variables)
