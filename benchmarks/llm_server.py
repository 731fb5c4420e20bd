"""The LLM server compared with its bare engine, with a gateway in front, and with vLLM.

SmolLM2-135M-Instruct in bf16 without adapters, one stream and sixteen, with the same load for all.
Contestants: the engine in process, our server, our server behind a gateway, `vllm serve`, and our
server with vLLM as its engine, alone, compiled and behind a gateway. Rounds alternate, only one
computes at a time, and each ratio is the median of the ratios within the rounds.

``python -m benchmarks.llm_server [--rounds N] [--peers vllm] [--smoke]``
"""

import argparse
import contextlib
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.aims import Finding, finding_rows
from benchmarks.contest import Case, Contest, Samples, latency_rows, speed_rows
from benchmarks.models import model_folder
from benchmarks.peers.behind_gateway import gateway_before
from benchmarks.peers.contestant import Contestant, PeerMissingError
from benchmarks.peers.installed import vllm_environment
from benchmarks.peers.lmi import PORT, start_lmi
from benchmarks.peers.vllm_cpu import start_vllm
from benchmarks.peers.worker import Setup, start_worker
from benchmarks.record import print_table, write_result
from hostelry.base.ports import free_port

SEED = 20261124
RANK = 16
ENGINE, SERVER, GATEWAY = "engine", "server", "server behind gateway"
VLLM, VLLM_SERVER = "vllm serve", "server with vLLM"
VLLM_GATEWAY = "server with vLLM behind gateway"
COMPILED = "server with compiled vLLM"
PAIRS = (  # over, under, the least speed and the most time to the first token as ratios
    (SERVER, ENGINE, 0.95, 1.05),
    (GATEWAY, SERVER, None, None),
    (SERVER, VLLM, None, None),
    (VLLM_SERVER, VLLM, None, None),
    (COMPILED, VLLM, None, None),
    (VLLM_GATEWAY, VLLM_SERVER, None, None),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The cases, the model and the other settings of a run."""

    model: Path
    rounds: int
    attempts: int
    num_threads: int
    with_vllm: bool
    cases: tuple[Case, ...]
    vocabulary: range | None


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.llm_server", description=__doc__)
    parser.add_argument("--rounds", type=int, default=6, help="[default: %(default)s]")
    parser.add_argument("--attempts", type=int, default=3, help="at a batch that was disturbed")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peers", default="vllm", help="vllm, or nothing [default: %(default)s]")
    parser.add_argument("--model", type=Path, help="a model folder; default the demo model")
    parser.add_argument("--smoke", action="store_true", help="a tiny model, no peers, one round")
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        plan = Plan(
            model=model_folder(given.model, folder, tiny=given.smoke),
            rounds=1 if given.smoke else given.rounds,
            attempts=1 if given.smoke else given.attempts,
            num_threads=1 if given.smoke else given.threads,
            with_vllm=given.peers == "vllm" and not given.smoke,
            cases=tuple(shapes(smoke=given.smoke)),
            vocabulary=range(5, 250) if given.smoke else None,
        )
        measured = run(plan, folder)
    for title in ("engines", "missing", "speeds", "latencies", "findings"):
        print_table(title, measured[title])
    write_result("llm_server", "smoke" if given.smoke else "short", SEED, measured)


def shapes(*, smoke: bool) -> Iterator[Case]:
    """One stream and sixteen."""
    prompt, new = (8, 4) if smoke else (32, 64)
    for streams in (1, 3 if smoke else 16):
        yield Case(
            name=f"{streams} at once",
            adapters=(None,) * streams,
            prompt_tokens=prompt,
            new_tokens=new,
        )


def run(plan: Plan, scratch: Path) -> dict[str, Any]:
    """Start all contestants, run the rounds, and return the results."""
    contest = Contest(plan.cases, SEED, plan.vocabulary, plan.attempts)
    contestants: list[Contestant] = []
    missing: dict[str, str] = {}
    with contextlib.ExitStack() as running:
        for name, start in starts(plan, scratch, running).items():
            try:
                contestant = start()
            except PeerMissingError as error:
                missing[name] = str(error)
                continue
            running.callback(contestant.stop)
            print(f"{name}: ready after {contestant.ready_s:.1f} s", flush=True)
            contest.warm_up(contestant)
            contestants.append(contestant)
        for number in range(plan.rounds):
            contest.run_round(number, contestants)
            print(f"round {number + 1} of {plan.rounds} done", flush=True)
        engines = [{"engine": it.name, "ready s": it.ready_s} for it in contestants]
    return {
        "engines": engines,
        "missing": [{"engine": name, "why": why} for name, why in missing.items()],
        "speeds": list(speed_rows(contest.results)),
        "latencies": list(latency_rows(contest.results)),
        "findings": finding_rows(list(findings(plan, contest, missing))),
        "threads": plan.num_threads,
    }


def starts(
    plan: Plan, scratch: Path, running: contextlib.ExitStack
) -> dict[str, Callable[[], Contestant]]:
    """The functions that start the contestants, by name."""
    threads = plan.num_threads

    def engine() -> Contestant:
        setup = Setup(model=str(plan.model), adapters={}, num_threads=threads, options={})
        worker = "benchmarks.peers.engine_worker"
        return start_worker(ENGINE, worker, setup, scratch / "engine.log")

    def server(
        name: str, *, gateway: bool = False, vllm: bool = False, compiled: bool = False
    ) -> Contestant:
        port = free_port()
        options = {PORT: str(port)}
        if vllm:
            folder = vllm_environment().resolve()
            options |= {
                "OPTION_ROLLING_BATCH": "vllm",
                "HOSTELRY_RUNTIMES_DIR": str(folder.parent),
            }
        if compiled:  # like `vllm serve`. The server's default starts sooner
            options["OPTION_ENFORCE_EAGER"] = "false"
        started = start_lmi(name, plan.model, {}, scratch, threads, RANK, options)
        if not gateway:
            return started
        way = running.enter_context(gateway_before(port, scratch / name.replace(" ", "-")))
        return started.through(name, way.batches, way.pids)

    ours: dict[str, Callable[[], Contestant]] = {
        ENGINE: engine,
        SERVER: lambda: server(SERVER),
        GATEWAY: lambda: server(GATEWAY, gateway=True),
    }
    theirs: dict[str, Callable[[], Contestant]] = {
        VLLM: lambda: start_vllm(plan.model, {}, scratch, threads, RANK).named(VLLM),
        VLLM_SERVER: lambda: server(VLLM_SERVER, vllm=True),
        COMPILED: lambda: server(COMPILED, vllm=True, compiled=True),
        VLLM_GATEWAY: lambda: server(VLLM_GATEWAY, gateway=True, vllm=True),
    }
    return {**ours, **(theirs if plan.with_vllm else {})}


def findings(plan: Plan, contest: Contest, missing: dict[str, str]) -> Iterator[Finding]:
    """Ratios of each pair within the rounds: speed, time to the first token and between tokens."""
    for over, under, least, most in PAIRS:
        for case in plan.cases:
            pair = [contest.results.get((case.name, name)) for name in (over, under)]
            why = missing.get(over) or missing.get(under) or "not asked for"
            what = f"{over} / {under}, {case.name}"
            first, second = pair
            speed = first_token = between = None
            if first is not None and second is not None:
                size = len(case.adapters)
                speed = median_ratio(first.per_s, second.per_s)
                first_token = median_ratio(
                    by_round(first.first_token_s, size), by_round(second.first_token_s, size)
                )
                between = median_ratio(*gaps_of(first, second, size * (case.new_tokens - 1)))
            yield Finding(what=f"{what}: tokens/s", value=speed, at_least=least, why=why)
            yield Finding(what=f"{what}: first token", value=first_token, at_most=most, why=why)
            yield Finding(what=f"{what}: between tokens", value=between, why=why)


def by_round(values: Sequence[float], size: int) -> list[float]:
    """The median of each round's `size` values."""
    rounds = range(0, len(values) - size + 1, size)
    return [statistics.median(values[start : start + size]) for start in rounds]


def gaps_of(first: Samples, second: Samples, size: int) -> tuple[list[float], list[float]]:
    """Median times between tokens of both: by round, or of all rounds if parts came joined."""
    one, other = first.between_s, second.between_s
    if one and other and (len(one) % size or len(other) % size):
        return [statistics.median(one)], [statistics.median(other)]
    return by_round(one, size), by_round(other, size)


def median_ratio(over: Sequence[float], under: Sequence[float]) -> float | None:
    """The median of the rounds' ratios, or None without rounds."""
    ratios = [one / other for one, other in zip(over, under, strict=False) if other]
    return statistics.median(ratios) if ratios else None


if __name__ == "__main__":
    main()
