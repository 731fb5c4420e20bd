"""Models of a multi-model endpoint that stay loaded: our rule against LRU, LFU, GDSF and Belady's.

An instance's memory holds a part of a thousand models of mixed sizes, and in a second table its
disk does too. Every policy gets the same requests, and loads every requested model. Belady's know
the future: the plain one evicts the model that is used last, "size" and "cost" weigh that by bytes
and seconds. No policy passes the upper bound. Aims: a hit rate within 3 points of Belady's and
never below LRU's.

``python -m benchmarks.multi_model_trace [--setting smoke|short|full]``
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.aims import Finding, finding_rows
from benchmarks.model_policies import NAMES, OURS, TierPolicy, policies
from benchmarks.model_trace import MB, ModelTrace, traces
from benchmarks.record import print_table, write_result
from hostelry.placement.model_cache import make_room
from hostelry.placement.model_cache_values import (
    CachedModel,
    DecayedCounts,
    Demand,
    ModelCacheState,
    ModelTier,
)
from hostelry.routing.model_choice import InstanceView, choose_for_model

SEED = 20261123
WARM_UP = 0.2  # of the requests fill the cache and are not counted
DISK_TIMES_MEMORY = 3
AT_MOST_BELOW_BELADY, TIMED_MODELS, TIMED_INSTANCES = 3.0, 1000, 16
BOUND = "upper bound"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How much is replayed. `shares` are of the memory that all models would take."""

    num_models: int
    num_requests: int
    num_seeds: int
    shares: tuple[float, ...]
    timed: int


SETTINGS = {
    "smoke": Setting(num_models=60, num_requests=1500, num_seeds=1, shares=(0.2,), timed=3),
    "short": Setting(
        num_models=1000, num_requests=20_000, num_seeds=1, shares=(0.1, 0.3), timed=200
    ),
    "full": Setting(
        num_models=1000, num_requests=40_000, num_seeds=3, shares=(0.1, 0.2, 0.4), timed=1000
    ),
}


@dataclass(slots=True)
class Tier:
    """A tier being replayed."""

    policy: TierPolicy
    sizes: Sequence[int]
    capacity_bytes: int
    cached: set[int]
    used_bytes: int = 0

    def admit(self, model: int, keep: set[int], position: int, at_s: float) -> None:
        """Put `model` into the tier. Evict other models to make room, but none of `keep`."""
        lacking = self.used_bytes + self.sizes[model] - self.capacity_bytes
        if lacking > 0:
            for victim in self.policy.victims(self.cached - keep, model, lacking, position, at_s):
                self.cached.remove(victim)
                self.used_bytes -= self.sizes[victim]
                self.policy.changed(victim, there=False)
        self.cached.add(model)
        self.used_bytes += self.sizes[model]
        self.policy.changed(model, there=True)


@dataclass(slots=True)
class Counted:
    """Requests, bytes and seconds of a replay."""

    requests: int = 0
    hits: int = 0
    asked_bytes: int = 0
    hit_bytes: int = 0
    loaded_s: float = 0.0

    def row(self) -> dict[str, float]:
        """Rates in percent, and the mean cost."""
        return {
            "hit %": 100 * self.hits / self.requests,
            "byte hit %": 100 * self.hit_bytes / self.asked_bytes,
            "load ms/request": 1000 * self.loaded_s / self.requests,
        }


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.multi_model_trace", description=__doc__
    )
    parser.add_argument("--setting", choices=SETTINGS, default="short")
    parser.add_argument("--seed", type=int, default=SEED)
    arguments = parser.parse_args(argv)
    setting = SETTINGS[arguments.setting]
    seeds = [arguments.seed + number for number in range(setting.num_seeds)]
    memory = average_rows(row for seed in seeds for row in memory_rows(setting, seed))
    both = average_rows(row for seed in seeds for row in two_tier_rows(setting, seed))
    decisions = decision_rows(setting.timed)
    measured: dict[str, Any] = {"memory": memory, "memory and disk": both, "decisions": decisions}
    measured["findings"] = finding_rows(findings(memory, both))
    for share in setting.shares:
        for what in ("hit %", "byte hit %", "load ms/request"):
            print_table(f"{what}, memory for {share:.0%} of the models", wide(memory, share, what))
    print_table(
        "Memory and disk: load and download ms/request", wide(both, None, "load ms/request")
    )
    print_table("Decisions", decisions)
    print_table("Against the aims", measured["findings"])
    write_result("multi_model_trace", arguments.setting, arguments.seed, measured)


def memory_rows(setting: Setting, seed: int) -> Iterator[dict[str, Any]]:
    """Each policy on each trace, with a disk that holds everything, and the upper bound."""
    for trace in traces(setting.num_models, setting.num_requests, seed):
        for share in setting.shares:
            capacity = int(share * trace.regular_bytes)
            place = {"trace": trace.name, "share": share, "seed": seed}
            for name in NAMES:
                yield place | {"policy": name} | replay(trace, name, capacity, None).row()
            yield place | {"policy": BOUND} | upper_bound(trace, capacity)


def two_tier_rows(setting: Setting, seed: int) -> Iterator[dict[str, Any]]:
    """Each policy on each trace, with memory for the least share and a small disk."""
    share = setting.shares[0]
    for trace in traces(setting.num_models, setting.num_requests, seed):
        memory = int(share * trace.regular_bytes)
        for name in NAMES:
            counted = replay(trace, name, memory, DISK_TIMES_MEMORY * memory)
            yield {
                "trace": trace.name,
                "share": share,
                "seed": seed,
                "policy": name,
                **counted.row(),
            }


def replay(trace: ModelTrace, name: str, memory_bytes: int, disk_bytes: int | None) -> Counted:
    """A policy's hits and seconds. A `disk_bytes` of None holds all models from the start."""
    of_memory, of_disk = policies(name, trace)
    kinds = trace.kinds
    memory = Tier(of_memory, [it.memory_bytes for it in kinds], memory_bytes, set())
    disk = Tier(of_disk, [it.disk_bytes for it in kinds], disk_bytes or 0, set())
    if disk_bytes is None:
        for model in range(len(kinds)):
            of_disk.changed(model, there=True)
    counted, first = Counted(), int(WARM_UP * len(trace.models))
    for position, (at_s, model) in enumerate(zip(trace.at_s, trace.models, strict=True)):
        hit = model in memory.cached
        on_disk = hit or disk_bytes is None or model in disk.cached
        of_memory.requested(model, position, at_s, hit)
        if disk_bytes is not None:
            of_disk.requested(model, position, at_s, on_disk)
        if position >= first:
            kind = kinds[model]
            counted.requests += 1
            counted.asked_bytes += kind.memory_bytes
            counted.hits += hit
            counted.hit_bytes += kind.memory_bytes if hit else 0
            counted.loaded_s += 0 if hit else kind.load_s
            counted.loaded_s += 0 if on_disk else kind.download_s
        if not on_disk:
            disk.admit(model, memory.cached, position, at_s)
        if not hit:
            memory.admit(model, set(), position, at_s)
    return counted


def upper_bound(trace: ModelTrace, capacity_bytes: int) -> dict[str, float]:
    """The hit rate and the least cost that no policy passes, even if it knows the future.

    Loads are optional. Each hit keeps its model over the requests since the model's last request.
    Hits are chosen by the bytes times requests that they take, until the capacity times all
    requests is used up. Source: the bound PFOO-L of Berger, Beckmann and Harchol-Balter 2018.
    """
    first = int(WARM_UP * len(trace.models))
    requests = len(trace.models) - first
    area = capacity_bytes * requests
    seen: dict[int, int] = {}
    kept: list[tuple[int, float]] = []
    for position, model in enumerate(trace.models):
        if position >= first and model in seen:
            kind = trace.kinds[model]
            span = position - max(seen[model], first)
            kept.append((span * kind.memory_bytes, kind.load_s))
        seen[model] = position
    asked_s = sum(trace.kinds[model].load_s for model in trace.models[first:])
    hits = _given_out([(taken, 1.0) for taken, _ in kept], area)
    saved_s = _given_out(kept, area)
    return {
        "hit %": 100 * hits / requests,
        "byte hit %": float("nan"),
        "load ms/request": 1000 * (asked_s - saved_s) / requests,
    }


def _given_out(kept: list[tuple[int, float]], area: int) -> float:
    gained = 0.0
    for taken, worth in sorted(kept, key=lambda it: it[0] / it[1]):
        if taken >= area:
            return gained + worth * area / taken
        gained += worth
        area -= taken
    return gained


def average_rows(rows: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over the seeds, with the largest deviation of a hit rate from its mean."""
    groups: dict[tuple[str, float, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["trace"], row["share"], row["policy"]), []).append(row)
    found = []
    for (trace, share, policy), group in groups.items():
        mean = {
            what: statistics.fmean(row[what] for row in group)
            for what in ("hit %", "byte hit %", "load ms/request")
        }
        spread = max(abs(row["hit %"] - mean["hit %"]) for row in group)
        found.append({"trace": trace, "share": share, "policy": policy, **mean, "spread": spread})
    return found


def wide(rows: Sequence[dict[str, Any]], share: float | None, what: str) -> list[dict[str, Any]]:
    """A table of one measure, with a row for each trace and a column for each policy."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        if share in (None, row["share"]):
            line = found.setdefault(row["trace"], {"trace": row["trace"]})
            line[row["policy"]] = f"{row[what]:.1f}"
    return list(found.values())


def findings(memory: Sequence[dict[str, Any]], both: Sequence[dict[str, Any]]) -> list[Finding]:
    """The worst cases of our rule against the others."""

    def worst(
        rows: Sequence[dict[str, Any]], other: str, what: str, by: Callable[[float, float], float]
    ) -> float:
        by_place = {(it["trace"], it["share"], it["policy"]): it[what] for it in rows}
        return max(
            by(value, by_place[trace, share, other])
            for (trace, share, policy), value in by_place.items()
            if policy == OURS
        )

    def below(ours: float, other: float) -> float:
        return other - ours

    def times(ours: float, other: float) -> float:
        return ours / other

    hit, cost = "hit %", "load ms/request"
    return [
        Finding(
            what="points of hits below Belady's, at worst",
            value=worst(memory, "Belady", hit, below),
            at_most=AT_MOST_BELOW_BELADY,
        ),
        Finding(
            what="points of hits below Belady's for sizes, at worst",
            value=worst(memory, "Belady, size", hit, below),
        ),
        Finding(
            what="points of hits below LRU's, at worst",
            value=worst(memory, "LRU", hit, below),
            at_most=0.0,
        ),
        Finding(
            what="load time over LRU's, at worst",
            value=worst(memory, "LRU", cost, times),
            at_most=1.0,
        ),
        Finding(what="load time over GDSF's, at worst", value=worst(memory, "GDSF", cost, times)),
        Finding(
            what="load time over the best of Belady's, at worst",
            value=worst(memory, "Belady, cost", cost, times),
        ),
        Finding(
            what="load and download time over LRU's, at worst",
            value=worst(both, "LRU", cost, times),
            at_most=1.0,
        ),
    ]


def decision_rows(rounds: int) -> list[dict[str, Any]]:
    """Processor time of each decision, with TIMED_MODELS models loaded."""
    models, demand = [], Demand()
    for number in range(TIMED_MODELS):
        before = DecayedCounts()
        for repeat in range(1 + 20 // (number + 1)):
            demand = demand.after_request(before, number + repeat * 0.5)
            before = before.after_request(number + repeat * 0.5)
        models.append(
            CachedModel(
                key=f"{number:06}",
                on_disk=True,
                loaded=True,
                disk_bytes=(number % 37 + 1) * MB,
                memory_bytes=(number % 41 + 1) * MB,
                download_s=0.2,
                load_s=0.1,
                popularity=before,
            )
        )
    capacity = sum(model.memory_bytes for model in models)
    state = ModelCacheState(
        tier=ModelTier.MEMORY, capacity_bytes=capacity, models=models, demand=demand
    )
    views = [
        InstanceView(f"i-{number}", number % 5, 20.0, 300.0 * (number > 2), number <= 2)
        for number in range(TIMED_INSTANCES)
    ]
    cold = [view._replace(is_home=False, load_ms=300.0) for view in views]
    now_s = 2.0 * TIMED_MODELS
    popularity = models[500].popularity
    plans: dict[str, Callable[[], object]] = {
        "a request is counted": lambda: (
            demand.after_request(popularity, now_s),
            popularity.after_request(now_s),
        ),
        f"room for a model beside {TIMED_MODELS}": lambda: make_room(state, "new", 30 * MB, now_s),
        f"an instance of {TIMED_INSTANCES}": lambda: choose_for_model("m", views, 50.0),
        f"an instance of {TIMED_INSTANCES}, none has it": lambda: choose_for_model("m", cold, 1.0),
    }
    return [{"what": what, **time_plan(plan, rounds)} for what, plan in plans.items()]


def time_plan(plan: Callable[[], object], rounds: int) -> dict[str, float]:
    """Median and 99th percentile, in processor time of this process."""
    spent_us = []
    for _ in range(rounds):
        started = time.process_time_ns()
        plan()
        spent_us.append((time.process_time_ns() - started) / 1e3)
    spent_us.sort()
    return {"median us": statistics.median(spent_us), "p99 us": spent_us[int(0.99 * rounds)]}


if __name__ == "__main__":
    main()
