"""Outage of a disk: its reason, its start, a remedy for the operator, and the next retry."""

import errno
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

RETRY_S = 5.0
"""Pause between two attempts."""
REMEDIES: Mapping[int, str] = {
    errno.ENOSPC: "make room on its disk",
    errno.EDQUOT: "make room within its owner's quota",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.ENFILE: "close files of other processes, or raise the system's limit on open files",
    errno.EACCES: "let this user read and write it",
    errno.EPERM: "let this user read and write it",
    errno.EROFS: "mount its disk for writing",
    errno.EEXIST: "move away the file that stands in its place",
    errno.ENOTDIR: "move away the file that stands in its place",
    errno.EISDIR: "move away the folder that stands in its place",
}
UNKNOWN_REMEDY = "look at its disk and at the system's log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """An outage; `began_at` and `tried_at`, the last attempt, are in seconds since the epoch."""

    reason: str
    remedy: str
    began_at: float
    tried_at: float

    def is_due_again(self, now: float) -> bool:
        """Whether a retry is due; at once where the clock was set back."""
        return is_due(self.tried_at, now)


def outage_of(error: OSError, folder: Path, now: float, known: Outage | None = None) -> Outage:
    """The outage that `error` begins, or the `known` one continued by it."""
    reason = error.strerror or str(error)
    if error.filename not in (None, folder, str(folder)):
        reason = f"{error.filename}: {reason}"
    return Outage(
        reason=reason,
        remedy=REMEDIES.get(error.errno or 0, UNKNOWN_REMEDY),
        began_at=now if known is None else known.began_at,
        tried_at=now,
    )


def is_due(tried_at: float, now: float, after_s: float = RETRY_S) -> bool:
    """Whether `after_s` have passed; also true where the clock was set back."""
    return not 0.0 <= now - tried_at < after_s
