"""Installation of runtimes, with packages that need no network."""

import fcntl
from collections.abc import Sequence
from pathlib import Path

import pytest

from hostelry.base.errors import TerminalError
from hostelry.base.runtimes import installed
from hostelry.containers.lmi.vllm import install as installation
from hostelry.containers.lmi.vllm.install import Recipe, install, list_runtimes, remove, run_step


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
    monkeypatch.setattr(installation, "RECIPES", {"cpu": Recipe(("./no-such-package",))})
    monkeypatch.setattr(installation, "run_step", failing)
    with pytest.raises(TerminalError, match="no such package"):
        install(tmp_path, "vllm", "cpu", lambda _: None)
    assert installed(tmp_path, "vllm") is None
    assert [it.name for it in tmp_path.iterdir()] == [".vllm.lock"]


def failing(command: Sequence[str], _: installation.Say) -> None:
    if "venv" in command:
        Path(command[-1]).mkdir()
        return
    raise TerminalError("no such package")


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
