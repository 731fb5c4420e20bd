"""Control's end of the pipe to the process that speaks to Ray.

Ray lives in a process of its own: it prints, it handles signals, and it ends its process when the
cluster's head is gone for a minute. That process ends with this one, and is started again by the
next call.
"""

import asyncio
import contextlib
import logging
import subprocess
import threading
from collections.abc import Callable, Sequence

import msgspec

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import RetryableError
from hostelry.base.json import decode
from hostelry.domain.copy import Instance
from hostelry.fleet.ray.messages import Call, CallName, DriverAnswer, Failure

log = logging.getLogger(__name__)

RESTART_S = 2.0  # at least this between two starts
ENDED = Failure("retryable", "the process that speaks to Ray ended")


class DriverLine:
    """Calls to the process `command`; `lost` gets the ids of instances that are reported so.

    `lost` is called in the event loop of the latest call.
    """

    def __init__(self, command: Sequence[str], lost: Callable[[str], None]) -> None:
        self._command = tuple(command)
        self._lost = lost
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._waiting: dict[int, asyncio.Future[DriverAnswer]] = {}
        self._number = 0
        self._started_at: float | None = None
        self._starting = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def call(
        self, name: CallName, instance: Instance | None = None, instance_id: str = ""
    ) -> DriverAnswer:
        """The answer to a call; raises the error that is the answer, or RetryableError."""
        self._loop = asyncio.get_running_loop()
        process = await self._living()
        self._number += 1
        call = Call(self._number, name, instance, instance_id)
        future: asyncio.Future[DriverAnswer] = self._loop.create_future()
        self._waiting[call.number] = future
        try:
            await asyncio.to_thread(_write, process, msgspec.json.encode(call) + b"\n")
            answer = await future
        finally:
            self._waiting.pop(call.number, None)
        if answer.failure is not None:
            raise answer.failure.error()
        return answer

    def close(self) -> None:
        """End the process; instances keep running."""
        if self._process is not None and self._reader is not None:
            self._process.kill()
            self._reader.join()

    async def _living(self) -> "subprocess.Popen[bytes]":
        async with self._starting:
            if self._process is not None and self._reader is not None and self._reader.is_alive():
                return self._process
            if self._started_at is not None:
                await asyncio.sleep(max(0.0, self._started_at + RESTART_S - monotonic_s()))
            self._started_at = monotonic_s()
            self._process = await asyncio.to_thread(_started, self._command)
            self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
            self._reader.start()
            return self._process

    def _read(self, process: "subprocess.Popen[bytes]") -> None:
        """Hand answers to the event loop until the process ends; what waits then fails."""
        assert process.stdin is not None, "it was made with pipes"
        assert process.stdout is not None, "it was made with pipes"
        end = ENDED
        for line in process.stdout:
            try:
                answer = decode(line, DriverAnswer)
            except msgspec.DecodeError as error:
                log.warning("no answer of the process that speaks to Ray: %s", error)
                continue
            if answer.number == 0 and answer.failure is not None:
                end = answer.failure
            self._hand_over(answer)
        for number in list(self._waiting):
            self._hand_over(DriverAnswer(number=number, failure=end))
        process.wait()
        process.stdin.close()
        process.stdout.close()

    def _hand_over(self, answer: DriverAnswer) -> None:
        assert self._loop is not None, "a call started the process"
        with contextlib.suppress(RuntimeError):  # it is closed: no call waits any more
            self._loop.call_soon_threadsafe(self._take, answer)

    def _take(self, answer: DriverAnswer) -> None:
        for instance_id in answer.lost:
            self._lost(instance_id)
        future = self._waiting.get(answer.number)
        if future is not None and not future.done():
            future.set_result(answer)


def _started(command: Sequence[str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _write(process: "subprocess.Popen[bytes]", line: bytes) -> None:
    try:
        assert process.stdin is not None, "it was made with a pipe"
        process.stdin.write(line)
        process.stdin.flush()
    except (OSError, ValueError) as error:
        raise RetryableError(f"the process that speaks to Ray ended: {error}") from None
