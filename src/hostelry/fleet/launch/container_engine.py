"""Client of a container engine's command line: Podman or Docker."""

import asyncio
import contextlib
import json
import os
import resource
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from hostelry.base.errors import TerminalError
from hostelry.fleet.launch.container_arguments import (
    ContainerState,
    EngineFacts,
    ImageFacts,
    last_lines,
    parse_images,
    parse_state,
)

KINDS = ("podman", "docker")
ANSWER_TIMEOUT_S = 30.0
KILL_PATIENCE_S = 2.0
MAX_PRINTED_BYTES = 64 * 1024
WAYS_OUT = (
    "Install one (apt-get install podman runc), or map the image to a program of this machine with "
    "an [[image]] in images.toml."
)
UNIFIED_CGROUPS = Path("/sys/fs/cgroup/cgroup.controllers")


class CommandResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an engine's command. `code` is `None` if it timed out."""

    code: int | None
    out: bytes = b""
    err: bytes = b""

    @property
    def message(self) -> str:
        """The failure, as one line."""
        if self.code is None:
            return "the engine did not answer in time"
        return last_lines(self.err or self.out)


async def call(
    argv: Sequence[str],
    *,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
) -> CommandResult:
    """Run an engine's command. Kills it if it is cancelled or late.

    Raises OSError if it cannot be executed.
    """
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=None if environment is None else dict(environment),
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(timeout_s):
            out, err = await asyncio.gather(
                _read_output(process.stdout), _read_output(process.stderr)
            )
            return CommandResult(code=await process.wait(), out=out, err=err)
    except TimeoutError:
        return CommandResult(code=None)
    finally:
        await _end(process)


async def call_detached(
    argv: Sequence[str], *, timeout_s: float, environment: Mapping[str, str], log: Path
) -> CommandResult:
    """As `call`, for a command whose container keeps writing to `log` after it has ended."""
    output = _private(str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        begin = os.lseek(output, 0, os.SEEK_END)
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=log.parent,  # conmon creates a file there when memory runs out
            env=dict(environment),
            start_new_session=True,
        )
    finally:
        os.close(output)
    try:
        async with asyncio.timeout(timeout_s):
            code = await process.wait()
    except TimeoutError:
        return CommandResult(code=None)
    finally:
        await _end(process)
    return CommandResult(code=code, err=await asyncio.to_thread(_read_from, log, begin))


async def find_engine(wanted: str | None = None) -> EngineFacts:
    """The engine that `wanted` names, else the first that answers.

    Raises TerminalError with the fault of each engine, and a remedy.
    """
    faults = []
    for name in (wanted,) if wanted else KINDS:
        program = shutil.which(name)
        if program is None:
            faults.append(f"{name} is not installed")
            continue
        try:
            return await _probe_engine(
                program, "docker" if "docker" in Path(name).name else "podman"
            )
        except (OSError, ValueError) as error:
            faults.append(f"{name} does not work ({error})")
    raise TerminalError(f"This machine cannot run containers: {'; '.join(faults)}. {WAYS_OUT}")


async def find_image(engine: EngineFacts, image: str) -> ImageFacts | str:
    """The image if it is on this machine, otherwise the engine's message."""
    asked = await call([*engine.argv, "image", "inspect", image], timeout_s=ANSWER_TIMEOUT_S)
    if asked.code != 0:
        return asked.message
    try:
        return parse_images(asked.out)
    except (ValueError, LookupError, TypeError) as error:
        return f"the engine's description of the image cannot be read: {error}"


async def find_state(engine: EngineFacts, name: str) -> ContainerState | None:
    """The state of the container, or None if the container does not exist."""
    asked = await call([*engine.argv, "container", "inspect", name], timeout_s=ANSWER_TIMEOUT_S)
    try:
        return parse_state(asked.out) if asked.code == 0 else None
    except (ValueError, LookupError, TypeError):
        return None


def parse_info(kind: str, program: str, text: bytes, unified_cgroups: bool) -> EngineFacts:
    """The engine in its `info` as JSON. Raises ValueError if the engine does not work."""
    facts = json.loads(text)
    if kind == "docker":
        errors = facts.get("ServerErrors") or []
        version = facts.get("ServerVersion") or ""
        if errors or not version:
            raise ValueError("; ".join(str(it) for it in errors) or "its daemon reports no version")
        options = [str(it) for it in facts.get("SecurityOptions") or []]
        rootless = any("rootless" in it for it in options)
        return EngineFacts(
            kind=kind,
            program=program,
            version=version,
            rootless=rootless,
            keeps_limits=unified_cgroups or not rootless,
        )
    host = facts["host"]
    named = str((host.get("ociRuntime") or {}).get("name") or "")
    rootless = bool((host.get("security") or {}).get("rootless"))
    files, processes = _own_limits()
    return EngineFacts(
        kind=kind,
        program=program,
        version=str((facts.get("version") or {}).get("Version") or "unknown"),
        # crun refuses machines with control groups of version 1, or of both versions.
        runtime=None if unified_cgroups or named == "runc" else "runc",
        rootless=rootless,
        keeps_limits=unified_cgroups or not rootless,
        max_files=files,
        max_processes=processes,
    )


async def _probe_engine(program: str, kind: str) -> EngineFacts:
    command = [program, "info", "--format", "{{json .}}"]
    asked = await call(command, timeout_s=ANSWER_TIMEOUT_S)
    if asked.code != 0:
        raise ValueError(asked.message)
    try:
        facts = parse_info(kind, program, asked.out, _has_unified_cgroups())
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"its answer cannot be read: {error}") from error
    if facts.runtime is not None and shutil.which(facts.runtime) is None:
        raise ValueError(
            f"this machine's control groups need the runtime {facts.runtime}; it is not installed"
        )
    return facts


def _has_unified_cgroups() -> bool:
    return UNIFIED_CGROUPS.exists()


def _own_limits() -> tuple[int, int]:
    """The hard limits of this process on open files and processes, within useful bounds.

    Podman lowers its own limit on processes, by an undocumented amount.
    """

    def hard(kind: int, enough: int) -> int:
        limit = resource.getrlimit(kind)[1]
        return enough if limit == resource.RLIM_INFINITY else min(limit, enough)

    return hard(resource.RLIMIT_NOFILE, 1024**2), hard(resource.RLIMIT_NPROC, 16 * 1024)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill a command that still runs, with its helpers, but no containers."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(KILL_PATIENCE_S):
            await process.wait()


def _read_from(path: Path, begin: int) -> bytes:
    with path.open("rb") as file:
        file.seek(begin)
        return file.read(MAX_PRINTED_BYTES)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


async def _read_output(stream: asyncio.StreamReader | None) -> bytes:
    """The end of the output, in bounded memory."""
    kept = bytearray()
    while stream is not None and (piece := await stream.read(16 * 1024)):
        kept += piece
        if len(kept) > 2 * MAX_PRINTED_BYTES:
            del kept[:-MAX_PRINTED_BYTES]
    return bytes(kept)
