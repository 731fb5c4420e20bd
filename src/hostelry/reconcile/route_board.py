"""The newest routes, and a wait for newer ones."""

import asyncio
import contextlib

from hostelry.domain.routes import RouteSnapshot


class RouteBoard:
    """The newest routes; none until the first `publish`, so that a restart shows no empty ones."""

    def __init__(self) -> None:
        self._snapshot: RouteSnapshot | None = None
        self._newer = asyncio.Event()
        self._is_closed = False

    @property
    def snapshot(self) -> RouteSnapshot | None:
        """The newest routes; None before the first."""
        return self._snapshot

    def publish(self, snapshot: RouteSnapshot) -> None:
        """Replace the routes and wake all waiters; a version already published is ignored."""
        if self._snapshot is not None and self._snapshot.version == snapshot.version:
            return
        self._snapshot = snapshot
        self._newer.set()
        self._newer = asyncio.Event()

    def close(self) -> None:
        """Release all waiters with None; from now on no call waits."""
        self._is_closed = True
        self._newer.set()

    async def newer_than(self, have: str | None, timeout_s: float) -> RouteSnapshot | None:
        """Routes of another version than `have`, once there are some; None after `timeout_s`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self._is_closed:
                    if self._snapshot is not None and self._snapshot.version != have:
                        return self._snapshot
                    await self._newer.wait()
        return None
