"""Launcher of an instance: starts programs or containers, by the order."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hostelry.base.proc import ProcessIdentity
from hostelry.fleet.host.processes import stop_all, stop_processes
from hostelry.fleet.launch.container_launcher import ContainerLauncher, end_container, is_container
from hostelry.fleet.launch.launcher import CopyProcess, Launcher, LaunchOrder

Group = tuple[Path, ProcessIdentity | None]


class CopyLauncher:
    """Two launchers as one, chosen by the order or the folder; implements `launcher.Launcher`."""

    def __init__(self, programs: Launcher, containers: Launcher | None = None) -> None:
        self._programs = programs
        self._containers = containers or ContainerLauncher()

    async def start(self, order: LaunchOrder) -> CopyProcess:
        """The started copy; raises TerminalError when it cannot be started."""
        chosen = self._programs if order.container is None else self._containers
        return await chosen.start(order)

    def adopt(self, folder: Path, identity: ProcessIdentity) -> CopyProcess | None:
        """The recorded process of the copy in `folder`; None if it has ended."""
        return self._of(folder).adopt(folder, identity)

    async def explain_exit(self, folder: Path, code: int | None) -> str:
        """How the copy ended, in words."""
        return await self._of(folder).explain_exit(folder, code)

    async def stop(self, folder: Path, leader: ProcessIdentity | None, grace_s: float) -> None:
        """End the copy: its container if it has one, then all remaining processes."""
        await self._containers.stop(folder, leader, grace_s)
        await self._programs.stop(folder, leader, grace_s)

    def _of(self, folder: Path) -> Launcher:
        return self._containers if is_container(folder) else self._programs


async def end_copy(folder: Path, leader: ProcessIdentity | None, grace_s: float) -> None:
    """End the copy in `folder`, program or container, without the launcher that started it."""
    if is_container(folder):
        await end_container(folder, leader, grace_s)
    await stop_processes(folder, leader, grace_s)


def end_copies(copies: Sequence[Group], grace_s: float) -> None:
    """As `end_copy` for all of them at once, blocking; not for a thread with an event loop."""
    containers = [group for group in copies if is_container(group[0])]
    programs = [group for group in copies if not is_container(group[0])]

    async def end_containers() -> None:
        await asyncio.gather(*(end_container(*group, grace_s) for group in containers))

    with ThreadPoolExecutor(max_workers=1) as thread:
        ended = thread.submit(lambda: asyncio.run(end_containers())) if containers else None
        stop_all(programs, grace_s)
        if ended is not None:
            ended.result()
