"""Folders that Triton's Python backend makes in /tmp, and leaves there when it is killed.

Each server makes one, whatever TMPDIR says, and unpacks into it what EXECUTION_ENV_PATH of a model
names. Which server made which is known of those that models run in; an empty one that appeared
while a server loaded its model is taken for its own.
"""

import os
import re
import shutil
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from hostelry.base.proc import first_environment

PLACE = Path("/tmp")
NAME = re.compile(r"python_env_[A-Za-z0-9]{6}")
USED = re.compile(rb"/tmp/(python_env_[A-Za-z0-9]{6})/")


def environments(place: Path = PLACE) -> set[str]:
    """The names of those of this user's that are there."""
    found = set()
    with suppress(OSError):
        for entry in os.scandir(place):
            if NAME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                with suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_uid == os.getuid():
                        found.add(entry.name)
    return found


def used_by(pids: Iterable[int]) -> set[str]:
    """The names of those that these processes run in."""
    return {name.decode() for pid in pids for name in USED.findall(first_environment(pid))}


def remove_environments(names: Iterable[str], used: Collection[str], place: Path = PLACE) -> None:
    """Remove those that are empty, and those that were `used` with all that is in them."""
    for name in environments(place).intersection(names):
        with suppress(OSError):
            if name in used:
                shutil.rmtree(place / name)
            else:
                (place / name).rmdir()
