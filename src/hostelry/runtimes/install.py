"""Installation of runtimes: an environment of its own, written aside and renamed when it works."""

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
from hostelry.base.runtimes import RECORD, VARIABLE, Runtime, installed, runtime_python
from hostelry.runtimes.interpreters import find_interpreter
from hostelry.runtimes.recipe import Recipe
from hostelry.runtimes.recipes import folder_name, recipe_of

SHOWN_LINES = 20
PYTHONS = "UV_PYTHON_INSTALL_DIR"
SHOWN_STEPS = ("Downloading ", "Building ", "Installing ", "Resolved ", "Prepared ", "Installed ")
UNSOLVED = "No solution found"  # uv's words where no index has what is asked for
Say = Callable[[str], None]


def install(folder: Path, name: str, device: str, say: Say, *, wait: bool = False) -> Runtime:
    """Install the runtime `name`; the one that is there already, if it is complete.

    Raises TerminalError where another installation runs and `wait` is not set, where the folder
    cannot be written, or with the last lines of what failed.
    """
    try:
        return _installed_now(folder, name, device, say, wait)
    except OSError as error:
        raise TerminalError(
            f"{folder} cannot be written: {error}; make room there, or name another folder in "
            f"{VARIABLE}"
        ) from error


def _installed_now(folder: Path, name: str, device: str, say: Say, wait: bool) -> Runtime:
    recipe, title = recipe_of(name, device), name
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    name = folder_name(title)
    with single_flight(folder, name, wait=wait):
        there = installed(folder, name)
        if there is not None and there.device == device:
            return there
        partial = folder / f".{name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        began_s = monotonic_s()
        try:
            if recipe.is_locked:
                lock = folder / (f"{name}.txt" if device == "cpu" else f"{name}.{device}.txt")
                packages = build_locked(partial, lock, recipe, say)
                recipe = recipe_of_lock(recipe, lock.read_text())
            else:
                packages = build(partial, recipe, say)
            say(f"importing {recipe.imports} once")
            run_step([str(partial / "bin" / "python"), "-I", "-c", f"import {recipe.imports}"], say)
            taken_s = monotonic_s() - began_s
            runtime = record_of(partial, name, device, taken_s, packages)
            runtime = msgspec.structs.replace(runtime, lacks=recipe.lacks)
            (partial / RECORD).write_bytes(msgspec.json.format(msgspec.json.encode(runtime)))
            shutil.rmtree(folder / name, ignore_errors=True)
            partial.rename(folder / name)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return runtime


def build(folder: Path, recipe: Recipe, say: Say) -> dict[str, str]:
    """Make the environment in `folder`; its packages. Raises TerminalError with the last lines."""
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
    return pip_packages(folder)


def build_locked(folder: Path, lock: Path, recipe: Recipe, say: Say) -> dict[str, str]:
    """Make the environment in `folder` of what `lock` lists; its packages.

    Where there is no list it is resolved and kept: it has every package by version and hash, so
    that on another machine it makes the same environment. Raises TerminalError with the last lines.
    """
    settings = read_settings()
    variables = uv_variables(settings)
    uv = [find_uv_bin(), "--no-config", "--no-progress"]
    # Not in root's home, which is closed to copies' users.
    variables = {**variables, PYTHONS: str(lock.parent / ".python")}
    if not lock.exists():
        lock_packages(lock, recipe, say, [*uv, "pip", "compile", *UV_ARGUMENTS], variables)
    found = recipe_of_lock(recipe, lock.read_text())
    interpreter = interpreter_of(found.pythons, say, variables)
    say(f"making an environment for {interpreter} in {folder.parent}")
    run_step([*uv, "venv", "--python", str(interpreter), str(folder)], say, variables)
    python = str(folder / "bin" / "python")
    sync = ["pip", "sync", str(lock), "--python", python, "--require-hashes", "--link-mode=copy"]
    # Copies write no bytecode: without it each start would compile what it imports.
    run_step([*uv, *sync, "--compile-bytecode", *UV_ARGUMENTS], say, variables)
    if found.at_start is not None:
        write_at_start(folder, found.at_start)
    return locked_packages(lock.read_text())


def lock_packages(
    lock: Path, recipe: Recipe, say: Say, compile_: Sequence[str], variables: Mapping[str, str]
) -> None:
    """Resolve the recipe's packages into `lock`, or those of the recipe that stands in for it."""
    wanted, found = lock.with_suffix(".in.partial"), lock.with_suffix(".partial")
    kept = ["--generate-hashes", "--no-header", "--no-annotate", "--output-file", str(found)]
    interpreter = interpreter_of(recipe.pythons, say, variables)
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


def interpreter_of(pythons: Sequence[str], say: Say, variables: Mapping[str, str]) -> Path:
    """An interpreter of this machine, else the first one as uv brings it. Raises TerminalError."""
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


def recipe_of_lock(recipe: Recipe, text: str) -> Recipe:
    """The recipe, or the one in its place, whose versions the list has."""
    held = {f"{name}=={version}" for name, version in locked_packages(text).items()}
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
    """Run one command, and say what it downloads. Raises TerminalError with its last lines."""
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
    """Give the package the metadata of `vllm`, in whose version it looks for its device."""
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
    """Have the environment's interpreter import our `module` at each start."""
    (site,) = folder.glob("lib/python3*/site-packages")
    copied = f"hostelry_{module}"
    shutil.copyfile(Path(__file__).with_name(f"{module}.py"), site / f"{copied}.py")
    (site / f"{copied}.pth").write_text(f"import {copied}\n")


def record_of(
    folder: Path, name: str, device: str, install_s: float, packages: Mapping[str, str]
) -> Runtime:
    """The record of what `folder` holds."""
    return Runtime(
        name=name,
        device=device,
        python=python_version((folder / "pyvenv.cfg").read_text()),
        packages=dict(packages),
        installed_at=datetime.now(UTC).isoformat(timespec="seconds"),  # noqa: TID251 - a date for people
        install_s=round(install_s, 1),
        num_bytes=sum(it.lstat().st_size for it in folder.rglob("*")),
    )


def python_version(text: str) -> str:
    """The Python of an environment, by its pyvenv.cfg; empty where it does not say."""
    found = re.search(r"^version(?:_info)? *= *([0-9.]+)", text, re.MULTILINE)
    return found[1].rstrip(".") if found else ""


def pip_packages(folder: Path) -> dict[str, str]:
    """The packages of an environment that has pip, by version."""
    listing = subprocess.run(
        [folder / "bin" / "python", "-m", "pip", "list", "--format=json"],
        capture_output=True,
        check=True,
    )
    return {str(it["name"]): str(it["version"]) for it in json.loads(listing.stdout)}


def locked_packages(text: str) -> dict[str, str]:
    """The packages of a list with hashes, by version."""
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==([^ \\;]+)", text, re.MULTILINE))


def list_runtimes(folder: Path) -> list[Runtime]:
    """The complete runtimes, by name."""
    names = sorted(it.name for it in folder.iterdir() if it.is_dir()) if folder.is_dir() else []
    return [it for it in (installed(folder, name) for name in names) if it is not None]


def remove(folder: Path, name: str) -> bool:
    """Delete the runtime; False where there was none. Raises TerminalError while it is written."""
    if not folder.is_dir():
        return False
    with single_flight(folder, name):
        there = (folder / name).is_dir()
        (folder / name / RECORD).unlink(missing_ok=True)  # from now on it is no runtime
        shutil.rmtree(folder / name, ignore_errors=True)
        if runtime_python(folder, name).exists():
            raise TerminalError(f"{folder / name} cannot be deleted whole: whose files are there?")
        return there


def default_device() -> str:
    """What this machine has: cuda where there is an NVIDIA device."""
    return "cuda" if Path("/dev/nvidiactl").exists() else "cpu"


@contextmanager
def single_flight(folder: Path, name: str, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock of one runtime.

    Raises TerminalError where another process has it, unless it shall `wait`.
    """
    with (folder / f".{name}.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise TerminalError(
                f"another process installs or removes the runtime {name} in {folder}; wait for it"
            ) from None
        yield
