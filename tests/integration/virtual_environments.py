"""Virtual environments with other projects' clients. They are kept between runs in ~/.cache."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from uv import find_uv_bin

from hostelry.base.pip_settings import UV_ARGUMENTS, read_settings, uv_variables

INSTALL_TIMEOUT_S = 500
DONE = ".installed"


def virtual_environment(
    name: str, *requirements: str, alone: Sequence[str] = (), borrows: bool = False
) -> Path:
    """The `bin` folder of a virtual environment with `requirements`. The first call makes it.

    `alone` are installed without their dependencies, which they declare but do not need. With
    `borrows` it also finds this interpreter's packages, after its own packages.
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
    """Make an environment with only pip."""
    uv("venv", "--seed", "--python", sys.executable, str(folder))


def install(folder: Path, *arguments: str) -> None:
    """Install packages with uv: it takes a second, pip takes a minute."""
    uv("pip", "install", "--python", str(folder / "bin" / "python"), *arguments)


def uv(*arguments: str) -> None:
    """Run uv with pip's package index. Fails with uv's own message."""
    settings = read_settings()
    done = subprocess.run(
        [find_uv_bin(), "--no-config", "--quiet", *arguments, *UV_ARGUMENTS],
        env={**os.environ, **uv_variables(settings)},
        capture_output=True,
        text=True,
        timeout=INSTALL_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
