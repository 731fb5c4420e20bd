"""Mark of a home whose files are being replaced by `hostelry store copy`, each of them by itself.

It is there before the first file changes, and goes after the last one has: a home that has it is a
mixture of what it had and what it was to get. Such a home is started and copied from no more, and
a copy to it replaces all.
"""

from shlex import quote

from hostelry.base.errors import TerminalError
from hostelry.base.private_file import sync_folder, write_whole
from hostelry.server.home import Home


def mark(home: Home) -> None:
    """Have the home refused from now on; raises OSError."""
    write_whole(home.cut_off_copy, b"by `hostelry store copy`, until it has ended\n")


def unmark(home: Home) -> None:
    """Have the home accepted again, all of whose files are durable now; raises TerminalError."""
    try:
        home.cut_off_copy.unlink(missing_ok=True)
        sync_folder(home.root)
    except OSError as error:
        raise TerminalError(
            f"the copy is whole, but {home.cut_off_copy} is to be removed: {error.strerror}"
        ) from error


def is_marked(home: Home) -> bool:
    """Whether a copy to the home has begun to replace files and has not ended."""
    return home.cut_off_copy.exists()


def refuse_marked(home: Home) -> None:
    """Raise TerminalError for a home that has part of a copy."""
    if is_marked(home):
        raise TerminalError(
            f"{home.root} has part of a copy: `hostelry store copy --to {quote(str(home.root))}` "
            "was cut off as it replaced files. Run it again from the same store, "
            "which replaces all of them"
        )
