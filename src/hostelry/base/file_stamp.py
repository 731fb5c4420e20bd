"""Whether a file is another one than before, without reading it."""

from pathlib import Path

Stamp = tuple[int, int, int] | str


def stamp_of(path: Path) -> Stamp | None:
    """What tells one content of the file from the next: when it was changed, its size, its inode.

    None where there is no file; why it cannot be seen, where it cannot.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        return str(error)
    return (found.st_mtime_ns, found.st_size, found.st_ino)
