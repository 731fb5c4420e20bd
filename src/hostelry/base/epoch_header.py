"""The header with which a leading control calls agents: the epoch that it leads with."""

from collections.abc import Callable
from dataclasses import dataclass

EPOCH_HEADER = "X-Hostelry-Epoch"
MAX_EPOCH = 2**32 - 1  # what the key of the lock on an epoch has room for
MAX_DIGITS = 10


@dataclass(frozen=True, slots=True)
class LeaderEpoch:
    """The epoch that calls are made with; `refused` gets the newer one of an agent that refuses."""

    number: int
    refused: Callable[[int], None] = lambda _: None


def epoch_of(text: str) -> int | None:
    """The epoch of a header's value; None where it is none."""
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS):
        return None
    return int(text) if int(text) <= MAX_EPOCH else None
