"""Runtime environments: separate interpreters with the packages of other engines.

    RUNTIMES/NAME/bin/python      the interpreter, with packages in its own site-packages
    RUNTIMES/NAME/hostelry.json   the record of the installation, written last

A folder without a record is not a runtime.
"""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

import msgspec

from hostelry.base.json import decode

VARIABLE = "HOSTELRY_RUNTIMES_DIR"
RECORD = "hostelry.json"
SHARED_PLACE = Path("/var/lib/hostelry/runtimes")  # root's home is closed to copies' users


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a runtime: its `packages` by version, and the `device` they are built for.

    `lacks` names differences from the framework's image, whose packages were not available.
    """

    name: str
    device: str
    python: str
    packages: dict[str, str]
    installed_at: str
    install_s: float
    num_bytes: int
    lacks: str = ""


def runtimes_folder(env: Mapping[str, str], uid: int | None = None) -> Path:
    """The folder of runtimes: HOSTELRY_RUNTIMES_DIR, else below the user's data folder.

    For root it is SHARED_PLACE, since root's copies run as other users. The same holds for a user
    without a home folder.
    """
    named = env.get(VARIABLE)
    if named:
        return Path(os.path.abspath(Path(named).expanduser()))
    data = env.get("XDG_DATA_HOME", "")
    if data.startswith("/"):
        return Path(data) / "hostelry" / "runtimes"
    home = env.get("HOME") or os.path.expanduser("~")
    if (os.geteuid() if uid is None else uid) == 0 or home == "~":
        return SHARED_PLACE
    return Path(home) / ".local" / "share" / "hostelry" / "runtimes"


def runtime_python(folder: Path, name: str) -> Path:
    """The interpreter of the runtime `name`."""
    return folder / name / "bin" / "python"


def why_closed(folder: Path, name: str) -> str | None:
    """Why this user cannot run the interpreter of a runtime that is there, and the remedy.

    None if it can, or if the runtime does not exist.
    """
    python = runtime_python(folder, name)
    if not python.is_symlink() or os.access(python, os.X_OK):
        return None
    target = Path(os.path.realpath(python))
    above = next((it for it in reversed(target.parents) if not os.access(it, os.X_OK)), None)
    if above is None or not above.exists():
        return f"the runtime {name} runs with {target}, which is gone: install it again"
    return (
        f"the runtime {name} runs with {target}, and users of copies cannot enter {above}: "
        f"`chmod o+x {shlex.quote(str(above))}` mends it, or a Python of that version elsewhere, "
        "with which it is installed again"
    )


def find_installed(folder: Path, name: str) -> Runtime | None:
    """Find the runtime `name`. None if it is not installed, or its record is unreadable."""
    try:
        record = decode((folder / name / RECORD).read_bytes(), Runtime)
    except (OSError, msgspec.DecodeError):
        return None
    return record if os.access(runtime_python(folder, name), os.X_OK) else None
