"""Chooses a copy for an adapter: the copy with the least milliseconds of waiting and loading."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

PRIOR_SERVICE_MS = 50.0
PRIOR_LOAD_MS = 40.0  # of a rank-16 adapter from files (docs/benchmarks.md, Starting)
PRIOR_LOADS = 20.0  # the prior of a load weighs as much as this number of answers
KEPT = 0.98  # each answer multiplies older answers by this weight, so that about 50 count
LOAD_MS_RANGE = (1.0, 60_000.0)


class LatencyEstimate:
    """Estimates the service time and the load time of one copy from its whole answers.

    An answer that took t milliseconds, with n requests in flight before it, is an observation of
    t / (n + 1) milliseconds for each request. If the copy serves one request at a time, this is its
    service time. If it serves many requests at once, this is the reciprocal of its throughput.
    Older answers count less.
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
            took_ms: time from the choice of the copy to the last byte.
            outstanding: requests that were in flight on the copy before this request.
            loaded: whether the copy had to load the adapter for this request.
        """
        if loaded:
            more_ms = took_ms - (outstanding + 1) * self.service_ms
            self._load_ms = KEPT * self._load_ms + more_ms
            self._loads = KEPT * self._loads + 1.0
        else:
            self._took_ms = KEPT * self._took_ms + took_ms
            self._positions = KEPT * self._positions + outstanding + 1


CAPACITY = 64  # resident adapters of a copy whose capacity is not known
FORGOTTEN_AFTER_S = 900.0


class Assignments:
    """The adapters that are taken to be resident on one copy, in the order of their last use.

    At most `capacity` are kept. Each is forgotten FORGOTTEN_AFTER_S after its last use.
    """

    __slots__ = ("_used_at_s", "capacity")

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self._used_at_s: OrderedDict[str, float] = OrderedDict()

    @property
    def held(self) -> int:
        """Number of resident adapters."""
        return len(self._used_at_s)

    def holds(self, adapter: str, now_s: float, elsewhere_at_s: float | None = None) -> bool:
        """True if the adapter is taken to be resident on the copy.

        The first two columns say when the last request for the adapter was sent. "recently" means
        within FORGOTTEN_AFTER_S.

        by this router     by another router  the copy  resident
        recently           any                any       yes
        longer ago         any                any       no
        never, or evicted  never, longer ago  any       no
        never, or evicted  recently           has room  yes
        never, or evicted  recently           is full   if that is later than the last use of the
                                                        adapter that would be evicted next

        Args:
            adapter: its name on the copy.
            now_s: seconds of the clock that `assigned` gets.
            elsewhere_at_s: when another router last sent a request for the adapter. None if never.
        """
        if adapter in self._used_at_s:
            return now_s - self._used_at_s[adapter] < FORGOTTEN_AFTER_S
        if elsewhere_at_s is None or now_s - elsewhere_at_s >= FORGOTTEN_AFTER_S:
            return False
        if self.held < self.capacity:
            return True
        return elsewhere_at_s > next(iter(self._used_at_s.values()))

    def assigned(self, adapter: str, now_s: float) -> float | None:
        """Record a request for `adapter`. Returns the time of the request before, or None."""
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


# Costs that differ by less than this share of a service time count as equal, because estimates are
# not more exact.
TIE_SHARE = 0.1
ALIKE_RATIO = 2.0  # service times that differ from the median by less than this count as equal


class CopyView(NamedTuple):
    """The state of one copy for a request for an adapter.

    It is a tuple, which is cheap, because each request makes several.

    Args:
        outstanding: requests in flight on the copy.
        service_ms: milliseconds that each request in flight adds to the next one's answer.
        load_ms: milliseconds that loading this adapter takes if it is not resident.
        resident: whether the copy has this adapter loaded.
        held: number of adapters that the copy has loaded.
        capacity: number of adapters that fit. Beyond it, each load evicts another adapter.
    """

    outstanding: int
    service_ms: float
    load_ms: float
    resident: bool
    held: int
    capacity: int

    @property
    def has_room(self) -> bool:
        """True if the copy can load one more adapter without evicting another."""
        return self.held < self.capacity

    @property
    def loading_ms(self) -> float:
        """Cost of loading the adapter, and of loading an evicted adapter again later."""
        if self.resident:
            return 0.0
        return self.load_ms if self.has_room else 2 * self.load_ms


class AdapterChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The `index` of the copy that gets the request, and the costs that decided.

    `home_ms` is the least cost among the copies that have the adapter loaded, or None if no copy
    has it. `costs_ms` are the costs of all copies.
    """

    index: int
    wait_ms: float
    loading_ms: float
    home_ms: float | None
    costs_ms: tuple[float, ...] = ()

    @property
    def resident(self) -> bool:
        """True if the chosen copy has the adapter loaded."""
        return self.loading_ms == 0.0

    @property
    def reason(self) -> str:
        """The reason for the choice, in one sentence for a log."""
        if self.resident:
            return f"it has the adapter, and {self.wait_ms:.0f} ms are expected there"
        here = f"{self.wait_ms:.0f} ms are expected and {self.loading_ms:.0f} ms for the load"
        if self.home_ms is None:
            return f"no copy has the adapter; here {here}"
        return f"{self.home_ms:.0f} ms are expected where the adapter is; here {here}"


def choose_for_adapter(copies: Sequence[CopyView]) -> AdapterChoice:
    """Choose the copy on which the request costs least. There must be at least one copy.

    cost of a copy            (outstanding + 1) * service_ms, and the load if it is not resident
    load, with room           load_ms
    load, without room        2 * load_ms

    Among equal costs, these decide in order: fewest requests in flight, the adapter is resident,
    most adapters held with room for one more (so that other copies stay free), the first copy.

    An adapter spreads to another copy if waiting for it costs more than loading it again.

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
    """Replace service times near the median by the median. Other times are kept.

    Estimates are noisy. With many requests in flight, a difference of a few percent would outweigh
    a load, and adapters would spread to all copies.
    """
    middle_ms = sorted(services_ms)[len(services_ms) // 2]
    least_ms, most_ms = middle_ms / ALIKE_RATIO, middle_ms * ALIKE_RATIO
    return [middle_ms if least_ms < it < most_ms else it for it in services_ms]


def _preference(copy: CopyView) -> tuple[int, bool, int]:
    fullness = copy.held if copy.has_room else 0
    return copy.outstanding, not copy.resident, -fullness
