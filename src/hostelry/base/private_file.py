"""Atomic writes of files that only their owner can read."""

import os
from pathlib import Path

# Files of services and of the model servers below them are for the owner alone.
PRIVATE_UMASK = 0o077


def write_whole(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write `data` atomically; readable by the owner only.

    `durable`: it survives a power cut, which takes the disk some milliseconds.
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
        scratch.unlink(missing_ok=True)  # free the space: the disk may be full
        raise
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Sync the folder's entries to disk: a power cut may lose a new file otherwise."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
