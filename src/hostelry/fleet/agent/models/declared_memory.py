"""Memory of accelerators that one of many models declares, in its archive, at the top.

    hostelry.json   {"accelerator_memory_mb": 512}

A model without the file takes what its container declares (fleet/rules/accelerator_memory.py).
"""

import os
from pathlib import Path
from typing import Annotated

import msgspec

from hostelry.base.errors import TerminalError
from hostelry.base.json import decode
from hostelry.fleet.rules.accelerator_memory import MAX_MB, MB

FILE = "hostelry.json"
MAX_FILE_BYTES = 64 * 1024


class DeclaredModel(msgspec.Struct, forbid_unknown_fields=True):
    """The file of a model."""

    accelerator_memory_mb: Annotated[int, msgspec.Meta(ge=0, le=MAX_MB)] | None = None


def accelerator_bytes(folder: Path, otherwise_bytes: int) -> int:
    """What the model in `folder` declares, else `otherwise_bytes`.

    Raises TerminalError with the file's fault.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # whatever the archive has by that name
    try:
        with open(os.open(folder / FILE, flags), "rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1) or b""
    except FileNotFoundError:
        return otherwise_bytes
    except OSError as error:
        raise TerminalError(f"{FILE} of the model cannot be read: {error.strerror}") from error
    if len(content) > MAX_FILE_BYTES:
        raise TerminalError(f"{FILE} of the model has more than {MAX_FILE_BYTES} bytes")
    try:
        found = decode(content, DeclaredModel)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TerminalError(f"{FILE} of the model: {error}") from error
    declared = found.accelerator_memory_mb
    return otherwise_bytes if declared is None else declared * MB
