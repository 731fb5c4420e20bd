"""Group commit: requests that come while a commit is under way share the next one."""

import asyncio
from collections.abc import Callable, Sequence

from hostelry.base.errors import HostelryError
from hostelry.domain.async_request import AsyncRequest
from hostelry.domain.scope import Scope
from hostelry.jobs.queue.protocol import RequestQueue
from hostelry.store.errors import StoreUnavailable

MAX_IN_COMMIT = 512
ENDING = "the jobs process is ending; try again"
Waiter = tuple[AsyncRequest, asyncio.Future[None]]


class Submissions:
    """Keeps new requests in `queue`; `accepted` is called for the endpoint of each, once kept.

    Belongs to the running event loop.
    """

    def __init__(self, queue: RequestQueue, accepted: Callable[[Scope, str], None]) -> None:
        self._queue = queue
        self._accepted = accepted
        self._waiting: list[Waiter] = []
        self._arrived = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def submit(self, request: AsyncRequest) -> None:
        """Return once the request is durable; raises StoreUnavailable where it cannot be kept."""
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, kept))
        self._arrived.set()
        await kept

    def wake(self, account: str, region: str, endpoint_name: str) -> None:
        """Note that a request of the endpoint waits again; may be called from any thread."""
        self._loop.call_soon_threadsafe(self._accepted, Scope(account, region), endpoint_name)

    async def run(self) -> None:
        """Commit until cancelled; what waits then is refused."""
        try:
            while True:
                await self._arrived.wait()
                self._arrived.clear()
                while self._waiting:
                    batch = self._waiting[:MAX_IN_COMMIT]
                    del self._waiting[:MAX_IN_COMMIT]
                    await self._commit(batch)
        finally:
            for _, kept in self._waiting:
                _fail(kept, StoreUnavailable(ENDING))

    async def _commit(self, batch: Sequence[Waiter]) -> None:
        try:
            await asyncio.to_thread(self._queue.submit, [request for request, _ in batch])
        except HostelryError as error:
            if len(batch) == 1:
                _fail(batch[0][1], error)
                return
            for waiter in batch:  # one that cannot be kept is no reason to refuse the others
                await self._commit([waiter])
        except BaseException:
            for _, kept in batch:
                _fail(kept, StoreUnavailable(ENDING))
            raise
        else:
            for request, kept in batch:
                self._accepted(request.scope, request.endpoint_name)
                if not kept.done():
                    kept.set_result(None)


def _fail(kept: asyncio.Future[None], error: HostelryError) -> None:
    if not kept.done():
        kept.set_exception(error)
