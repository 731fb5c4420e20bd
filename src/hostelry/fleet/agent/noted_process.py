"""A tool that an agent runs for its copies, its output taken line by line as it comes."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

READ_BYTES = 1 << 16
MAX_LINE_BYTES = 1000
Take = Callable[[str], None]


async def run_noted(
    command: Sequence[str],
    environment: Mapping[str, str],
    take: Take,
    look: Callable[[], Awaitable[None]],
    look_every_s: float,
    folder: Path | None = None,
) -> int:
    """The exit status of the command; `take` gets each line, of a long one the beginning.

    `look` is awaited again and again meanwhile. The command's processes end with the call, also
    when it is cancelled or `look` raises. Raises OSError where it cannot be started.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=dict(environment),
        cwd=folder,
        start_new_session=True,
        umask=0o022,  # copies of other users read what it writes
    )
    reading = asyncio.create_task(_read(process, take))
    try:
        while not reading.done():
            await asyncio.wait({reading}, timeout=look_every_s)
            await look()
        reading.result()
        return await process.wait()
    finally:
        reading.cancel()
        if process.returncode is None:
            with suppress(ProcessLookupError):  # it has just ended
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def _read(process: asyncio.subprocess.Process, take: Take) -> None:
    """Take each line without spaces around it, empty ones apart."""
    assert process.stdout is not None

    def keep(lines: Sequence[bytes]) -> None:
        for line in lines:
            text = line[:MAX_LINE_BYTES].decode("utf-8", "replace").strip()
            if text:
                take(text)

    begun = b""
    while data := await process.stdout.read(READ_BYTES):
        *lines, begun = (begun + data).split(b"\n")
        begun = begun[:MAX_LINE_BYTES]
        keep(lines)
    keep([begun])
