"""Memory, CPUs and prices of models on a shared endpoint, and on an endpoint each.

The model servers and agents of one fleet run at a time. Their memory is the PSS of all processes
of the platform without its own processes, after each target has answered.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import Any

from benchmarks.cost_fleet import AT_ONCE, CallTarget, Fleet
from hostelry.base.proc import TICKS_PER_S, process_stat
from hostelry.containers.predictive.model_table import measure_memory

MB = 1e6
MEASURED = "measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What a fleet takes. `call_cpu_s` is the CPU time of its processes per request."""

    what: str
    num_endpoints: int
    cpus: float
    memory_bytes: float
    call_cpu_s: float
    price_per_hour: float
    source: str = MEASURED

    def times(self, num: int) -> "Footprint":
        """The footprint of `num` such fleets, as if they shared no memory."""
        return replace(
            self,
            num_endpoints=self.num_endpoints * num,
            cpus=self.cpus * num,
            memory_bytes=self.memory_bytes * num,
            price_per_hour=self.price_per_hour * num,
            source=f"1 measured, memory times {num}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Models on a shared endpoint, compared with the same models on an endpoint each."""

    name: str
    shared: Footprint
    own: Footprint


class FootprintMeter:
    """Measures fleets on a platform. Only the processes that start later count.

    Args:
        fleet: sends the requests.
        list_processes: the platform's processes.
        num_calls: requests after the first one of each target, whose CPU time is measured.
    """

    def __init__(
        self, fleet: Fleet, list_processes: Callable[[], Iterable[int]], num_calls: int
    ) -> None:
        self._fleet = fleet
        self._list = list_processes
        self._num_calls = num_calls
        self._platform = {*list_processes()}

    def measure(
        self, what: str, targets: Sequence[CallTarget], cpus: float, price_per_hour: float
    ) -> Footprint:
        """Call each target, and measure the fleet, which runs alone."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(self._fleet.call, targets))
        before_s = self._sum_cpu_s()
        for target in islice(cycle(targets), self._num_calls):
            self._fleet.call(target)
        spent_s = self._sum_cpu_s() - before_s
        print(f"  {what}, {len(targets)} targets: measured", flush=True)
        return Footprint(
            what=what,
            num_endpoints=len({it.options["EndpointName"] for it in targets}),
            cpus=cpus,
            memory_bytes=measure_memory(self._find()),
            call_cpu_s=spent_s / self._num_calls,
            price_per_hour=price_per_hour,
        )

    def _find(self) -> set[int]:
        return {*self._list()} - self._platform

    def _sum_cpu_s(self) -> float:
        """CPU time so far. A process's time includes the children that have ended."""
        stats = (process_stat(pid) for pid in self._find())
        return sum(it.cpu_ticks for it in stats if it is not None) / TICKS_PER_S


def footprint_rows(claims: Iterable[Claim]) -> list[dict[str, Any]]:
    """Both fleets of each claim."""
    return [
        {
            "claim": claim.name,
            "fleet": fleet.what,
            "endpoints": fleet.num_endpoints,
            "vCPUs": fleet.cpus,
            "memory MB": fleet.memory_bytes / MB,
            "CPU s per 1,000 calls": 1000 * fleet.call_cpu_s,
            "USD an hour": fleet.price_per_hour,
            "source": fleet.source,
        }
        for claim in claims
        for fleet in (claim.shared, claim.own)
    ]


def saving_rows(claims: Iterable[Claim]) -> list[dict[str, Any]]:
    """The shares of an endpoint each that the shared endpoint takes."""
    return [
        {
            "claim": claim.name,
            "memory, shared / own": claim.shared.memory_bytes / claim.own.memory_bytes,
            "vCPUs, shared / own": claim.shared.cpus / claim.own.cpus,
            "CPU per call, shared / own": claim.shared.call_cpu_s / claim.own.call_cpu_s
            if claim.own.call_cpu_s
            else None,
            "price, shared / own": claim.shared.price_per_hour / claim.own.price_per_hour,
        }
        for claim in claims
    ]
