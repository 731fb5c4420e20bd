"""Names of a copy's regions of shared memory, by which they are found when no process has them.

A region outlives the processes that use it, so a server that is killed leaves its own. They are
removed when the copy's server starts again, and with the copy's folder.
"""

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

REGIONS = Path("/dev/shm")


def region_prefix(folder: Path) -> str:
    """What the names of the regions begin with that belong to a copy's folder."""
    return f"hostelry-{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}-"


def remove_regions(prefix: str, regions: Path = REGIONS) -> int:
    """Remove the regions whose names begin with `prefix`; the number of these."""
    found = list(_regions(prefix, regions))
    for file in found:
        with suppress(OSError):
            file.unlink(missing_ok=True)
    return len(found)


def close_regions(prefix: str, regions: Path = REGIONS) -> None:
    """Keep the regions whose names begin with `prefix` from other users."""
    for file in _regions(prefix, regions):
        with suppress(OSError):
            file.chmod(0o600)


def _regions(prefix: str, regions: Path) -> Iterator[Path]:
    with suppress(OSError):
        for file in regions.iterdir():
            if file.name.startswith(prefix):
                yield file
