"""The lock between commands that upload artifacts and `hostelry prune`, which removes unused ones.

An upload holds the lock, shared, from its look at existing artifacts until records name its own.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hostelry.base.errors import TerminalError
from hostelry.home.home import Home


@contextmanager
def uploading(home: Home) -> Iterator[None]:
    """Keep uploads from being removed, for the block. Waits while `hostelry prune` removes some."""
    with _lock_path(home).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


@contextmanager
def removing(home: Home) -> Iterator[None]:
    """Keep uploads from beginning, for the block. Raises TerminalError during an upload."""
    with _lock_path(home).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TerminalError(
                "`hostelry deploy`, `apply` or `adapters add` is under way, and may need what is"
                " there: try again once it has ended"
            ) from None
        yield


def _lock_path(home: Home) -> Path:
    home.run.mkdir(mode=0o700, exist_ok=True)
    return home.run / "uploads.lock"
