"""How many connections others hold to each copy that drains, as counted last."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor

from hostelry.fleet.host.connections import open_connections

Count = Callable[[Collection[int]], Mapping[int, int]]


class DrainCounts:
    """Counts by copy id; `count` takes ports and blocks for a moment."""

    def __init__(self, count: Count = open_connections) -> None:
        self._count = count
        self._still_open: Mapping[str, int] = {}
        # Of its own: those that fetch files may all hang, with the object store.
        self._thread = ThreadPoolExecutor(1, "drains")

    def of(self, copy_id: str) -> int | None:
        """The connections to a copy; None where they were not counted."""
        return self._still_open.get(copy_id)

    async def look(self, copies: Mapping[str, int]) -> bool:
        """Count for `copies` (ids with their ports) and forget all others; whether that is news.

        Raises OSError where the kernel cannot be asked; what was counted last stands then.
        """
        ports = set(copies.values())
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._thread, self._count, ports) if ports else {}
        now = {copy_id: found[port] for copy_id, port in copies.items()}
        is_news, self._still_open = now != self._still_open, now
        return is_news
