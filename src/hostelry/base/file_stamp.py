"""Detection of a changed file without reading it."""

from pathlib import Path

Stamp = tuple[int, int, int] | str


def stamp_of(path: Path) -> Stamp | None:
    """Modification time (ns), size and inode, which differ once the content does.

    None where there is no file; the error's text where it cannot be read.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        return str(error)
    return (found.st_mtime_ns, found.st_size, found.st_ino)
