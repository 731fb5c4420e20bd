"""Which user copies run as, and what that gives each of them, from plain values.

Each copy that is a program has a number of its own: its group's, and unless one user was asked for
all of them its user's too. So a copy reads its own folder and no other's, looks into no other's
memory, and with a user of its own signals no other.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

# Numbers that neither distributions nor container managers give out.
# Source: systemd's "Users, Groups, UIDs and GIDs on systemd Systems", the table of ranges.
FIRST_NUMBER = 0x7000_0000
NUM_NUMBERS = 0x0FFF_FFFF
AUTO = "auto"  # what may be asked for beside a user: one for each copy where that can be had,
NONE = "none"  # and hostelry's own for all
MAX_UID = 2**31 - 1
WORK = "work"
# What the agent, as root, does with processes and folders of another user. Source: capabilities(7).
NEEDED_CAPABILITIES = {
    "CAP_CHOWN": 0,
    "CAP_DAC_OVERRIDE": 1,
    "CAP_FOWNER": 3,
    "CAP_KILL": 5,
    "CAP_SETGID": 6,
    "CAP_SETUID": 7,
    "CAP_SYS_PTRACE": 19,
}
PASS = 0o001  # the bit with which others pass through a folder
OPEN = 0o006  # with which they read and write a device
# Where libraries keep what they download; and a file with a token.
OPERATORS_PLACES = frozenset({"HF_HOME", "HF_HUB_CACHE", "HF_TOKEN_PATH"})
OFFLINE = "HF_HUB_OFFLINE"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyUser:
    """The unprivileged user of copies; `name` is told to programs that ask for it.

    Without `uid` each copy is a user of its own.
    """

    uid: int | None
    name: str


EACH_ITS_OWN = CopyUser(uid=None, name="copy")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAs:
    """What one copy runs as, and `work`, the only folder that is its own to write."""

    user: CopyUser
    gid: int
    work: Path

    @property
    def uid(self) -> int:
        """The user's number."""
        return self.gid if self.user.uid is None else self.user.uid

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """`given`, with variables that lead to its own folder whatever looks for the user's.

        A user of its own writes in no folder of downloads that is the operator's, and reads one
        where nothing is to be downloaded.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderMode:
    """A folder, who owns it, and its permission bits."""

    path: Path
    owner: int
    mode: int


def is_offline(environment: Mapping[str, str]) -> bool:
    """Whether nothing is to be downloaded. Source: huggingface_hub, constants.py, _is_true."""
    return environment.get(OFFLINE, "").upper() in {"1", "ON", "YES", "TRUE"}


def own_number(known: int, taken: Collection[int], draw: Callable[[int], int]) -> int:
    """The number of a copy: `known`, where it is one of ours already, or one that is not `taken`.

    `draw(n)` is a number from 0 to n - 1.
    """
    while not FIRST_NUMBER <= known < FIRST_NUMBER + NUM_NUMBERS:
        drawn = FIRST_NUMBER + draw(NUM_NUMBERS)
        known = known if drawn in taken else drawn
    return known


def closed_to(uid: int | None, folders: Iterable[FolderMode]) -> FolderMode | None:
    """The first folder that `uid` cannot pass through, or any user of a copy's own without it.

    Its groups are dropped and do not count.
    """
    for folder in folders:
        bit = PASS << 6 if folder.owner == uid else PASS
        if not folder.mode & bit:
            return folder
    return None


def closed_device(devices: Iterable[FolderMode]) -> FolderMode | None:
    """The first accelerator that is not everybody's to use."""
    return next((it for it in devices if it.mode & OPEN != OPEN), None)


def missing_capabilities(effective: int) -> list[str]:
    """The names of what a process with these effective capabilities lacks to serve as agent."""
    return [name for name, bit in NEEDED_CAPABILITIES.items() if not effective >> bit & 1]


def refusal(asked: str, uid: int | None, own_uid: int, effective: int) -> str | None:
    """Why copies cannot run as the user `asked`; None when they can, as far as numbers tell.

    `uid` is the user's number, None where this machine has no such user, FIRST_NUMBER for any;
    `own_uid` and `effective` are the user and the capabilities of this process.
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


def closed_text(asked: str, folder: FolderMode, purpose: Path) -> str:
    """That the user cannot reach `purpose`, and the command that mends it."""
    return (
        f"--copy-user {asked}: that user cannot pass through {folder.path} (mode "
        f"{folder.mode & 0o7777:04o}) to {purpose}, which copies need; `chmod o+x {folder.path}` "
        "mends it"
    )


def device_text(asked: str, device: FolderMode) -> str:
    """That an accelerator is not everybody's to use, and what mends it."""
    return (
        f"--copy-user {asked}: that user cannot use the accelerator {device.path} (mode "
        f"{device.mode & 0o7777:04o}); `chmod o+rw {device.path}` mends it until the next boot"
    )
