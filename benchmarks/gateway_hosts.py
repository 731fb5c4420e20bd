"""Effect of late counts between gateways on several hosts: waiting, against exact global counts.

The benchmark runs the gateway's own choice in simulated time. Each request comes to one of the
gateways at random. That gateway chooses a copy by its own requests, counted exactly, and by the
counts that the other gateways sent last. Copies work on one request at a time, 50 ms on average.

``python -m benchmarks.gateway_hosts [--setting smoke|short|full]``
"""

import argparse
import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.record import print_table, write_result
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.loadtest.tally import percentile
from hostelry.routing.copy_choice import GatewayShare, choose_copy

SEED = 20261126
LEAST = RoutingStrategy.LEAST_OUTSTANDING_REQUESTS
MEAN_MS = 50.0
SHAPE, MOST_TIMES_LEAST = 1.5, 300.0  # of the heavy tail, a Pareto distribution that is cut off
WARM_UP_SHARE = 0.3
EXACT, OWN = 0.0, float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """Choice of a copy: among `num_drawn` at random (None: all), by counts of every `every_ms`.

    With `shares` each gateway prefers its own copies among equals.
    """

    name: str
    every_ms: float
    num_drawn: int | None = None
    shares: bool = False


STRATEGIES = (
    Strategy(name="exact", every_ms=EXACT),
    Strategy(name="own only", every_ms=OWN),
    Strategy(name="own only, of 2", every_ms=OWN, num_drawn=2),
    Strategy(name="sent 50 ms", every_ms=50.0),
    Strategy(name="sent 50 ms, of 2", every_ms=50.0, num_drawn=2),
    Strategy(name="sent 25 ms, shares", every_ms=25.0, shares=True),
    Strategy(name="sent 50 ms, shares", every_ms=50.0, shares=True),
    Strategy(name="sent 100 ms, shares", every_ms=100.0, shares=True),
    Strategy(name="sent 1 s, shares", every_ms=1000.0, shares=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Gateways and copies, and the requests that come."""

    tail: str
    num_gateways: int
    num_copies: int
    load: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How much to simulate."""

    num_requests: int
    requests_a_copy: int
    gateways: tuple[int, ...] = (2, 4, 8)
    copies: tuple[int, ...] = (10, 100, 1000)
    loads: tuple[float, ...] = (0.5, 0.8, 0.95)
    tails: tuple[str, ...] = ("exponential", "heavy")


SETTINGS = {
    "smoke": Setting(
        num_requests=400, requests_a_copy=10, gateways=(2,), copies=(10,), loads=(0.8,)
    ),
    "short": Setting(num_requests=15_000, requests_a_copy=20, gateways=(2, 8)),
    "full": Setting(num_requests=50_000, requests_a_copy=50),
}


class Gateways:
    """Several gateways before the same copies. Requests move their clock, in milliseconds."""

    def __init__(self, case: Case, strategy: Strategy, seed: int) -> None:
        self._case, self._strategy = case, strategy
        self._source = random.Random(seed)
        num, copies = case.num_gateways, case.num_copies
        self._free_at = [0.0] * copies
        self._seen = [[0] * copies for _ in range(num)]  # own counts exact, others' as last sent
        self._unsent: list[dict[int, int]] = [{} for _ in range(num)]
        every = strategy.every_ms
        self._sends_at = [every * (1 + n / num) if every else 0.0 for n in range(num)]
        self._ends: list[tuple[float, int, int]] = []

    def run(self, num_requests: int) -> list[float]:
        """The milliseconds that each request after the warm-up waited."""
        case, source = self._case, self._source
        service_ms = service_times(case.tail, num_requests, source)
        per_ms = case.load * case.num_copies / MEAN_MS
        now, waits = 0.0, []
        for number in range(num_requests):
            now += source.expovariate(per_ms)
            self._pass(now)
            gateway = int(source.random() * case.num_gateways)
            copy = self._choose(gateway)
            self._count(gateway, copy, 1)
            start = max(now, self._free_at[copy])
            self._free_at[copy] = start + service_ms[number]
            heapq.heappush(self._ends, (self._free_at[copy], gateway, copy))
            if number >= num_requests * WARM_UP_SHARE:
                waits.append(start - now)
        return sorted(waits)

    def _choose(self, gateway: int) -> int:
        counts, drawn = self._seen[gateway], self._strategy.num_drawn
        draw = self._source.random
        if drawn is not None:
            among = [int(draw() * len(counts)) for _ in range(drawn)]
            return among[choose_copy(LEAST, [counts[it] for it in among], draw())]
        share = GatewayShare(gateway, self._case.num_gateways) if self._strategy.shares else None
        return choose_copy(LEAST, counts, draw(), share)

    def _count(self, gateway: int, copy: int, change: int) -> None:
        self._seen[gateway][copy] += change
        unsent = self._unsent[gateway]
        unsent[copy] = unsent.get(copy, 0) + change
        if self._strategy.every_ms == EXACT:
            self._send(gateway)

    def _send(self, gateway: int) -> None:
        for other, seen in enumerate(self._seen):
            if other != gateway:
                for copy, change in self._unsent[gateway].items():
                    seen[copy] += change
        self._unsent[gateway].clear()

    def _pass(self, until: float) -> None:
        """Let requests end and gateways send, in order."""
        every = self._strategy.every_ms
        while True:
            send_at = min(self._sends_at) if every else OWN
            if self._ends and self._ends[0][0] <= min(until, send_at):
                _, gateway, copy = heapq.heappop(self._ends)
                self._count(gateway, copy, -1)
            elif send_at <= until:
                sender = self._sends_at.index(send_at)
                self._sends_at[sender] += every
                self._send(sender)
            else:
                return


def service_times(tail: str, num: int, source: random.Random) -> list[float]:
    """Service times in milliseconds. In the heavy tail, 0.1 % of requests take 30 x the mean."""
    if tail == "exponential":
        return [source.expovariate(1 / MEAN_MS) for _ in range(num)]
    least_share = MOST_TIMES_LEAST**-SHAPE
    drawn = [(1 - source.random() * (1 - least_share)) ** (-1 / SHAPE) for _ in range(num)]
    mean = SHAPE / (SHAPE - 1) * (1 - MOST_TIMES_LEAST ** (1 - SHAPE)) / (1 - least_share)
    return [it * MEAN_MS / mean for it in drawn]


def measure(
    setting: Setting, seed: int, show: Callable[[dict[str, Any]], None] = lambda _: None
) -> list[dict[str, Any]]:
    """A row for each case: p50 and p99 of waiting by strategy, and the mean, in milliseconds."""
    rows = []
    for tail in setting.tails:
        for num_gateways in setting.gateways:
            for num_copies in setting.copies:
                for load in setting.loads:
                    case = Case(
                        tail=tail, num_gateways=num_gateways, num_copies=num_copies, load=load
                    )
                    rows.append(row_of(case, setting, seed))
                    show(rows[-1])
    return rows


def row_of(case: Case, setting: Setting, seed: int) -> dict[str, Any]:
    """One case under each strategy, with the same arrivals."""
    num = max(setting.num_requests, setting.requests_a_copy * case.num_copies)
    row: dict[str, Any] = {
        "tail": case.tail,
        "gateways": case.num_gateways,
        "copies": case.num_copies,
        "load": case.load,
    }
    for strategy in STRATEGIES:
        waits = Gateways(case, strategy, seed).run(num)
        mean = sum(waits) / len(waits)
        row[strategy.name] = (
            f"{percentile(waits, 0.5):.0f}/{percentile(waits, 0.99):.0f}/{mean:.1f}"
        )
    return row


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--setting", choices=SETTINGS, default="short")
    parser.add_argument("--seed", type=int, default=SEED)
    arguments = parser.parse_args()
    rows = measure(SETTINGS[arguments.setting], arguments.seed)
    print_table("Waiting, p50/p99/mean in ms", rows)
    write_result("gateway_hosts", arguments.setting, arguments.seed, {"waiting": rows})


if __name__ == "__main__":
    main()
