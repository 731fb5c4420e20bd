"""The tritonserver of a copy: the operator's in PATH, or else the runtime's.

The runtime has the package nvidia-pytriton, with the server and the parts of the Python backend in
separate folders. A folder of links joins them. The stub, which runs models' Python, is linked to
the library of one Python version. This must be the library of the runtime's interpreter, although
the loader would find the system's library of the same version first.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import msgspec

from hostelry.base.errors import TerminalError
from hostelry.base.runtimes import find_installed, runtime_python, runtimes_folder

RUNTIME = "triton"
NAME = "tritonserver"
STUB = "triton_python_backend_stub"
DROPPED = ("LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "VIRTUAL_ENV")
ASK = (
    "import json, sys, sysconfig; print(json.dumps(['%d.%d' % sys.version_info[:2], "
    "sysconfig.get_config_var('LIBDIR'), sysconfig.get_config_var('INSTSONAME'), "
    "sysconfig.get_path('purelib')]))"
)
ASK_S = 30.0


class TritonProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A tritonserver, the folder of its backends, and its variables."""

    path: Path
    backends: Path
    variables: Mapping[str, str]

    @property
    def backend_names(self) -> frozenset[str]:
        """The names of the backends."""
        try:
            folders = [it for it in self.backends.iterdir() if it.is_dir()]
        except OSError:
            return frozenset()
        return frozenset(
            folder.name
            for folder in folders
            if (folder / f"libtriton_{folder.name}.so").exists() or (folder / "model.py").exists()
        )


def find_own_server(env: Mapping[str, str]) -> Path | None:
    """The operator's tritonserver in PATH. None without one."""
    path = shutil.which(NAME, path=env.get("PATH", ""))
    return Path(path).resolve() if path else None


def find_program(env: Mapping[str, str], scratch: Path) -> TritonProgram:
    """The tritonserver for the models of a copy. Links are made in `scratch`.

    Raises TerminalError without a tritonserver.
    """
    own = find_own_server(env)
    if own is not None:
        return TritonProgram(
            path=own, backends=own.parents[1] / "backends", variables=select_variables(env)
        )
    folder = runtimes_folder(env)
    if find_installed(folder, RUNTIME) is None:
        raise TerminalError(
            f"there is no {NAME} in PATH, nor the runtime {RUNTIME} in {folder}: "
            f"hostelry runtimes install {RUNTIME}"
        )
    return build_program(runtime_python(folder, RUNTIME), env, scratch)


def build_program(python: Path, env: Mapping[str, str], scratch: Path) -> TritonProgram:
    """The tritonserver of an environment with nvidia-pytriton. Raises TerminalError."""
    version, libraries, library, packages = ask_interpreter(python)
    server = Path(packages) / "pytriton" / NAME
    stub = server / "python_backend_stubs" / version / STUB
    if not (Path(libraries) / library).exists():
        raise TerminalError(
            f"Triton's Python backend needs {library}, which {python} does not have in {libraries}:"
            " install a Python with its shared library (python3-dev, or pyenv with "
            "--enable-shared), then hostelry runtimes remove triton, and install it again"
        )
    if not stub.exists():
        raise TerminalError(f"nvidia-pytriton has no stub for Python {version}: {stub}")
    backends = scratch / "backends"
    (backends / "python").mkdir(parents=True, exist_ok=True)
    for file in (stub, *(server / "backends" / "python").glob("*.*")):
        link = backends / "python" / file.name
        link.unlink(missing_ok=True)
        link.symlink_to(file)
    bundled = Path(packages) / "nvidia_pytriton.libs"
    variables = {
        **select_variables(env),
        "LD_LIBRARY_PATH": f"{libraries}:{bundled}",
        # The stub uses the packages of the first interpreter.
        "PATH": f"{python.parent}:{env.get('PATH', '/usr/bin:/bin')}",
    }
    return TritonProgram(path=server / "bin" / NAME, backends=backends, variables=variables)


def select_variables(env: Mapping[str, str]) -> dict[str, str]:
    """The variables of a model's processes: the copy's without variables of interpreters.

    An operator's server keeps LD_LIBRARY_PATH.
    """
    kept = {name: it for name, it in env.items() if name not in DROPPED}
    kept |= {"PYTHONNOUSERSITE": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
    if find_own_server(env) is not None and "LD_LIBRARY_PATH" in env:
        kept["LD_LIBRARY_PATH"] = env["LD_LIBRARY_PATH"]
    return kept


def ask_interpreter(python: Path) -> tuple[str, str, str, str]:
    """An interpreter's version, its folder of libraries, its library, and its packages."""
    try:
        done = subprocess.run(
            [str(python), "-I", "-c", ASK],
            capture_output=True,
            text=True,
            timeout=ASK_S,
            check=True,
            env={"PATH": os.defpath},
        )
        version, libraries, library, packages = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise TerminalError(f"{python} does not run: {error}") from error
    return version, libraries, library, packages
