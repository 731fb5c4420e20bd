"""Counts of connections that are still open to draining copies."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor

from hostelry.fleet.host.connections import open_connections

Count = Callable[[Collection[int]], Mapping[int, int]]


class DrainCounts:
    """The latest counts by copy id; `count` takes ports and blocks briefly."""

    def __init__(self, count: Count = open_connections) -> None:
        self._count = count
        self._still_open: Mapping[str, int] = {}
        # Not the default pool: its threads may all hang with the object store.
        self._thread = ThreadPoolExecutor(1, "drains")

    def of(self, copy_id: str) -> int | None:
        """The open connections to a copy; None where they were not counted."""
        return self._still_open.get(copy_id)

    async def look(self, copies: Mapping[str, int]) -> bool:
        """Count for `copies` (ports by id) and forget all others; return whether any count changed.

        Raises OSError when the kernel's tables cannot be read; the last counts stand then.
        """
        ports = set(copies.values())
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._thread, self._count, ports) if ports else {}
        now = {copy_id: found[port] for copy_id, port in copies.items()}
        changed, self._still_open = now != self._still_open, now
        return changed
