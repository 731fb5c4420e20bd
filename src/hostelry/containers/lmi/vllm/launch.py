"""Starts the engine of choice.py, vLLM's process by the interpreter of its runtime, and ends it.

The interpreter finds our package by a folder that holds only a link to it. Our site-packages would
hide the packages of the runtime.
"""

import logging
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

import hostelry
from hostelry.base.runtimes import find_installed, runtime_python
from hostelry.containers.lmi.engine.backend import (
    EngineFailedError,
    ModelFacts,
    ModelUnsupportedError,
)
from hostelry.containers.lmi.engine.child import (
    EngineChild,
    ForkedEngine,
    engine_environment,
    reap,
    spawn_engine,
)
from hostelry.containers.lmi.engine.messages import StartEngine
from hostelry.containers.lmi.engine.process_backend import ProcessBackend, Spawn
from hostelry.containers.lmi.settings.config import LmiConfig
from hostelry.containers.lmi.settings.engine_settings import EngineSettings
from hostelry.containers.lmi.settings.engine_terms import ENGINE_NAMES, Backend
from hostelry.containers.lmi.vllm.choice import EngineHost, choose_engines, describe_host
from hostelry.containers.lmi.vllm.first_error import LOGGING_FILE, write_logging

NAME = "vllm"
MODULE = "hostelry.containers.lmi.vllm.process"
# A socket's path has at most 107 characters, and vLLM adds 37 characters to its folder.
MAX_SOCKET_FOLDER = 70
PRELOADED = ("libtcmalloc_minimal.so.4",)  # used if installed, as vLLM advises for CPUs
LIBRARY_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")
DROPPED = ("PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "VIRTUAL_ENV")
LOG = logging.getLogger(__name__)


class VllmChild(msgspec.Struct, eq=False):
    """The engine process and its group. At its end, no process and no file is left."""

    process: subprocess.Popen[bytes]
    place: Path

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code once it ended. Raises subprocess.TimeoutExpired."""
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
    """A function that starts the process. It raises OSError if that fails."""

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


class ChosenEngine:
    """The engine of the configuration's choice: `start`, `wait_ready`, use `backend`, `close`.

    `forked` is our engine's process if it exists already.
    """

    def __init__(self, config: LmiConfig, forked: ForkedEngine | None = None) -> None:
        self._config = config
        self._forked = forked
        self._start: StartEngine | None = None
        self._host = EngineHost()
        self._left: tuple[Backend, ...] = ()
        self._chosen: ProcessBackend | None = None
        self.name: Backend = Backend.HOSTELRY
        self.reason = ""

    @property
    def backend(self) -> ProcessBackend:
        """The engine that was started last."""
        assert self._chosen is not None, "it is started"
        return self._chosen

    async def start(self, start: StartEngine) -> None:
        """Start the first engine to try. Raises ConfigurationError."""
        self._start = start
        config = self._config
        self._host = describe_host(
            find_installed(config.runtimes_dir, NAME),
            str(config.runtimes_dir),
            os.environ,
            os.listdir("/dev"),
        )
        choice = choose_engines(config, self._host)
        self._left, self.reason = choice.engines, choice.reason
        if config.rolling_batch_is_vllm and self._left == (Backend.HOSTELRY,):
            LOG.warning("rolling_batch=vllm runs on our own engine: %s", self.reason)
        await self._start_next(start)

    async def wait_ready(self) -> ModelFacts:
        """The facts of the model once an engine has loaded it. Raises EngineFailedError."""
        assert self._start is not None, "it is started"
        try:
            return await self.backend.wait_ready()
        except ModelUnsupportedError as error:
            if not self._left:
                raise EngineFailedError(f"{error}{self._advice()}") from error
            refusal = f"{ENGINE_NAMES[self.name]} does not read this model: {error}"
            LOG.warning("%s; %s is asked", refusal, ENGINE_NAMES[self._left[0]])
        await self.backend.close()
        self.reason = refusal
        await self._start_next(self._start)
        try:
            return await self.backend.wait_ready()
        except EngineFailedError as error:
            raise EngineFailedError(f"{refusal}; {error}") from error

    async def close(self) -> None:
        """Stop what runs and wait for its exit."""
        if self._chosen is not None:
            await self._chosen.close()
        if self._forked is not None:
            self._forked.stream.close()
            reap(self._forked)

    async def _start_next(self, start: StartEngine) -> None:
        self.name, *left = self._left
        self._left = tuple(left)
        if self.name is Backend.VLLM:
            spawn = vllm_spawner(self._config.runtimes_dir, os.environ)
            self._chosen = ProcessBackend(spawn=spawn)
        else:
            self._chosen = ProcessBackend(spawn=self._ours())
        LOG.info("the engine is %s: %s", self.name.value, self.reason)
        for warning in self._config.terms.of(self.name).warnings:
            LOG.warning("%s", warning)
        await self._chosen.start(start)

    def _ours(self) -> Spawn:
        forked, self._forked = self._forked, None
        if forked is None:
            return spawn_engine
        return lambda _: (forked, forked.stream)

    def _advice(self) -> str:
        """Advice for a model that our engine cannot read."""
        if self.name is Backend.VLLM:
            return ""
        if self._config.backend is Backend.HOSTELRY:
            return "; vLLM may read it: option.backend=auto"
        return f"; vLLM may read it, but {self._host.missing}" if self._host.missing else ""
