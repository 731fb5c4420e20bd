"""Throw-away virtual environments with other people's clients, kept between runs in ~/.cache."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

# pip's first install takes about 40 s for each of the two; later runs find them.
INSTALL_TIMEOUT_S = 500
DONE = ".installed"


def virtual_environment(
    name: str, *requirements: str, alone: Sequence[str] = (), borrows: bool = False
) -> Path:
    """The `bin` folder of a virtual environment that has `requirements`, made at the first call.

    Of `alone` nothing is installed but themselves: what they name and do not need stays away. One
    that `borrows` also finds this interpreter's packages, after its own.
    """
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    named = [version, *requirements, *(f"{each} alone" for each in alone)]
    named += [sysconfig.get_path("purelib")] if borrows else []
    digest = hashlib.sha256("\n".join(named).encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "hostelry" / "test-venvs" / f"{name}-{digest}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / DONE).exists():
            shutil.rmtree(folder, ignore_errors=True)
            make(folder)
            install(folder, *requirements)
            if alone:
                install(folder, "--no-deps", *alone)
            if borrows:
                (packages,) = (folder / "lib").glob("python3*/site-packages")
                (packages / "zz_borrowed.pth").write_text(sysconfig.get_path("purelib"))
            (folder / DONE).touch()
    return folder / "bin"


def make(folder: Path) -> None:
    """An empty environment."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)


def install(folder: Path, *arguments: str) -> None:
    """Run `pip install`; fails with pip's own words."""
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "--quiet", *arguments],
        capture_output=True,
        text=True,
        timeout=INSTALL_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
