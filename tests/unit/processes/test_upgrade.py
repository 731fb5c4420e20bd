"""Refused upgrades. tests/integration has upgrades under traffic."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostelry.base.errors import TerminalError
from hostelry.home.home import Home
from hostelry.home.run_file import live_run_file, save_run_file
from hostelry.processes.upgrade import upgrade_host


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    made.make()
    return made


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that stands for an `up`, and that systemd did not start."""
    with subprocess.Popen(["sleep", "60"], env={"PATH": "/usr/bin:/bin"}) as process:
        yield process
        process.kill()


def test_nothing_runs(home: Home) -> None:
    with pytest.raises(TerminalError, match=r"no `up` runs .*`hostelry up` starts this"):
        upgrade_host(home, lambda text: None)


def test_an_up_that_nothing_would_start_again_is_left_alone(
    home: Home, sleeper: "subprocess.Popen[bytes]"
) -> None:
    save_run_file(home, "up", sleeper.pid, 8787)
    with pytest.raises(TerminalError, match=f"kill -9 {sleeper.pid}"):
        upgrade_host(home, lambda text: None)
    assert live_run_file(home, "up") is not None


def test_an_up_whose_command_line_is_not_ours_is_left_alone(
    home: Home, sleeper: "subprocess.Popen[bytes]"
) -> None:
    save_run_file(home, "up", sleeper.pid, 8787)
    save_run_file(home, "watcher", sleeper.pid, 0)
    with pytest.raises(TerminalError, match="command line"):
        upgrade_host(home, lambda text: None)
    assert live_run_file(home, "up") is not None
