"""A fleet behind the leader's fence: launched and terminated only by the present leader.

A check and the act after it are two steps. What a leader that is frozen between them does
afterwards is repeated or undone by its successor: both acts are idempotent by the instance's id,
and an agent that its successor has called refuses the older epoch.
"""

import asyncio
from collections.abc import Callable, Sequence

from hostelry.domain.copy import Instance
from hostelry.fleet.protocol import Fleet, RunningInstance


class FencedFleet:
    """`fleet` behind `check`, which raises Fenced and may block; implements `protocol.Fleet`."""

    def __init__(self, fleet: Fleet, check: Callable[[], None]) -> None:
        self._fleet = fleet
        self._check = check

    async def launch(self, instance: Instance) -> RunningInstance:
        """Start the instance's agent, or return the one that already runs."""
        await asyncio.to_thread(self._check)
        return await self._fleet.launch(instance)

    async def terminate(self, instance_id: str) -> None:
        """Stop the agent and every copy on it; no error if it is gone."""
        await asyncio.to_thread(self._check)
        await self._fleet.terminate(instance_id)

    async def list(self) -> Sequence[RunningInstance]:
        """Every instance whose agent answers now."""
        return await self._fleet.list()
