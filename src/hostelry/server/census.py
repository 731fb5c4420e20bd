"""The census of what is in service, taken again only where the records or a while went by."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from hostelry.metrics.sagemaker.census import NOTHING_IN_SERVICE, Census
from hostelry.reconcile.census import take_census
from hostelry.reconcile.plan.endpoint_state import InstanceFacts
from hostelry.reconcile.record import load_all
from hostelry.store.records import State

GOOD_FOR_S = 5.0  # while no record changes; copies' use of their instances moves always


class CensusTaker:
    """Knows what is in service.

    Args:
        state: the records.
        facts: what the agents told last.
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
        """The census as of now, or of a moment ago."""
        revision, now_s = self._state.store.revision(), self._now_s()
        known_revision, taken_s, census = self._taken
        if revision != known_revision or now_s - taken_s >= GOOD_FOR_S:
            census = take_census(load_all(self._state), self._facts(), self._disk_use())
            self._taken = (revision, now_s, census)
        return census

    def _disk_use(self) -> float | None:
        try:
            disk = shutil.disk_usage(self._folder)
        except OSError:
            return None
        return disk.used / disk.total if disk.total else None
