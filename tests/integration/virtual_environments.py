"""Throw-away virtual environments with other people's clients, kept between runs in ~/.cache."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

# pip's first install takes about 40 s for each of the two; later runs find them.
INSTALL_TIMEOUT_S = 500
DONE = ".installed"


def virtual_environment(name: str, *requirements: str) -> Path:
    """The `bin` folder of a virtual environment that has `requirements`, made at the first call."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    digest = hashlib.sha256("\n".join([version, *requirements]).encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "hostelry" / "test-venvs" / f"{name}-{digest}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / DONE).exists():
            shutil.rmtree(folder, ignore_errors=True)
            install(folder, requirements)
            (folder / DONE).touch()
    return folder / "bin"


def install(folder: Path, requirements: tuple[str, ...]) -> None:
    """Make the environment; fails with pip's own words."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "--quiet", *requirements],
        capture_output=True,
        text=True,
        timeout=INSTALL_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
