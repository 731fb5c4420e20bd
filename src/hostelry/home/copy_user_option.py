"""`hostelry up --copy-user`: looked up and tried on this machine before any process starts."""

import os
import pwd
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import hostelry
from hostelry.base.errors import TerminalError, UsageError
from hostelry.base.proc import effective_capabilities
from hostelry.fleet.rules.copy_user import (
    AUTO,
    EACH_ITS_OWN,
    FIRST_NUMBER,
    NO_OWN_USERS,
    NONE,
    CopyUser,
    FolderMode,
    describe_closed_device,
    describe_closed_folder,
    find_closed_device,
    find_closed_folder,
    find_refusal,
)
from hostelry.home.home import Home

TRIAL = "import hostelry.base.json"
TRIAL_S = 30.0
DEV = Path("/dev")
OTHERS = 0o077
DEVICES = ("nvidia[0-9]*", "nvidiactl", "nvidia-uvm", "kfd")


def decide_copy_user(asked: str, home: Home) -> tuple[CopyUser | None, str | None]:
    """The user that copies run as (None for hostelry's own), and a note for the operator, or None.

    Raises TerminalError if the operator named a user that copies cannot run as.
    """
    if asked == NONE:
        return None, None
    try:
        return check_copy_user(asked, home), None
    except TerminalError as error:
        if asked != AUTO:
            raise
        cause = str(error).removeprefix(f"--copy-user {AUTO}: ")
        return None, f"{NO_OWN_USERS}: {cause}"


def check_copy_user(asked: str, home: Home) -> CopyUser:
    """The user that copies are to run as.

    Raises TerminalError with the obstacle and its remedy.
    """
    user = EACH_ITS_OWN if asked == AUTO else _find_user(asked)
    uid = FIRST_NUMBER if user is EACH_ITS_OWN else user.uid
    why_not = find_refusal(asked, uid, os.geteuid(), effective_capabilities())
    if why_not is not None or uid is None:
        raise TerminalError(why_not or asked)
    package = Path(str(hostelry.__file__)).parent
    for purpose in (home.root.resolve(), Path(sys.executable).absolute(), package):
        for path in dict.fromkeys((purpose, purpose.resolve())):
            closed = find_closed_folder(uid, folders_above(path))
            if closed is not None:
                raise TerminalError(describe_closed_folder(asked, closed, purpose))
    device = find_closed_device(_modes(it for name in DEVICES for it in sorted(DEV.glob(name))))
    if device is not None:
        raise TerminalError(describe_closed_device(asked, device))
    _try(asked, uid)
    return user


def copy_uid(asked: str) -> int | None:
    """The id that a copy may have, or None if the user does not exist."""
    return FIRST_NUMBER if asked == AUTO else _find_user(asked).uid


def open_home(home: Home) -> None:
    """Let copies reach their own folders through the home, and close its files to them."""
    # Imported here, because `up` imports this module at each start.
    from hostelry.fleet.launch.run_as import allow_passage

    for path in home.root.iterdir():
        if path.is_file() and not path.is_symlink():
            path.chmod(path.stat().st_mode & 0o7777 & ~OTHERS)
    for folder in (home.instances, home.root):
        allow_passage(folder)


def _find_user(asked: str) -> CopyUser:
    """The user's number, if any, and its name."""
    try:
        by_name = not asked.isdecimal()
        entry = pwd.getpwnam(asked) if by_name else pwd.getpwuid(int(asked))
        return CopyUser(uid=entry.pw_uid, name=entry.pw_name)
    except (KeyError, OverflowError, ValueError):
        if asked.isdecimal():
            return CopyUser(uid=int(asked), name=f"user{asked}")
        return CopyUser(uid=None, name=asked)


def folders_above(path: Path) -> Iterable[FolderMode]:
    """The folders above `path`, from the root on."""
    return _modes(reversed(path.parents))


def _modes(paths: Iterable[Path]) -> Iterable[FolderMode]:
    for path in paths:
        with suppress(FileNotFoundError):  # a folder that is made later closes nothing yet
            stat = path.stat()
            yield FolderMode(path=path, owner=stat.st_uid, mode=stat.st_mode)


def _try(asked: str, uid: int) -> None:
    """Load the code of copies as that user: file modes alone do not show ACLs and namespaces."""
    try:
        try_user(uid, Path(sys.executable), TRIAL)
    except TerminalError as error:
        raise UsageError(f"--copy-user {asked}: {error}") from error


def try_user(uid: int, python: Path, program: str) -> None:
    """Run a Python program as that user. Raises TerminalError if it fails."""
    try:
        tried = subprocess.run(
            [str(python), "-c", program],
            user=uid,
            group=FIRST_NUMBER,
            extra_groups=[],
            cwd="/",
            env={},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TRIAL_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise TerminalError(f"no process starts as that user: {error}") from error
    if tried.returncode != 0:
        last = tried.stderr.strip().rpartition("\n")[2] or "it printed nothing"
        raise TerminalError(
            f"that user cannot run {python} with Hostelry's code, which copies need (exit code "
            f"{tried.returncode}): {last}"
        )
