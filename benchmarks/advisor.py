"""The advisor's pick against all options on all machines, for random mixes of models.

The advisor sees each mix with three seeds, and simulates each option on the machines that are
cheapest by arithmetic. Then every option is simulated on every machine type, with other seeds. A
pick is good if it is acceptable on all axes, where any plan is, and its score (1 - shortfall) is
within 10 % of the best plan's. Aim: 90 % of the mixes.

``python -m benchmarks.advisor [--setting smoke|short|full] [--mixes 200]``

With ``--live N``, N mixes run on a real platform, and the forecast is compared with each
(``advisor_live``). The last has 1,000 adapters (``advisor_adapters``).
"""

import argparse
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from benchmarks.advisor_adapters import run_adapter_mix
from benchmarks.advisor_live import (
    AIMS,
    FAILURES,
    build_failed_row,
    describe_row,
    list_live_findings,
    run_live,
)
from benchmarks.aims import Finding, finding_rows
from benchmarks.record import print_table, write_result
from hostelry.advisor.advice import SimulatedOption, advise_group, simulate_option
from hostelry.advisor.gates import check_gates
from hostelry.advisor.grouping import ModelGroup
from hostelry.advisor.options import HostingOption
from hostelry.advisor.plans import OptionPlan, list_plans
from hostelry.advisor.ranking import get_shortfall, list_unacceptable
from hostelry.advisor.runs import find_obstacle
from hostelry.advisor.traffic import MixTraffic
from hostelry.advisor.values import (
    GIB,
    MIB,
    AxisAnchors,
    FitAxis,
    FitMachine,
    FitMix,
    FitModel,
    LatencyClass,
    ModelTraffic,
)
from hostelry.base.errors import TerminalError
from hostelry.domain.shape import Shape
from hostelry.sim.service import ServiceModel

SEED = 20261130
SHOWN = ("mix", "option", "models", "calls", *AIMS, "took s")
WITHIN, AT_LEAST = 0.9, 0.9
HELD_OUT = (101, 102, 103)
NUM_MIXES = {"smoke": 1, "short": 20, "full": 200}
MACHINES = (
    ("ml.lab.small", 2.0, 4, 0.05),
    ("ml.lab.medium", 4.0, 16, 0.12),
    ("ml.lab.large", 16.0, 64, 0.45),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A plan's place: acceptable plans come first, then the smaller shortfall."""

    name: str
    is_unacceptable: bool
    shortfall: float

    @property
    def order(self) -> tuple[bool, float]:
        """The key to sort by."""
        return (self.is_unacceptable, self.shortfall)


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.advisor", description=__doc__)
    parser.add_argument("--setting", choices=NUM_MIXES, default="short")
    parser.add_argument("--mixes", type=int, help="number of mixes, in place of the setting's")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--live", type=int, metavar="N", help="compare N live mixes instead")
    arguments = parser.parse_args(argv)
    if arguments.live is not None:
        measure_live(arguments.live, arguments.seed)
        return
    num = NUM_MIXES[arguments.setting] if arguments.mixes is None else arguments.mixes
    rows = []
    for number in range(num):
        rows.append(compare(draw_mix(random.Random(arguments.seed + number), number)))
        print(f"mix {number + 1} of {num}: {rows[-1]['verdict']}", flush=True)
    measured: dict[str, Any] = {"mixes": rows, "findings": finding_rows(list_findings(rows))}
    print_table("Mixes", rows)
    print_table("Against the aims", measured["findings"])
    write_result("advisor", arguments.setting, arguments.seed, measured)


def measure_live(num: int, seed: int) -> None:
    """Forecast and live runs of `num` mixes. The last has 1,000 adapters."""
    rows = run_live(num - 1, num, seed) if num > 1 else []
    with tempfile.TemporaryDirectory() as scratch:
        try:
            rows.append(run_adapter_mix(seed, Path(scratch)))
        except FAILURES as error:
            rows.append(build_failed_row("adapters", "adapters", error))
    print(describe_row(rows[-1], num - 1, num), flush=True)
    measured: dict[str, Any] = {
        "mixes": rows,
        "findings": finding_rows(list_live_findings(rows)),
    }
    print_table("Forecast / measured", [{it: row[it] for it in SHOWN} for row in rows])
    print_table("Against the aims", measured["findings"])
    write_result("advisor", f"live {num}", seed, measured)


def compare(mix: FitMix) -> dict[str, Any]:
    """The pick of a mix, and the best plan of all, on the seeds that the advisor did not see."""
    traffic = MixTraffic(mix, {})
    group = ModelGroup(name=mix.name, why="", models=mix.models)
    began_s = time.perf_counter()
    advice = advise_group(group, mix, traffic)
    took_s = time.perf_counter() - began_s
    held_out = replace(mix, seeds=HELD_OUT)
    judged = [it for one in list_all(mix) if (it := judge(one, held_out, traffic)) is not None]
    best = min(judged, key=lambda it: it.order)
    pick = advice.ranking.pick
    first = advice.ranking.ranked[0] if advice.ranking.ranked else None
    row = {"mix": mix.name, "models": len(mix.models), "best": best.name}
    row |= {"advisor s": round(took_s, 1), "best shortfall": round(best.shortfall, 3)}
    if first is None:
        return {**row, "pick": "-", "pick shortfall": None, "share": 0.0, "verdict": "no pick"}
    mine = judge(advice.simulated[first.option].plan, held_out, traffic)
    assert mine is not None, "it was simulated before"
    share = (1 - mine.shortfall) / max(1e-9, 1 - best.shortfall)
    is_good = share >= WITHIN and (not mine.is_unacceptable or best.is_unacceptable)
    return {
        **row,
        "pick": mine.name if pick is not None else f"({mine.name})",
        "pick shortfall": round(mine.shortfall, 3),
        "share": round(share, 3),
        "verdict": "good" if is_good else "not good",
    }


def list_all(mix: FitMix) -> list[OptionPlan]:
    """Every option whose gates are open, on every machine type on which it fits."""
    return [
        plan
        for option in HostingOption
        if check_gates(option, mix.models, mix).is_open
        for plan in list_plans(option, mix.models, mix)
        if find_obstacle(plan) is None
    ]


def judge(plan: OptionPlan, mix: FitMix, traffic: MixTraffic) -> Judged | None:
    """The place of a plan. None if it cannot carry the calls, or a value is unknown."""
    try:
        found: SimulatedOption = simulate_option(plan, mix.name, mix, traffic)
    except TerminalError:
        return None
    if any(it.score is None for it in found.axes.values()):
        return None
    types = ", ".join(dict.fromkeys(it.type.removeprefix("ml.lab.") for it in plan.machines))
    return Judged(
        name=f"{plan.option.value} ({types})",
        is_unacceptable=bool(list_unacceptable(found.axes, mix.axes)),
        shortfall=get_shortfall(found.axes, mix.axes),
    )


def list_findings(rows: Sequence[dict[str, Any]]) -> list[Finding]:
    """The share of good picks."""
    good = sum(it["verdict"] == "good" for it in rows) / len(rows)
    return [
        Finding(what="share of mixes with a good pick", value=good, at_least=AT_LEAST),
        Finding(what="smallest share of the best score", value=min(it["share"] for it in rows)),
    ]


def draw_mix(source: random.Random, number: int) -> FitMix:
    """A random mix of 1 to 8 models."""
    is_offline = source.random() < 0.2
    frameworks = ["sklearn"] if source.random() < 0.7 else ["sklearn", "xgboost"]
    models = tuple(
        draw_model(source, f"m-{place}", source.choice(frameworks), is_offline=is_offline)
        for place in range(source.randint(1, 8))
    )
    machines = tuple(
        FitMachine(
            type=name,
            shape=Shape(cpus=cpus, memory_bytes=gib * GIB),
            price_per_hour=price * source.uniform(0.6, 1.6),
            most=20,
        )
        for name, cpus, gib, price in MACHINES
    )
    calls = sum(it.traffic.per_hour for it in models)
    cost = 0.1 / calls * 1000 * source.uniform(0.5, 3.0)
    weights = [source.choice((0.5, 1.0, 2.0, 4.0)) for _ in FitAxis]
    anchors = (
        (0.9, 0.99), (20.0 * cost, cost), (0.0, 3.0), (300.0, 20.0), (100.0, 5.0),
    )  # fmt: skip
    return FitMix(
        name=f"mix-{number + 1}",
        models=models,
        machines=machines,
        axes={
            axis: AxisAnchors(unacceptable=ends[0], target=ends[1], weight=weight)
            for axis, ends, weight in zip(FitAxis, anchors, weights, strict=True)
        },
        hours=0.25,
        serverless_price=source.choice((None, 2e-5)),
    )


def draw_model(source: random.Random, name: str, framework: str, *, is_offline: bool) -> FitModel:
    """A model of 50 MB to 4 GB, with 20 to 5,000 calls an hour of 5 ms to 0.5 s."""
    seconds = 0.005 * 100 ** source.random()
    memory = int(50 * 80 ** source.random() * MIB)
    return FitModel(
        name=name,
        framework=framework,
        memory_bytes=memory,
        disk_bytes=memory,
        cpus=source.choice((0.5, 1.0, 2.0)),
        latency_class=LatencyClass.OFFLINE if is_offline else LatencyClass.INTERACTIVE,
        target_p99_s=86_400.0 if is_offline else seconds * source.uniform(2.0, 20.0),
        max_s=30.0,
        service=ServiceModel(
            prefill_s=seconds, prefill_s_per_token=0.0, token_s=0.0, max_concurrency=1,
            origin="drawn",
        ),
        service_origin="drawn",
        download_s=memory / (100 * MIB),
        load_s=memory / (500 * MIB),
        traffic=ModelTraffic(
            per_hour=20 * 250 ** source.random(), cv=source.choice((1.0, 2.0, 4.0))
        ),
    )  # fmt: skip


if __name__ == "__main__":
    main()
