"""Which user copies run as, and what that gives each of them, from plain values.

All copies that are programs share one user; each has a group number of its own, that of its folder.
So a copy reads its own folder and no other's, and looks into no other's memory, though the user is
the same.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

# Numbers that neither distributions nor container managers give out.
# Source: systemd's "Users, Groups, UIDs and GIDs on systemd Systems", the table of ranges.
FIRST_GROUP = 0x7000_0000
NUM_GROUPS = 0x0FFF_FFFF
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyUser:
    """The unprivileged user of copies; `name` is told to programs that ask for it."""

    uid: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """What one copy runs as, and `work`, the only folder that is its own to write."""

    user: CopyUser
    gid: int
    work: Path

    @property
    def variables(self) -> dict[str, str]:
        """Variables that lead to its own folder whatever looks for the user's."""
        work = str(self.work)
        return {
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


def group_number(inode: int) -> int:
    """The group of the copy whose folder has this inode: two folders there are never have one."""
    return FIRST_GROUP + inode % NUM_GROUPS


def closed_to(uid: int, folders: Iterable[FolderMode]) -> FolderMode | None:
    """The first folder that `uid` cannot pass through; its groups are dropped and do not count."""
    for folder in folders:
        bit = PASS << 6 if folder.owner == uid else PASS
        if not folder.mode & bit:
            return folder
    return None


def missing_capabilities(effective: int) -> list[str]:
    """The names of what a process with these effective capabilities lacks to serve as agent."""
    return [name for name, bit in NEEDED_CAPABILITIES.items() if not effective >> bit & 1]


def refusal(asked: str, uid: int | None, own_uid: int, effective: int) -> str | None:
    """Why copies cannot run as the user `asked`; None when they can, as far as numbers tell.

    `uid` is the user's number, None where this machine has no such user; `own_uid` and `effective`
    are the user and the capabilities of this process.
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
            f"runs as user {own_uid}; start it as root, or without --copy-user"
        )
    missing = missing_capabilities(effective)
    if missing:
        return (
            f"--copy-user {asked}: this root may not do what that takes: it lacks "
            f"{', '.join(missing)}; give the container or unit these, or start without --copy-user"
        )
    return None


def closed_text(asked: str, folder: FolderMode, purpose: Path) -> str:
    """That the user cannot reach `purpose`, and the command that mends it."""
    return (
        f"--copy-user {asked}: that user cannot pass through {folder.path} (mode "
        f"{folder.mode & 0o7777:04o}) to {purpose}, which copies need; `chmod o+x {folder.path}` "
        "mends it"
    )
