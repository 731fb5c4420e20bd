"""Times that deployments of a kind and size took in this home."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hostelry.base.json import decode
from hostelry.base.private_file import write_whole

FILE = "deploy-times.json"
MAX_KEPT = 200
LIKE = 2.0  # times as large, or as small


@dataclass(frozen=True, slots=True, kw_only=True)
class PastDeployment:
    """A deployment that ended well: what was served, its size, how long the whole took."""

    served: str
    num_bytes: int
    seconds: float


def usual_s(past: Sequence[PastDeployment], served: str, num_bytes: int) -> float | None:
    """The median of those like it in kind and size; None without any."""
    like = [
        one.seconds
        for one in past
        if one.served == served and num_bytes / LIKE <= one.num_bytes <= max(num_bytes * LIKE, 1)
    ]
    return statistics.median(like) if like else None


def past_deployments(home: Path) -> list[PastDeployment]:
    """What the home keeps; empty where its file is not there or cannot be read."""
    try:
        return decode((home / FILE).read_bytes(), list[PastDeployment])
    except (OSError, msgspec.DecodeError):
        return []


def keep(home: Path, one: PastDeployment) -> None:
    """Add a deployment to what the home keeps; a full disk loses it, and nothing else."""
    kept = [*past_deployments(home), one][-MAX_KEPT:]
    try:
        write_whole(home / FILE, msgspec.json.encode(kept), durable=False)
    except OSError:
        return
