"""Permissions for copies that run as another user, as few as each copy needs.

A copy's folder stays the agent's, because its records name the processes and groups that the agent
ends. The copy may enter it, and write in `work` below it.
"""

import asyncio
import os
import secrets
import shutil
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from hostelry.fleet.artifacts.protocol import Artifacts, Fetch
from hostelry.fleet.records import CopyFolder
from hostelry.fleet.rules.copy_user import PASS, WORK, CopyUser, RunAs, choose_number

READ = 0o004
OTHERS = 0o007


def prepare_run_as(folder: Path, user: CopyUser) -> RunAs:
    """Give `user` access to the copy's folder, log and work folder. Raises OSError."""
    gid = choose_number(folder.stat().st_gid, _find_taken_ids(folder), secrets.randbelow)
    for above in (folder.parent.parent, folder.parent):
        allow_passage(above)
    os.chown(folder, -1, gid)
    folder.chmod(0o710)
    paths = CopyFolder(folder)
    if paths.model.is_dir() and not paths.model.is_symlink():
        paths.model.chmod(0o755)
    # The copy needs write permission to open it by name, as /dev/stdout.
    descriptor = os.open(paths.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.fchown(descriptor, -1, gid)
        os.fchmod(descriptor, 0o620)
    finally:
        os.close(descriptor)
    run_as = RunAs(user=user, gid=gid, work=folder / WORK)
    if run_as.work.exists() and run_as.work.stat().st_uid != run_as.uid:
        shutil.rmtree(run_as.work)  # left by a different --copy-user
    run_as.work.mkdir(mode=0o700, exist_ok=True)
    os.chown(run_as.work, run_as.uid, gid)
    return run_as


def _find_taken_ids(folder: Path) -> set[int]:
    """The group ids of all copies of this home."""
    numbers = set()
    for other in folder.parent.parent.parent.glob("*/copies/*"):
        with suppress(FileNotFoundError):
            numbers.add(other.stat().st_gid)
    return numbers


def allow_passage(folder: Path) -> None:
    """Let others enter the folder, but not list it. Raises OSError."""
    folder.chmod(folder.stat().st_mode & 0o7777 & ~OTHERS | PASS)


class OpenArtifacts:
    """Artifacts that every user of the machine can read, given their path.

    They are below a folder that other users cannot list, under names that are digests.
    """

    def __init__(self, within: Artifacts) -> None:
        self._within = within

    async def fetch(self, want: Fetch) -> Path:
        """The folder with the artifact's files, readable. Raises the store's errors."""
        files = await self._within.fetch(want)
        await asyncio.to_thread(open_artifact, files)
        return files

    def retain(self, copy_ids: Collection[str]) -> None:
        """Release every holder except these copies and the holders below them."""
        self._within.retain(copy_ids)

    def release(self, holder: str) -> None:
        """Release everything that `holder` and the holders below it hold."""
        self._within.release(holder)


def open_artifact(files: Path) -> None:
    """Let every user read the folder `cache/KEY/files`. Blocks. Raises OSError.

    The folder itself comes last, so that a readable folder means readable contents.
    """
    for above in (files.parent.parent, files.parent):
        allow_passage(above)
    if files.stat().st_mode & READ:
        return
    for folder, _, names in os.walk(files, topdown=False):
        for name in names:
            with suppress(FileNotFoundError):
                _open(os.path.join(folder, name), READ)
        _open(folder, READ | PASS)


def _open(path: str, bits: int) -> None:
    os.chmod(path, os.stat(path).st_mode & 0o7777 | bits)
