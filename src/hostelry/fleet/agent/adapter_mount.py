"""Files for a container that come later: one folder of the copy, mounted into it at its start.

Adapters, and models of a multi-model copy, are hard-linked into that folder as they come, so that
they take no further disk space and the container sees no artifacts of other copies.
"""

import asyncio
import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from hostelry.fleet.launch.container_order import ADAPTERS_PATH, adapters_folder
from hostelry.fleet.rules.images import ImageRule

MODEL = "model"


@dataclass(frozen=True, slots=True)
class AdapterMount:
    """The folder of one copy that its container sees at /opt/ml/models."""

    root: Path

    async def place(self, adapter_id: str, files: Path) -> str:
        """The path in the container of the adapter whose files are at `files`; raises OSError."""
        name = _name(adapter_id)
        await asyncio.to_thread(_place, files, self.root / name)
        return f"{ADAPTERS_PATH}/{name}"

    async def place_model(self, model_id: str, files: Path) -> str:
        """The path in the container of a model; Triton takes only one of this form.

        Raises OSError.
        """
        await asyncio.to_thread(_place, files, self.root / model_id / MODEL)
        return f"{ADAPTERS_PATH}/{model_id}/{MODEL}"

    async def remove_model(self, model_id: str) -> None:
        """Remove the model's files, if any."""
        await asyncio.to_thread(shutil.rmtree, self.root / model_id, ignore_errors=True)

    async def remove(self, adapter_id: str) -> None:
        """Remove the adapter's files, if any."""
        await asyncio.to_thread(shutil.rmtree, self.root / _name(adapter_id), ignore_errors=True)


def mount_of(rule: ImageRule, copy_folder: Path) -> AdapterMount | None:
    """The mount of a copy that is a container; None for a program, which sees the files itself."""
    return AdapterMount(adapters_folder(copy_folder)) if rule.is_container else None


def _name(adapter_id: str) -> str:
    return hashlib.sha256(adapter_id.encode()).hexdigest()[:32]


def _place(files: Path, target: Path) -> None:
    """Link all the files or none; a target that exists has them already."""
    if target.exists():
        return
    half = target.with_name(f"{target.name}.half")
    shutil.rmtree(half, ignore_errors=True)
    target.parent.mkdir(exist_ok=True)
    shutil.copytree(files.resolve(), half, copy_function=_link)
    for folder, _, _ in os.walk(half):
        os.chmod(folder, 0o755)  # the cache's folders are read-only; these must be removable
    half.rename(target)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)  # another file system, or too many links
