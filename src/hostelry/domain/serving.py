"""Copies that serve, of an endpoint: its status only says that it once came up. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

# Statuses that promise answers. Of the others the status itself says enough.
PROMISING = frozenset({"InService", "Updating", "SystemUpdating", "RollingBack"})
FAILED = "Failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPart:
    """A component, or a variant that serves models of its own, with its ready and desired copies.

    `desired` is None if the part has no copies of its own, as an adapter.
    """

    status: str
    ready: int
    desired: int | None


def serving_of(status: str, parts: Iterable[ServedPart]) -> dict[str, Any]:
    """Sums over the parts of an endpoint of `status`: `ready`, `desired`, `tone` and `trouble`.

    The tone is "bad" if nothing serves that should, and "warn" if less serves than should. The
    trouble says so in words. Both are None if everything serves, or the status promises nothing.
    A component that is being created or deleted promises nothing either.
    """
    given = list(parts)
    every = [it for it in given if it.status in PROMISING or it.status == FAILED]
    with_copies = [it for it in every if it.desired is not None]
    ready = sum(it.ready for it in with_copies)
    desired = sum(it.desired or 0 for it in with_copies)
    failed = sum(1 for it in every if it.status == FAILED)
    causes = []
    if ready < desired:
        causes.append(f"{ready} of {desired} {'copy' if desired == 1 else 'copies'} ready")
    if failed:
        causes.append(f"{failed} of {len(given)} components failed")
    tone = trouble = None
    if causes and status in PROMISING:
        is_silent = (desired > 0 and ready == 0) or all(it.status == FAILED for it in every)
        tone = "bad" if is_silent else "warn"
        trouble = f"serves {'nothing' if is_silent else 'in part'}: {', '.join(causes)}"
    return {"ready": ready, "desired": desired, "tone": tone, "trouble": trouble}
