"""Verdicts on updates under way, by the requests that each fleet has served; control keeps them.

an update's requests                          result
-------------------------------------------   ----------------------------------------------
of seconds before control started             none: the verdict takes longer, and on trial,
without an old fleet's requests, never comes
of a second since then                        counted once, for the fleet of the copy
not asked about for FORGET_S                  forgotten: the update is over
"""

import asyncio
import contextlib
import math
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from hostelry.base.clock import Clock
from hostelry.base.concurrency import run_periodically
from hostelry.comparison.fleet_verdict import (
    FleetEvidence,
    StepVerdict,
    WatchedUpdate,
    step_verdict,
    with_old,
    with_second,
)
from hostelry.comparison.verdict import VersionOutcome
from hostelry.domain.endpoint import Endpoint
from hostelry.domain.load import LoadKey, SecondLoad
from hostelry.metrics.sagemaker.load_aggregator import LoadAggregator
from hostelry.reconcile.plan.endpoint_state import GroupKey
from hostelry.reconcile.plan.guards import find_watched_update

FORGET_S = 120.0  # every endpoint is planned more often
LOOK_EVERY_S = 1.0
NO_EVIDENCE = FleetEvidence()


@dataclass(slots=True, kw_only=True)
class _Watched:
    """An update and the evidence by variant, of every second through `through`."""

    update: WatchedUpdate
    through: int
    asked_at: float
    evidence: dict[str, FleetEvidence]


class RolloutVerdicts:
    """The evidence on each update under way. Thread-safe.

    `board` passes each second's loads; `clock` forgets updates that nothing asks about.
    """

    def __init__(self, board: LoadAggregator, clock: Clock) -> None:
        self._board = board
        self._clock = clock
        self._lock = threading.Lock()
        self._watched: dict[GroupKey, _Watched] = {}
        board.subscribe(self._take)

    def verdict_of(self, update: WatchedUpdate) -> StepVerdict:
        """The verdict on the update's present step; from now on its requests are counted."""
        with self._lock:
            self._forget()
            evidence = dict(self._counted(update).evidence)
        return step_verdict(update, evidence)

    def text_of(self, endpoint: Endpoint) -> str | None:
        """The verdict on the endpoint's update in words; None where none is asked for."""
        update = find_watched_update(endpoint)
        if update is None:
            return None
        with self._lock:
            watched = self._watched.get(_key(update))
            if watched is None or watched.update != update:
                return None
            evidence = dict(watched.evidence)
        return step_verdict(update, evidence).text

    def decided(self) -> list[GroupKey]:
        """The endpoints whose update is known to be worse, or no worse, in its present step."""
        with self._lock:
            known = [(key, it.update, dict(it.evidence)) for key, it in self._watched.items()]
        return [
            key
            for key, update, evidence in known
            if step_verdict(update, evidence).outcome is not VersionOutcome.UNDECIDED
        ]

    async def look(self, decided: Callable[[GroupKey], None]) -> None:
        """Call `decided` with each endpoint of `decided`."""
        for key in await asyncio.to_thread(self.decided) if self._watched else ():
            decided(key)

    def _forget(self) -> None:
        now = self._clock.now()
        for key in [it for it, one in self._watched.items() if now - one.asked_at > FORGET_S]:
            del self._watched[key]

    def _counted(self, update: WatchedUpdate) -> _Watched:
        """What is known of the update in its present step."""
        now, key, closed_through = self._clock.now(), _key(update), self._board.closed_through
        watched = self._watched.get(key)
        if watched is None or watched.update.generation != update.generation:
            watched = _Watched(update=update, through=closed_through, asked_at=now, evidence={})
            self._watched[key] = watched
            self._seed(watched, math.ceil(update.began_at), of_update=True)
        elif watched.update.since != update.since:
            watched.through = min(watched.through, closed_through)  # after a clock was set back
            watched.update = update
            watched.evidence = {
                name: FleetEvidence(old_of_update=it.old_of_update)
                for name, it in watched.evidence.items()
            }
            self._seed(watched, math.ceil(update.since or now), of_update=False)
        watched.asked_at = now
        return watched

    def _seed(self, watched: _Watched, since: int, *, of_update: bool) -> None:
        """Count the seconds from `since` on that had been passed before."""
        for name in watched.update.variants:
            for load in self._board.recent(_load_key(watched.update, name), since):
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
    """Count a second of a variant; of the present step alone unless `of_update`."""
    update, evidence = watched.update, watched.evidence.get(name, NO_EVIDENCE)
    if of_update:
        evidence = with_old(evidence, update, load.by_config)
    watched.evidence[name] = with_second(evidence, update, load.second, load.by_config)


def _key(update: WatchedUpdate) -> GroupKey:
    return GroupKey(update.scope, update.endpoint_name)


def _load_key(update: WatchedUpdate, variant_name: str) -> LoadKey:
    return LoadKey(
        scope=update.scope, endpoint_name=update.endpoint_name, variant_name=variant_name
    )


@contextlib.asynccontextmanager
async def deciding(
    verdicts: RolloutVerdicts, decided: Callable[[GroupKey], None]
) -> AsyncIterator[None]:
    """Look at the verdicts for the block, again and again; `decided` gets the endpoints to plan."""
    look = run_periodically("looking at verdicts", lambda: verdicts.look(decided), LOOK_EVERY_S)
    task = asyncio.create_task(look)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
