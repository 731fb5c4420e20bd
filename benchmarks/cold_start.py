"""Time from nothing to a first token: the start of the engine's process, and loads of adapters.

The process's stages are interpreter, torch's import, the engine's import, loading, and a first
token, with a warm page cache, with the model's files out of it, and, if permitted, with everything
out of it. The additional wait for the first token is measured for each place of an adapter.

``python -m benchmarks.cold_start [--setting short|full] [--drop-caches] [--smoke]``
"""

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.adapter_tiers import TierSetting, measure_tiers
from benchmarks.aims import Finding, finding_rows
from benchmarks.engine_options import add_option_argument, parsed_options
from benchmarks.models import model_folder
from benchmarks.page_cache import drop_all, evict, warm
from benchmarks.record import print_table, write_result

SEED = 20261121
STAGES = ("interpreter", "import torch", "import engine", "load", "first token")
WARM, MODEL_COLD, ALL_COLD = "warm", "model's files cold", "everything cold"
MAX_COLD_S = 2.5

CHILD = """
import time
stamps = [time.monotonic()]
import sys, torch
stamps.append(time.monotonic())
from pathlib import Path
import msgspec
from hostelry.engine.config import EngineConfig
from hostelry.engine.engine import Engine
from hostelry.engine.request import Request, SamplingParams
stamps.append(time.monotonic())
config = msgspec.convert(msgspec.json.decode(sys.argv[2]), EngineConfig)
engine = Engine.load(Path(sys.argv[1]), config)
stamps.append(time.monotonic())
sampling = SamplingParams(max_new_tokens=1, ignore_eos=True)
engine.add(Request(id="0", prompt_token_ids=(7, 8, 9, 10), sampling=sampling))
outputs = []
while not outputs:
    outputs = engine.step()
stamps.append(time.monotonic())
print(msgspec.json.encode(stamps).decode())
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How often to start, and how adapters are measured."""

    starts: int
    tiers: TierSetting


SETTINGS = {
    "smoke": Setting(starts=1, tiers=TierSetting(repeats=1, num_others=2, prompt_tokens=4)),
    "short": Setting(starts=5, tiers=TierSetting(repeats=10, num_others=24, prompt_tokens=32)),
    "full": Setting(starts=15, tiers=TierSetting(repeats=50, num_others=48, prompt_tokens=32)),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cold_start", description=__doc__)
    parser.add_argument("--setting", choices=("short", "full"), default="short")
    parser.add_argument("--smoke", action="store_true", help="a tiny model and few counts")
    parser.add_argument("--model", type=Path, help="a model folder; default the demo model")
    parser.add_argument(
        "--drop-caches", action="store_true", help="empty the machine's whole page cache, too"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=SEED)
    add_option_argument(parser)
    arguments = parser.parse_args(argv)
    name = "smoke" if arguments.smoke else arguments.setting
    setting = SETTINGS[name]
    options = {
        "num_threads": 1 if arguments.smoke else arguments.threads,
        **parsed_options(arguments.option),
    }
    with tempfile.TemporaryDirectory() as scratch:
        model = model_folder(arguments.model, Path(scratch), tiny=arguments.smoke)
        starts = measure_starts(model, options, setting.starts, drop=arguments.drop_caches)
        tiers = measure_tiers(model, Path(scratch), options, setting.tiers, arguments.seed)
    measured: dict[str, Any] = {
        "starts": starts,
        "adapters": tiers,
        "findings": finding_rows(findings(starts)),
        "options": options,
    }
    print_table("Process start to first token, seconds (medians)", starts)
    print_table("A request's first token by where its adapter is", tiers)
    print_table("Against the aim", measured["findings"])
    write_result("cold_start", name, arguments.seed, measured)


def measure_starts(
    model: Path, options: dict[str, Any], count: int, *, drop: bool
) -> list[dict[str, Any]]:
    """A row for each state of the page cache, with the median of each stage."""
    files = [file for file in model.iterdir() if file.is_file()]
    states: dict[str, Callable[[], object]] = {
        WARM: lambda: warm(files),
        MODEL_COLD: lambda: evict(files),
    }
    if drop:
        states[ALL_COLD] = drop_all
    started_once(model, options)  # fills the page cache, and is not counted
    rows: list[dict[str, Any]] = []
    for state, prepare in states.items():
        runs: list[list[float]] = []
        for _ in range(count):
            if prepare() is False:
                print(f"{state}: this process may not empty the page cache; not measured")
                break
            runs.append(started_once(model, options))
        if runs:
            rows.append(start_row(state, runs))
    return rows


def start_row(state: str, runs: list[list[float]]) -> dict[str, Any]:
    """Medians of the stages, and the median and range of the whole start."""
    totals = [sum(stages) for stages in runs]
    stages = {
        name: statistics.median(run[number] for run in runs) for number, name in enumerate(STAGES)
    }
    whole = {"whole": statistics.median(totals), "lowest": min(totals), "highest": max(totals)}
    return {"page cache": state, **stages, **whole, "starts": len(runs)}


def started_once(model: Path, options: dict[str, Any]) -> list[float]:
    """Seconds of each stage of one start. Both processes read the machine's monotonic clock."""
    threads = str(options["num_threads"])
    started_at_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(model), msgspec.json.encode(options).decode()],
        env={**os.environ, "OMP_NUM_THREADS": threads},
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the engine did not start:\n{done.stderr.decode()[-2000:]}")
    stamps = [started_at_s, *msgspec.json.decode(done.stdout, type=list[float])]
    return [after - before for before, after in itertools.pairwise(stamps)]


def findings(starts: Sequence[dict[str, Any]]) -> list[Finding]:
    """The whole start against the aim, in each state of the page cache."""
    return [
        Finding(
            what=f"process start to first token, s, page cache {row['page cache']}",
            value=row["whole"],
            at_most=MAX_COLD_S,
        )
        for row in starts
    ]


if __name__ == "__main__":
    main()
