"""The concurrency that `hostelry load --find` finds, and AIPerf's on the same endpoint.

Each round is a search of ours and one of AIPerf, in turns, under one limit: the latency's 95th
percentile. AIPerf searches three quarters to four thirds of our first answer. Both say the highest
concurrency that kept the limit. The engine has one half of the CPUs. All other processes have the
other half, because AIPerf takes more CPU time for its load than `hostelry load` does.

    python -m benchmarks.peers install aiperf
    python -m benchmarks.slo_search --rounds 3 --step-s 20
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.integration.platform import Platform

from benchmarks.live_component import COMPONENT, running_component
from benchmarks.models import model_folder
from benchmarks.peers.installed import aiperf_program
from benchmarks.record import print_table, write_result
from hostelry.base.proc import PROC, processes

PROMPT = "Write a short story about a lighthouse."
TOKENS = 4
SERVER = b"hostelry.containers.lmi"  # in the command lines of the HTTP process and its engine's
SEARCH_S = 900.0  # at most, of one search
# Without it AIPerf's users begin at once, and that burst is its 95th percentile: 10 s a step gave
# 21 and 22 where ours gave 25 twice.
RAMP_S = 2.0


def main() -> None:
    """Search in turns, print the table and write it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--step-s", type=float, default=5.0, help="seconds of load a concurrency")
    parser.add_argument("--limit-ms", type=float, default=2000.0)
    parser.add_argument("--model", type=Path, help="a model's folder; default the demo model")
    given = parser.parse_args()
    peer = aiperf_program()
    cpus = sorted(os.sched_getaffinity(0))
    half = len(cpus) // 2
    if half:
        os.sched_setaffinity(0, cpus[half:])
    with tempfile.TemporaryDirectory() as scratch:
        model = model_folder(given.model, Path(scratch), tiny=False)
        with running_component(Path(scratch), model, cpus=1.0) as platform:
            if half:
                move_engine(cpus[:half])
            rows = []
            for number in range(given.rounds):
                own = find(platform, given.step_s, given.limit_ms)
                middle = max(3, rows[0]["ours"] if rows else own)
                folder = Path(scratch) / f"aiperf-{number}"
                theirs = find_by_aiperf(
                    peer, platform, model, folder, middle, given.step_s, given.limit_ms
                )
                rows.append({"round": number + 1, "ours": own, "AIPerf": theirs})
                print(rows[-1], flush=True)
    print_table(f"highest concurrency with latency p95 <= {given.limit_ms:g} ms", rows)
    ours, peers = ([it[name] for it in rows] for name in ("ours", "AIPerf"))
    summary = {
        "ours to AIPerf": statistics.median(ours) / statistics.median(peers),
        "spread of ours": (max(ours) - min(ours)) / statistics.median(ours),
        "spread of AIPerf": (max(peers) - min(peers)) / statistics.median(peers),
    }
    print_table("medians and spreads", [summary])
    setting = (
        f"{given.rounds} rounds, {given.step_s:g} s a step, {given.limit_ms:g} ms,"
        f" {half} CPUs of {len(cpus)} for the engine"
    )
    write_result("slo_search", setting, 0, {"rounds": rows, **summary})


def move_engine(cpus: Sequence[int]) -> None:
    """Let the engine's process of the only LLM server here run on these CPUs."""
    servers: dict[int, int] = {}  # pids with their parents'
    for stat in processes():
        folder = PROC / str(stat.pid)
        if SERVER in (folder / "cmdline").read_bytes():
            status = (folder / "status").read_text().split("PPid:")[1]
            servers[stat.pid] = int(status.split()[0])
    parents = set(servers.values())
    (engine,) = [
        pid for pid, parent in servers.items() if parent in servers and pid not in parents
    ]  # the warm process, the HTTP process, the engine's
    for thread in (PROC / str(engine) / "task").iterdir():
        os.sched_setaffinity(int(thread.name), cpus)


def find(platform: Platform, step_s: float, limit_ms: float) -> int:
    """The concurrency that `hostelry load --find` names."""
    own = str(Path(sys.executable).with_name("hostelry"))
    done = subprocess.run(
        [
            own, "load", COMPONENT, "--home", str(platform.home.root), "--find", "--json",
            "--max-latency-ms", f"{limit_ms:g}", "--duration", f"{step_s:g}",
            "--prompt", PROMPT, "--max-tokens", str(TOKENS),
        ],
        capture_output=True, text=True, timeout=SEARCH_S, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"hostelry load ended with {done.returncode}: {done.stderr[-2000:]}")
    return int(json.loads(done.stdout)["search"]["concurrency"])


def find_by_aiperf(
    program: Path,
    platform: Platform,
    model: Path,
    folder: Path,
    middle: int,
    step_s: float,
    limit_ms: float,
) -> int:
    """The concurrency that AIPerf's own search names. Raises RuntimeError if it names none."""
    folder.mkdir()
    prompts = folder / "prompts.jsonl"
    prompts.write_text(json.dumps({"text": PROMPT}) + "\n")
    options = {
        "--model": COMPONENT, "--url": f"http://127.0.0.1:{platform.port}",
        "--endpoint-type": "chat", "--api-key": platform.credentials.openai_api_key,
        "--tokenizer": str(model), "--input-file": str(prompts),
        "--custom-dataset-type": "single-turn", "--extra-inputs": f"max_tokens:{TOKENS}",
        "--benchmark-duration": f"{step_s:g}", "--benchmark-grace-period": "30",
        "--warmup-duration": f"{RAMP_S:g}", "--concurrency-ramp-duration": f"{RAMP_S:g}",
        "--search-recipe": "max-concurrency-under-sla", "--search-style": "monotonic",
        "--concurrency-min": str(middle * 3 // 4), "--concurrency-max": str(middle * 4 // 3),
        "--error-rate-sla": "0.01", "--search-sla": f"request_latency:p95:le:{limit_ms:g}",
        "--ui": "none", "--artifact-dir": str(folder),
    }  # fmt: skip
    words = [word for option in options.items() for word in option]
    flags = ["--streaming", "--no-server-metrics", "--no-gpu-telemetry"]
    done = subprocess.run(
        [str(program), "profile", *words, *flags],
        capture_output=True, text=True, timeout=SEARCH_S, check=False,
        env={**os.environ, "AIPERF_SEARCH_PLANNER_SLA_PRECISION_DEFAULT": "0.02"},
    )  # fmt: skip
    history = folder / "search_history.json"
    if done.returncode != 0 or not history.exists():
        raise RuntimeError(f"AIPerf ended with {done.returncode}: {done.stderr[-2000:]}")
    found: Any = json.loads(history.read_bytes())["boundary_summary"]["feasible_max"]
    shutil.rmtree(folder)
    return int(found["value"])


if __name__ == "__main__":
    main()
