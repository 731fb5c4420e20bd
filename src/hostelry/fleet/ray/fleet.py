"""The fleet on a Ray cluster, as control uses it through a pipe to the Ray process.

Ray lives in a separate process, because it prints, handles signals, and ends its process when the
cluster's head is gone for a minute. That process ends with this process. The next call starts it
again.
"""

import asyncio
import contextlib
import logging
import subprocess
import threading
from collections.abc import Callable, Sequence

import msgspec

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import CapacityError, Fenced, InstanceLostError, RetryableError
from hostelry.base.json import decode
from hostelry.base.peers import LeaderEpoch
from hostelry.domain.copy import CopySpec, Instance
from hostelry.fleet.local.client import AgentKeyError, HttpAgent
from hostelry.fleet.protocol import Observation, RunningInstance
from hostelry.fleet.ray.messages import Call, CallName, DriverAnswer, Failure

LOG = logging.getLogger(__name__)
RESTART_S = 2.0  # the minimum between two starts
VERDICT_S = 3.0  # Ray's view of a dead node comes after the broken connection
ENDED = Failure("retryable", "the process that speaks to Ray ended")


class DriverLine:
    """Calls to the process `command`. `on_loss` gets the id of each instance that is lost.

    `on_loss` is called in the event loop of the latest call.
    """

    def __init__(self, command: Sequence[str], on_loss: Callable[[str], None]) -> None:
        self._command = tuple(command)
        self._on_loss = on_loss
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
        """The answer to a call. Raises the error in the answer, or RetryableError."""
        self._loop = asyncio.get_running_loop()
        process = await self._get_process()
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
        """End the process. Instances keep running."""
        if self._process is not None and self._reader is not None:
            self._process.kill()
            self._reader.join()

    async def _get_process(self) -> "subprocess.Popen[bytes]":
        async with self._starting:
            if self._process is not None and self._reader is not None and self._reader.is_alive():
                return self._process
            if self._started_at is not None:
                await asyncio.sleep(max(0.0, self._started_at + RESTART_S - monotonic_s()))
            self._started_at = monotonic_s()
            self._process = await asyncio.to_thread(_start_process, self._command)
            self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
            self._reader.start()
            return self._process

    def _read(self, process: "subprocess.Popen[bytes]") -> None:
        """Hand answers to the event loop until the process ends. Then waiting calls fail."""
        assert process.stdin is not None, "it was made with pipes"
        assert process.stdout is not None, "it was made with pipes"
        end = ENDED
        for line in process.stdout:
            try:
                answer = decode(line, DriverAnswer)
            except msgspec.DecodeError as error:
                LOG.warning("no answer of the process that speaks to Ray: %s", error)
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
        with contextlib.suppress(RuntimeError):  # closed, so that no call waits any more
            self._loop.call_soon_threadsafe(self._take, answer)

    def _take(self, answer: DriverAnswer) -> None:
        for instance_id in answer.lost:
            self._on_loss(instance_id)
        future = self._waiting.get(answer.number)
        if future is not None and not future.done():
            future.set_result(answer)


def _start_process(command: Sequence[str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _write(process: "subprocess.Popen[bytes]", line: bytes) -> None:
    try:
        assert process.stdin is not None, "it was made with a pipe"
        process.stdin.write(line)
        process.stdin.flush()
    except (OSError, ValueError) as error:
        raise RetryableError(f"the process that speaks to Ray ended: {error}") from None


class RayFleet:
    """Instances as detached actors, reached by `command`, the process that speaks to Ray."""

    def __init__(
        self, command: Sequence[str], agents_key: str, epoch: LeaderEpoch | None = None
    ) -> None:
        self._key = agents_key
        self._epoch = epoch
        self._line = DriverLine(command, self._record_loss)
        self._addresses: dict[str, str] = {}
        self._ends: dict[str, asyncio.Event] = {}

    async def launch(self, instance: Instance) -> RunningInstance:
        """Start the instance on a node, or return the running instance.

        Raises CapacityError while no node has room. The request stays with Ray, whose autoscaler
        sees it. If the instance ran before, that is an InstanceLostError. Raises TerminalError if
        it cannot start, RetryableError if Ray does not answer.
        """
        try:
            (running,) = (await self._line.call("launch", instance=instance)).running
        except CapacityError:
            raise
        except RetryableError as error:
            running = await self._find_at_recorded_address(instance, error)
        if await self._has_another_key(running.address):
            await self.terminate(instance.id)
            raise InstanceLostError("its agent knows another key than agents of this version")
        before = self._addresses.get(instance.id)
        if before is not None and before != running.address:
            self._ends.pop(before, None)
        self._addresses[instance.id] = running.address
        self._ends[running.address] = asyncio.Event()
        return running

    async def _find_at_recorded_address(
        self, instance: Instance, error: RetryableError
    ) -> RunningInstance:
        """The instance at its recorded address, because its agent runs while Ray's head is away.

        Raises `error` if no such agent answers.
        """
        address = instance.agent_address
        with contextlib.suppress(RetryableError):
            agent = HttpAgent(address or "", self._key, epoch=self._epoch)
            if address and (await agent.observe()).instance_id == instance.id:
                return RunningInstance(id=instance.id, address=address)
        raise error

    async def _has_another_key(self, address: str) -> bool:
        """Whether an earlier version gave the agent its key, which was the platform's own."""
        try:
            await HttpAgent(address, self._key, epoch=self._epoch).observe()
        except AgentKeyError:
            return True
        except RetryableError:
            return False
        return False

    async def terminate(self, instance_id: str) -> None:
        """End the instance with its copies, or its pending request. Succeeds if it is gone."""
        await self._line.call("terminate", instance_id=instance_id)
        self._ends.pop(self._addresses.pop(instance_id, ""), None)

    async def list(self) -> Sequence[RunningInstance]:
        """Every instance whose agent answers now."""
        return list((await self._line.call("list")).running)

    async def end_all(self) -> None:
        """Terminate every instance of the platform."""
        await self._line.call("end_all")

    def close(self) -> None:
        """Give up the connection to Ray. Instances keep running."""
        self._line.close()

    def connect(self, address: str) -> "RayAgent":
        """The agent of a launched instance."""
        http = HttpAgent(address, self._key, epoch=self._epoch)
        return RayAgent(http, self._ends.get(address) or asyncio.Event())

    def _record_loss(self, instance_id: str) -> None:
        ended = self._ends.get(self._addresses.get(instance_id, ""))
        if ended is not None:
            ended.set()


class RayAgent:
    """An agent's HTTP client that knows when Ray reports the instance's end."""

    def __init__(self, http: HttpAgent, ended: asyncio.Event) -> None:
        self._http = http
        self._ended = ended

    async def apply(self, copies: Sequence[CopySpec]) -> None:
        """Run exactly `copies`. Raises InstanceLostError once the instance is gone."""
        try:
            await self._http.apply(copies)
        except Fenced:
            raise
        except RetryableError:
            await self._raise_if_lost()
            raise

    async def observe(self, have: str | None = None, timeout_s: float = 0.0) -> Observation:
        """The current state, as `Agent.observe`. Raises InstanceLostError once it is gone."""
        asking = asyncio.ensure_future(self._http.observe(have, timeout_s))
        ending = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait({asking, ending}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
        except Fenced:
            raise
        except RetryableError:
            await self._raise_if_lost()
            raise
        finally:
            asking.cancel()
            ending.cancel()
            with contextlib.suppress(asyncio.CancelledError, RetryableError):
                await asking
        raise _build_loss_error()

    async def log_tail(self, copy_id: str, max_lines: int = 100) -> str:
        """The last lines of the copy's log, empty if it never started."""
        return await self._http.log_tail(copy_id, max_lines)

    async def _raise_if_lost(self) -> None:
        """Wait VERDICT_S for Ray's report. Raises InstanceLostError if it comes."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(VERDICT_S):
                await self._ended.wait()
            raise _build_loss_error()


def _build_loss_error() -> InstanceLostError:
    return InstanceLostError("its actor or its node is dead, says Ray")
