"""Copies in simulated time under the gateway's own choices. The same seed gives the same run."""

import heapq
import random
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.routing_trace import Asked, Fleet, arrivals
from hostelry.dataplane.balancing.adapter_places import AdapterPlaces
from hostelry.dataplane.balancing.sessions import SessionDict
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.routes import CopyRoute
from hostelry.loadtest.tally import percentile
from hostelry.routing.adapter_choice import AdapterChoice
from hostelry.routing.copy_choice import choose_copy

STRATEGIES = ("random", "least outstanding", "adapter-aware")
WARM_UP_SHARE = 0.2  # of the requests, which are not measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """The result of a run: times in milliseconds, and the `hit_rate` of loaded adapters."""

    p50_ms: float
    p99_ms: float
    per_s: float
    hit_rate: float


@dataclass(slots=True, kw_only=True)
class Request:
    """A request under way. `choice` is set if the strategy learns from its outcome."""

    asked: Asked
    place: int
    outstanding: int
    choice: AdapterChoice | None


class SimulatedCopy:
    """A copy that works on some requests at once, and queues the others in order."""

    def __init__(self, fleet: Fleet) -> None:
        self.outstanding = 0
        self.busy = 0
        self.queue: deque[Request] = deque()
        self._fleet = fleet
        self._adapters: OrderedDict[str, None] = OrderedDict()

    def has(self, adapter: str) -> bool:
        """Whether the adapter was loaded. It is loaded afterwards."""
        hit = adapter in self._adapters
        self._adapters[adapter] = None
        self._adapters.move_to_end(adapter)
        if len(self._adapters) > self._fleet.held:
            self._adapters.popitem(last=False)
        return hit


class Simulation:
    """One run of a strategy.

    Args:
        fleet: the copies and the distribution of their requests.
        strategy: one of `STRATEGIES`.
        seed: of the routers' own draws.
        num_workers: routers, of which each sees some of the requests. They share their adapters'
            places as `AdapterPlaces` does.
    """

    def __init__(self, fleet: Fleet, strategy: str, seed: int, num_workers: int = 1) -> None:
        self._fleet = fleet
        self._strategy = strategy
        self._copies = [SimulatedCopy(fleet) for _ in range(fleet.num_copies)]
        self._routes = [
            CopyRoute(id=f"c-{n}", address=f"http://copy-{n}") for n in range(fleet.num_copies)
        ]
        self._source = random.Random(seed)
        self._now_ms = 0.0
        board = SessionDict(self._now_s, capacity=1 << 20) if num_workers > 1 else None
        self._workers = [
            AdapterPlaces(self._now_s, board, num_workers=num_workers) for _ in range(num_workers)
        ]
        self._ends: list[tuple[float, int, Request]] = []
        self._num_started = 0
        self._took_ms: list[tuple[float, float]] = []
        self._hits: list[tuple[float, bool]] = []

    def run(self, per_s: float, num_requests: int, seed: int) -> Simulated:
        """Let requests arrive at random, and wait for the last one's end."""
        for asked in arrivals(self._fleet, per_s, num_requests, seed):
            self._pass(until_ms=asked.at_ms)
            self._now_ms = asked.at_ms
            self._arrive(asked)
            last_ms = asked.at_ms
        self._pass(until_ms=float("inf"))
        return self._measured(last_ms)

    def run_closed(self, num_clients: int, num_requests: int, seed: int) -> Simulated:
        """Let each client send its next request at the end of the one before."""
        waiting = arrivals(self._fleet, 1.0, num_requests, seed)
        for number, asked in enumerate(waiting):
            if number >= num_clients:
                self._now_ms = self._ends[0][0]
                self._end_one()
            self._arrive(asked)
        last_ms = self._now_ms
        self._pass(until_ms=float("inf"))
        return self._measured(last_ms)

    def _measured(self, last_ms: float) -> Simulated:
        from_ms = last_ms * WARM_UP_SHARE
        took_ms = sorted(took for at, took in self._took_ms if at >= from_ms)
        ended = [at + took for at, took in self._took_ms if from_ms <= at + took <= last_ms]
        hits = [hit for at, hit in self._hits if at >= from_ms]
        return Simulated(
            p50_ms=percentile(took_ms, 0.50),
            p99_ms=percentile(took_ms, 0.99),
            per_s=len(ended) / (last_ms - from_ms) * 1000,
            hit_rate=sum(hits) / len(hits),
        )

    def _arrive(self, asked: Asked) -> None:
        counts = [copy.outstanding for copy in self._copies]
        place, choice = self._choose(counts, asked.adapter)
        request = Request(asked=asked, place=place, outstanding=counts[place], choice=choice)
        request.asked = Asked(
            at_ms=self._now_ms, adapter=asked.adapter, service_ms=asked.service_ms
        )
        copy = self._copies[place]
        copy.outstanding += 1
        if copy.busy < self._fleet.at_once:
            self._start(copy, request)
        else:
            copy.queue.append(request)

    def _choose(self, counts: list[int], adapter: str) -> tuple[int, AdapterChoice | None]:
        draw = self._source.random()
        if self._strategy == "random":
            return choose_copy(RoutingStrategy.RANDOM, counts, draw), None
        if self._strategy == "least outstanding":
            return choose_copy(RoutingStrategy.LEAST_OUTSTANDING_REQUESTS, counts, draw), None
        worker = self._workers[int(draw * len(self._workers))]
        choice = worker.choose(self._routes, counts, adapter)
        return choice.index, choice

    def _start(self, copy: SimulatedCopy, request: Request) -> None:
        copy.busy += 1
        hit = copy.has(request.asked.adapter)
        self._hits.append((self._now_ms, hit))
        took_ms = request.asked.service_ms + (0.0 if hit else self._fleet.load_ms)
        self._num_started += 1
        heapq.heappush(self._ends, (self._now_ms + took_ms, self._num_started, request))

    def _pass(self, until_ms: float) -> None:
        while self._ends and self._ends[0][0] <= until_ms:
            self._now_ms = self._ends[0][0]
            self._end_one()

    def _end_one(self) -> None:
        _, _, request = heapq.heappop(self._ends)
        copy = self._copies[request.place]
        copy.busy -= 1
        copy.outstanding -= 1
        took_ms = self._now_ms - request.asked.at_ms
        self._took_ms.append((request.asked.at_ms, took_ms))
        if request.choice is not None:
            worker = self._workers[self._source.randrange(len(self._workers))]
            route = self._routes[request.place]
            worker.learn_answer(route, took_ms, request.outstanding, request.choice)
        if copy.queue:
            self._start(copy, copy.queue.popleft())

    def _now_s(self) -> float:
        return self._now_ms / 1000


def highest_rate(run: Callable[[float], Simulated], limit_ms: float, most_per_s: float) -> float:
    """The highest rate, in requests a second, at which p99 stays within `limit_ms`."""
    least, most = 0.0, most_per_s
    for _ in range(7):
        middle = (least + most) / 2
        if run(middle).p99_ms <= limit_ms:
            least = middle
        else:
            most = middle
    return least
