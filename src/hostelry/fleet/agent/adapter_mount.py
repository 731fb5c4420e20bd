"""Where a container sees its adapters: one folder of the copy's own, mounted into it at its start.

An adapter that comes later is hard-linked into that folder, so that it costs no room on the disk
and shows the container nothing of the other copies' artifacts.
"""

import asyncio
import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from hostelry.fleet.launch.container_order import ADAPTERS_PATH, adapters_folder
from hostelry.fleet.rules.images import ImageRule


@dataclass(frozen=True, slots=True)
class AdapterMount:
    """The folder of one copy, which its container has at /opt/ml/models."""

    root: Path

    async def place(self, adapter_id: str, files: Path) -> str:
        """The path in the container of the adapter whose files are at `files`; raises OSError."""
        name = _name(adapter_id)
        await asyncio.to_thread(_place, files, self.root / name)
        return f"{ADAPTERS_PATH}/{name}"

    async def remove(self, adapter_id: str) -> None:
        """Forget the adapter's files; harmless where there are none."""
        await asyncio.to_thread(shutil.rmtree, self.root / _name(adapter_id), ignore_errors=True)


def mount_of(rule: ImageRule, copy_folder: Path) -> AdapterMount | None:
    """The shelf of a copy that is a container; None for a program, which sees the files itself."""
    return AdapterMount(adapters_folder(copy_folder)) if rule.is_container else None


def _name(adapter_id: str) -> str:
    return hashlib.sha256(adapter_id.encode()).hexdigest()[:32]


def _place(files: Path, target: Path) -> None:
    """Link the files whole or not at all; they are the same files for as long as they are there."""
    if target.exists():
        return
    half = target.with_name(f"{target.name}.half")
    shutil.rmtree(half, ignore_errors=True)
    shutil.copytree(files.resolve(), half, copy_function=_link)
    for folder, _, _ in os.walk(half):
        os.chmod(folder, 0o755)  # the cache's folders are read-only; these must be removable
    half.rename(target)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)  # another file system, or too many links
