"""Readings for decisions: the last minutes' load of a target, and the crashes of its copies."""

import math
from collections.abc import Iterable, Sequence
from typing import Protocol

from hostelry.domain.copy import Copy
from hostelry.domain.endpoint import Endpoint
from hostelry.domain.load import LoadKey, SecondLoad
from hostelry.domain.load_sums import side_by_side
from hostelry.domain.scope import Scope
from hostelry.scaling.decide.combine import SHIFT_WINDOW_S
from hostelry.scaling.decide.load_signals import GUARD_WINDOW_S


class LoadReader(Protocol):
    """Closed seconds of each name. `metrics.sagemaker.load_aggregator.LoadAggregator` is one."""

    def recent(self, key: LoadKey, since: int) -> Sequence[SecondLoad]:
        """The seconds of `key` with reports from `since` on, oldest first."""
        ...


def add_loads(aggregator: LoadReader, keys: Iterable[LoadKey], since: float) -> list[SecondLoad]:
    """The seconds of several names together, oldest first."""
    by_second: dict[int, SecondLoad] = {}
    for key in keys:
        for load in aggregator.recent(key, int(since)):
            known = by_second.get(load.second)
            by_second[load.second] = load if known is None else side_by_side(known, load)
    return [by_second[second] for second in sorted(by_second)]


class Crashes:
    """Copies that died by themselves in the last `GUARD_WINDOW_S`, found in their records.

    `now` is of a clock that never jumps. One thread calls `see`. Any thread may ask.
    """

    def __init__(self) -> None:
        self._restarts: dict[str, int] = {}
        self._fell_at: dict[tuple[LoadKey, str], float] = {}

    def see(self, copies: Iterable[Copy], now: float) -> None:
        """Record the present state of all copies."""
        restarts: dict[str, int] = {}
        fell_at = {it: at for it, at in self._fell_at.items() if now - at <= GUARD_WINDOW_S}
        for copy in copies:
            copy_id = copy.spec.id
            restarts[copy_id] = copy.status.restarts
            known = self._restarts.get(copy_id)
            died = known is not None and copy.status.restarts > known
            stopped_serving = copy.unready_since is not None and not copy.draining
            if died or (stopped_serving and known is not None):
                fell_at[get_load_name(copy), copy_id] = now
        self._restarts, self._fell_at = restarts, fell_at

    def among(self, keys: Iterable[LoadKey], since: float = -math.inf) -> int:
        """How many copies of these names died from `since` on, each counted once."""
        names = frozenset(keys)
        return sum(1 for (name, _), at in self._fell_at.items() if name in names and at >= since)


class RecentShifts:
    """Endpoints whose two fleets served in the last `SHIFT_WINDOW_S`, found in their records.

    `now` is of a clock that never jumps. One thread calls `see`. Any thread may ask.
    """

    def __init__(self) -> None:
        self._seen_at: dict[tuple[Scope, str], float] = {}

    def see(self, endpoints: Iterable[Endpoint], now: float) -> None:
        """Record which of all endpoints have two fleets now."""
        seen_at = {it: at for it, at in self._seen_at.items() if now - at <= SHIFT_WINDOW_S}
        seen_at.update(((it.scope, it.name), now) for it in endpoints if it.shift is not None)
        self._seen_at = seen_at

    def among(self, keys: Iterable[LoadKey], since: float = -math.inf) -> bool:
        """Whether the endpoint of any of these names had two fleets from `since` on."""
        seen = (self._seen_at.get((it.scope, it.endpoint_name), -math.inf) for it in keys)
        return any(-math.inf < at >= since for at in seen)


def get_load_name(copy: Copy) -> LoadKey:
    """The name that a copy answers for."""
    return LoadKey(
        scope=copy.scope,
        endpoint_name=copy.endpoint_name,
        variant_name=copy.variant_name,
        component_name=copy.component_name,
    )
