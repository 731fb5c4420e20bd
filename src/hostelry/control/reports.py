"""Reports on placement, and the census of everything in service. Both are cached for seconds."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hostelry.base.clock import thread_cpu_s
from hostelry.domain.scope import Scope
from hostelry.metrics.sagemaker.census import NOTHING_IN_SERVICE, Census
from hostelry.reconcile.census import CensusCounter
from hostelry.reconcile.placement_report import explained_endpoints, placement_report
from hostelry.reconcile.plan.endpoint_state import InstanceFacts
from hostelry.reconcile.record import filter_visible, load_all
from hostelry.store.records import State

PLACEMENT_AGE_S = 10.0  # reservations also change with agents' reports, without a changed record
CENSUS_AGE_S = 5.0  # the usage of copies changes without a changed record
SHARE = 20.0  # the census is kept for this multiple of the processor time that it took


class PlacementReports:
    """Placement reports, cached until records change or PLACEMENT_AGE_S have passed.

    Explaining 1,000 copies that fit nowhere takes 0.2 s.

    Args:
        state: the records.
        facts: the agents' last reports, by instance id.
        now_s: seconds of a monotonic clock.
    """

    def __init__(
        self,
        state: State,
        facts: Callable[[], Mapping[str, InstanceFacts]],
        now_s: Callable[[], float],
    ) -> None:
        self._state = state
        self._facts = facts
        self._now_s = now_s
        self._made: tuple[int, float, dict[tuple[Scope, str], dict[str, Any]]] = (-1, 0.0, {})

    def endpoints(self) -> list[dict[str, Any]]:
        """The endpoints, each with a report that is not older than the records."""
        revision, now_s = self._state.store.revision(), self._now_s()
        states, facts = filter_visible(load_all(self._state)), self._facts()
        known_revision, made_s, reports = self._made
        if revision != known_revision or now_s - made_s >= PLACEMENT_AGE_S:
            reports = {
                (state.endpoint.scope, state.endpoint.name): placement_report(
                    replace(state, facts=facts)
                )
                for state in states
                if state.endpoint is not None
            }
            self._made = (revision, now_s, reports)
        return explained_endpoints(states, facts, reports)


class CensusTaker:
    """The census, cached until records change or CENSUS_AGE_S have passed.

    Args:
        state: the records.
        facts: the agents' last reports, by instance id.
        folder: a folder on the disk of the instances.
        now_s: seconds of a monotonic clock.
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
        self._counter = CensusCounter()
        self._cost_s = 0.0
        self._taken = (-1, 0.0, NOTHING_IN_SERVICE)

    def take(self) -> Census:
        """The census, at most 5 seconds old. If it is cheap, it is not older than the records."""
        revision, now_s = self._state.store.revision(), self._now_s()
        known_revision, taken_s, census = self._taken
        age_s = now_s - taken_s
        is_new = revision != known_revision and age_s >= SHARE * self._cost_s
        if is_new or age_s >= CENSUS_AGE_S or known_revision < 0:
            started = thread_cpu_s()
            census = self._counter.take(load_all(self._state), self._facts(), self._disk_use())
            self._cost_s = thread_cpu_s() - started
            self._taken = (revision, now_s, census)
        return census

    def _disk_use(self) -> float | None:
        try:
            disk = shutil.disk_usage(self._folder)
        except OSError:
            return None
        return disk.used / disk.total if disk.total else None
