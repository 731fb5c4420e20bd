"""`hostelry kernel`: Jupyter kernels that run under `hostelry exec`, however Jupyter is started."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from hostelry.base.errors import TerminalError, UsageError
from hostelry.base.files import expand_user, user_folder, write_whole
from hostelry.base.json import decode
from hostelry.cli.home_option import HomeOption, home_at, load_home

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
PROBE_WITHIN_S = 60.0
# The key in a kernel's metadata that marks it as ours.
MARK = "hostelry_home"

kernel = typer.Typer(
    name="kernel",
    help=("Manage Jupyter kernels whose notebooks use this platform instead of AWS."),
    no_args_is_help=True,
    rich_markup_mode=None,
)
NameOption = Annotated[str, typer.Option("--name", help="Name of the kernel.")]
PrefixOption = Annotated[
    Path | None,
    typer.Option(
        "--prefix",
        help=("Install the kernel into this environment. Default: for the current user."),
    ),
]


@kernel.command(short_help="Add a Jupyter kernel that runs under exec.")
def install(
    home: HomeOption = None,
    name: NameOption = "hostelry",
    python: Annotated[
        str,
        typer.Option("--python", help="Python interpreter of the notebooks. It needs ipykernel."),
    ] = "python3",
    prefix: PrefixOption = None,
) -> None:
    """Install a Jupyter kernel that runs your Python under `hostelry exec`.

    Example: hostelry kernel install --python ~/work/.venv/bin/python
    """
    at = home_at(home)
    load_home(at)
    program = python_with(python, "ipykernel")
    folder = kernel_folder(name, prefix, os.environ)
    if folder.exists() and not is_ours(folder):
        raise TerminalError(f"{folder} is another program's kernel: choose another --name")
    folder.mkdir(parents=True, exist_ok=True)
    specification = kernel_specification(program, at.root, name)
    text = msgspec.json.format(msgspec.json.encode(specification))
    write_whole(folder / "kernel.json", text)
    typer.echo(f"{folder}: choose the kernel '{specification['display_name']}' in Jupyter")


@kernel.command(short_help="Remove a kernel that install added.")
def remove(name: NameOption = "hostelry", prefix: PrefixOption = None) -> None:
    """Remove a Jupyter kernel that `hostelry kernel install` installed.

    Example: hostelry kernel remove
    """
    folder = kernel_folder(name, prefix, os.environ)
    if not folder.exists():
        raise TerminalError(f"there is no kernel in {folder}")
    if not is_ours(folder):
        raise TerminalError(f"{folder} is another program's kernel; it is left alone")
    shutil.rmtree(folder)
    typer.echo(f"removed {folder}")


def kernel_specification(python: str, home: Path, name: str) -> dict[str, Any]:
    """The contents of kernel.json. Pure, except for the path of this process's Python.

    Jupyter sends an interrupt as a message, because a signal to the group would arrive twice.
    """
    own = [sys.executable, "-P", "-m", "hostelry.cli.main", "exec", "--home", str(home), "--"]
    return {
        "argv": [*own, python, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": f"Python ({name})",
        "language": "python",
        "interrupt_mode": "message",
        "metadata": {MARK: str(home), "debugger": True},
    }


def kernel_folder(name: str, prefix: Path | None, environment: Mapping[str, str]) -> Path:
    """The folder of a kernel: below `prefix`, or among the user's own kernels."""
    if not NAME.fullmatch(name):
        raise UsageError(f"--name {name:.100}: expected small letters, digits, '-', '.' and '_'")
    if prefix is not None:
        return expand_user(prefix).absolute() / "share" / "jupyter" / "kernels" / name
    return user_data(environment) / "kernels" / name


def user_data(environment: Mapping[str, str]) -> Path:
    """The user's data folder, found as Jupyter finds it."""
    if environment.get("JUPYTER_DATA_DIR"):
        return Path(environment["JUPYTER_DATA_DIR"])
    if sys.platform == "darwin":
        return user_folder("Library/Jupyter", "name a folder with --prefix")
    data = environment.get("XDG_DATA_HOME")
    if data:
        return Path(data) / "jupyter"
    return user_folder(".local/share/jupyter", "name a folder with --prefix")


def is_ours(folder: Path) -> bool:
    """Whether `install` wrote this kernel."""
    try:
        found = decode((folder / "kernel.json").read_bytes(), dict[str, Any])
    except (OSError, msgspec.DecodeError):
        return False
    metadata = found.get("metadata")
    return isinstance(metadata, dict) and MARK in metadata


def python_with(python: str, *modules: str) -> str:
    """The path of a Python that has `modules`. Raises TerminalError with the install command."""
    found = shutil.which(os.path.expanduser(python))
    if found is None:
        raise UsageError(f"--python {python}: command not found")
    path = os.path.abspath(found)
    probe = f"import importlib.util as u; print([m for m in {modules!r} if not u.find_spec(m)])"
    done = subprocess.run(
        [path, "-c", probe], capture_output=True, text=True, timeout=PROBE_WITHIN_S, check=False
    )
    if done.returncode != 0:
        raise UsageError(f"--python {python} does not run: {done.stderr.strip()[-300:]}")
    if done.stdout.strip() != "[]":
        needed = " ".join(modules)
        raise TerminalError(
            f"{path} lacks {done.stdout.strip()[1:-1]}: run `{path} -m pip install {needed}`,"
            " or name another Python with --python"
        )
    return path
