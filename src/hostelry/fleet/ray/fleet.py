"""The fleet on a Ray cluster, as control uses it; implements `fleet.protocol.Fleet`."""

import asyncio
import contextlib
from collections.abc import Sequence

from hostelry.base.epoch_header import LeaderEpoch
from hostelry.base.errors import CapacityError, Fenced, InstanceLostError, RetryableError
from hostelry.domain.copy import CopySpec, Instance
from hostelry.fleet.local.client import AgentKeyError, HttpAgent
from hostelry.fleet.protocol import Observation, RunningInstance
from hostelry.fleet.ray.line import DriverLine

VERDICT_S = 3.0  # Ray's view of a dead node comes after the broken connection


class RayFleet:
    """Instances as detached actors, reached by `command`, the process that speaks to Ray."""

    def __init__(
        self, command: Sequence[str], agents_key: str, epoch: LeaderEpoch | None = None
    ) -> None:
        self._key = agents_key
        self._epoch = epoch
        self._line = DriverLine(command, self._is_lost)
        self._addresses: dict[str, str] = {}
        self._ends: dict[str, asyncio.Event] = {}

    async def launch(self, instance: Instance) -> RunningInstance:
        """Start the instance on a node, or return the one that already runs.

        Raises CapacityError while no node has room: the request stays with Ray, whose autoscaler
        sees it; InstanceLostError, a CapacityError, if the instance ran before. Raises
        TerminalError when it cannot start, RetryableError when Ray does not answer.
        """
        try:
            (running,) = (await self._line.call("launch", instance=instance)).running
        except CapacityError:
            raise
        except RetryableError as error:
            running = await self._still_running(instance, error)
        if await self._is_of_another_key(running.address):
            await self.terminate(instance.id)
            raise InstanceLostError("its agent knows another key than agents of this version")
        before = self._addresses.get(instance.id)
        if before is not None and before != running.address:
            self._ends.pop(before, None)
        self._addresses[instance.id] = running.address
        self._ends[running.address] = asyncio.Event()
        return running

    async def _still_running(self, instance: Instance, error: RetryableError) -> RunningInstance:
        """The instance at its recorded address: its agent runs while Ray's head is away.

        Raises `error` where no such agent answers.
        """
        address = instance.agent_address
        with contextlib.suppress(RetryableError):
            agent = HttpAgent(address or "", self._key, epoch=self._epoch)
            if address and (await agent.observe()).instance_id == instance.id:
                return RunningInstance(id=instance.id, address=address)
        raise error

    async def _is_of_another_key(self, address: str) -> bool:
        """Whether the agent was given its key by an earlier version: it had the platform's own."""
        try:
            await HttpAgent(address, self._key, epoch=self._epoch).observe()
        except AgentKeyError:
            return True
        except RetryableError:
            return False
        return False

    async def terminate(self, instance_id: str) -> None:
        """End the instance with its copies, or its pending request; no error if it is gone."""
        await self._line.call("terminate", instance_id=instance_id)
        self._ends.pop(self._addresses.pop(instance_id, ""), None)

    async def list(self) -> Sequence[RunningInstance]:
        """Every instance whose agent answers now."""
        return list((await self._line.call("list")).running)

    async def end_all(self) -> None:
        """Terminate every instance of the platform."""
        await self._line.call("end_all")

    def close(self) -> None:
        """Give up the connection to Ray; instances keep running."""
        self._line.close()

    def connect(self, address: str) -> "RayAgent":
        """The agent of a launched instance."""
        http = HttpAgent(address, self._key, epoch=self._epoch)
        return RayAgent(http, self._ends.get(address) or asyncio.Event())

    def _is_lost(self, instance_id: str) -> None:
        ended = self._ends.get(self._addresses.get(instance_id, ""))
        if ended is not None:
            ended.set()


class RayAgent:
    """An agent's HTTP client that knows when Ray reports the instance's end."""

    def __init__(self, http: HttpAgent, ended: asyncio.Event) -> None:
        self._http = http
        self._ended = ended

    async def apply(self, copies: Sequence[CopySpec]) -> None:
        """Run exactly `copies`; raises InstanceLostError once the instance is gone."""
        try:
            await self._http.apply(copies)
        except Fenced:
            raise
        except RetryableError:
            await self._raise_if_lost()
            raise

    async def observe(self, have: str | None = None, timeout_s: float = 0.0) -> Observation:
        """The current state, as `Agent.observe`; raises InstanceLostError once it is gone."""
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
        raise _lost()

    async def log_tail(self, copy_id: str, max_lines: int = 100) -> str:
        """The last lines of the copy's log; empty when it never started."""
        return await self._http.log_tail(copy_id, max_lines)

    async def _raise_if_lost(self) -> None:
        """Wait a moment for Ray's report; raises InstanceLostError if it comes."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(VERDICT_S):
                await self._ended.wait()
            raise _lost()


def _lost() -> InstanceLostError:
    return InstanceLostError("its actor or its node is dead, says Ray")
