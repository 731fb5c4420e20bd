"""The errors of the store of log events.

RetryableError
└── LogsUnavailable   the file cannot be read or written now: a full disk, a failing one
"""

from hostelry.base.errors import RetryableError


class LogsUnavailable(RetryableError):  # noqa: N818 - named like StoreUnavailable
    """Log events cannot be read or written now; nothing was changed."""
