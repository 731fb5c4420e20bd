"""Rules of the packages that a requirements.txt names, which copies may share. Pure.

    plain lines, and a wheel for each            -> installed once, for all copies of the instance
    a URL, path, option, or no wheel             -> by the copy itself, as its own user
    satisfied by the runtime's packages          -> nothing is installed

Installing wheels runs no code of them, and the files depend only on runtime, index and
requirements. So copies of different tenants may share them.
"""

import hashlib
import json
import re
from collections.abc import Collection, Sequence

import msgspec

from hostelry.base.errors import HostelryError, TerminalError
from hostelry.base.pip_settings import is_plain, requirement_lines
from hostelry.base.runtimes import Runtime

FILE = "requirements.txt"
MAX_FILE_BYTES = 64 * 1024  # the copy's server refuses a larger file
MAX_LINES = 500
FORMAT = "1"  # of installed sets. Another format gives another key
KEY_LETTERS = 32
ADDED = re.compile(r"\+ ([A-Za-z0-9][A-Za-z0-9._-]*==[^\s;]+)")
NUM_ADDED = re.compile(r"Would install (\d+) packages?")
NO_WHEEL = re.compile(r"building from source is disabled|has no usable wheels")
NO_ROOM = re.compile(r"No space left on device|os error 28|Disk quota exceeded|os error 122")


class NotSharedError(HostelryError):
    """Only the copy itself may install the packages. The message has the reason."""


class PackageLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of the shared packages of an instance.

    An unused set is removed after `kept_s`, or sooner if room is needed. An installation ends once
    the disk has less than `free_bytes`.
    """

    max_bytes: int = 20 * 1000**3
    max_set_bytes: int = 10 * 1000**3
    free_bytes: int = 256 * 1024**2
    kept_s: float = 24 * 3600.0
    install_s: float = 1800.0
    locks: int = 1000


class InstalledSet(msgspec.Struct, frozen=True, kw_only=True):
    """Installed packages: their size, and the time at which a copy last used them."""

    key: str
    num_bytes: int
    used_at: float


def shared_requirements(content: bytes) -> tuple[str, ...]:
    """The requirements of a file whose packages copies may share. Raises NotSharedError."""
    try:
        lines = requirement_lines(content.decode("utf-8"))
    except UnicodeDecodeError:
        raise NotSharedError("it is not UTF-8") from None
    if len(lines) > MAX_LINES:
        raise NotSharedError(f"it has {len(lines)} lines, more than {MAX_LINES}")
    for line in lines:
        if not is_plain(line):
            raise NotSharedError(
                f"{line[:80]!r} is more than a package's name with versions and a marker"
            )
    return lines


def package_key(runtime: Runtime, requirements: Sequence[str], places: Sequence[str]) -> str:
    """The name of the set for these requirements and runtime. `places` are uv's indexes."""
    content = [
        FORMAT,
        runtime.name,
        runtime.device,
        runtime.python,
        sorted(runtime.packages.items()),
    ]
    text = json.dumps([*content, list(requirements), list(places)])
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_LETTERS]


def parse_added_packages(lines: Sequence[str]) -> tuple[str, ...]:
    """The packages that uv would install, each NAME==VERSION, from the lines of its trial.

    Raises TerminalError if the lines cannot be understood.
    """
    found = tuple(it[1] for it in map(ADDED.fullmatch, lines) if it is not None)
    counted = [int(it[1]) for it in map(NUM_ADDED.fullmatch, lines) if it is not None]
    if counted != ([len(found)] if found else []):
        raise TerminalError(f"uv's answer cannot be understood: {' '.join(lines)[:400]}")
    return found


def build_install_error(lines: Sequence[str], folder: str, free_bytes: int) -> HostelryError:
    """The error for an installation that ended with these lines."""
    text = " ".join(lines)
    if NO_WHEEL.search(text):
        return NotSharedError(f"not all of it is to be had as wheels: {text}")
    if NO_ROOM.search(text):
        return DiskFullError(
            f"{FILE} cannot be installed: the disk of {folder} is full ({free_bytes} bytes are "
            f"free); make room there: {text}"
        )
    return TerminalError(f"{FILE} cannot be installed: " + "\n".join(lines))


class DiskFullError(TerminalError):
    """The disk is full. The message has the folder."""


def select_sets_to_remove(
    found: Sequence[InstalledSet], in_use: Collection[str], now: float, limits: PackageLimits
) -> list[str]:
    """The unused sets to remove: the oldest first, if unused for too long or beyond the bound."""
    total = sum(it.num_bytes for it in found)
    gone = []
    for one in sorted(found, key=lambda it: it.used_at):
        is_old = now - one.used_at >= limits.kept_s
        if one.key not in in_use and (is_old or total > limits.max_bytes):
            gone.append(one.key)
            total -= one.num_bytes
    return gone


def room_bytes(
    found: Sequence[InstalledSet], in_use: Collection[str], limits: PackageLimits
) -> int:
    """The bytes that another set may take once the unused sets are removed."""
    used = sum(it.num_bytes for it in found if it.key in in_use)
    return max(0, min(limits.max_set_bytes, limits.max_bytes - used))
