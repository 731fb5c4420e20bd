"""Group commit: writes to a queue that come while a commit is under way share the next one."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hostelry.base.concurrency import GroupedCalls
from hostelry.jobs.queue.protocol import QueueWrites, RequestQueue, Write
from hostelry.store.protocol import StoreUnavailable

LOG = logging.getLogger(__name__)
MAX_IN_COMMIT = 512
RETRY_S = 0.5
Result = TypeVar("Result")


class QueueCommits:
    """Writes to `queue` from one event loop; reads are the queue's own."""

    def __init__(self, queue: RequestQueue) -> None:
        self.queue = queue
        self._calls: GroupedCalls[Write, Any] = GroupedCalls(self._commit, MAX_IN_COMMIT)

    async def write(self, write: Callable[[QueueWrites], Result]) -> Result:
        """The result of `write`, a call of the queue in a thread; what it changed is durable then.

        Raises what the queue raises: StoreUnavailable where the file cannot be written.
        """
        result: Result = await self._calls.call(write)
        return result

    async def write_once_possible(self, write: Callable[[QueueWrites], Result]) -> Result:
        """As `write`, but tried until the file can be written: for what must not be lost."""
        is_reported = False
        while True:
            try:
                return await self.write(write)
            except StoreUnavailable as error:
                if not is_reported:
                    LOG.warning("a write waits: %s", error)
                is_reported = True
                await asyncio.sleep(RETRY_S)

    async def finish(self) -> None:
        """Return once no write is under way."""
        await self._calls.finish()

    async def _commit(self, writes: Sequence[Write]) -> Sequence[Any]:
        return await asyncio.to_thread(self.queue.together, writes)
