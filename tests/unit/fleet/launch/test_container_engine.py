"""Engines that work, fail, lie or hang, as executables on the test's PATH."""

import asyncio
import json
import stat
from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.fleet.launch import container_engine
from hostelry.fleet.launch.container_arguments import EngineFacts, ImageFacts
from hostelry.fleet.launch.container_engine import (
    call,
    find_engine,
    find_image,
    find_state,
    parse_info,
)

INFO = {
    "host": {"ociRuntime": {"name": "crun"}, "security": {"rootless": True}},
    "version": {"Version": "5.1"},
}
DOCKER_INFO = {"ServerVersion": "28.2", "SecurityOptions": ["name=seccomp,profile=builtin"]}


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(container_engine, "UNIFIED_CGROUPS", tmp_path)
    return folder


def program(folder: Path, name: str, script: str) -> Path:
    """An executable of the test, which can only use the shell's built-in commands."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def answering(info: object) -> str:
    return f"echo '{json.dumps(info)}'"


def found(wanted: str | None = None) -> EngineFacts:
    return asyncio.run(find_engine(wanted))


def test_podman_comes_first(programs: Path) -> None:
    program(programs, "docker", answering(DOCKER_INFO))
    assert found().kind == "docker"
    program(programs, "podman", answering(INFO))
    facts = found()
    assert (facts.kind, facts.version, facts.rootless) == ("podman", "5.1", True)
    assert facts.program == str(programs / "podman")


def test_an_engine_may_be_chosen_by_name_or_path(programs: Path) -> None:
    program(programs, "podman", answering(INFO))
    elsewhere = program(programs.parent, "docker-rootless", answering(DOCKER_INFO))
    assert found(str(elsewhere)).kind == "docker"
    assert found("podman").kind == "podman"
    with pytest.raises(TerminalError, match="nerdctl is not installed"):
        found("nerdctl")


@cases(
    "script, words",
    case("it says what is wrong", "echo out of order >&2; exit 1", "out of order"),
    case("it answers with something else", "echo no json", "podman does not work"),
    case("it answers with nothing", "echo '{}'", "cannot be read"),
    case("it says nothing", "exit 3", "it printed nothing"),
    case("it answers with a list", answering([1]), "cannot be read"),
)
def test_a_machine_without_a_working_engine_names_the_fault_of_each(
    programs: Path, script: str, words: str
) -> None:
    program(programs, "podman", script)
    with pytest.raises(TerminalError) as caught:
        found()
    text = str(caught.value)
    assert text.startswith("This machine cannot run containers: ")
    assert words in text
    assert "docker is not installed" in text
    assert "apt-get install podman" in text
    assert "[[image]]" in text, "the other way"


def test_a_docker_whose_daemon_is_away_does_not_work(programs: Path) -> None:
    away = {"ServerErrors": ["Cannot connect to the Docker daemon"], "ServerVersion": ""}
    program(programs, "docker", answering(away))
    with pytest.raises(TerminalError, match="Cannot connect to the Docker daemon"):
        found()


def test_an_engine_that_hangs_is_killed(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_engine, "ANSWER_TIMEOUT_S", 0.2)
    program(programs, "podman", "while :; do :; done")
    with pytest.raises(TerminalError, match="did not answer in time"):
        found()


def test_a_program_that_is_no_engine_is_no_engine(programs: Path) -> None:
    (programs / "podman").write_bytes(b"\x00\x01")
    (programs / "podman").chmod(0o755)
    with pytest.raises(TerminalError, match="podman does not work"):
        found()


@cases(
    "unified, runtime, asked",
    case("control groups of version 2", True, "crun", None),
    case("its own runtime does", False, "runc", None),
    case("its own runtime refuses these control groups", False, "crun", "runc"),
)
def test_the_runtime_that_works_is_asked_for(
    unified: bool, runtime: str, asked: str | None
) -> None:
    info = {**INFO, "host": {"ociRuntime": {"name": runtime}}}
    facts = parse_info("podman", "/usr/bin/podman", json.dumps(info).encode(), unified)
    assert facts.runtime == asked


@cases(
    "unified, rootless, kept",
    case("control groups of version 2", True, True, True),
    case("root", False, False, True),
    case("neither", False, True, False),
)
def test_an_engine_that_keeps_no_limits_is_known(unified: bool, rootless: bool, kept: bool) -> None:
    info = {**INFO, "host": {"security": {"rootless": rootless}}}
    podman = parse_info("podman", "/usr/bin/podman", json.dumps(info).encode(), unified)
    assert (podman.rootless, podman.keeps_limits) == (rootless, kept)
    options = ["name=rootless"] if rootless else []
    info = {**DOCKER_INFO, "SecurityOptions": options}
    docker = parse_info("docker", "/usr/bin/docker", json.dumps(info).encode(), unified)
    assert (docker.rootless, docker.keeps_limits) == (rootless, kept)


def test_a_runtime_that_is_missing_is_named(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container_engine, "UNIFIED_CGROUPS", programs / "no-such-file")
    program(programs, "podman", answering(INFO))
    with pytest.raises(TerminalError, match=r"need the runtime runc; it is not installed"):
        found()
    program(programs, "runc", "exit 0")
    assert found().argv == [str(programs / "podman"), "--runtime", "runc"]


async def test_images_and_containers_are_asked_for(programs: Path) -> None:
    script = (
        'case "$1 $2 $3" in\n'
        '"image inspect mine:1") echo \'[{"Id": "abc", "Config": {}}]\' ;;\n'
        '"image inspect odd:1") echo "[]" ;;\n'
        '"container inspect c") echo \'[{"State": {"Running": true, "Pid": 9}}]\' ;;\n'
        '"container inspect odd") echo "{" ;;\n'
        "*) echo no such thing >&2; exit 125 ;;\nesac"
    )
    path = program(programs, "podman", script)
    engine = EngineFacts(kind="podman", program=str(path), version="4")
    assert await find_image(engine, "mine:1") == ImageFacts(id="abc", labels={})
    assert await find_image(engine, "other:1") == "no such thing"
    odd = await find_image(engine, "odd:1")
    assert isinstance(odd, str)
    assert "cannot be read" in odd
    state = await find_state(engine, "c")
    assert state is not None
    assert state.pid == 9
    assert await find_state(engine, "odd") is None
    assert await find_state(engine, "gone") is None


def test_a_program_that_prints_without_end_fills_no_memory(programs: Path) -> None:
    line = "x" * 1000
    script = f"i=0; while [ $i -lt 400 ]; do echo {line}; i=$((i+1)); done; echo the end"
    path = program(programs, "podman", script)
    printed = asyncio.run(call([str(path)], timeout_s=30.0))
    assert printed.code == 0
    assert printed.out.endswith(b"the end\n")
    assert len(printed.out) < 200_000
