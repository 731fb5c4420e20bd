"""The newest snapshot of something, and a wait for a newer one."""

import asyncio
import contextlib
from typing import Generic, Protocol, TypeVar

from hostelry.domain.routes import RouteSnapshot


class Snapshot(Protocol):
    """A value whose `version` is a digest of its content."""

    @property
    def version(self) -> str:
        """The same for equal content."""
        ...


S = TypeVar("S", bound=Snapshot)


class SnapshotBoard(Generic[S]):
    """The newest snapshot; none until the first `publish`, so that a restart shows no empty one."""

    def __init__(self) -> None:
        self._snapshot: S | None = None
        self._newer = asyncio.Event()
        self._is_closed = False

    @property
    def snapshot(self) -> S | None:
        """The newest snapshot; None before the first."""
        return self._snapshot

    def publish(self, snapshot: S) -> None:
        """Replace the snapshot and wake all waiters; a version already published is ignored."""
        if self._snapshot is not None and self._snapshot.version == snapshot.version:
            return
        self._snapshot = snapshot
        self._newer.set()
        self._newer = asyncio.Event()

    def close(self) -> None:
        """Release all waiters with None; from now on no call waits."""
        self._is_closed = True
        self._newer.set()

    async def newer_than(self, have: str | None, timeout_s: float) -> S | None:
        """A snapshot of another version than `have`, once there is one; None after `timeout_s`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self._is_closed:
                    if self._snapshot is not None and self._snapshot.version != have:
                        return self._snapshot
                    await self._newer.wait()
        return None


class RouteBoard(SnapshotBoard[RouteSnapshot]):
    """The newest routes."""
