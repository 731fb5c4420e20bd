"""New requests: kept in the queue, and then handed out."""

import asyncio
from collections.abc import Callable

from hostelry.domain.async_request import AsyncRequest
from hostelry.domain.scope import Scope
from hostelry.jobs.queue.commits import QueueCommits


class Submissions:
    """Keeps new requests by `commits`; `accepted` is called for the endpoint of each, once kept.

    Belongs to the running event loop.
    """

    def __init__(self, commits: QueueCommits, accepted: Callable[[Scope, str], None]) -> None:
        self._commits = commits
        self._accepted = accepted
        self._loop = asyncio.get_running_loop()

    async def submit(self, request: AsyncRequest) -> None:
        """Return once the request is durable; raises StoreUnavailable where it cannot be kept."""
        await self._commits.write(lambda queue: queue.submit([request]))
        self._accepted(request.scope, request.endpoint_name)

    def wake(self, account: str, region: str, endpoint_name: str) -> None:
        """Note that a request of the endpoint waits again; may be called from any thread."""
        self._loop.call_soon_threadsafe(self._accepted, Scope(account, region), endpoint_name)
