"""Effect of the number of registered adapters on one base, up to thousands.

Engines with 5 to 2,000 registered adapters of ranks 64, 32, 16 and 8 on attention's products
(S-LoRA's setting S2) get the same requests. Popularity is by Zipf's law and uniform, arrivals are
gamma distributed, and offered load is below and above capacity.

``python -m benchmarks.many_adapters [--setting short|full] [--smoke] [--compare NAME=JSON ...]``
``python -m benchmarks.many_adapters --mix-lines [FILE] [--model FOLDER] [--base NAME]``

Some numbers of adapters run a second time at the same memory with other engine settings. By default
every adapter is padded to a slot of the largest rank, as in engines without pages for adapters.
``--compare`` names other settings. ``--option NAME=JSON`` is set for all runs.

``--mix-lines`` measures tokens a second for each rank alone, with requests that arrive at once and
use 1 to 32 adapters evenly, on all linear modules. It prints the lines for a mix of `hostelry fit`.
"""

import argparse
import os
import random
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.models import ALL_TARGETS

from benchmarks.adapter_shelf import Popularity, Shelf, make_shelf
from benchmarks.aims import Finding, finding_rows, ratio
from benchmarks.engine_options import add_option_argument, parsed_options, unknown_options
from benchmarks.mix_lines import (
    add_mix_arguments,
    check_mix_arguments,
    describe_circumstances,
    format_mix_lines,
    parse_numbers,
    put_mix_lines,
)
from benchmarks.models import model_folder
from benchmarks.record import print_table, write_result
from benchmarks.trace import GOAL_S, Arrival, gamma_arrival_times, random_prompt, summary
from benchmarks.trace_worker import Job, Result, TraceResult, run_job

SEED = 20261121
RANKS = (64, 32, 16, 8)
BELOW, ABOVE = 0.6, 1.3  # offered load as shares of the measured capacity
NUM_COMPARED = 100  # adapters on one base, compared with as many models
MAX_CHANGE = 0.10
NUM_WARM_UP = 8
PADDED = {"padded_lora_rank": max(RANKS)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How much to measure. Lengths are drawn evenly from their ranges.

    Fields `mix_` are for the lines for a mix. Each round has a request for each adapter, or more.
    """

    counts: tuple[int, ...]
    compared_counts: tuple[int, ...]
    pool_bytes: int
    duration_s: float
    capacity_requests: int
    prompt_tokens: tuple[int, int] = (8, 64)
    new_tokens: tuple[int, int] = (8, 64)
    popularities: tuple[tuple[str, float], ...] = (("zipf", 1.0), ("uniform", 0.0))
    cv: float = 1.0
    vocabulary: range = range(1000, 40000)
    mix_ranks: tuple[int, ...] = (16, 64)
    mix_counts: tuple[int, ...] = (1, 4, 16, 32)
    mix_requests: int = 32
    mix_rounds: int = 3


SETTINGS = {
    "smoke": Setting(
        counts=(4, 8),
        compared_counts=(8,),
        pool_bytes=8 << 20,
        duration_s=0.3,
        capacity_requests=4,
        prompt_tokens=(3, 6),
        new_tokens=(2, 4),
        popularities=(("zipf", 1.0),),
        vocabulary=range(5, 190),
        mix_ranks=(8,),
        mix_counts=(1, 3),
        mix_requests=4,
        mix_rounds=1,
    ),
    "short": Setting(
        counts=(5, 100, 1000, 2000),
        compared_counts=(100,),
        pool_bytes=512 << 20,
        duration_s=20.0,
        capacity_requests=96,
    ),
    "full": Setting(
        counts=(5, 100, 1000, 2000),
        compared_counts=(5, 100, 2000),
        pool_bytes=512 << 20,
        duration_s=120.0,
        capacity_requests=256,
        mix_ranks=tuple(sorted(RANKS)),
        mix_rounds=9,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The setting, model and options of a run."""

    setting: Setting
    model: Path
    shelf_folder: Path
    options: dict[str, Any]
    seed: int
    files_per_rank: int
    isolated: bool


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point."""
    arguments = parse(argv)
    name = "smoke" if arguments.smoke else arguments.setting
    setting = SETTINGS[name]
    if arguments.mix_lines is not None:
        setting = replace(
            setting,
            mix_ranks=arguments.ranks or setting.mix_ranks,
            mix_counts=arguments.counts or setting.mix_counts,
            mix_rounds=arguments.rounds or setting.mix_rounds,
        )
    elif arguments.counts and not arguments.smoke:
        setting = replace(setting, counts=arguments.counts)
    with tempfile.TemporaryDirectory() as scratch:
        plan = make_plan(arguments, setting, Path(scratch))
        if arguments.mix_lines is None:
            measured = run(plan, parsed_options(arguments.compare) or PADDED)
            report(measured)
        else:
            measured = measure_points(plan, Path(scratch) / "ranks")
            print_table("Tokens/s with all requests at once", measured["points"])
            about = describe_circumstances(plan.model, plan.options)
            lines = format_mix_lines(measured["points"], arguments.base, about)
            put_mix_lines(lines, arguments.mix_lines)
    write_result("many_adapters", name, arguments.seed, measured)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.many_adapters",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--setting", choices=("short", "full"), default="short")
    parser.add_argument("--smoke", action="store_true", help="a tiny model and few counts")
    parser.add_argument("--model", type=Path, help="a model folder; default the demo model")
    parser.add_argument("--counts", type=parse_numbers, help="numbers of adapters, as 1,16,64")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compare", action="append", default=[], metavar="NAME=JSON")
    parser.add_argument("--seed", type=int, default=SEED)
    add_option_argument(parser)
    add_mix_arguments(parser)
    arguments = parser.parse_args(argv)
    check_mix_arguments(parser, arguments)
    return arguments


def make_plan(arguments: argparse.Namespace, setting: Setting, scratch: Path) -> Plan:
    """The model and the folder of its adapters. A smoke run leaves nothing behind."""
    options = parsed_options(arguments.option)
    if arguments.smoke:
        shelf_folder, files, threads = scratch / "shelf", 1, 1
    else:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        shelf_folder = cache / "hostelry" / f"bench-adapters-{arguments.seed}"
        files, threads = 8, arguments.threads
    return Plan(
        setting=setting,
        model=model_folder(arguments.model, scratch, tiny=arguments.smoke),
        shelf_folder=shelf_folder,
        options={"num_threads": threads, "pool_bytes": setting.pool_bytes, **options},
        seed=arguments.seed,
        files_per_rank=files,
        isolated=not arguments.smoke,
    )


def run(plan: Plan, compared: dict[str, Any]) -> dict[str, Any]:
    """Run every combination, and the combinations to compare again with the options `compared`."""
    num = max(plan.setting.counts + plan.setting.compared_counts)
    shelf = make_shelf(plan.shelf_folder, plan.model, RANKS, num, plan.seed, plan.files_per_rank)
    capacity_per_s = measure_capacity(plan, first(shelf, min(plan.setting.counts)))
    print(f"capacity: {capacity_per_s:.2f} requests/s", flush=True)
    missing = unknown_options(plan.options | compared)
    runs = [("paged", plan.options, plan.setting.counts)]
    if not missing:
        runs.append(("compared", plan.options | compared, plan.setting.compared_counts))
    rows: list[dict[str, Any]] = []
    for kind, options, counts in runs:
        for count in counts:
            rows += measure(plan, kind, options, first(shelf, count), capacity_per_s)
            print(f"{kind}, {count} adapters: done", flush=True)
    memory = measure_memory(plan, rows, shelf)
    found = findings(rows, memory) + compared_findings(rows, missing)
    return {
        "capacity requests/s": capacity_per_s,
        "rows": rows,
        "memory": memory,
        "findings": finding_rows(found),
        "options": plan.options,
        "compared": compared,
    }


def measure_points(plan: Plan, folder: Path) -> dict[str, Any]:
    """Median tokens/s of each rank and number of adapters. Each rank has an engine for itself."""
    setting = plan.setting
    keys = [(number, it) for number in range(setting.mix_rounds) for it in setting.mix_counts]
    points: list[dict[str, Any]] = []
    for rank in setting.mix_ranks:
        most = max(setting.mix_counts)
        shelf = make_shelf(folder / str(rank), plan.model, (rank,), most, plan.seed, 1, ALL_TARGETS)
        names = list(shelf.folders)
        traces = tuple(deal_requests(plan, names[:count], number) for number, count in keys)
        options = {"max_lora_rank": max(*RANKS, rank), **plan.options}
        warm_up = tuple(replace(it, max_tokens=1) for it in deal_requests(plan, names, -1))
        result = run_job(job(plan, options, shelf, traces, warm_up), isolated=plan.isolated)
        per_s: dict[int, list[float]] = {}
        for (_, count), trace in zip(keys, result.traces, strict=True):
            per_s.setdefault(count, []).append(get_tokens_per_s(trace, rank, count))
        points += [
            {"rank": rank, "adapters": count, "tokens/s": statistics.median(found)}
            | {"lowest": min(found), "highest": max(found)}
            for count, found in per_s.items()
        ]
        print(f"rank {rank}: done", flush=True)
    return {"points": points, "options": plan.options, "findings": []}


def deal_requests(plan: Plan, names: Sequence[str], number: int) -> tuple[Arrival, ...]:
    """Requests of round `number` that arrive at once, with each adapter as often as the others.

    Lengths are the same in all rounds. Tokens differ, so that no prompt has been seen before.
    """
    setting = plan.setting
    num = max(setting.mix_requests, *setting.mix_counts)
    lengths = random.Random(f"{plan.seed} lengths")
    tokens = random.Random(f"{plan.seed} {len(names)} adapters, round {number}")
    dealt = [names[place % len(names)] for place in range(num)]
    tokens.shuffle(dealt)
    return tuple(
        Arrival(
            at_s=0.0,
            prompt=random_prompt(
                tokens, lengths.randint(*setting.prompt_tokens), setting.vocabulary
            ),
            max_tokens=lengths.randint(*setting.new_tokens),
            adapter=name,
        )
        for name in dealt
    )


def get_tokens_per_s(trace: TraceResult, rank: int, count: int) -> float:
    """Tokens a second of a round. Raises RuntimeError if a request failed or did not end."""
    found = summary(trace.served, trace.took_s)
    if found["failed"]:
        errors = [it.error for it in trace.served if it.error]
        why = errors[0] if errors else f"they did not end within {trace.took_s:.0f} s"
        raise RuntimeError(
            f"rank {rank}, {count} adapters: {found['failed']} of {found['requests']} requests "
            f"failed ({why}); nothing is written. Measure fewer adapters with --counts"
        )
    return float(found["tokens/s"])


def first(shelf: Shelf, count: int) -> Shelf:
    """The first `count` adapters."""
    names = list(shelf.folders)[:count]
    return Shelf(
        folders={name: shelf.folders[name] for name in names},
        ranks={name: shelf.ranks[name] for name in names},
    )


def measure_capacity(plan: Plan, shelf: Shelf) -> float:
    """Requests a second when all have arrived at once, with the fewest adapters."""
    popularity = Popularity(shelf, 1.0)
    num = plan.setting.capacity_requests
    arrivals = tuple(requests(plan, popularity, [0.0] * num, "capacity"))
    result = run_job(
        job(plan, plan.options, shelf, (arrivals,), arrivals[: num // 4]), isolated=plan.isolated
    )
    return len(arrivals) / result.traces[0].took_s


def measure(
    plan: Plan, kind: str, options: dict[str, Any], shelf: Shelf, capacity_per_s: float
) -> list[dict[str, Any]]:
    """Rows of one number of adapters: each popularity and load in turn, in one engine process."""
    popularities = {name: Popularity(shelf, it) for name, it in plan.setting.popularities}
    keys = [(name, share) for name in popularities for share in (BELOW, ABOVE)]
    traces = tuple(
        tuple(
            requests(plan, popularities[name], times(plan, share * capacity_per_s), f"load {share}")
        )
        for name, share in keys
    )
    warm_up = tuple(requests(plan, popularities[keys[0][0]], [0.0] * NUM_WARM_UP, "warm-up"))
    result = run_job(job(plan, options, shelf, traces, warm_up), isolated=plan.isolated)
    return [
        {"kind": kind, "adapters": len(shelf.folders), "popularity": name, "load": share}
        | summary(trace.served, trace.took_s)
        | circumstances(trace, result)
        for (name, share), trace in zip(keys, result.traces, strict=True)
    ]


def circumstances(trace: TraceResult, result: Result) -> dict[str, Any]:
    """The counters of the engine's process during the trace, and its memory in the end."""
    wanted = ("loads", "evict", "preempt", "uploads")
    counts = {
        name: value for name, value in trace.counts.items() if any(it in name for it in wanted)
    }
    return counts | {"pss MB": result.pss_bytes / 1e6, "register s": result.register_s}


def times(plan: Plan, per_s: float) -> list[float]:
    """Arrival times of requests, which are the same for every number of adapters."""
    source = random.Random(f"{plan.seed} {per_s}")
    return list(gamma_arrival_times(source, per_s, plan.setting.cv, plan.setting.duration_s))


def requests(
    plan: Plan, popularity: Popularity, at_s: Sequence[float], occasion: str
) -> list[Arrival]:
    """A request for each instant. Only its choice of an adapter of a rank depends on the shelf."""
    shape = random.Random(f"{plan.seed} {occasion} shape")
    ranks = random.Random(f"{plan.seed} {occasion} ranks")
    names = random.Random(f"{plan.seed} {occasion} names")
    setting = plan.setting
    return [
        Arrival(
            at_s=each,
            prompt=random_prompt(shape, shape.randint(*setting.prompt_tokens), setting.vocabulary),
            max_tokens=shape.randint(*setting.new_tokens),
            adapter=popularity.draw(ranks, names),
        )
        for each in at_s
    ]


def job(
    plan: Plan,
    options: dict[str, Any],
    shelf: Shelf,
    traces: tuple[tuple[Arrival, ...], ...],
    warm_up: tuple[Arrival, ...] = (),
) -> Job:
    """A run in a separate process."""
    return Job(
        model=str(plan.model),
        options=options,
        adapters={name: str(folder) for name, folder in shelf.folders.items()},
        traces=traces,
        warm_up=warm_up,
        give_up_after_s=plan.setting.duration_s * 4 + 30,
    )


def measure_memory(plan: Plan, rows: list[dict[str, Any]], shelf: Shelf) -> dict[str, Any]:
    """Compare one base with about a hundred adapters and as many whole models."""
    counts = [count for count in plan.setting.counts if count <= NUM_COMPARED]
    count = max(counts)
    arrivals = (Arrival(at_s=0.0, prompt=(7, 8, 9), max_tokens=4),)
    alone = run_job(job(plan, plan.options, first(shelf, 0), (arrivals,)), isolated=plan.isolated)
    held_mb = max(row["pss MB"] for row in rows if row["adapters"] == count)
    weights_bytes = sum(file.stat().st_size for file in plan.model.glob("*.safetensors"))
    together_bytes = weights_bytes + first(shelf, count).num_bytes
    return {
        "adapters": count,
        "process with base MB": alone.pss_bytes / 1e6,
        "process with base and adapters MB": held_mb,
        "share of as many processes": held_mb * 1e6 / (count * alone.pss_bytes),
        "share of as many models' weights": together_bytes / (count * weights_bytes),
    }


def findings(rows: list[dict[str, Any]], memory: dict[str, Any]) -> list[Finding]:
    """Change from the fewest to the most adapters at equal load, and memory."""
    found: list[Finding] = []
    paged = [row for row in rows if row["kind"] == "paged"]
    few, many = (pick(row["adapters"] for row in paged) for pick in (min, max))
    keys = dict.fromkeys((row["popularity"], row["load"]) for row in paged)
    for popularity, load in keys:
        pair = [
            next(
                row
                for row in paged
                if (row["popularity"], row["load"], row["adapters"]) == (popularity, load, count)
            )
            for count in (few, many)
        ]
        where = f"{popularity}, load {load:g}: {many} / {few} adapters"
        within = f"first within {GOAL_S:g} s"
        for name in ("requests/s", within):
            value = ratio(pair[1][name], pair[0][name])
            found.append(Finding(what=f"{name}, {where}", value=value, at_least=1 - MAX_CHANGE))
        for name in ("first p50 s", "first p99 s"):
            value = ratio(pair[1][name], pair[0][name])
            found.append(Finding(what=f"{name}, {where}", value=value, at_most=1 + MAX_CHANGE))
    for name in ("share of as many processes", "share of as many models' weights"):
        what = f"one base + {memory['adapters']} adapters: {name}"
        found.append(Finding(what=what, value=memory[name], at_most=0.05))
    return found


def compared_findings(rows: list[dict[str, Any]], missing: Sequence[str]) -> list[Finding]:
    """Gains of paging over the compared settings, for each number of adapters and load."""
    if missing:
        why = f"this engine has no setting {', '.join(missing)}"
        return [Finding(what="paged / compared", value=None, why=why)]
    found: list[Finding] = []
    keys = ("popularity", "load", "adapters")
    compared = {tuple(row[key] for key in keys): row for row in rows if row["kind"] == "compared"}
    for row in rows:
        other = compared.get(tuple(row[key] for key in keys))
        if row["kind"] == "paged" and other:
            where = f"{row['popularity']}, load {row['load']:g}, {row['adapters']} adapters"
            for name in ("requests/s", "first p99 s"):
                value = ratio(row[name], other[name])
                found.append(Finding(what=f"paged / compared: {name}, {where}", value=value))
    return found


def report(measured: dict[str, Any]) -> None:
    """Print everything as tables."""
    print_table(f"Capacity {measured['capacity requests/s']:.2f} requests/s", measured["rows"])
    print_table("Memory", [measured["memory"]])
    print_table("Against the aims", measured["findings"])


if __name__ == "__main__":
    main()
