"""Start and end of the engine process with vLLM, by its runtime's interpreter.

The interpreter finds one package of ours, by a folder that holds a link to it and nothing else: our
site-packages would hide the runtime's.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import hostelry
from hostelry.base.runtimes import installed, runtime_python
from hostelry.containers.lmi.engine.child import EngineChild, engine_environment
from hostelry.containers.lmi.engine.messages import EngineSettings
from hostelry.containers.lmi.engine.process_backend import Spawn
from hostelry.containers.lmi.vllm.first_error import LOGGING_FILE, write_logging

NAME = "vllm"
MODULE = "hostelry.containers.lmi.vllm.process"
# A socket's path has at most 107 characters; vLLM adds 37 to its folder.
MAX_SOCKET_FOLDER = 70
PRELOADED = ("libtcmalloc_minimal.so.4",)  # vLLM's own advice for CPUs; used where it is there
LIBRARY_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")
DROPPED = ("PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "VIRTUAL_ENV")


@dataclass(slots=True, eq=False)
class VllmChild:
    """The engine process and its group; ended, it leaves no process and no files."""

    process: subprocess.Popen[bytes]
    place: Path

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code once it ended; raises subprocess.TimeoutExpired."""
        code = self.process.wait(timeout)
        self._end_group()
        shutil.rmtree(self.place, ignore_errors=True)
        return code

    def kill(self) -> None:
        """End it at once."""
        self._end_group()

    def _end_group(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return


def vllm_spawner(runtimes: Path, env: Mapping[str, str]) -> Spawn:
    """A function that starts the process; raises OSError where it cannot."""

    def spawn(settings: EngineSettings) -> tuple[EngineChild, socket.socket]:
        place = Path(tempfile.mkdtemp(prefix="hostelry-vllm-"))
        (place / "path").mkdir()
        (place / "path" / "hostelry").symlink_to(Path(hostelry.__file__).resolve().parent)
        ours, theirs = socket.socketpair()
        command = [
            str(runtime_python(runtimes, NAME)), "-m", MODULE,
            "--socket-fd", str(theirs.fileno()), "--parent", str(os.getpid()),
            "--place", str(place),
        ]  # fmt: skip
        try:
            write_logging(place)
            process = subprocess.Popen(
                command,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                env=vllm_environment(env, settings, runtimes / NAME, place),
                process_group=0,
            )
        except OSError:
            shutil.rmtree(place, ignore_errors=True)
            raise
        finally:
            theirs.close()
        return VllmChild(process, place), ours

    return spawn


def vllm_environment(
    inherited: Mapping[str, str], settings: EngineSettings, runtime: Path, place: Path
) -> dict[str, str]:
    """The environment of the process: `inherited`, with vLLM's own settings."""
    given = {name: it for name, it in inherited.items() if name not in DROPPED}
    temporary = str(place.parent)
    preloaded = [
        *(f"{it}/{name}" for name in PRELOADED for it in LIBRARY_FOLDERS),
        str(runtime / "lib" / "libiomp5.so"),
    ]
    there = [it for it in preloaded if Path(it).is_file()]
    return {
        **engine_environment(given, settings),
        "PYTHONPATH": str(place / "path"),
        "PYTHONSAFEPATH": "1",
        "PYTHONNOUSERSITE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_PLUGINS": "",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # copies share the cores of a machine
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_LOGGING_CONFIG_PATH": str(place / LOGGING_FILE),
        "VLLM_RPC_BASE_PATH": temporary if len(temporary) <= MAX_SOCKET_FOLDER else "/tmp",
        **({"LD_PRELOAD": ":".join(there)} if there else {}),
    }


def why_not(runtimes: Path, *, use_accelerators: bool) -> str | None:
    """Why vLLM cannot be started; None where it can."""
    runtime = installed(runtimes, NAME)
    if runtime is None:
        return f"vLLM is not installed in {runtimes}: hostelry runtimes install {NAME}"
    if runtime.device == "cuda" and not use_accelerators:
        return "the installed vLLM is for CUDA, and this server has no accelerator reserved"
    return None
