"""The platform's own processes: which there are to be, and which run."""

import os
from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.home.home import Home, UpConfig
from hostelry.home.platform_processes import (
    list_platform_names,
    platform_processes,
    process_uptimes,
)
from hostelry.home.run_file import save_run_file


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.make()
    save_run_file(made, "control", os.getpid(), 1)
    return made


@cases(
    "config, left_out",
    case("all of them", UpConfig(control_port=1, console_port=2), set()),
    case("no console", UpConfig(control_port=1), {"console"}),
    case(
        "another's object store, no mirror",
        UpConfig(control_port=1, s3_endpoint="http://s3", mirror_process=False),
        {"console", "objectstore", "s3door", "mirror"},
    ),
)
def test_the_processes_that_are_to_run_follow_the_configuration(
    home: Home, config: UpConfig, left_out: set[str]
) -> None:
    every = {"up", "gateway", "mirror", "jobs", "console", "control", "s3door", "objectstore"}
    assert {it.partition("-")[0] for it in list_platform_names(home, config)} == every - left_out


def test_one_that_runs_has_an_uptime_and_the_others_none(home: Home) -> None:
    config = UpConfig(control_port=1)
    uptimes_s = process_uptimes(home, config)
    assert list(uptimes_s) == list_platform_names(home, config)
    assert (uptimes_s.pop("control") or 0.0) > 0.0
    assert set(uptimes_s.values()) == {None}
    (control,) = [it for it in platform_processes(home, config) if it.name == "control"]
    assert (control.pid, control.port) == (os.getpid(), 1)
