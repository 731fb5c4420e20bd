"""Effect of the choice of a copy: random, least outstanding requests, adapter-aware.

Copies have long-tailed service times. Adapters are drawn by Zipf's law, and a copy keeps some
loaded and loads the others on request. The first part is in simulated time, where the gateway's own
choices decide and many requests cost nothing. The second part uses real connections, through a
gateway process. Aims: p99 at least 30 % under random, throughput 15 % over it.

``python -m benchmarks.routing [--setting smoke|short|full]``
"""

import argparse
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

from benchmarks.aims import Finding, finding_rows, ratio
from benchmarks.record import print_table, write_result
from benchmarks.routing_live import measure
from benchmarks.routing_simulation import STRATEGIES, Simulated, Simulation, highest_rate
from benchmarks.routing_trace import Fleet, arrivals

SEED = 20261121
LIMIT_TIMES_MEAN = 10.0  # limit of p99, for the throughput within it
CLIENTS_PER_PLACE = 4  # of the closed loop that saturates the copies
AT_MOST, AT_LEAST = 0.7, 1.15
# Below this load requests hardly wait: p99 is the service times' p99, which no choice changes.
AIM_FROM_LOAD = 0.6
RANDOM, AWARE = STRATEGIES[0], STRATEGIES[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How much to measure. `shares` are loads as parts of the copies' capacity."""

    num_simulated: int
    num_searched: int
    shares: tuple[float, ...] = (0.3, 0.5, 0.6, 0.65, 0.7)
    live_share: float = 0.7
    live_rounds: int = 1
    num_live: int = 0
    num_live_closed: int = 0
    fleet: Fleet = field(default_factory=Fleet)


SETTINGS = {
    "smoke": Setting(
        num_simulated=1000,
        num_searched=400,
        shares=(0.5,),
        num_live=80,
        fleet=Fleet(num_copies=2, mean_ms=10.0, load_ms=8.0, num_adapters=40, held=8),
    ),
    "short": Setting(
        num_simulated=20_000, num_searched=10_000, num_live=3000, num_live_closed=2000
    ),
    "full": Setting(
        num_simulated=100_000,
        num_searched=20_000,
        live_rounds=3,
        num_live=4000,
        num_live_closed=3000,
    ),
}


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.routing", description=__doc__)
    parser.add_argument("--setting", choices=SETTINGS, default="short")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--no-live", action="store_true", help="simulated time only")
    arguments = parser.parse_args()
    setting, seed = SETTINGS[arguments.setting], arguments.seed
    measured = simulate(setting, seed)
    tables = {
        "Simulated time, arrivals at random": "simulated",
        "Simulated time, throughput": "throughput",
    }
    if not arguments.no_live:
        measured["live"] = live(setting, seed)
        tables["Over real connections, through a gateway process"] = "live"
    measured["findings"] = finding_rows(findings(measured))
    print(f"\n{describe_fleet(setting.fleet)}")
    for title, name in tables.items():
        print_table(title, measured[name])
    print_table("Against the aims", measured["findings"])
    write_result("routing", arguments.setting, seed, measured)


def describe_fleet(fleet: Fleet) -> str:
    """The description of the tables' fleet."""
    return (
        f"{fleet.num_copies} copies, {fleet.at_once} requests at once each; service times of "
        f"{fleet.mean_ms:g} ms, p99 {fleet.service_p99_ms:.0f} ms; {fleet.num_adapters} adapters, "
        f"{fleet.held} at hand on a copy, {fleet.load_ms:g} ms to load; a load of 1 is "
        f"{fleet.capacity_per_s:g} requests/s"
    )


def simulate(setting: Setting, seed: int) -> dict[str, Any]:
    """Latencies at some loads, and throughput, in simulated time."""
    fleet = setting.fleet
    simulated = [
        row(strategy, run, load=share)
        for share in setting.shares
        for strategy in STRATEGIES
        for run in [simulated_run(setting, strategy, seed, share * fleet.capacity_per_s)]
    ]
    throughput = [throughput_row(setting, strategy, seed) for strategy in STRATEGIES]
    workers = [
        {"workers": num} | row(AWARE, simulated_run(setting, AWARE, seed, rate, num), load=share)
        for num in (1, 2, 4)
        for share in [setting.live_share]
        for rate in [share * fleet.capacity_per_s]
    ]
    print_table("Simulated time, requests dealt out to several gateway workers", workers)
    return {"simulated": simulated, "throughput": throughput, "workers": workers}


def simulated_run(
    setting: Setting, strategy: str, seed: int, per_s: float, num_workers: int = 1
) -> Simulated:
    """Arrivals at `per_s` requests a second."""
    simulation = Simulation(setting.fleet, strategy, seed, num_workers)
    return simulation.run(per_s, setting.num_simulated, seed)


def throughput_row(setting: Setting, strategy: str, seed: int) -> dict[str, Any]:
    """The rate within the limit of p99, and the rate of copies that never idle."""
    fleet = setting.fleet
    limit_ms = LIMIT_TIMES_MEAN * fleet.mean_ms

    def run(per_s: float) -> Simulated:
        simulation = Simulation(fleet, strategy, seed)
        return simulation.run(per_s, setting.num_searched, seed)

    closed = Simulation(fleet, strategy, seed).run_closed(
        clients(fleet), setting.num_searched, seed
    )
    return {
        "strategy": strategy,
        f"requests/s at p99 {limit_ms:g} ms": highest_rate(run, limit_ms, fleet.capacity_per_s),
        "saturated requests/s": closed.per_s,
        "adapter hits": closed.hit_rate,
    }


def live(setting: Setting, seed: int) -> list[dict[str, Any]]:
    """Measured latencies at one load and throughput when saturated, as medians of the rounds.

    Every round goes through all strategies, every other round in reverse order. All strategies get
    the same requests in a round, and each round has different ones.
    """
    rounds: dict[str, list[dict[str, Any]]] = {strategy: [] for strategy in STRATEGIES}
    for number in range(setting.live_rounds):
        for strategy in STRATEGIES[:: -1 if number % 2 else 1]:
            rounds[strategy].append(live_row(setting, strategy, seed + number))
    return [medians(each) for each in rounds.values()]


def live_row(setting: Setting, strategy: str, seed: int) -> dict[str, Any]:
    """One strategy in one round."""
    fleet = setting.fleet
    deal = partial(arrivals, fleet, setting.live_share * fleet.capacity_per_s)
    opened = measure(fleet, strategy, list(deal(setting.num_live, seed)))
    measured = row(strategy, opened, load=setting.live_share)
    if setting.num_live_closed:
        closed_plan = list(deal(setting.num_live_closed, seed))
        measured["saturated requests/s"] = measure(
            fleet, strategy, closed_plan, clients(fleet)
        ).per_s
    return measured


def medians(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """One row of the medians of rows that have the same keys. Text is the first row's."""
    return {
        name: value if isinstance(value, str) else median(each[name] for each in rows)
        for name, value in rows[0].items()
    }


def clients(fleet: Fleet) -> int:
    """The number of clients that keep every copy busy, with some waiting."""
    return CLIENTS_PER_PLACE * fleet.num_copies * fleet.at_once


def row(strategy: str, run: Simulated, load: float) -> dict[str, Any]:
    """One line of a table."""
    return {
        "load": load,
        "strategy": strategy,
        "p50 ms": run.p50_ms,
        "p99 ms": run.p99_ms,
        "requests/s": run.per_s,
        "adapter hits": run.hit_rate,
    }


def findings(measured: dict[str, Any]) -> list[Finding]:
    """Ratios to random, with the aims for the adapter-aware choice."""
    found = []
    for where in ("simulated", "live"):
        rows = measured.get(where, [])
        for load in sorted({each["load"] for each in rows}):
            at_load = {each["strategy"]: each for each in rows if each["load"] == load}
            found += [
                Finding(
                    what=f"{where}, load {load:g}: p99, {strategy} / random",
                    value=ratio(at_load[strategy]["p99 ms"], at_load[RANDOM]["p99 ms"]),
                    at_most=AT_MOST if strategy == AWARE and load >= AIM_FROM_LOAD else None,
                )
                for strategy in STRATEGIES[1:]
            ]
    for where in ("throughput", "live"):
        by_strategy = {each["strategy"]: each for each in measured.get(where, [])}
        for name in next(iter(by_strategy.values()), {}):
            if name.startswith(("requests/s at", "saturated")):
                found += throughput_findings(where, name, by_strategy)
    return found


def throughput_findings(
    where: str, name: str, by_strategy: dict[str, dict[str, Any]]
) -> list[Finding]:
    """Ratios of one kind of throughput."""
    kind = "live" if where == "live" else "simulated"
    return [
        Finding(
            what=f"{kind}: {name}, {strategy} / random",
            value=ratio(by_strategy[strategy][name], by_strategy[RANDOM][name]),
            at_least=AT_LEAST if strategy == AWARE else None,
        )
        for strategy in STRATEGIES[1:]
    ]


if __name__ == "__main__":
    main()
