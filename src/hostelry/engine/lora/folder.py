"""Files in an untrusted folder."""

import stat
from pathlib import Path

from hostelry.engine.lora.errors import AdapterError


def regular_file(folder: Path, name: str, *, max_bytes: int) -> Path | None:
    """The path of the file, None if there is none; a link is followed.

    Raises AdapterError for anything that is no regular file (a pipe would never end) and for one
    of more than `max_bytes`.
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
