"""Files in an untrusted folder."""

import stat
from pathlib import Path

from hostelry.engine.lora.errors import AdapterError


def find_regular_file(folder: Path, name: str, *, max_bytes: int) -> Path | None:
    """The path of the file, following links.

    None if it does not exist. Raises AdapterError for anything but a regular file (a pipe would
    never end) and for a file of more than `max_bytes`.
    """
    path = folder / name
    try:
        found = path.stat()
    except FileNotFoundError:
        if path.is_symlink():
            raise AdapterError(f"{name} is a link to nothing") from None
        return None
    except OSError as error:
        raise AdapterError(f"{name} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(found.st_mode):
        raise AdapterError(f"{name} is no regular file")
    if found.st_size > max_bytes:
        raise AdapterError(f"{name} has {found.st_size} bytes; at most {max_bytes}")
    return path
