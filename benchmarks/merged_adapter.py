"""Claim: merging an adapter pays if nearly all requests are for it.

Merged weights are compared with the same adapter unmerged, and with the base. SmolLM2-135M-Instruct
in bf16 with a rank-16 adapter on all seven linear targets runs in an engine with `fuse_adapter` and
in one without, each in its process. 1, 4 and 16 streams use the adapter or the base, then mixes of
both. A step of a mix reads merged and base weights, so merging pays only above some share of the
adapter. Both engines run each case in turn. Ratios are within a round, of tokens a processor second
if known. On a busy machine only ``--threads 1`` is of use.

``python -m benchmarks.merged_adapter [--setting short|full] [--smoke]``
"""

import argparse
import contextlib
import itertools
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.models import random_adapter

from benchmarks.aims import Finding, finding_rows
from benchmarks.contest import Case, Contest, Samples, latency_rows, speed_rows
from benchmarks.models import model_folder
from benchmarks.peers.contestant import Contestant
from benchmarks.peers.worker import Setup, start_worker
from benchmarks.record import print_table, write_result

SEED, RANK, HOT = 20261123, 16, "hot"
MERGED, UNMERGED = "merged", "unmerged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How much to measure."""

    streams: tuple[int, ...] = (1, 4, 16)
    shares: tuple[float, ...] = (0.5, 0.75)  # of the adapter, in mixes with the base
    prompt_tokens: int = 32
    new_tokens: int = 32
    rounds: int


SETTINGS = {
    "smoke": Setting(streams=(1, 4), shares=(0.5,), prompt_tokens=8, new_tokens=3, rounds=2),
    "short": Setting(rounds=5),
    "full": Setting(rounds=15),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """A mix in which `own` of the streams use the adapter, and the others use the base."""

    streams: int
    own: int

    def case(self, setting: Setting) -> Case:
        """The load, under the name of the mix."""
        adapters = (HOT,) * self.own + (None,) * (self.streams - self.own)
        return Case(
            name=f"{self.own} of {self.streams}",
            adapters=adapters,
            prompt_tokens=setting.prompt_tokens,
            new_tokens=setting.new_tokens,
        )


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.merged_adapter")
    parser.add_argument("--setting", choices=("short", "full"), default="short")
    parser.add_argument("--smoke", action="store_true", help="a tiny model and few counts")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--attempts", type=int, default=1, help="at a batch that is disturbed")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--model", type=Path, help="a model folder; default the demo model")
    arguments = parser.parse_args(argv)
    name = "smoke" if arguments.smoke else arguments.setting
    with tempfile.TemporaryDirectory() as scratch:
        measured = run(arguments, SETTINGS[name], Path(scratch))
    for title in ("ratios", "memory", "speeds", "latencies", "findings"):
        print_table(title, measured[title])
    write_result("merged_adapter", name, SEED, measured)


def mixes(setting: Setting) -> list[Mix]:
    """Mixes from none to all of the adapter for each number of streams, neighbours in time."""
    ends = [Mix(streams=it, own=own) for it in setting.streams for own in (it, 0)]
    between = [
        Mix(streams=streams, own=round(streams * share))
        for streams, share in itertools.product(setting.streams, setting.shares)
        if 0 < round(streams * share) < streams
    ]
    return sorted({*ends, *between}, key=lambda mix: (mix.streams, mix.own))


def run(arguments: argparse.Namespace, setting: Setting, scratch: Path) -> dict[str, Any]:
    """Start both engines, run all rounds, and return the results."""
    model = model_folder(arguments.model, scratch, tiny=arguments.smoke)
    dtype = "float32" if arguments.smoke else "bfloat16"
    adapter = random_adapter(scratch / HOT, model, RANK, seed=SEED, std=0.02, dtype=dtype)
    vocabulary = range(5, 250) if arguments.smoke else None
    contests = {
        mix: Contest([mix.case(setting)], SEED, vocabulary, arguments.attempts)
        for mix in mixes(setting)
    }
    with contextlib.ExitStack() as running:
        engines: list[Contestant] = []
        for name, options in ((MERGED, {"fuse_adapter": HOT}), (UNMERGED, {})):
            setup = Setup(
                model=str(model),
                adapters={HOT: str(adapter)},
                num_threads=1 if arguments.smoke else arguments.threads,
                options=options,
            )
            worker = "benchmarks.peers.engine_worker"
            engines.append(start_worker(name, worker, setup, scratch / f"{name}.log"))
            running.callback(engines[-1].stop)
            for contest in contests.values():
                contest.warm_up(engines[-1])
        for number in range(arguments.rounds or setting.rounds):
            for contest in contests.values():
                contest.run_round(number, engines)
        memory = [
            {"engine": each.name, "peak pss MB": each.peak_pss_bytes / 1e6, "ready s": each.ready_s}
            for each in engines
        ]
    samples = {
        (mix, engine): contest.results[mix.case(setting).name, engine]
        for mix, contest in contests.items()
        for engine in (MERGED, UNMERGED)
    }
    results = {key: it for contest in contests.values() for key, it in contest.results.items()}
    rows = [ratio_row(mix, samples) for mix in contests]
    return {
        "ratios": rows,
        "memory": memory,
        "speeds": list(speed_rows(results)),
        "latencies": list(latency_rows(results)),
        "findings": finding_rows(findings(rows)),
        "threads": arguments.threads,
    }


def ratio_row(mix: Mix, samples: dict[tuple[Mix, str], Samples]) -> dict[str, Any]:
    """Medians over rounds of one mix against the base alone, in both processes.

    Each is compared with the base in the same process, since the place of memory changes the speed
    by a tenth. `gain` is the quotient, of tokens a processor second.
    """
    base = Mix(streams=mix.streams, own=0)
    of_base: dict[str, list[float]] = {}
    firsts: dict[str, list[float]] = {}
    for name in (MERGED, UNMERGED):
        own, other = samples[mix, name], samples[base, name]
        has_cpu_s = all(own.per_cpu_s) and all(other.per_cpu_s)
        pair = (own.per_cpu_s, other.per_cpu_s) if has_cpu_s else (own.per_s, other.per_s)
        of_base[name] = ratios(*pair)
        firsts[name] = ratios(first_tokens(own, mix), first_tokens(other, base))
    gains = ratios(of_base[MERGED], of_base[UNMERGED])
    return {
        "streams": mix.streams,
        "of the adapter": mix.own,
        "share": mix.own / mix.streams,
        "unmerged / base": statistics.median(of_base[UNMERGED]),
        "merged / base": statistics.median(of_base[MERGED]),
        "gain": statistics.median(gains),
        "lowest": min(gains),
        "highest": max(gains),
        "first token": statistics.median(ratios(firsts[MERGED], firsts[UNMERGED])),
        "tokens/s merged / unmerged": statistics.median(
            ratios(samples[mix, MERGED].per_s, samples[mix, UNMERGED].per_s)
        ),
    }


def ratios(over: Sequence[float], under: Sequence[float]) -> list[float]:
    """The ratio of each round."""
    return [a / b for a, b in zip(over, under, strict=True)]


def first_tokens(samples: Samples, mix: Mix) -> list[float]:
    """Each round's median time to a first token."""
    times = samples.first_token_s
    return [
        statistics.median(times[start : start + mix.streams])
        for start in range(0, len(times), mix.streams)
    ]


def findings(rows: Sequence[dict[str, Any]]) -> list[Finding]:
    """The least share of the adapter from which merging is never slower at larger shares."""
    found: list[Finding] = []
    for streams in sorted({row["streams"] for row in rows}):
        own = sorted(
            (row for row in rows if row["streams"] == streams and row["share"] > 0),
            key=lambda row: float(row["share"]),
            reverse=True,
        )
        paying = itertools.takewhile(lambda row: row["gain"] >= 1, own)
        shares = [float(row["share"]) for row in paying]
        what = f"{streams} streams: merging pays from this share of the adapter on"
        why = "it pays at no share that was measured"
        found.append(Finding(what=what, value=min(shares, default=None), why=why))
    return found


if __name__ == "__main__":
    main()
