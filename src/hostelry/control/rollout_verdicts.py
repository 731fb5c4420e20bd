"""Verdicts on updates under way, by the requests that each fleet has served.

| requests during an update | result |
| --- | --- |
| in seconds before control started | not counted, so the verdict takes longer |
| in a later second | counted once, for the fleet of the copy |
| no plan asked about the update for FORGET_S | forgotten, because the update is over |

If the old fleet has had no requests, an update on trial never gets a verdict.
"""

import asyncio
import contextlib
import math
import threading
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

from hostelry.base.clock import Clock
from hostelry.base.concurrency import run_periodically
from hostelry.comparison.fleet_verdict import (
    FleetEvidence,
    StepVerdict,
    WatchedUpdate,
    add_old_second,
    add_step_second,
    step_verdict,
)
from hostelry.comparison.verdict import VersionOutcome
from hostelry.domain.endpoint import Endpoint
from hostelry.domain.load import LoadKey, SecondLoad
from hostelry.metrics.sagemaker.load_aggregator import LoadAggregator
from hostelry.reconcile.plan.endpoint_state import GroupKey
from hostelry.reconcile.plan.guards import find_watched_update

FORGET_S = 120.0  # longer than the time between two plans of an endpoint
LOOK_EVERY_S = 1.0
NO_EVIDENCE = FleetEvidence()


class _Watched(msgspec.Struct, kw_only=True):
    """An update and its evidence by variant, of all seconds up to `through`."""

    update: WatchedUpdate
    through: int
    asked_at: float
    evidence: dict[str, FleetEvidence]


class RolloutVerdicts:
    """The evidence on each update under way. Thread-safe.

    `aggregator` delivers the loads of each second. `clock` decides when an update is forgotten.
    """

    def __init__(self, aggregator: LoadAggregator, clock: Clock) -> None:
        self._aggregator = aggregator
        self._clock = clock
        self._lock = threading.Lock()
        self._watched: dict[GroupKey, _Watched] = {}
        aggregator.subscribe(self._take)

    def decide(self, update: WatchedUpdate) -> StepVerdict:
        """Return the verdict on the update's present step. From now on its requests are counted."""
        with self._lock:
            self._forget()
            evidence = dict(self._watch(update).evidence)
        return step_verdict(update, evidence)

    def describe(self, endpoint: Endpoint) -> str | None:
        """The verdict on the endpoint's update in words. None if no update is watched."""
        update = find_watched_update(endpoint)
        if update is None:
            return None
        with self._lock:
            watched = self._watched.get(_key(update))
            if watched is None or watched.update != update:
                return None
            evidence = dict(watched.evidence)
        return step_verdict(update, evidence).text

    def list_decided(self) -> list[GroupKey]:
        """The endpoints whose update has a verdict on its present step: worse, or no worse."""
        with self._lock:
            known = [(key, it.update, dict(it.evidence)) for key, it in self._watched.items()]
        return [
            key
            for key, update, evidence in known
            if step_verdict(update, evidence).outcome is not VersionOutcome.UNDECIDED
        ]

    async def report_decided(self, plan: Callable[[GroupKey], None]) -> None:
        """Call `plan` with each endpoint in `list_decided`."""
        for key in await asyncio.to_thread(self.list_decided) if self._watched else ():
            plan(key)

    def _forget(self) -> None:
        since = self._clock.now() - FORGET_S
        for key in [key for key, known in self._watched.items() if known.asked_at < since]:
            del self._watched[key]

    def _watch(self, update: WatchedUpdate) -> _Watched:
        """The evidence on the update's present step, counted from now on."""
        now, key, closed_through = self._clock.now(), _key(update), self._aggregator.closed_through
        watched = self._watched.get(key)
        if watched is None or watched.update.generation != update.generation:
            watched = _Watched(update=update, through=closed_through, asked_at=now, evidence={})
            self._watched[key] = watched
            self._seed(watched, math.ceil(update.began_at), of_update=True)
        elif watched.update.since != update.since:
            watched.through = min(watched.through, closed_through)  # if the clock was set back
            watched.update = update
            watched.evidence = {
                name: FleetEvidence(old_of_update=it.old_of_update)
                for name, it in watched.evidence.items()
            }
            self._seed(watched, math.ceil(update.since or now), of_update=False)
        watched.asked_at = now
        return watched

    def _seed(self, watched: _Watched, since: int, *, of_update: bool) -> None:
        """Count the seconds since `since` that the aggregator has already delivered."""
        for name in watched.update.variants:
            for load in self._aggregator.recent(_load_key(watched.update, name), since):
                if load.second <= watched.through:
                    _add(watched, name, load, of_update=of_update)

    def _take(self, second: int, loads: Sequence[SecondLoad]) -> None:
        if not self._watched:
            return
        with self._lock:
            by_key = {it.key: it for it in loads if it.by_config}
            for watched in self._watched.values():
                if second <= watched.through:
                    continue
                watched.through = second
                for name in watched.update.variants:
                    load = by_key.get(_load_key(watched.update, name))
                    if load is not None:
                        _add(watched, name, load, of_update=True)


def _add(watched: _Watched, name: str, load: SecondLoad, *, of_update: bool) -> None:
    """Count a second of a variant. With `of_update` it also counts for the whole update."""
    update, evidence = watched.update, watched.evidence.get(name, NO_EVIDENCE)
    if of_update:
        evidence = add_old_second(evidence, update, load.by_config)
    watched.evidence[name] = add_step_second(evidence, update, load.second, load.by_config)


def _key(update: WatchedUpdate) -> GroupKey:
    return GroupKey(update.scope, update.endpoint_name)


def _load_key(update: WatchedUpdate, variant_name: str) -> LoadKey:
    return LoadKey(
        scope=update.scope, endpoint_name=update.endpoint_name, variant_name=variant_name
    )


@contextlib.asynccontextmanager
async def report_verdicts(
    verdicts: RolloutVerdicts, plan: Callable[[GroupKey], None]
) -> AsyncIterator[None]:
    """During the block, call `plan` each second with the endpoints whose update is decided."""
    step = run_periodically(
        "looking at verdicts", lambda: verdicts.report_decided(plan), LOOK_EVERY_S
    )
    task = asyncio.create_task(step)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
