"""Marks of a home whose files are being replaced one by one.

`hostelry store copy` and `hostelry up --from` each have a mark. It is made before the first file
changes, and removed after the last change. A home with a mark has old and new files. It must not be
started or copied from, and a copy to it replaces all files.
"""

from shlex import quote

from hostelry.base.errors import TerminalError
from hostelry.base.files import sync_folder, write_whole
from hostelry.home.home import Home


def mark(home: Home) -> None:
    """Have the home refused from now on. Raises OSError."""
    write_whole(home.cut_off_copy, b"by `hostelry store copy`, until it has ended\n")


def unmark(home: Home) -> None:
    """Have the home accepted again, once all its files are durable. Raises TerminalError."""
    try:
        home.cut_off_copy.unlink(missing_ok=True)
        sync_folder(home.root)
    except OSError as error:
        raise TerminalError(
            f"the copy is whole, but {home.cut_off_copy} is to be removed: {error.strerror}"
        ) from error


def mark_restore(home: Home) -> None:
    """Have the home refused from now on, because a restore writes it. Raises OSError."""
    write_whole(home.cut_off_restore, b"by `hostelry up --from`, until it has ended\n")


def unmark_restore(home: Home) -> None:
    """Have the home accepted again. Raises OSError."""
    home.cut_off_restore.unlink(missing_ok=True)
    sync_folder(home.root)


def is_marked(home: Home) -> bool:
    """Whether a copy to the home has begun to replace files and has not ended."""
    return home.cut_off_copy.exists()


def refuse_marked(home: Home) -> None:
    """Raise TerminalError for a home that has part of a copy, or of a backup."""
    if home.cut_off_restore.exists():
        raise TerminalError(
            f"{home.root} has part of a backup: `hostelry up --from` was cut off as it restored it."
            " Run it again: it begins at the start"
        )
    if is_marked(home):
        raise TerminalError(
            f"{home.root} has part of a copy: `hostelry store copy --to {quote(str(home.root))}` "
            "was cut off as it replaced files. Run it again from the same store, "
            "which replaces all of them"
        )
