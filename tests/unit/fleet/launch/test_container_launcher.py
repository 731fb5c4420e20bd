"""Containers started, found and ended by a stand-in engine: its commands, in their order."""

import asyncio
import os
import stat
import sys
from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.base.proc import ProcessIdentity
from hostelry.fleet.host.processes import MARKER_VARIABLE, is_alive, process_table
from hostelry.fleet.launch import container_launcher
from hostelry.fleet.launch.container_arguments import EngineFacts
from hostelry.fleet.launch.container_launcher import (
    ContainerLauncher,
    ContainerRecord,
    CopyLauncher,
    build_follower_commands,
    end_container,
    end_copies,
    end_copy,
    follower_environment,
    is_container,
)
from hostelry.fleet.launch.container_order import ContainerOrder
from hostelry.fleet.launch.launcher import LaunchOrder, ProcessLauncher

# Represents a container by files: "image" if it has an image, "container" while it exists.
ENGINE = """#!/bin/sh
cd {folder}
echo "$1 $2" >> calls
case "$1 $2" in
"info "*) echo '{{"host": {{"ociRuntime": {{"name": "runc"}}}}, "version": {{}}}}' ;;
"image inspect") test -e image || {{ echo no such image >&2; exit 125; }}
  echo '[{{"Id": "abc", "Config": {{}}}}]' ;;
"pull --quiet") test -e registry || {{ echo no registry here >&2; exit 125; }}; touch image ;;
"run --detach")
  test -e refuse && {{ cat refuse >&2; exit 126; }}
  test -e stale && {{ rm stale; echo the name is already in use >&2; exit 125; }}
  sleep 60 & echo $! > container ;;
"container inspect") test -e container || exit 125
  if kill -0 $(cat container) 2>/dev/null; then
    echo "[{{\\"State\\": {{\\"Running\\": true, \\"Pid\\": $(cat container)}}}}]"
  else echo '[{{"State": {{"Running": false, "Pid": 0, "ExitCode": 5}}}}]'; fi ;;
"stop -t") kill $(cat container) ;;
"rm --force") rm -f container ;;
esac
"""


class Engine:
    """The stand-in engine's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.program = folder / "podman"
        self.program.write_text(ENGINE.format(folder=folder))
        self.program.chmod(self.program.stat().st_mode | stat.S_IXUSR)

    def has(self, name: str, text: str = "") -> None:
        (self.folder / name).write_text(text)

    @property
    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()

    @property
    def container(self) -> int | None:
        """The first process of the container, which may be dead."""
        try:
            return int((self.folder / "container").read_text())
        except FileNotFoundError:
            return None


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path / "engine")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "copies" / "c-1"
    (made / "model").mkdir(parents=True)
    return made


def order(folder: Path, engine: Engine, *, image: str = "mine:1", pull: bool = True) -> LaunchOrder:
    container = ContainerOrder(
        image=image,
        network="bridge",
        port=1,
        model_folder=folder / "model",
        mounts={},
        cpus=None,
        max_memory_bytes=None,
        devices=(),
        pull=pull,
        pull_timeout_s=20.0,
        engine=str(engine.program),
    )
    return LaunchOrder(
        argv=["serve"],
        environment={"SECRET": "of the user"},
        folder=folder,
        log=folder / "log",
        container=container,
    )


async def test_a_container_is_started_watched_explained_and_removed(
    engine: Engine, folder: Path
) -> None:
    engine.has("image")
    launcher = ContainerLauncher()
    process = await launcher.start(order(folder, engine))
    assert process.identity.pid == engine.container
    assert is_container(folder)
    assert not (folder / "container.env").exists(), "the variables are the engine's now"
    assert launcher.adopt(folder, process.identity) is not None
    waiting = asyncio.create_task(process.wait())
    os.kill(process.identity.pid, 15)
    assert await waiting is None
    assert launcher.adopt(folder, process.identity) is None
    assert await launcher.explain_exit(folder, None) == "The container exited with code 5."
    await launcher.stop(folder, process.identity, 1.0)
    assert engine.container is None
    assert not is_container(folder)
    assert engine.calls[-2:] == ["stop -t", "rm --force"]


async def test_an_image_is_fetched_where_it_is_missing(engine: Engine, folder: Path) -> None:
    engine.has("registry")
    process = await ContainerLauncher().start(order(folder, engine))
    assert "pull --quiet" in engine.calls
    await end_container(folder, process.identity, 0.0)


@cases(
    "pull, image, words",
    case("no registry", True, "mine:1", "cannot be pulled: no registry here"),
    case("no pull", False, "mine:1", "images.toml allows no pull: no such image"),
    case("no image", True, "dir:/etc", "is not the name of a container image"),
)
def test_an_image_that_cannot_be_had_is_named(
    engine: Engine, folder: Path, pull: bool, image: str, words: str
) -> None:
    starting = ContainerLauncher().start(order(folder, engine, image=image, pull=pull))
    with pytest.raises(TerminalError) as caught:
        asyncio.run(starting)
    assert words in str(caught.value)
    assert f'"{image}"' in str(caught.value)
    assert not is_container(folder), "nothing was begun"


async def test_what_the_engine_refuses_is_reported_and_cleared(
    engine: Engine, folder: Path
) -> None:
    engine.has("image")
    engine.has("refuse", "out of order")
    launcher = ContainerLauncher()
    with pytest.raises(TerminalError, match="cannot be started: out of order"):
        await launcher.start(order(folder, engine))
    assert "out of order" in (folder / "log").read_text()
    await launcher.stop(folder, None, 0.0)
    assert not is_container(folder)


async def test_a_container_left_of_a_folder_removed_by_hand_makes_room(
    engine: Engine, folder: Path
) -> None:
    engine.has("image")
    engine.has("stale")
    process = await ContainerLauncher().start(order(folder, engine))
    assert engine.calls.count("run --detach") == 2
    await end_container(folder, process.identity, 0.0)


async def test_a_copy_unwanted_while_it_starts_leaves_no_container(
    engine: Engine, folder: Path
) -> None:
    engine.has("image")
    launcher = CopyLauncher(ProcessLauncher())
    starting = asyncio.create_task(launcher.start(order(folder, engine)))
    while not (folder / "container.json").exists():  # noqa: ASYNC110 - a file has no event
        await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await launcher.stop(folder, None, 0.0)
    assert engine.container is None
    assert [row for row in process_table() if row.marker == str(folder)] == []


def test_an_engine_that_is_gone_or_hangs_leaves_nothing_running(
    engine: Engine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container_launcher, "STOP_MARGIN_S", 0.1)
    engine.has("image")

    async def work(script: str | None) -> None:
        process = await ContainerLauncher().start(order(folder, engine))
        whole = engine.program.read_text()
        if script is None:
            engine.program.unlink()
        else:
            engine.program.write_text(script)
        await end_copy(folder, process.identity, 0.0)
        assert not is_alive(process.identity)
        assert not is_container(folder)
        engine.program.write_text(whole)
        engine.program.chmod(0o755)

    asyncio.run(work("#!/bin/sh\nwhile :; do :; done\n"))
    asyncio.run(work(None))


def test_many_copies_of_both_kinds_end_together(engine: Engine, folder: Path) -> None:
    engine.has("image")
    other = folder.parent / "c-2"
    other.mkdir()

    async def started() -> list[tuple[Path, ProcessIdentity]]:
        launcher = CopyLauncher(ProcessLauncher())
        program = LaunchOrder(
            argv=[sys.executable, "-c", "import time; time.sleep(60)"],
            environment={MARKER_VARIABLE: str(other)},
            folder=other,
            log=other / "log",
        )
        orders = [order(folder, engine), program]
        return [(it.folder, (await launcher.start(it)).identity) for it in orders]

    groups = asyncio.run(started())
    end_copies(groups, 1.0)
    assert [it for _, it in groups if is_alive(it)] == []
    assert engine.container is None


def test_a_record_that_cannot_be_read_is_none(folder: Path) -> None:
    (folder / "container.json").write_text("{")
    assert ContainerRecord.load(folder) is None
    asyncio.run(end_container(folder, None, 0.0))


def record(network: str, kind: str) -> ContainerRecord:
    engine = EngineFacts(kind=kind, program=f"/usr/bin/{kind}", version="1")
    return ContainerRecord(name="n", engine=engine, port=5, inner_port=8080, network=network)


@cases(
    "network, kind, programs",
    case("shut in by Podman", "none", "podman", ["door"]),
    case("shut in by Docker", "none", "docker", ["door", "logs"]),
    case("published by Podman", "bridge", "podman", []),
    case("on the machine's network, by Docker", "host", "docker", ["logs"]),
)
def test_what_goes_with_a_container(network: str, kind: str, programs: list[str]) -> None:
    commands = build_follower_commands(record(network, kind), 77)
    assert ["door" if "--pid=77" in it else it[1] for it in commands] == programs


def test_what_goes_with_a_container_knows_no_secrets(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("DOCKER_HOST", "unix:///x")
    assert follower_environment(folder, "k")["HOSTELRY_COPY_KEY"] == "k"
    given = follower_environment(folder)
    assert "HF_TOKEN" not in given
    assert given["DOCKER_HOST"] == "unix:///x"
    assert given[MARKER_VARIABLE] == str(folder)
