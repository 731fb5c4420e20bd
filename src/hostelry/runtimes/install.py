"""Installation of a runtime: a Python environment in a partial folder, renamed when it works."""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

import msgspec
from uv import find_uv_bin

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.operator_secrets import without_logins
from hostelry.base.pip_settings import UV_ARGUMENTS, read_settings, uv_variables
from hostelry.base.runtimes import RECORD, VARIABLE, Runtime, find_installed, runtime_python
from hostelry.runtimes.framework_recipes import Recipe
from hostelry.runtimes.interpreters import find_interpreter
from hostelry.runtimes.recipes import find_recipe, folder_name

SHOWN_LINES = 20
PYTHONS = "UV_PYTHON_INSTALL_DIR"
SHOWN_STEPS = ("Downloading ", "Building ", "Installing ", "Resolved ", "Prepared ", "Installed ")
UNSOLVED = "No solution found"  # uv's words if no index has the packages
Say = Callable[[str], None]


def install(folder: Path, name: str, device: str, say: Say, *, wait: bool = False) -> Runtime:
    """Install the runtime `name`, unless it is complete already. Returns its record.

    Raises TerminalError if another installation runs and `wait` is not set, if the folder cannot be
    written, or with the last lines of a failed command.
    """
    try:
        return _install_locked(folder, name, device, say, wait)
    except OSError as error:
        raise TerminalError(
            f"{folder} cannot be written: {error}; make room there, or name another folder in "
            f"{VARIABLE}"
        ) from error


def _install_locked(folder: Path, name: str, device: str, say: Say, wait: bool) -> Runtime:
    recipe, title = find_recipe(name, device), name
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    name = folder_name(title)
    with single_flight(folder, name, wait=wait):
        there = find_installed(folder, name)
        if there is not None and there.device == device:
            return there
        partial = folder / f".{name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        began_s = monotonic_s()
        try:
            if recipe.is_locked:
                lock = folder / (f"{name}.txt" if device == "cpu" else f"{name}.{device}.txt")
                packages = build_locked(partial, lock, recipe, say)
                recipe = find_locked_recipe(recipe, lock.read_text())
            else:
                packages = build(partial, recipe, say)
            say(f"importing {recipe.imports} once")
            run_step([str(partial / "bin" / "python"), "-I", "-c", f"import {recipe.imports}"], say)
            taken_s = monotonic_s() - began_s
            runtime = build_record(partial, name, device, taken_s, packages)
            runtime = msgspec.structs.replace(runtime, lacks=recipe.lacks)
            (partial / RECORD).write_bytes(msgspec.json.format(msgspec.json.encode(runtime)))
            shutil.rmtree(folder / name, ignore_errors=True)
            partial.rename(folder / name)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return runtime


def build(folder: Path, recipe: Recipe, say: Say) -> dict[str, str]:
    """Make the environment in `folder`. Returns its packages by name.

    Raises TerminalError with the last lines of a failed command.
    """
    say(f"making an environment for Python {sys.version.split()[0]} in {folder.parent}")
    run_step([sys.executable, "-m", "venv", str(folder)], say)
    python = str(folder / "bin" / "python")
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    for package in recipe.packages:
        say(f"installing {package}")
        run_step([*pip, "install", package], say)
    if recipe.removed:
        run_step([*pip, "uninstall", "--yes", *recipe.removed], say)
    if recipe.stand_in is not None:
        write_stand_in(folder, recipe.stand_in)
    if recipe.at_start is not None:
        write_at_start(folder, recipe.at_start)
    return list_pip_packages(folder)


def build_locked(folder: Path, lock: Path, recipe: Recipe, say: Say) -> dict[str, str]:
    """Make the environment in `folder` from the list `lock`. Returns its packages by name.

    If the list does not exist, it is resolved and kept. It has versions and hashes, so that it
    makes the same environment on another machine. Raises TerminalError with the last lines of a
    failed command.
    """
    settings = read_settings()
    variables = uv_variables(settings)
    uv = [find_uv_bin(), "--no-config", "--no-progress"]
    # Root's home is closed to copies' users.
    variables = {**variables, PYTHONS: str(lock.parent / ".python")}
    if not lock.exists():
        lock_packages(lock, recipe, say, [*uv, "pip", "compile", *UV_ARGUMENTS], variables)
    found = find_locked_recipe(recipe, lock.read_text())
    interpreter = get_interpreter(found.pythons, say, variables)
    say(f"making an environment for {interpreter} in {folder.parent}")
    run_step([*uv, "venv", "--python", str(interpreter), str(folder)], say, variables)
    python = str(folder / "bin" / "python")
    sync = ["pip", "sync", str(lock), "--python", python, "--require-hashes", "--link-mode=copy"]
    # Copies write no bytecode, so each start would compile its imports.
    run_step([*uv, *sync, "--compile-bytecode", *UV_ARGUMENTS], say, variables)
    if found.at_start is not None:
        write_at_start(folder, found.at_start)
    return parse_lock(lock.read_text())


def lock_packages(
    lock: Path, recipe: Recipe, say: Say, compile_: Sequence[str], variables: Mapping[str, str]
) -> None:
    """Resolve the packages of the recipe, or of its `instead`, into `lock`."""
    wanted, found = lock.with_suffix(".in.partial"), lock.with_suffix(".partial")
    kept = ["--generate-hashes", "--no-header", "--no-annotate", "--output-file", str(found)]
    interpreter = get_interpreter(recipe.pythons, say, variables)
    say(f"resolving {', '.join(recipe.packages)} for {interpreter}")
    try:
        wanted.write_text("\n".join(recipe.packages) + "\n")
        chosen = [str(wanted), "--python", str(interpreter), "--quiet"]
        run_step([*compile_, *chosen, *kept], say, variables)
        found.rename(lock)
    except TerminalError as error:
        if recipe.instead is None or UNSOLVED not in str(error):
            raise
        say(f"no index has {recipe.packages[0]}; {recipe.instead.packages[0]} in its place")
    else:
        return
    finally:
        wanted.unlink(missing_ok=True)
        found.unlink(missing_ok=True)
    lock_packages(lock, recipe.instead, say, compile_, variables)


def get_interpreter(pythons: Sequence[str], say: Say, variables: Mapping[str, str]) -> Path:
    """An interpreter of this machine, or else one that uv downloads. Raises TerminalError."""
    env = {**os.environ, **variables}
    try:
        return find_interpreter(pythons, env)
    except TerminalError as missing:
        say(f"this machine has no Python {' or '.join(pythons)}: uv brings {pythons[0]}")
        uv = [find_uv_bin(), "--no-config", "--no-progress", "python", "install", "--no-bin"]
        try:
            run_step([*uv, pythons[0]], say, variables)
        except TerminalError as error:
            raise TerminalError(f"{missing}; uv cannot bring one: {error}") from error
    return find_interpreter(pythons, env)


def find_locked_recipe(recipe: Recipe, text: str) -> Recipe:
    """The recipe, or its `instead`, whose versions are in the list."""
    held = {f"{name}=={version}" for name, version in parse_lock(text).items()}
    found: Recipe | None = recipe
    while found is not None:
        pins = (re.sub(r"\[[^\[\]]*\]", "", it) for it in found.packages if "==" in it)
        if held.issuperset(pins):
            return found
        found = found.instead
    return recipe


def run_step(
    command: Sequence[str], say: Say, variables: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Run one command, and report its downloads. Raises TerminalError with its last lines."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    env = {name: value for name, value in os.environ.items() if name not in hidden}
    env |= variables
    last: deque[str] = deque(maxlen=SHOWN_LINES)
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=env,
        umask=0o022,  # copies of other users read it
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            text = without_logins(line.strip())
            if text and not text.startswith("WARNING: Location"):
                last.append(text)
            if text.startswith(SHOWN_STEPS):
                say("  " + text.split(",")[0][:100])
    if process.returncode:
        lines = "\n".join(last)
        shown = without_logins(" ".join(command[1:]))
        raise TerminalError(f"`{shown}` failed with exit code {process.returncode}:\n{lines}")


def write_stand_in(folder: Path, package: str) -> None:
    """Give the package the metadata of `vllm`, whose version names the device."""
    (site,) = folder.glob("lib/python3*/site-packages")
    (own,) = site.glob(f"{package}-*.dist-info")
    version = own.name.removeprefix(f"{package}-").removesuffix(".dist-info")
    version = version if "cpu" in version else f"{version}+cpu"
    there = site / f"vllm-{version}.dist-info"
    there.mkdir(exist_ok=True)
    (there / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
    if (own / "entry_points.txt").is_file():
        shutil.copyfile(own / "entry_points.txt", there / "entry_points.txt")


def write_at_start(folder: Path, module: str) -> None:
    """Make the environment's interpreter import a module of this package at each start."""
    (site,) = folder.glob("lib/python3*/site-packages")
    copied = f"hostelry_{module}"
    shutil.copyfile(Path(__file__).with_name(f"{module}.py"), site / f"{copied}.py")
    (site / f"{copied}.pth").write_text(f"import {copied}\n")


def build_record(
    folder: Path, name: str, device: str, install_s: float, packages: Mapping[str, str]
) -> Runtime:
    """The record of the environment in `folder`."""
    return Runtime(
        name=name,
        device=device,
        python=parse_python_version((folder / "pyvenv.cfg").read_text()),
        packages=dict(packages),
        installed_at=datetime.now(UTC).isoformat(timespec="seconds"),  # noqa: TID251 - a date for people
        install_s=round(install_s, 1),
        num_bytes=sum(it.lstat().st_size for it in folder.rglob("*")),
    )


def parse_python_version(text: str) -> str:
    """The Python version in a pyvenv.cfg. Empty if it is missing."""
    found = re.search(r"^version(?:_info)? *= *([0-9.]+)", text, re.MULTILINE)
    return found[1].rstrip(".") if found else ""


def list_pip_packages(folder: Path) -> dict[str, str]:
    """The versions of an environment's packages by name, from pip."""
    listing = subprocess.run(
        [folder / "bin" / "python", "-m", "pip", "list", "--format=json"],
        capture_output=True,
        check=True,
    )
    return {str(it["name"]): str(it["version"]) for it in json.loads(listing.stdout)}


def parse_lock(text: str) -> dict[str, str]:
    """The versions of a list's packages by name."""
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==([^ \\;]+)", text, re.MULTILINE))


def list_runtimes(folder: Path) -> list[Runtime]:
    """The complete runtimes in order of name."""
    names = sorted(it.name for it in folder.iterdir() if it.is_dir()) if folder.is_dir() else []
    return [it for it in (find_installed(folder, name) for name in names) if it is not None]


def remove(folder: Path, name: str) -> bool:
    """Delete the runtime. False if it did not exist. Raises TerminalError while it is written."""
    if not folder.is_dir():
        return False
    with single_flight(folder, name):
        there = (folder / name).is_dir()
        (folder / name / RECORD).unlink(missing_ok=True)  # from now on it is incomplete
        shutil.rmtree(folder / name, ignore_errors=True)
        if runtime_python(folder, name).exists():
            raise TerminalError(f"{folder / name} cannot be deleted whole: whose files are there?")
        return there


def default_device() -> str:
    """The device of this machine: cuda if there is an NVIDIA device, otherwise cpu."""
    return "cuda" if Path("/dev/nvidiactl").exists() else "cpu"


@contextmanager
def single_flight(folder: Path, name: str, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock of one runtime. Without `wait`, raises TerminalError if it is taken."""
    with (folder / f".{name}.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise TerminalError(
                f"another process installs or removes the runtime {name} in {folder}; wait for it"
            ) from None
        yield
