"""Folders of the user of this process, who may have neither HOME nor an entry in passwd."""

import os
from pathlib import Path

from hostelry.base.errors import TerminalError


def user_folder(below: str, instead: str) -> Path:
    """The folder `~/below`; `instead` is what to do if the user has no home folder.

    Raises TerminalError if it has none.
    """
    try:
        return Path.home() / below
    except RuntimeError:
        raise TerminalError(
            f"~/{below} cannot be found: user {os.getuid()} has no home folder. Set HOME, or "
            f"{instead}"
        ) from None


def expanded(path: str | Path) -> Path:
    """`path` with `~` and `~user` replaced; raises TerminalError if that user has no folder."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise TerminalError(
            f"{path} cannot be found: that user has no home folder here. Name the whole path"
        ) from None
