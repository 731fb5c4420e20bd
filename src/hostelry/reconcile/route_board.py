"""The newest routes, and waiting for newer ones."""

import asyncio
import contextlib

from hostelry.domain.routes import RouteSnapshot


class RouteBoard:
    """Holds nothing until the first `publish`, so that a restart never shows empty routes."""

    def __init__(self) -> None:
        self._snapshot: RouteSnapshot | None = None
        self._newer = asyncio.Event()

    @property
    def snapshot(self) -> RouteSnapshot | None:
        """The newest routes; None before the first."""
        return self._snapshot

    def publish(self, snapshot: RouteSnapshot) -> None:
        """Show `snapshot` to everyone who waits; the same version again is nothing new."""
        if self._snapshot is not None and self._snapshot.version == snapshot.version:
            return
        self._snapshot = snapshot
        self._newer.set()
        self._newer = asyncio.Event()

    async def newer_than(self, have: str | None, timeout_s: float) -> RouteSnapshot | None:
        """Routes whose version is not `have`, as soon as there are some; None after `timeout_s`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._snapshot is None or self._snapshot.version == have:
                    await self._newer.wait()
                return self._snapshot
        return None
