"""Interpreters for runtimes that root's copies, which are other users, can run."""

import os
import sys
import tempfile
from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.base.runtimes import why_closed
from hostelry.runtimes import interpreters
from hostelry.runtimes.interpreters import find_interpreter, is_open


def test_an_interpreter_that_others_can_reach_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    for python in (closed / "python3.11", tmp_path / "python3.11"):
        python.write_text("")
    monkeypatch.setattr(interpreters, "ask_version", lambda _: "3.11")
    monkeypatch.setattr(interpreters, "is_open", lambda it: it.parent == tmp_path)
    env = {"PATH": f"{closed}{os.pathsep}{tmp_path}", "HOME": str(tmp_path)}
    assert find_interpreter(["3.11"], env) == tmp_path / "python3.11"
    assert not is_open(closed / "python3.11")


@cases(
    "target, words",
    case("it can be run", sys.executable, None),
    case("it is gone", "/nowhere/python3.10", "which is gone: install it again"),
    case("there is no such runtime", None, None),
)
def test_why_a_runtime_cannot_be_run(target: str | None, words: str | None, tmp_path: Path) -> None:
    python = tmp_path / "sklearn-1.4" / "bin" / "python"
    python.parent.mkdir(parents=True)
    if target is not None:
        python.symlink_to(target)
    why = why_closed(tmp_path, "sklearn-1.4")
    assert why is None if words is None else words in str(why)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_the_folder_in_the_way_of_a_copys_user_is_named() -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed
        open_folder = Path(name)
        open_folder.chmod(0o755)
        closed = open_folder / "closed folder"
        closed.mkdir(mode=0o700)
        (closed / "python").write_text("")
        python = open_folder / "r" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.symlink_to(closed / "python")
        pid = os.fork()
        if pid == 0:
            os.setuid(61_234)
            why = str(why_closed(open_folder, "r"))
            os._exit(0 if f"cannot enter {closed}: `chmod o+x '{closed}'` mends" in why else 3)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
