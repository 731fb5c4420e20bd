"""The census of what is in service, cached until records change or 5 seconds have passed."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from hostelry.metrics.sagemaker.census import NOTHING_IN_SERVICE, Census
from hostelry.reconcile.census import take_census
from hostelry.reconcile.plan.endpoint_state import InstanceFacts
from hostelry.reconcile.record import load_all
from hostelry.store.records import State

MAX_AGE_S = 5.0  # copies' use of their instances changes without a change of records


class CensusTaker:
    """Cached census.

    Args:
        state: the records.
        facts: the agents' last reports, by instance id.
        folder: a folder on the disk that instances live on.
        now_s: seconds of a clock that never goes back.
    """

    def __init__(
        self,
        state: State,
        facts: Callable[[], Mapping[str, InstanceFacts]],
        folder: Path,
        now_s: Callable[[], float],
    ) -> None:
        self._state = state
        self._facts = facts
        self._folder = folder
        self._now_s = now_s
        self._taken = (-1, 0.0, NOTHING_IN_SERVICE)

    def take(self) -> Census:
        """The census, at most 5 seconds old, and never older than the records."""
        revision, now_s = self._state.store.revision(), self._now_s()
        known_revision, taken_s, census = self._taken
        if revision != known_revision or now_s - taken_s >= MAX_AGE_S:
            census = take_census(load_all(self._state), self._facts(), self._disk_use())
            self._taken = (revision, now_s, census)
        return census

    def _disk_use(self) -> float | None:
        try:
            disk = shutil.disk_usage(self._folder)
        except OSError:
            return None
        return disk.used / disk.total if disk.total else None
