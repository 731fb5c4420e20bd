"""Choice of a copy for an adapter: the least milliseconds of waiting and loading."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

PRIOR_SERVICE_MS = 50.0
PRIOR_LOAD_MS = 40.0  # a rank-16 adapter from files; docs/benchmarks.md, Starting
PRIOR_LOADS = 20.0  # answers that the prior of a load is worth
KEPT = 0.98  # weight of what was learned, at each answer: the last 50 count
LOAD_MS_RANGE = (1.0, 60_000.0)


class LatencyEstimate:
    """Estimate from one copy's whole answers; older ones fade.

    An answer that took t milliseconds, with n requests in flight before it, is an observation of
    t / (n + 1) milliseconds a request: the service time of a copy that serves one request at a
    time, and the reciprocal of the throughput of a busy one that serves many.
    """

    __slots__ = ("_load_ms", "_loads", "_positions", "_took_ms")

    def __init__(self) -> None:
        self._took_ms = PRIOR_SERVICE_MS
        self._positions = 1.0
        self._load_ms = PRIOR_LOAD_MS * PRIOR_LOADS
        self._loads = PRIOR_LOADS

    @property
    def service_ms(self) -> float:
        """Milliseconds that each request in flight adds to the next one's answer."""
        return self._took_ms / self._positions

    @property
    def load_ms(self) -> float:
        """Milliseconds that loading the adapter adds to an answer."""
        least, most = LOAD_MS_RANGE
        return min(max(self._load_ms / self._loads, least), most)

    def answered(self, took_ms: float, outstanding: int, loaded: bool) -> None:
        """Learn from a whole answer.

        Args:
            took_ms: from the choice of the copy to the last byte.
            outstanding: requests that were in flight on the copy before this one.
            loaded: whether the adapter was not resident when the copy was chosen.
        """
        if loaded:
            more_ms = took_ms - (outstanding + 1) * self.service_ms
            self._load_ms = KEPT * self._load_ms + more_ms
            self._loads = KEPT * self._loads + 1.0
        else:
            self._took_ms = KEPT * self._took_ms + took_ms
            self._positions = KEPT * self._positions + outstanding + 1


CAPACITY = 64  # resident adapters of a copy, where nothing else is known
FORGOTTEN_AFTER_S = 900.0


class Assignments:
    """LRU of one copy's resident adapters, of `capacity`; each for FORGOTTEN_AFTER_S."""

    __slots__ = ("_used_at_s", "capacity")

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self._used_at_s: OrderedDict[str, float] = OrderedDict()

    @property
    def held(self) -> int:
        """How many adapters are resident."""
        return len(self._used_at_s)

    def holds(self, adapter: str, now_s: float, elsewhere_at_s: float | None = None) -> bool:
        """Whether the adapter is resident on the copy.

        sent by this router       sent by another              resident
        within FORGOTTEN_AFTER_S  any                          yes
        longer ago                any                          no
        never, or evicted         never, or longer ago         no
        never, or evicted         within it, room is left      yes
        never, or evicted         within it, the copy is full  if later than the least recent one

        Args:
            adapter: its name on the copy.
            now_s: seconds of the clock that `assigned` gets.
            elsewhere_at_s: when another router last sent a request for the adapter; None: never.
        """
        if adapter in self._used_at_s:
            return now_s - self._used_at_s[adapter] < FORGOTTEN_AFTER_S
        if elsewhere_at_s is None or now_s - elsewhere_at_s >= FORGOTTEN_AFTER_S:
            return False
        if self.held < self.capacity:
            return True
        return elsewhere_at_s > next(iter(self._used_at_s.values()))

    def assigned(self, adapter: str, now_s: float) -> float | None:
        """Record a request for `adapter`; the instant of the last one before it, or None."""
        used_at_s = self._used_at_s
        before_s = used_at_s.get(adapter)
        used_at_s[adapter] = now_s
        used_at_s.move_to_end(adapter)
        if len(used_at_s) > self.capacity:
            used_at_s.popitem(last=False)
        while now_s - next(iter(used_at_s.values())) >= FORGOTTEN_AFTER_S:
            used_at_s.popitem(last=False)
        return before_s

    def dropped(self, adapter: str) -> None:
        """Record that the copy does not have the adapter."""
        self._used_at_s.pop(adapter, None)


# Costs that differ by less than this share of a service time are equal: estimates are no better.
TIE_SHARE = 0.1
ALIKE_RATIO = 2.0  # service times that differ by less are taken to be the same


class CopyView(NamedTuple):
    """One copy as seen by a request for an adapter; a tuple, since each request makes several.

    Args:
        outstanding: requests in flight on it.
        service_ms: milliseconds that each request in flight adds to the next one's answer.
        load_ms: milliseconds that loading this adapter takes where it is not resident.
        resident: whether the copy has this adapter loaded.
        held: adapters that it has loaded.
        capacity: adapters that it can have loaded; from there on each load evicts another one.
    """

    outstanding: int
    service_ms: float
    load_ms: float
    resident: bool
    held: int
    capacity: int

    @property
    def has_room(self) -> bool:
        """Whether it can load one more adapter without evicting another."""
        return self.held < self.capacity

    @property
    def loading_ms(self) -> float:
        """Cost of having the adapter here; an evicted adapter will have to be loaded again."""
        if self.resident:
            return 0.0
        return self.load_ms if self.has_room else 2 * self.load_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterChoice:
    """The copy that gets the request, by its `index`, and why.

    `home_ms` is the least cost among copies that have the adapter loaded, None where none has;
    `costs_ms` are those of all copies.
    """

    index: int
    wait_ms: float
    loading_ms: float
    home_ms: float | None
    costs_ms: tuple[float, ...] = ()

    @property
    def resident(self) -> bool:
        """Whether the chosen copy has the adapter loaded."""
        return self.loading_ms == 0.0

    @property
    def reason(self) -> str:
        """One sentence for a log."""
        if self.resident:
            return f"it has the adapter, and {self.wait_ms:.0f} ms are expected there"
        here = f"{self.wait_ms:.0f} ms are expected and {self.loading_ms:.0f} ms for the load"
        if self.home_ms is None:
            return f"no copy has the adapter; here {here}"
        return f"{self.home_ms:.0f} ms are expected where the adapter is; here {here}"


def choose_for_adapter(copies: Sequence[CopyView]) -> AdapterChoice:
    """The copy of `copies`, at least one, where the request costs least.

    cost of a copy            (outstanding + 1) * service_ms, and the load where it is not resident
    load, with room           load_ms
    load, without room        2 * load_ms
    equal costs, in order     fewest requests in flight; the adapter is resident; most adapters
                              held with room for one more, so that other copies stay free; the first

    An adapter spreads to another copy where waiting for it costs more than loading it again.

    Source: Punica, Chen et al. 2023 (arXiv:2310.18547), section 5.1, for the consolidation.
    """
    waits_ms = [(copy.outstanding + 1) * copy.service_ms for copy in copies]
    loads_ms = [0.0 if copy.resident else copy.loading_ms for copy in copies]
    costs_ms = [wait_ms + load_ms for wait_ms, load_ms in zip(waits_ms, loads_ms, strict=True)]
    most_ms = min(costs_ms) + TIE_SHARE * min([copy.service_ms for copy in copies])
    equal = [index for index, cost_ms in enumerate(costs_ms) if cost_ms <= most_ms]
    index = equal[0]
    if len(equal) > 1:
        index = min(equal, key=lambda index: _preference(copies[index]))
    home = [cost_ms for copy, cost_ms in zip(copies, costs_ms, strict=True) if copy.resident]
    return AdapterChoice(
        index=index,
        wait_ms=waits_ms[index],
        loading_ms=loads_ms[index],
        home_ms=min(home) if home else None,
        costs_ms=tuple(costs_ms),
    )


def common_service_ms(services_ms: Sequence[float]) -> list[float]:
    """Service times to choose by: the median for all near it, its own for one that is far off.

    Estimates are noisy: with many requests in flight a few percent of one would outweigh a load,
    and spread adapters everywhere.
    """
    middle_ms = sorted(services_ms)[len(services_ms) // 2]
    least_ms, most_ms = middle_ms / ALIKE_RATIO, middle_ms * ALIKE_RATIO
    return [middle_ms if least_ms < it < most_ms else it for it in services_ms]


def _preference(copy: CopyView) -> tuple[int, bool, int]:
    fullness = copy.held if copy.has_room else 0
    return copy.outstanding, not copy.resident, -fullness
