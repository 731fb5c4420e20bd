"""Leases of models that are kept a moment for the next request, which needs no other. No I/O.

A lease that is kept holds up the eviction of its model, so an idle one is kept shortly, and none
that is old is used again: an agent that drains the model waits no longer than that.
"""

from dataclasses import dataclass

from hostelry.domain.routes import CopyRoute

IDLE_S = 0.25
MAX_AGE_S = 1.0


@dataclass(slots=True, eq=False)
class KeptLease:
    """The lease of `model_id` for `target` on a copy, and the requests that used it."""

    copy: CopyRoute
    target: str
    lease: str
    model_id: str
    since_s: float
    in_use: int = 1
    uses: int = 1
    idle_at_s: float = 0.0
    is_over: bool = False


class KeptLeases:
    """The leases of one gateway process by copy and model, with times of the caller's clock."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], KeptLease] = {}
        self._idle: dict[KeptLease, None] = {}  # the one idle the longest is first

    @property
    def num_idle(self) -> int:
        """Leases that no request uses now."""
        return len(self._idle)

    def take(self, copy: CopyRoute, target: str, now_s: float) -> KeptLease | None:
        """The lease, with one use more; None where one has to be had."""
        kept = self._kept.get((copy.id, target))
        if kept is None or kept.copy.key != copy.key:  # another process of that copy
            return None
        if now_s - kept.since_s >= MAX_AGE_S:
            return None
        self._idle.pop(kept, None)
        kept.in_use += 1
        kept.uses += 1
        return kept

    def add(self, kept: KeptLease) -> None:
        """Keep a lease that is in use; one before it is not used again."""
        self._kept[kept.copy.id, kept.target] = kept

    def give_back(
        self, kept: KeptLease, now_s: float, *, lost: bool = False, again: bool = True
    ) -> bool:
        """Record the end of one use; whether the lease is to be given back to the agent.

        `lost`: the copy does not have the model; without `again` no other request uses the lease.
        """
        kept.in_use -= 1
        if kept.is_over:
            return False
        at = (kept.copy.id, kept.target)
        is_old = now_s - kept.since_s >= MAX_AGE_S
        if self._kept.get(at) is kept and (lost or is_old or not again):
            del self._kept[at]
        if kept.in_use and not lost:
            return False
        if self._kept.get(at) is kept:
            kept.idle_at_s = now_s
            self._idle[kept] = None
            return False
        kept.is_over = True
        return True

    def ended(self, now_s: float) -> list[KeptLease]:
        """Remove the leases that have been idle for too long."""
        found = []
        while self._idle:
            kept = next(iter(self._idle))
            if now_s - kept.idle_at_s < IDLE_S:
                break
            del self._idle[kept]
            found.append(self._over(kept))
        return found

    def close(self) -> list[KeptLease]:
        """Remove all idle leases."""
        found = [self._over(kept) for kept in self._idle]
        self._idle.clear()
        return found

    def _over(self, kept: KeptLease) -> KeptLease:
        kept.is_over = True
        at = (kept.copy.id, kept.target)
        if self._kept.get(at) is kept:
            del self._kept[at]
        return kept
