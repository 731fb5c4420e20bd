"""The newest snapshot of something, and a wait for a newer one."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Mapping
from typing import Generic, Protocol, TypeVar

import msgspec

from hostelry.domain.route_delta import (
    ChangedParts,
    EndpointId,
    RouteDelta,
    build_delta,
    endpoint_id,
)
from hostelry.domain.routes import RouteSnapshot

VERSIONS_KEPT = 1_000
PARTS_KEPT = 50_000


class Snapshot(Protocol):
    """A value whose `version` is a digest of its content."""

    @property
    def version(self) -> str:
        """The same for equal content."""
        ...


S = TypeVar("S", bound=Snapshot)


class SnapshotBoard(Generic[S]):
    """The newest snapshot. None until the first `publish`: a restart shows no empty routes."""

    def __init__(self) -> None:
        self._snapshot: S | None = None
        self._newer = asyncio.Event()
        self._is_closed = False

    @property
    def snapshot(self) -> S | None:
        """The newest snapshot. None before the first."""
        return self._snapshot

    def publish(self, snapshot: S) -> None:
        """Replace the snapshot and wake all waiters. A version already published is ignored."""
        if self._snapshot is not None and self._snapshot.version == snapshot.version:
            return
        self._snapshot = snapshot
        self._newer.set()
        self._newer = asyncio.Event()

    def close(self) -> None:
        """Release all waiters with None. From now on no call waits."""
        self._is_closed = True
        self._newer.set()

    async def newer_than(self, have: str | None, timeout_s: float) -> S | None:
        """Wait for a snapshot of another version than `have`. None after `timeout_s`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self._is_closed:
                    if self._snapshot is not None and self._snapshot.version != have:
                        return self._snapshot
                    await self._newer.wait()
        return None


class _Step(msgspec.Struct, frozen=True):
    """The changes from one version to the next. None: the endpoint has no route any more."""

    since: str
    changed: Mapping[EndpointId, ChangedParts | None]

    @property
    def num_parts(self) -> int:
        return sum(1 if it is None else it.num for it in self.changed.values())


class RouteBoard(SnapshotBoard[RouteSnapshot]):
    """The newest routes, and the names of the parts that changed in the last versions."""

    def __init__(self) -> None:
        super().__init__()
        self._steps: deque[_Step] = deque()
        self._num_parts = 0

    def publish_change(
        self,
        since: str,
        snapshot: RouteSnapshot,
        changed: Mapping[EndpointId, ChangedParts | None],
    ) -> None:
        """Replace the snapshot, and keep its changes since version `since`."""
        before = self.snapshot
        if before is not None and before.version != snapshot.version:
            self._note_step(_Step(since, changed) if since == before.version else None)
        self.publish(snapshot)

    def delta_since(self, have: str | None) -> RouteDelta | None:
        """The changes from version `have` to the newest routes.

        None if that version is not known any more, or if most of the routes have changed.
        """
        snapshot = self.snapshot
        steps = list(self._steps)
        known = [place for place, step in enumerate(steps) if step.since == have]
        if snapshot is None or have is None or not known:
            return None
        changed: dict[EndpointId, ChangedParts | None] = {}
        for step in steps[known[-1] :]:  # the last of them: a version may come again
            for address, parts in step.changed.items():
                changed[address] = _merge_parts(changed, address, parts)
        num_parts = sum(1 if it is None else it.num for it in changed.values())
        if 2 * num_parts > sum(1 + len(it.components) for it in snapshot.endpoints):
            return None
        present = {endpoint_id(it): it for it in snapshot.endpoints}
        return RouteDelta(
            since=have,
            version=snapshot.version,
            changed=tuple(
                build_delta(present[address], parts or ChangedParts(is_whole=True))
                for address, parts in sorted(changed.items(), key=lambda it: it[0])
                if address in present
            ),
            removed=tuple(sorted(address for address in changed if address not in present)),
        )

    def _note_step(self, step: _Step | None) -> None:
        if step is None:
            self._steps.clear()
            self._num_parts = 0
            return
        self._steps.append(step)
        self._num_parts += step.num_parts
        while len(self._steps) > VERSIONS_KEPT or self._num_parts > PARTS_KEPT:
            self._num_parts -= self._steps.popleft().num_parts


def _merge_parts(
    earlier: Mapping[EndpointId, ChangedParts | None],
    address: EndpointId,
    parts: ChangedParts | None,
) -> ChangedParts | None:
    """Merge the changes of an endpoint in two steps. None once it has come or gone."""
    if address not in earlier:
        return parts
    known = earlier[address]
    if known is None or parts is None:
        return None
    return known | parts
