"""Interpreters of other Python versions on this machine."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hostelry.base.errors import TerminalError

ASK = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
ASK_S = 10.0
OTHERS_PASS = 0o001


def find_interpreter(versions: Sequence[str], env: Mapping[str, str]) -> Path:
    """An interpreter of the first version that this machine has. Raises TerminalError."""
    found = [(version, it) for version in versions for it in candidates(version, env)]
    # Root's copies run as other users, so an interpreter that these can reach comes first.
    for version, candidate in sorted(found, key=lambda it: not is_open(it[1])):
        if ask_version(candidate) == version:
            return candidate
    raise TerminalError(
        f"it needs Python {' or '.join(versions)}, and this machine has none of them: install one "
        "(apt-get, pyenv, or `uv python install`) where PATH, ~/.pyenv or uv finds it"
    )


def is_open(interpreter: Path) -> bool:
    """True if the modes of the folders let every user reach the interpreter."""
    try:
        return all(it.stat().st_mode & OTHERS_PASS for it in interpreter.resolve().parents)
    except OSError:
        return False


def candidates(version: str, env: Mapping[str, str]) -> Iterator[Path]:
    """Files that may be an interpreter of `version`: this one, those in PATH, of pyenv, of uv.

    uv has a usual folder, and UV_PYTHON_INSTALL_DIR.
    """
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        yield Path(sys.executable)
    for folder in env.get("PATH", "").split(os.pathsep):
        if folder:
            yield Path(folder) / f"python{version}"
    home = Path(env.get("HOME") or os.path.expanduser("~"))  # a literal "~" is not a path
    pyenv = Path(env.get("PYENV_ROOT") or home / ".pyenv")
    yield from sorted(pyenv.glob(f"versions/{version}.*/bin/python"))
    managed = Path(env.get("XDG_DATA_HOME") or home / ".local" / "share") / "uv" / "python"
    for folder in (env.get("UV_PYTHON_INSTALL_DIR", ""), str(managed)):
        if folder:
            yield from sorted(Path(folder).glob(f"cpython-{version}.*/bin/python{version}"))


def ask_version(interpreter: Path) -> str | None:
    """The version of an interpreter. None if it does not run or cannot make environments."""
    if not os.access(interpreter, os.X_OK):
        return None
    try:
        done = subprocess.run(
            [str(interpreter), "-I", "-c", ASK],
            capture_output=True,
            text=True,
            timeout=ASK_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
