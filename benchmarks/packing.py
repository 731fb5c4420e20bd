"""Number of instances that mixed models need together, and the time to plan them.

Compared with one endpoint for each model, on the smallest instance of the family that holds it, and
with the lower bound of any packing (the scarcest resource's total divided by an instance's).

``python -m benchmarks.packing [--setting short|full] [--smoke]``
"""

import argparse
import dataclasses
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from benchmarks.aims import Finding, finding_rows
from benchmarks.record import print_table, write_result
from hostelry.domain.component import PlacementStrategy
from hostelry.domain.shape import Requirements, Shape
from hostelry.fleet.shapes import get_shape
from hostelry.placement.consolidation import consolidate
from hostelry.placement.fleet_size import plan_growth
from hostelry.placement.pack import place
from hostelry.placement.preference import count_least_instances
from hostelry.placement.room import fits_shape, to_need
from hostelry.placement.values import CopyRequest, Held, Host, Placed, Pool

SEED = 20261121
GIB = 1024**3
MAX_PLAN_MS = 100.0
SPREAD, BINPACK = PlacementStrategy.SPREAD, PlacementStrategy.BINPACK


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """Models of mixed sizes, the instance type they share, and the family of separate instances."""

    name: str
    shared: str
    family: tuple[str, ...]
    accelerators: tuple[int, ...]
    memory_gib: tuple[float, ...]
    cpus: tuple[float, ...]


G5 = tuple(f"ml.g5.{size}" for size in ("xlarge", "2xlarge", "4xlarge", "8xlarge", "12xlarge"))
M5 = tuple(f"ml.m5.{size}" for size in ("large", "xlarge", "2xlarge", "4xlarge"))
MIXES = (
    Mix(
        name="small models on CPUs",
        shared="ml.m5.4xlarge",
        family=M5,
        accelerators=(0,),
        memory_gib=(1, 1, 2, 2, 4, 4, 8, 16),
        cpus=(0.5, 0.5, 1, 1, 2, 4),
    ),
    Mix(
        name="LLMs of one to four A10G",
        shared="ml.g5.12xlarge",
        family=G5,
        accelerators=(1, 1, 1, 2, 2, 3, 4),
        memory_gib=(8, 16, 24, 32, 64),
        cpus=(1, 2, 4, 8),
    ),
    Mix(
        name="LLMs of one to four A100",
        shared="ml.p4d.24xlarge",
        family=("ml.p4d.24xlarge",),
        accelerators=(1, 1, 1, 2, 2, 4),
        memory_gib=(16, 32, 64, 128),
        cpus=(2, 4, 8),
    ),
    Mix(
        name="LLMs and CPU models together",
        shared="ml.g5.12xlarge",
        family=(*M5, *G5),
        accelerators=(0, 0, 0, 1, 1, 2),
        memory_gib=(1, 2, 4, 8, 16, 32, 64),
        cpus=(0.5, 1, 2, 4, 8),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How much is planned, and how often it is timed."""

    num_models: int
    fleets: int
    num_copies: int
    num_instances: int
    rounds: int


SETTINGS = {
    "smoke": Setting(num_models=6, fleets=1, num_copies=20, num_instances=4, rounds=1),
    "short": Setting(num_models=40, fleets=10, num_copies=1000, num_instances=100, rounds=7),
    "full": Setting(num_models=200, fleets=20, num_copies=1000, num_instances=100, rounds=21),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.packing", description=__doc__)
    parser.add_argument("--setting", choices=("short", "full"), default="short")
    parser.add_argument("--smoke", action="store_true", help="few copies, once")
    parser.add_argument("--seed", type=int, default=SEED)
    arguments = parser.parse_args(argv)
    name = "smoke" if arguments.smoke else arguments.setting
    setting = SETTINGS[name]
    fleets = [fleet_row(mix, setting, arguments.seed) for mix in MIXES]
    times = [*plan_rows(setting, arguments.seed)]
    findings = [
        Finding(what=f"ms to plan: {row['what']}", value=row["median ms"], at_most=MAX_PLAN_MS)
        for row in times
    ]
    measured = {"fleets": fleets, "times": times, "findings": finding_rows(findings)}
    print_table(
        f"{setting.num_models} models, 1 to 3 copies of each; means of {setting.fleets} fleets",
        fleets,
    )
    title = f"Planning: {setting.num_copies} copies, {setting.num_instances} instances"
    print_table(title, times)
    print_table("Against the aim", measured["findings"])
    write_result("packing", name, arguments.seed, measured)


def fleet_row(mix: Mix, setting: Setting, seed: int) -> dict[str, Any]:
    """Instances and their resources, together and apart, as means over several drawn fleets."""
    drawn = [
        one_fleet(mix, setting, random.Random(f"{seed} {mix.name} {number}"))
        for number in range(setting.fleets)
    ]
    means = {key: statistics.fmean(it[key] for it in drawn) for key in drawn[0]}
    shape = get_shape(mix.shared)
    unit = "accelerators" if shape.accelerators else "vCPUs"
    each = shape.accelerators or shape.cpus
    together = means["together"] * each
    apart = means["accelerators apart" if shape.accelerators else "cpus apart"]
    return {
        "mix": mix.name,
        "shared type": mix.shared,
        "copies": means["copies"],
        "lower bound": means["bound"],
        "together": means["together"],
        "endpoint per model": means["apart"],
        "declared": unit,
        "of it together": together,
        "of it apart": apart,
        "saved %": 100 * (1 - together / apart),
    }


def one_fleet(mix: Mix, setting: Setting, source: random.Random) -> dict[str, float]:
    """One drawn fleet, packed onto as many instances as `fleet_growth` asks for."""
    wanted = drawn_copies(mix, setting.num_models, source)
    shape = get_shape(mix.shared)
    pool = Pool(instance_type=mix.shared, shape=shape)
    growth = plan_growth(wanted, [pool], max_more=len(wanted))
    own = [smallest(mix, it.requirements_by_type[mix.shared]) for it in wanted]
    return {
        "copies": len(wanted),
        "bound": count_least_instances(
            [to_need(it.requirements_by_type[mix.shared]) for it in wanted], shape
        ),
        "together": len(growth.instances),
        "apart": len(own),
        "accelerators apart": sum(it.accelerators for it in own),
        "cpus apart": sum(it.cpus for it in own),
    }


def drawn_copies(mix: Mix, num_models: int, source: random.Random) -> list[CopyRequest]:
    """One to three copies of each model, each model's size drawn from the mix."""
    copies: list[CopyRequest] = []
    for number in range(num_models):
        asked = Requirements(
            min_memory_bytes=int(source.choice(mix.memory_gib) * GIB),
            cpus=source.choice(mix.cpus),
            accelerators=source.choice(mix.accelerators),
        )
        one = CopyRequest(
            owner=f"model-{number:04}",
            requirements_by_type={mix.shared: asked},
            strategy=BINPACK,
        )
        copies += [one] * source.choice((1, 1, 2, 3))
    return copies


def smallest(mix: Mix, asked: Requirements) -> Shape:
    """The resources of the smallest instance of the family that holds one copy."""
    shapes = [get_shape(it) for it in mix.family]
    holding = [it for it in shapes if fits_shape(to_need(asked), it)]
    return min(holding, key=lambda it: (it.accelerators, it.cpus, it.memory_bytes))


def plan_rows(setting: Setting, seed: int) -> list[dict[str, Any]]:
    """Time to plan a whole fleet, one more copy, one that fits nowhere, and a consolidation."""
    mix = next(it for it in MIXES if it.name == "LLMs and CPU models together")
    hosts = [
        Host(
            instance_id=f"i-{number:04}",
            instance_type=mix.shared,
            shape=get_shape(mix.shared),
            zone="abc"[number % 3],
        )
        for number in range(setting.num_instances)
    ]
    small = dataclasses.replace(mix, memory_gib=(1, 2, 4, 8, 16, 32), cpus=(0.5, 1, 2, 4))
    wanted = drawn_copies(small, setting.num_copies, random.Random(f"{seed} plan"))
    packed = _those_that_fit(wanted, hosts, setting.num_copies)
    spread = [replace(it, strategy=SPREAD, max_imbalance=0) for it in packed]
    held = as_held(packed, hosts)
    kinds = {it.owner: it for it in packed}
    huge = replace(
        packed[0],
        requirements_by_type={mix.shared: Requirements(min_memory_bytes=180 * GIB, accelerators=4)},
    )
    plans: dict[str, Callable[[], object]] = {
        f"{len(packed)} copies, BINPACK": lambda: place(packed, hosts, ()),
        f"{len(spread)} copies, SPREAD": lambda: place(spread, hosts, ()),
        f"1 more beside {len(held)}": lambda: place(spread[:1], hosts, held[1:]),
        f"why 1 more does not fit beside {len(held)}": lambda: place([huge], hosts, held),
        f"instances to start for {len(packed)}": lambda: plan_growth(
            packed, [Pool(instance_type=mix.shared, shape=hosts[0].shape)], max_more=len(packed)
        ),
        f"what to consolidate of {len(held)}": lambda: consolidate(hosts, held, kinds),
    }
    return [time_plans(what, plan, setting.rounds) for what, plan in plans.items()]


def _those_that_fit(wanted: list[CopyRequest], hosts: list[Host], count: int) -> list[CopyRequest]:
    """`count` copies that the hosts can hold, with fewer accelerators if those run out."""
    chosen = wanted[:count]
    outcomes = place(chosen, hosts, ()).outcomes
    fitting = [it for it, found in zip(chosen, outcomes, strict=True) if isinstance(found, Placed)]
    small = [
        copy
        for copy in fitting
        if not any(r.accelerators for r in copy.requirements_by_type.values())
    ]
    filler = [small[number % len(small)] for number in range(count - len(fitting))]
    return [*fitting, *filler]


def as_held(wanted: list[CopyRequest], hosts: list[Host]) -> list[Held]:
    """The copies as they are once placed."""
    return [
        Held(
            copy_id=f"c{number:05}",
            owner=wanted[number].owner,
            instance_id=it.instance_id,
            requirements=it.requirements,
            device_ids=it.device_ids,
        )
        for number, it in enumerate(place(wanted, hosts, ()).outcomes)
        if isinstance(it, Placed)
    ]


def time_plans(what: str, plan: Callable[[], object], rounds: int) -> dict[str, Any]:
    """Median and worst of several plans, in processor time of this process."""
    spent_ms: list[float] = []
    for _ in range(rounds):
        started = time.process_time()
        plan()
        spent_ms.append((time.process_time() - started) * 1e3)
    return {"what": what, "median ms": statistics.median(spent_ms), "worst ms": max(spent_ms)}


if __name__ == "__main__":
    main()
