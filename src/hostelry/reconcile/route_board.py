"""The newest routes, and waiting for newer ones."""

import asyncio
import contextlib

from hostelry.domain.routes import RouteSnapshot


class RouteBoard:
    """Holds nothing until the first `publish`, so that a restart never shows empty routes."""

    def __init__(self) -> None:
        self._snapshot: RouteSnapshot | None = None
        self._newer = asyncio.Event()
        self._is_closed = False

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

    def close(self) -> None:
        """Let everyone who waits go, with nothing; nobody waits from now on."""
        self._is_closed = True
        self._newer.set()

    async def newer_than(self, have: str | None, timeout_s: float) -> RouteSnapshot | None:
        """Routes whose version is not `have`, as soon as there are some; None after `timeout_s`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self._is_closed:
                    if self._snapshot is not None and self._snapshot.version != have:
                        return self._snapshot
                    await self._newer.wait()
        return None
