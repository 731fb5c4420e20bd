"""The records of a control while it leads, and its right to change them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hostelry.base.epoch_header import LeaderEpoch
from hostelry.store.database import Database
from hostelry.store.records import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """The records of a control, and its right to change them.

    `epoch` is None for a control without others. Writes to `database`, and so to `state`, raise
    Fenced once the term is over; so does `check`, which blocks, for an act that no write precedes.
    `leader` is the body of GET /internal/leader.
    """

    state: State
    database: Database
    leader: Callable[[], dict[str, Any]]
    epoch: LeaderEpoch | None = None
    check: Callable[[], None] = lambda: None
