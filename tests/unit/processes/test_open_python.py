"""The interpreter that `up` runs by, if copies' users cannot run its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.fleet.rules.copy_user import AUTO, NONE
from hostelry.home.home import Home
from hostelry.home.run_file import remove_run_file, save_run_file
from hostelry.processes import open_python
from hostelry.processes.open_python import made_environment, other_interpreter, package_folders

ROOT = os.geteuid() == 0
BASE = Path(sys.executable).resolve()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.make()
    return made


def test_an_environment_has_the_packages_and_is_made_once(tmp_path: Path) -> None:
    folder = tmp_path / "python"
    python = made_environment(folder, BASE, list(package_folders()))
    program = "import hostelry.base.json, msgspec, sys; print(sys.prefix)"
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(folder)
    before = folder.stat().st_ino
    assert made_environment(folder, BASE, list(package_folders())) == python
    assert folder.stat().st_ino == before
    made_environment(folder, BASE, [tmp_path])
    assert folder.stat().st_ino != before, "other packages"
    assert folder.stat().st_mode & 0o777 == 0o755


@cases(
    "asked, closed, works, found",
    case("ours is closed, another is open", AUTO, ("python",), True, True),
    case("for a user that was named", "61234", ("python",), True, True),
    case("the other lacks modules", AUTO, ("python",), False, False),
    case("the other is closed, too", AUTO, ("python", "other"), True, False),
    case("the home is closed", AUTO, ("python", "home"), True, False),
    case("ours is open", AUTO, (), True, False),
    case("copies have no users", NONE, ("python",), True, False),
)
def test_which_interpreter(
    asked: str,
    closed: tuple[str, ...],
    works: bool,
    found: bool,
    home: Home,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = tmp_path / "other"
    other.symlink_to("/bin/sh")
    names = {Path(sys.executable): "python", other: "other", home.root: "home"}
    monkeypatch.setattr(open_python, "_is_closed", lambda _, path: names.get(path) in closed)
    monkeypatch.setattr(open_python, "candidates", lambda *_: [Path(sys.executable), other])
    monkeypatch.setattr(open_python, "_works", lambda *_: works)
    expected = home.python / "bin" / "python" if found and ROOT else None
    assert other_interpreter(asked, home) == expected


@pytest.mark.skipif(not ROOT, reason="only root's copies have other users")
def test_another_up_leaves_the_environment_of_a_platform_that_runs_as_it_is(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = made_environment(home.python, BASE, [tmp_path])
    before = home.python.stat().st_ino
    monkeypatch.setattr(open_python, "open_bases", lambda *_: [BASE])
    monkeypatch.setattr(open_python, "_works", lambda *_: True)
    save_run_file(home, "up", os.getpid(), 0)
    assert other_interpreter(AUTO, home) is None
    assert home.python.stat().st_ino == before
    remove_run_file(home, "up")
    assert other_interpreter(AUTO, home) == python
    assert home.python.stat().st_ino != before, "it has ended"
