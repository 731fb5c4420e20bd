"""Effect of a tenant that floods the engine on another tenant that sends steadily.

The steady tenant's latencies during the flood are compared with the latencies of the same requests
when it has the machine to itself, when it has an engine of half the size to itself (its fair share
of two), and when the engine knows no tenants and serves in order of arrival.

``python -m benchmarks.fairness [--setting short|full] [--smoke]``
"""

import argparse
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.aims import Finding, finding_rows, ratio
from benchmarks.engine_options import add_option_argument, parsed_options
from benchmarks.models import model_folder
from benchmarks.record import print_table, write_result
from benchmarks.trace import Arrival, gamma_arrival_times, random_prompt, summary
from benchmarks.trace_worker import Job, Result, run_job

SEED = 20261121
STEADY, FLOOD, SHARED = "steady", "flood", "shared"
STEADY_SHARE = 0.4  # of the capacity: below the half that is its fair share
FLOOD_SHARE = 2.0
MAX_SLOWER = 1.5
ALONE, HALF = "alone, whole machine", "alone, half an engine"
FAIR, IN_ORDER = "beside the flood, by tenant", "beside the flood, in order of arrival"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How much to measure. Every request has the same shape, so that latencies compare."""

    duration_s: float
    capacity_requests: int
    batch: int = 16
    prompt_tokens: int = 32
    new_tokens: int = 32
    vocabulary: range = range(1000, 40000)


SETTINGS = {
    "smoke": Setting(
        duration_s=0.3,
        capacity_requests=4,
        batch=4,
        prompt_tokens=4,
        new_tokens=3,
        vocabulary=range(5, 190),
    ),
    "short": Setting(duration_s=30.0, capacity_requests=96),
    "full": Setting(duration_s=120.0, capacity_requests=256),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The setting, model and options of a run."""

    setting: Setting
    model: Path
    options: dict[str, Any]
    seed: int
    isolated: bool


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fairness", description=__doc__)
    parser.add_argument("--setting", choices=("short", "full"), default="short")
    parser.add_argument("--smoke", action="store_true", help="a tiny model and few counts")
    parser.add_argument("--model", type=Path, help="a model folder; default the demo model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=SEED)
    add_option_argument(parser)
    arguments = parser.parse_args(argv)
    name = "smoke" if arguments.smoke else arguments.setting
    setting = SETTINGS[name]
    with tempfile.TemporaryDirectory() as scratch:
        plan = Plan(
            setting=setting,
            model=model_folder(arguments.model, Path(scratch), tiny=arguments.smoke),
            options={
                "num_threads": 1 if arguments.smoke else arguments.threads,
                "max_batch_size": setting.batch,
                **parsed_options(arguments.option),
            },
            seed=arguments.seed,
            isolated=not arguments.smoke,
        )
        measured = run(plan)
    print_table(f"Capacity {measured['capacity requests/s']:.2f} requests/s", measured["rows"])
    print_table("Against the aim", measured["findings"])
    write_result("fairness", name, arguments.seed, measured)


def run(plan: Plan) -> dict[str, Any]:
    """Measure capacity first, then each way of sharing."""
    capacity_per_s = measure_capacity(plan)
    print(f"capacity: {capacity_per_s:.2f} requests/s", flush=True)
    steady = requests(plan, STEADY, STEADY_SHARE * capacity_per_s)
    flood = requests(plan, FLOOD, FLOOD_SHARE * capacity_per_s)
    both = sorted(steady + flood, key=lambda each: each.at_s)
    half = {
        "num_threads": max(1, plan.options["num_threads"] // 2),
        "max_batch_size": max(1, plan.options["max_batch_size"] // 2),
    }
    ways: dict[str, tuple[list[Arrival], dict[str, Any]]] = {
        ALONE: (steady, {}),
        HALF: (steady, half),
        FAIR: (both, {}),
        # All requests have one tenant, so that fairness between tenants has no effect.
        IN_ORDER: ([share_tenant(each) for each in both], {}),
    }
    steady_at_s = {each.at_s for each in steady}
    rows: list[dict[str, Any]] = []
    for way, (arrivals, options) in ways.items():
        result = measure(plan, arrivals, options)
        served, took_s = result.traces[0].served, result.traces[0].took_s
        its = [each for each in served if each.at_s in steady_at_s]
        others = [each for each in served if each.at_s not in steady_at_s]
        rows.append({"way": way, "tenant": STEADY} | summary(its, took_s))
        if others:
            rows.append({"way": way, "tenant": FLOOD} | summary(others, took_s))
        print(f"{way}: done", flush=True)
    return {
        "capacity requests/s": capacity_per_s,
        "rows": rows,
        "findings": finding_rows(findings(rows)),
        "options": plan.options,
    }


def findings(rows: Sequence[dict[str, Any]]) -> list[Finding]:
    """The steady tenant's slowest requests during the flood, as a ratio to the same alone."""
    steady = {row["way"]: row for row in rows if row["tenant"] == STEADY}
    found: list[Finding] = []
    for alone in (HALF, ALONE):
        for name in ("first p99 s", "whole p99 s"):
            value = ratio(steady[FAIR][name], steady[alone][name])
            what = f"steady tenant's {name}: {FAIR} / {alone}"
            found.append(Finding(what=what, value=value, at_most=MAX_SLOWER))
    for name in ("first p99 s", "whole p99 s"):
        value = ratio(steady[IN_ORDER][name], steady[HALF][name])
        found.append(Finding(what=f"steady tenant's {name}: {IN_ORDER} / {HALF}", value=value))
    return found


def measure_capacity(plan: Plan) -> float:
    """Requests a second when all have arrived at once."""
    source = random.Random(f"{plan.seed} capacity")
    arrivals = [one(plan, source, 0.0, SHARED) for _ in range(plan.setting.capacity_requests)]
    return len(arrivals) / measure(plan, arrivals, {}).traces[0].took_s


def measure(plan: Plan, arrivals: Sequence[Arrival], options: dict[str, Any]) -> Result:
    """Run a trace on a new engine."""
    source = random.Random(f"{plan.seed} warm-up")
    job = Job(
        model=str(plan.model),
        options=plan.options | options,
        adapters={},
        traces=(tuple(arrivals),),
        warm_up=tuple(one(plan, source, 0.0, SHARED) for _ in range(plan.setting.batch)),
        give_up_after_s=plan.setting.duration_s * 6 + 30,
    )
    return run_job(job, isolated=plan.isolated)


def requests(plan: Plan, tenant: str, per_s: float) -> list[Arrival]:
    """A tenant's requests, arriving at random with that mean rate."""
    source = random.Random(f"{plan.seed} {tenant}")
    times = gamma_arrival_times(source, per_s, 1.0, plan.setting.duration_s)
    return [one(plan, source, at_s, tenant) for at_s in list(times)]


def one(plan: Plan, source: random.Random, at_s: float, tenant: str) -> Arrival:
    """A request of the run's one shape."""
    setting = plan.setting
    return Arrival(
        at_s=at_s,
        prompt=random_prompt(source, setting.prompt_tokens, setting.vocabulary),
        max_tokens=setting.new_tokens,
        tenant=tenant,
    )


def share_tenant(arrival: Arrival) -> Arrival:
    """The same request, sent by a tenant that all share."""
    return Arrival(
        at_s=arrival.at_s, prompt=arrival.prompt, max_tokens=arrival.max_tokens, tenant=SHARED
    )


if __name__ == "__main__":
    main()
