"""Sizes of copies: the requests that each wants at once, asked of the copies themselves."""

import asyncio
from collections.abc import Callable

from hostelry.dataplane.http.upstream import UpstreamPool
from hostelry.domain.routes import CopyRoute
from hostelry.jobs.copy_parameters import execution_parameters
from hostelry.jobs.records.settings import reported_concurrency
from hostelry.jobs.rules.batch_fill import wanted_at_once

MAX_KNOWN = 4096


class CopySizes:
    """Asks each copy once, in the background; `changed` is called when one has answered."""

    def __init__(self, pool: UpstreamPool, changed: Callable[[], None]) -> None:
        self._pool = pool
        self._changed = changed
        self._reported: dict[str, int | None] = {}
        self._asking: set[asyncio.Task[None]] = set()

    def wanted(self, copy: CopyRoute) -> int:
        """What a copy wants; the default until it has answered."""
        if copy.id not in self._reported:
            if len(self._reported) >= MAX_KNOWN:
                self._reported.clear()
            self._reported[copy.id] = None
            task = asyncio.get_running_loop().create_task(self._ask(copy))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)
        return wanted_at_once(self._reported[copy.id])

    async def _ask(self, copy: CopyRoute) -> None:
        answer = await execution_parameters(self._pool, copy)
        self._reported[copy.id] = reported_concurrency(answer)
        self._changed()
