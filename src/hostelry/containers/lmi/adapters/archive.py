"""Take an adapter's files out of an untrusted tar archive."""

import shutil
from pathlib import Path, PurePosixPath

from hostelry.base.archive import ArchiveLimits, unpack
from hostelry.base.file_tree import UnsafeFilesError
from hostelry.engine.lora.errors import AdapterError

ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors", "adapter_model.bin")
CODE_FILE = "model.py"
CHECKPOINT = "checkpoint-"
MAX_MEMBERS = 10_000


def unpack_adapter(archive: Path, into: Path, *, max_bytes: int) -> None:
    """Write the files of the one adapter in a .tar.gz into `into`, at its top.

    They may lie in a folder of the archive. Folders of checkpoints beneath that one are left out.
    Nothing else is written, and no more than `max_bytes` are unpacked. See base.archive for what is
    refused. Raises AdapterError.
    """
    limits = ArchiveLimits(
        max_members=MAX_MEMBERS,
        max_total_bytes=max_bytes,
        max_member_bytes=max_bytes,
        max_ratio=float("inf"),  # weights of zeros, as a new adapter has them, are no bomb
        gzip_only=True,
    )
    unpacked = into / ".unpacked"

    def takes(name: str) -> bool:
        if PurePosixPath(name).name == CODE_FILE:
            raise remote_code("the archive")
        return PurePosixPath(name).name in ADAPTER_FILES

    try:
        unpack(archive, unpacked, limits, takes=takes)
        files = [it for it in unpacked.rglob("*") if it.is_file()]
        folder = _one_adapter({it.parent.relative_to(unpacked) for it in files})
        for file in files:
            if file.parent == unpacked / folder:
                file.rename(into / file.name)
    except UnsafeFilesError as error:
        raise AdapterError(str(error)) from error
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)


def _one_adapter(folders: set[Path]) -> Path:
    """The folder that has all others beneath it, in folders of checkpoints. Raises AdapterError."""
    in_order = sorted(folders)
    if in_order and all(
        folder.match(f"{CHECKPOINT}*") and folder.parent == in_order[0] for folder in in_order[1:]
    ):
        return in_order[0]
    where = ", ".join(sorted(str(it) for it in folders)) or "none"
    raise AdapterError(f"the archive must hold one adapter; folders with files of one: {where}")


def remote_code(place: str) -> AdapterError:
    """The error of a remote adapter that brings code of its own."""
    return AdapterError(
        f"{place} holds {CODE_FILE}; an adapter's code runs from a folder of this machine only. "
        "Register the folder, or remove the file"
    )
