"""LLM servers on one GPU with an 8B model's shapes: ours, its engine alone, vLLM and SGLang.

The weights are random, so that nothing is downloaded. Up to 1,000 adapters of rank 16 update all
products. The servers run one after another. Each answers 64 requests at a time: of the base, of 1
to 1,000 adapters, greedy and sampled, and one prompt of 2,048 tokens. Cases that are left after
--minutes are not measured, and the report says so.

vLLM and SGLang take part if their interpreters are named. Their published figures are in the report
in any case. --tiny is for CPUs, and only shows that the benchmark runs.

``python -m benchmarks.gpu_contest [--tiny] [--minutes 8] [--vllm PYTHON] [--sglang PYTHON]``
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.adapter_shelf import make_shelf
from benchmarks.aims import Finding, finding_rows, ratio
from benchmarks.contest import Case, Contest, Results, latency_rows, speed, speed_rows
from benchmarks.gpu_model import MODULES
from benchmarks.gpu_model import TINY as TINY_SIZES
from benchmarks.peers.contestant import Contestant
from benchmarks.peers.gpu_servers import start_gpu_sglang, start_gpu_vllm
from benchmarks.peers.lmi import start_lmi
from benchmarks.peers.worker import Setup, start_worker
from benchmarks.random_model import LLAMA_3_8B, write_random_model
from benchmarks.record import print_table, write_result

SEED = 20261130
RANK = 16
SERVER, ENGINE = "ours, server", "ours, engine"
SAMPLED = 1.0  # the temperature of requests that do not name one
LEFT_S = 45.0  # a server that would start later than this before the end does not start
PUBLISHED = [  # Llama 3.1 8B on one H100, as published by the peers
    {"engine": "vLLM", "adapters": 384, "slots": 16, "tokens/s": 5033},
    {"engine": "vLLM", "adapters": 384, "slots": 192, "tokens/s": 1877},
    {"engine": "vLLM", "adapters": 64, "slots": 64, "tokens/s": 4968},
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The sizes of a run. `batch` requests are computed at a time."""

    adapters: tuple[int, ...]
    batch: int
    requests: int
    prompt_tokens: int
    long_prompt_tokens: int
    new_tokens: int
    rounds: int
    threads: int
    vocabulary: range


FULL = Setting(
    adapters=(1, 8, 64, 256, 1000),
    batch=64,
    requests=256,
    prompt_tokens=32,
    long_prompt_tokens=2048,
    new_tokens=32,
    rounds=2,
    threads=8,
    vocabulary=range(1000, 120_000),
)
TINY = Setting(
    adapters=(1, 4),
    batch=2,
    requests=3,
    prompt_tokens=4,
    long_prompt_tokens=16,
    new_tokens=3,
    rounds=1,
    threads=1,
    vocabulary=range(5, 250),
)


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_contest", description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="small sizes, on any machine")
    parser.add_argument("--minutes", type=float, default=8.0, help="[default: %(default)g]")
    parser.add_argument("--vllm", type=Path, metavar="PYTHON", help="an interpreter with vLLM")
    parser.add_argument("--sglang", type=Path, metavar="PYTHON", help="one with SGLang")
    given = parser.parse_args(argv)
    if not given.tiny and not torch.cuda.is_available():
        parser.error("no GPU is here: --tiny runs on a CPU")
    ends_s = time.monotonic() + 60 * given.minutes
    setting = TINY if given.tiny else FULL
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        sizes = replace(TINY_SIZES, vocab_size=259, max_len=128) if given.tiny else LLAMA_3_8B
        model = write_random_model(folder / "model", sizes, torch.bfloat16)
        shelf = make_shelf(
            folder / "shelf", model, (RANK,), max(setting.adapters), SEED, targets=MODULES
        )
        starts = list_starts(setting, model, shelf.folders, folder, given.vllm, given.sglang)
        measured = run_contest(setting, list(shelf.folders), starts, ends_s)
    for title in ("engines", "speeds", "latencies", "published", "findings"):
        print_table(title, measured[title])
    write_result("gpu_contest", "tiny" if given.tiny else "full", SEED, measured)


def list_cases(setting: Setting, names: Sequence[str]) -> dict[str, Case]:
    """Every shape of load, by a short key."""

    def build(title: str, count: int, temperature: float = 0.0) -> Case:
        wanted = max(setting.requests, count)
        users = tuple(names[number % count] if count else None for number in range(wanted))
        return Case(
            name=title,
            adapters=users,
            prompt_tokens=setting.prompt_tokens,
            new_tokens=setting.new_tokens,
            temperature=temperature,
        )

    most = setting.adapters[-1]
    return {
        "base": build("base", 0),
        **{str(it): build(f"{it} adapters", it) for it in setting.adapters},
        "sampled base": build("base, sampled", 0, SAMPLED),
        "sampled": build(f"{most} adapters, sampled", most, SAMPLED),
        "prompt": Case(
            name="one long prompt",
            adapters=(None,),
            prompt_tokens=setting.long_prompt_tokens,
            new_tokens=2,
        ),
    }


def list_starts(
    setting: Setting,
    model: Path,
    adapters: dict[str, Path],
    scratch: Path,
    vllm: Path | None,
    sglang: Path | None,
) -> Mapping[str, Callable[[], Contestant]]:
    """The functions that start the contestants, by name."""
    threads, batch = setting.threads, setting.batch
    options = {"OPTION_MAX_ROLLING_BATCH_SIZE": str(batch)}
    setup = Setup(
        model=str(model), adapters={}, num_threads=threads, options={"max_batch_size": batch}
    )
    worker = "benchmarks.peers.engine_worker"
    starts: dict[str, Callable[[], Contestant]] = {
        SERVER: lambda: start_lmi(SERVER, model, adapters, scratch, threads, RANK, options),
        ENGINE: lambda: start_worker(ENGINE, worker, setup, scratch / "engine.log"),
    }
    if vllm is not None:
        starts["vLLM"] = lambda: start_gpu_vllm(vllm, model, adapters, scratch, RANK, batch)
    if sglang is not None:
        starts["SGLang"] = lambda: start_gpu_sglang(sglang, model, adapters, scratch, batch)
    return starts


def run_contest(
    setting: Setting,
    names: Sequence[str],
    starts: Mapping[str, Callable[[], Contestant]],
    ends_s: float,
) -> dict[str, Any]:
    """Start each contestant, measure it, and stop it. Return the results."""
    cases = list_cases(setting, names)
    contests = {key: Contest([case], SEED, setting.vocabulary) for key, case in cases.items()}
    engines: list[dict[str, Any]] = []
    for name, start in starts.items():
        if time.monotonic() > ends_s - LEFT_S:
            engines.append({"engine": name, "ready s": None, "not measured": "the time is over"})
            continue
        try:
            contestant = start()
        except RuntimeError as error:
            engines.append({"engine": name, "ready s": None, "not measured": str(error)})
            continue
        try:
            late = measure(contestant, contests, setting.rounds, ends_s)
        finally:
            contestant.stop()
        row = {"engine": name, "ready s": contestant.ready_s, "not measured": ", ".join(late)}
        engines.append(row)
    results: Results = {}
    for contest in contests.values():
        results |= contest.results
    return {
        "engines": engines,
        "speeds": list(speed_rows(results)),
        "latencies": list(latency_rows(results)),
        "published": PUBLISHED,
        "findings": finding_rows(list(list_findings(setting, cases, results))),
    }


def measure(
    contestant: Contestant, contests: Mapping[str, Contest], rounds: int, ends_s: float
) -> list[str]:
    """Measure the cases until the time is over. Return the keys of the cases that are left."""
    late = []
    for key, contest in contests.items():
        if contestant.name == ENGINE and key not in ("base", "sampled base", "prompt"):
            continue
        if time.monotonic() > ends_s:
            late.append(key)
            continue
        contest.warm_up(contestant)
        for number in range(rounds):
            contest.run_round(number, [contestant])
    return late


def list_findings(
    setting: Setting, cases: Mapping[str, Case], results: Results
) -> Iterator[Finding]:
    """The aims on an H100 or H200, as far as they were measured."""

    def get_speed(key: str, engine: str = SERVER) -> float | None:
        return speed(results, cases[key].name, engine) if key in cases else None

    why = "not measured in time"
    few, many = str(setting.adapters[0]), str(setting.adapters[-1])
    middle = "64" if "64" in cases else many
    yield Finding(
        what=f"base / {middle} adapters: time of a token",
        value=ratio(get_speed("base"), get_speed(middle)), at_most=1.13, why=why,
    )  # fmt: skip
    yield Finding(
        what=f"{many} / {'8' if '8' in cases else few} adapters: tokens/s",
        value=ratio(get_speed(many), get_speed("8" if "8" in cases else few)),
        at_least=0.9, why=why,
    )  # fmt: skip
    yield Finding(
        what="server / engine: tokens/s",
        value=ratio(get_speed("base"), get_speed("base", ENGINE)), at_least=0.95, why=why,
    )  # fmt: skip
    yield Finding(
        what="sampled / greedy: tokens/s",
        value=ratio(get_speed("sampled base"), get_speed("base")), at_least=0.97, why=why,
    )  # fmt: skip
    samples = results.get((cases["prompt"].name, SERVER))
    first_s = min(samples.first_token_s, default=None) if samples else None
    yield Finding(
        what=f"first token of {setting.long_prompt_tokens} prompt tokens, ms",
        value=None if first_s is None else first_s * 1000, at_most=45.0, why=why,
    )  # fmt: skip
    for peer in ("vLLM", "SGLang"):
        for key in ("base", many):
            yield Finding(
                what=f"ours / {peer}, {cases[key].name}: tokens/s",
                value=ratio(get_speed(key), get_speed(key, peer)),
                why="no interpreter with it was named",
            )


if __name__ == "__main__":
    main()
