"""Files of the platform's own, written whole or not at all."""

import os
from pathlib import Path


def write_whole(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write `data` whole or not at all; readable by the owner only.

    `durable` makes it survive a power cut too, which takes the disk some milliseconds.
    """
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        scratch.replace(path)
    except OSError:
        scratch.unlink(missing_ok=True)  # half a file would only take room on a full disk
        raise
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Return once the disk itself knows the folder's names: without it a new file may be gone."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
