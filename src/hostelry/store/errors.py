"""Errors of a store besides Conflict."""

from hostelry.base.errors import RetryableError, TerminalError


class StoreUnavailable(RetryableError):  # noqa: N818 - reads as what it says
    """The write or read did not happen now: disk full, locked, I/O error. Nothing was changed."""


class StoreRefused(TerminalError):  # noqa: N818 - reads as what it says
    """The store cannot be used at all: not writable, not a database, or of a newer version."""


class RevisionTooOld(RetryableError):  # noqa: N818 - reads as what it says
    """Deletes after that revision are forgotten already: list everything, then watch from now."""
