"""A fleet behind the leader's fence. Only the present leader launches and terminates.

A leader may be frozen between a check and its act. Its successor repeats or undoes that act. Both
acts are idempotent by the instance's id, and an agent that the successor has called refuses the
older epoch.
"""

import asyncio
from collections.abc import Callable, Sequence

from hostelry.domain.copy import Instance
from hostelry.fleet.protocol import Fleet, RunningInstance


class FencedFleet:
    """Implements `Fleet` by `fleet`. `check` raises Fenced for a former leader, and may block."""

    def __init__(self, fleet: Fleet, check: Callable[[], None]) -> None:
        self._fleet = fleet
        self._check = check

    async def launch(self, instance: Instance) -> RunningInstance:
        """Start the instance's agent, or return the running agent."""
        await asyncio.to_thread(self._check)
        return await self._fleet.launch(instance)

    async def terminate(self, instance_id: str) -> None:
        """Stop the agent and its copies. Succeeds if it is gone."""
        await asyncio.to_thread(self._check)
        await self._fleet.terminate(instance_id)

    async def list(self) -> Sequence[RunningInstance]:
        """Every instance whose agent answers now."""
        return await self._fleet.list()
