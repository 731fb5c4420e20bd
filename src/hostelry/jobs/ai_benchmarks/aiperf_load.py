"""Runs AIPerf, if it is installed as a runtime, as the load of an AI benchmark job."""

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hostelry.base.clock import Clock
from hostelry.base.errors import HostelryError
from hostelry.base.printable import printable
from hostelry.base.runtimes import find_installed, runtime_python, runtimes_folder
from hostelry.domain.ai_benchmark_job import AiWorkload
from hostelry.jobs.ai_benchmarks.aiperf_files import (
    CONFIGURATION,
    FOLDER_VARIABLE,
    KEY_VARIABLE,
    RECORDS,
    REQUESTS,
    RESULTS,
    SUMMARY,
    TOKENIZER,
    TOKENIZER_FILES,
    AiperfRecordError,
    build_configuration,
    read_records,
)
from hostelry.jobs.ai_benchmarks.aiperf_proxy import ProxyAddress, open_proxy
from hostelry.jobs.ai_benchmarks.llm_load import TargetCalls
from hostelry.loadtest.tally import LoadTally

RUNTIME = "aiperf"
OUTPUT = "output.log"
MAX_SHOWN_CHARS = 600
# Ends AIPerf's whole process group once the pipe to this process closes, also by a kill.
GUARDED = 'exec 3<&0; { cat <&3 >/dev/null; kill -9 0; } & exec "$@" </dev/null 3<&-'


class AiperfError(HostelryError):
    """AIPerf left no results. The message has its last words."""


class Aiperf(msgspec.Struct, frozen=True):
    """An installed AIPerf: its command, and the folder for its files."""

    command: tuple[str, ...]
    version: str
    scratch: Path


class AiperfResult(msgspec.Struct, frozen=True):
    """The measures of a load, and AIPerf's own summary as JSON, if a request was answered."""

    tally: LoadTally
    summary: bytes | None


def find_aiperf(variables: Mapping[str, str], scratch: Path) -> Aiperf | None:
    """The runtime of AIPerf. None if it is not installed."""
    folder = runtimes_folder(variables)
    runtime = find_installed(folder, RUNTIME)
    if runtime is None:
        return None
    version = runtime.packages.get("aiperf", "")
    command = (str(runtime_python(folder, RUNTIME)), "-m", "aiperf")
    return Aiperf(command, version, scratch)


async def run_aiperf(
    aiperf: Aiperf,
    calls: TargetCalls,
    workload: AiWorkload,
    bodies: Sequence[bytes],
    clock: Clock,
    *,
    is_chat: bool,
) -> AiperfResult:
    """Send the load of a workload with AIPerf. Raises AiperfError."""
    async with _open_folder(aiperf.scratch) as folder, open_proxy(calls, clock) as proxy:
        configuration = build_configuration(workload, "model", proxy.url, is_chat=is_chat)
        await asyncio.to_thread(_write_files, folder, configuration, bodies)
        with tempfile.TemporaryDirectory(prefix="aiperf-") as sockets:
            code = await _run(aiperf, folder, sockets, proxy)
        return await asyncio.to_thread(_read_results, folder, code)


@contextlib.asynccontextmanager
async def _open_folder(scratch: Path) -> AsyncIterator[Path]:
    folder = await asyncio.to_thread(_make_folder, scratch)
    try:
        yield folder
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def _make_folder(scratch: Path) -> Path:
    scratch.mkdir(mode=0o700, exist_ok=True)
    return Path(tempfile.mkdtemp(dir=scratch))


def _write_files(folder: Path, configuration: dict[str, Any], bodies: Sequence[bytes]) -> None:
    (folder / CONFIGURATION).write_bytes(msgspec.json.encode(configuration))
    (folder / REQUESTS).write_bytes(b"\n".join((*bodies, b"")))
    (folder / TOKENIZER).mkdir()
    for name, content in TOKENIZER_FILES.items():
        (folder / TOKENIZER / name).write_bytes(msgspec.json.encode(content))


async def _run(aiperf: Aiperf, folder: Path, sockets: str, proxy: ProxyAddress) -> int:
    """Run AIPerf to its end, and return its exit code. `sockets` is a folder with a short path."""
    command = (*aiperf.command, "profile", "--config", CONFIGURATION)
    variables = {
        "PATH": os.defpath,
        "HOME": str(folder),
        "TMPDIR": sockets,
        KEY_VARIABLE: proxy.key,
        FOLDER_VARIABLE: str(folder),
    }
    with (folder / OUTPUT).open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", GUARDED, "aiperf", *command,
            cwd=folder, env=variables, start_new_session=True,
            stdin=asyncio.subprocess.PIPE, stdout=output, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
    assert process.stdin is not None, "stdin is a pipe"
    try:
        return await process.wait()
    finally:
        process.stdin.close()
        await asyncio.shield(process.wait())


def _read_results(folder: Path, code: int) -> AiperfResult:
    results = folder / RESULTS
    try:
        with (results / RECORDS).open("rb") as lines:
            tally = read_records(lines)
        if code and tally.num_ok:
            raise AiperfError(
                f"AIPerf ended with code {code}, so its results are not whole. It says:"
                f" {_find_cause(folder)}"
            )
        summary = results / SUMMARY
        return AiperfResult(tally, summary.read_bytes() if summary.exists() else None)
    except AiperfRecordError as error:
        raise AiperfError(str(error)) from None
    except OSError:
        raise AiperfError(
            f"AIPerf ended with code {code} and without results. It says: {_find_cause(folder)}"
        ) from None


def _find_cause(folder: Path) -> str:
    """The first error that AIPerf has logged, else the end of its output."""
    output = (folder / OUTPUT).read_bytes().decode("utf-8", "replace")
    _, marker, text = output.partition(" ERROR ")
    text = text.partition("\n")[0] if marker else output[-MAX_SHOWN_CHARS:]
    return " ".join(printable(text).split())[:MAX_SHOWN_CHARS]
