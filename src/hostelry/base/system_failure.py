"""Words for failures that the operating system reports. Pure."""

import errno

FULL = "Make room there, or name another folder"
CLOSED = "Run the command as the user who owns it, or name another place"
ADVICE = {
    errno.ENOSPC: FULL,
    errno.EDQUOT: FULL,
    errno.EROFS: "Name a folder that can be written",
    errno.EACCES: CLOSED,
    errno.EPERM: CLOSED,
    errno.EMFILE: "Raise the limit of open files (ulimit -n)",
    errno.ENFILE: "Too many files are open on this machine: end other programs",
    errno.ENOMEM: "End other programs, or run it where there is more memory",
}
NO_TEMPORARY_FOLDER = "No usable temporary directory"


def failure_text(error: OSError, temporary: str) -> str:
    """The cause, its path if any, and what to do; `temporary` is TMPDIR or its default."""
    if NO_TEMPORARY_FOLDER in str(error):
        return (
            f"no temporary folder can be written, of {temporary} and others. Their disk is full or "
            "closed to this user: make room, or set TMPDIR to another folder"
        )
    refused = error.strerror or str(error)
    place = f"{error.filename}: " if error.filename else ""
    if not error.filename and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{refused}. Make room on the disk of the home and of {temporary} (TMPDIR)"
    advice = ADVICE.get(error.errno or 0)
    return f"{place}{refused}" + (f". {advice}" if advice else "")
