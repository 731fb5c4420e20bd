"""Rules for the user that a copy runs as. Pure.

Each copy that is a program has a separate group id, and a user id of the same number, unless the
operator names one user for all. So a copy cannot read the folder or memory of another copy, and
with a separate user id it cannot signal another copy.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from shlex import quote

import msgspec

# Ids that neither distributions nor container managers assign.
# Source: systemd's "Users, Groups, UIDs and GIDs on systemd Systems", the table of ranges.
FIRST_NUMBER = 0x7000_0000
NUM_NUMBERS = 0x0FFF_FFFF
AUTO = "auto"  # a value of --copy-user: a separate user for each copy, if possible
NONE = "none"  # a value of --copy-user: Hostelry's own user for all copies
MAX_UID = 2**31 - 1
WORK = "work"
# Begins the reason, which names the obstacle and its remedy.
NO_OWN_USERS = "copies run as hostelry's own user, not each as one of its own"
# The agent, as root, needs these for processes and folders of other users. Source: capabilities(7).
NEEDED_CAPABILITIES = {
    "CAP_CHOWN": 0,
    "CAP_DAC_OVERRIDE": 1,
    "CAP_FOWNER": 3,
    "CAP_KILL": 5,
    "CAP_SETGID": 6,
    "CAP_SETUID": 7,
    "CAP_SYS_PTRACE": 19,
}
PASS = 0o001  # the mode bit that lets others enter a folder
OPEN = 0o006  # the mode bits that let others read and write a device
# Folders of libraries' downloads, and a file with a token.
OPERATORS_PLACES = frozenset({"HF_HOME", "HF_HUB_CACHE", "HF_TOKEN_PATH"})
OFFLINE = "HF_HUB_OFFLINE"


class CopyUser(msgspec.Struct, frozen=True, kw_only=True):
    """The unprivileged user of copies. `name` is the value of USER and LOGNAME.

    Without `uid` each copy has a separate user id.
    """

    uid: int | None
    name: str


EACH_ITS_OWN = CopyUser(uid=None, name="copy")


class RunAs(msgspec.Struct, frozen=True, kw_only=True):
    """The ids of one copy's processes, and `work`, the only folder that it may write."""

    user: CopyUser
    gid: int
    work: Path

    @property
    def uid(self) -> int:
        """The user id."""
        return self.gid if self.user.uid is None else self.user.uid

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """`given`, with the variables of a user's home pointing to `work`.

        A copy with a separate user id cannot write to the operator's folders of downloads, so it
        does not get their variables. Offline it gets them, because then it only reads.
        """
        left_out = OPERATORS_PLACES if self.user.uid is None and not is_offline(given) else ()
        kept = {name: value for name, value in given.items() if name not in left_out}
        work = str(self.work)
        return {
            **kept,
            "HOME": work,
            "TMPDIR": work,
            "XDG_CACHE_HOME": f"{work}/.cache",
            "USER": self.user.name,
            "LOGNAME": self.user.name,
        }


class FolderMode(msgspec.Struct, frozen=True, kw_only=True):
    """A folder, its owner and its permission bits."""

    path: Path
    owner: int
    mode: int


def is_offline(environment: Mapping[str, str]) -> bool:
    """Whether downloads are off. Source: huggingface_hub, constants.py, _is_true."""
    return environment.get(OFFLINE, "").upper() in {"1", "ON", "YES", "TRUE"}


def choose_number(known: int, taken: Collection[int], draw: Callable[[int], int]) -> int:
    """A copy's id: `known` if it is in our range, otherwise a random one that is not `taken`.

    `draw(n)` returns a number from 0 to n - 1.
    """
    while not FIRST_NUMBER <= known < FIRST_NUMBER + NUM_NUMBERS:
        drawn = FIRST_NUMBER + draw(NUM_NUMBERS)
        known = known if drawn in taken else drawn
    return known


def find_closed_folder(uid: int | None, folders: Iterable[FolderMode]) -> FolderMode | None:
    """The first folder that `uid` cannot enter. None stands for an unknown user.

    Group bits do not count, because copies have no supplementary groups.
    """
    for folder in folders:
        bit = PASS << 6 if folder.owner == uid else PASS
        if not folder.mode & bit:
            return folder
    return None


def find_closed_device(devices: Iterable[FolderMode]) -> FolderMode | None:
    """The first accelerator that not every user may use."""
    return next((it for it in devices if it.mode & OPEN != OPEN), None)


def missing_capabilities(effective: int) -> list[str]:
    """The capabilities that an agent needs and `effective` lacks."""
    return [name for name, bit in NEEDED_CAPABILITIES.items() if not effective >> bit & 1]


def find_refusal(asked: str, uid: int | None, own_uid: int, effective: int) -> str | None:
    """Why copies cannot run as the user `asked`, or None if ids and capabilities allow it.

    `uid` is the user's id, None if this machine has no such user, FIRST_NUMBER for a separate user
    per copy. `own_uid` and `effective` are the user and the capabilities of this process.

    no such user            -> refused
    root                    -> refused: copies must not have its rights
    out of range            -> refused
    this process not root   -> refused: it cannot change users
    a capability is missing -> refused
    otherwise               -> allowed
    """
    if uid is None:
        return (
            f"--copy-user {asked}: this machine has no such user; `useradd --system {asked}` makes "
            "one, and a number needs none"
        )
    if uid == 0:
        return f"--copy-user {asked}: that is root, of whose rights copies are to have none"
    if not 0 < uid <= MAX_UID:
        return f"--copy-user {asked}: expected a name, or a number from 1 to {MAX_UID}"
    if own_uid != 0:
        return (
            f"--copy-user {asked}: only root starts processes of another user, and this hostelry "
            f"runs as user {own_uid}; start it as root, or with --copy-user none"
        )
    missing = missing_capabilities(effective)
    if missing:
        return (
            f"--copy-user {asked}: this root may not do what that takes: it lacks "
            f"{', '.join(missing)}; give the container or unit these, or start with "
            "--copy-user none"
        )
    return None


def describe_closed_folder(asked: str, folder: FolderMode, purpose: Path) -> str:
    """The error that the user cannot reach `purpose`, with the command that fixes it."""
    return (
        f"--copy-user {asked}: that user cannot pass through {folder.path} (mode "
        f"{folder.mode & 0o7777:04o}) to {purpose}, which copies need; `chmod o+x "
        f"{quote(str(folder.path))}` mends it"
    )


def describe_closed_device(asked: str, device: FolderMode) -> str:
    """The error that not every user may use an accelerator, with the command that fixes it."""
    return (
        f"--copy-user {asked}: that user cannot use the accelerator {device.path} (mode "
        f"{device.mode & 0o7777:04o}); `chmod o+rw {device.path}` mends it until the next boot"
    )
