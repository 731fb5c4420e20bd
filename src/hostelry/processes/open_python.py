"""An interpreter for the platform that the users of copies can run.

Root's Python often lies below a folder that others cannot enter, such as /root. Then `up` runs
by another one of the same version, in an environment of the home that has the same packages:

    HOME/python/bin/python                     the other interpreter
    HOME/python/bin/...                        the programs next to the first interpreter
    HOME/python/lib/.../hostelry.pth           the folders of its packages

this interpreter  home, packages  another of the version  the platform runs with
----------------  --------------  ----------------------  ------------------------------
open              any             any                     this one
closed            closed          any                     this one: another changes nothing
closed            open            none that is open       this one
closed            open            open                    the other one
"""

import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hostelry
from hostelry.base.errors import TerminalError
from hostelry.fleet.rules.copy_user import NONE, find_closed_folder
from hostelry.home.copy_user_option import copy_uid, folders_above, open_home, try_user
from hostelry.home.home import Home
from hostelry.home.run_file import live_run_file
from hostelry.runtimes.interpreters import candidates

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
# Modules that distributions leave out of their smallest Pythons.
TRIAL = "import bz2, ctypes, lzma, sqlite3, ssl, venv, hostelry.base.json"


def other_interpreter(asked: str, home: Home) -> Path | None:
    """The interpreter to run by, for `--copy-user` `asked`. None if this one stays.

    It stays if an `up` runs on the home, whose environment must not change. This `up` is then
    refused.
    """
    if live_run_file(home, "up") is not None:
        return None
    uid = None if asked == NONE or os.geteuid() != 0 else copy_uid(asked)
    for base in () if uid is None else open_bases(uid, home):
        open_home(home)
        python = made_environment(home.python, base, list(package_folders()))
        if uid is not None and _works(python, uid):
            return python
    return None


def open_bases(uid: int, home: Home) -> Iterator[Path]:
    """The interpreters that the user can reach, if that is what keeps it from running copies."""
    if not _is_closed(uid, Path(sys.executable)):
        return
    if any(_is_closed(uid, it) for it in (home.root, *package_folders())):
        return
    for candidate in candidates(VERSION, os.environ):
        if candidate.exists() and not _is_closed(uid, candidate):
            yield candidate.resolve()


def package_folders() -> Iterator[Path]:
    """The folder with Hostelry's code, and the folders of its installed packages."""
    yield Path(str(hostelry.__file__)).resolve().parents[1]
    for name in dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))):
        yield Path(name)


def made_environment(folder: Path, base: Path, packages: list[Path]) -> Path:
    """The interpreter of an environment over `base` with `packages`, made if it differs."""
    python = folder / "bin" / "python"
    site = folder / "lib" / f"python{VERSION}" / "site-packages"
    files = {
        folder / "pyvenv.cfg": f"home = {base.parent}\ninclude-system-site-packages = false\n",
        site / "hostelry.pth": "".join(
            f"import site; site.addsitedir({str(package)!r})\n" for package in packages
        ),
    }
    same = all(it.is_file() and it.read_text() == text for it, text in files.items())
    if same and python.is_symlink() and python.readlink() == base:
        return python
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".python-") as scratch:
        made = Path(scratch) / "made"
        for path, text in files.items():
            target = made / path.relative_to(folder)
            target.parent.mkdir(parents=True)
            target.write_text(text)
        (made / "bin").mkdir()
        (made / "bin" / "python").symlink_to(base)
        for program in Path(sysconfig.get_path("scripts")).iterdir():
            is_program = program.is_file() and os.access(program, os.X_OK)
            if is_program and not program.name.startswith("python"):
                (made / "bin" / program.name).symlink_to(program)
        for path in (made, *made.rglob("*")):  # whatever the umask is
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() else 0o644)
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)
    return python


def _is_closed(uid: int, path: Path) -> bool:
    """True if the user cannot pass to the file or folder, or to the target of its links."""
    places = dict.fromkeys((path.absolute(), path.resolve()))
    return any(find_closed_folder(uid, folders_above(place)) is not None for place in places)


def _works(python: Path, uid: int) -> bool:
    try:
        try_user(uid, python, TRIAL)
    except TerminalError:
        return False
    return True
