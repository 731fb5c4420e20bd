"""A thousand scikit-learn models on one instance, compared with Ray Serve and Triton.

The models (a third each linear, nearest neighbours, trees, with 1 KB to 15 MB) lie in a real
platform's S3. All contestants load them on request: a multi-model endpoint with memory for a part
of them, Ray Serve's multiplexing, whose models share one process, and Triton's explicit control
with a process for each model, in which this script unloads the least recently used.

The tables show first and further calls, in rounds, the memory of a loaded model and of an unload,
and requests by Zipf's law, with and without drift, with the hits that LRU, LFU, GDSF and Belady's
would have had on the same requests with the models' measured sizes.

``python -m benchmarks.multi_model [--setting short|full] [--without ray|triton] [--peers-dir DIR]``
"""

import argparse
import contextlib
import os
import random
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.aims import Finding, finding_rows, ratio
from benchmarks.many_models_bench import SETTINGS, Bench, Row, running_peer
from benchmarks.many_models_live import (
    Called,
    first_seconds,
    hit_row,
    live_calls,
    requests_of,
    run_trace,
    speed_row,
)
from benchmarks.many_models_memory import (
    memory_of_peer,
    memory_of_processes,
    memory_of_server,
    memory_row,
)
from benchmarks.many_models_platform import (
    running_endpoint,
    running_platform,
    runtime_in,
    train_archives,
    upload,
)
from benchmarks.model_trace import MB
from benchmarks.peers.many_models import PACKAGES, environment_of
from benchmarks.peers.model_shelf import ModelShelf
from benchmarks.record import print_table, write_result
from hostelry.base.runtimes import runtimes_folder

SEED = 20261123
SHARE_OF_A_PROCESS, GIVEN_BACK, BELOW_BELADY = 0.1, 0.98, 3.0


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.multi_model", description=__doc__)
    parser.add_argument("--setting", choices=SETTINGS, default="short")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--without", action="append", choices=PACKAGES, default=[])
    parser.add_argument(
        "--peers-dir",
        type=Path,
        help="of their environments; default: temporary",
    )
    parser.add_argument("--models-dir", type=Path, help="where they are kept; default: temporary")
    parser.add_argument("--runtimes", type=Path, help="default: HOSTELRY_RUNTIMES_DIR, or yours")
    arguments = parser.parse_args(argv)
    setting = SETTINGS[arguments.setting]
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        peers_dir = (arguments.peers_dir or scratch / "peers").absolute()
        names = [name for name in PACKAGES if name not in arguments.without]
        peers = {name: environment_of(name, peers_dir) for name in names}
        runtimes = (arguments.runtimes or runtimes_folder(os.environ)).absolute()
        python = runtime_in(runtimes)
        print(f"training {setting.num_models} models", flush=True)
        models = (arguments.models_dir or scratch / "models").absolute()
        answers = train_archives(python, models, setting.num_models, setting.scale, arguments.seed)
        with running_platform(scratch, runtimes) as platform:
            print("uploading them", flush=True)
            upload(platform, models, sorted(answers))
            small, mixed = small_and_mixed(models, setting.together, arguments.seed)
            bench = Bench(
                setting=setting, scratch=scratch, models=models, python=python, platform=platform,
                answers=answers, small=small, mixed=mixed, peers=peers,
            )  # fmt: skip
            measured = measure(bench, arguments.seed)
    for title, rows in measured.items():
        print_table(title, rows)
    write_result("multi_model", arguments.setting, arguments.seed, measured)


def small_and_mixed(models: Path, together: int, seed: int) -> tuple[list[str], list[str]]:
    """The smallest models, and as many models of all sizes."""
    archives = sorted(models.glob("*.tar.gz"), key=lambda it: it.stat().st_size)
    names = [archive.name for archive in archives]
    return names[:together], random.Random(seed).sample(names[together:], together)


def measure(bench: Bench, seed: int) -> dict[str, list[Row]]:
    """Measure all tables."""
    print("measuring", flush=True)
    calls, memory = rounds_and_memory(bench)
    memory += [memory_of_server(bench), memory_of_processes(bench)]
    traces = requests_of(bench.setting, seed)
    hits: list[Row] = []
    ours: list[Called] = []
    for name, numbers in traces.items():
        with running_endpoint(bench.platform, f"trace-{len(hits)}") as endpoint:
            called, num_hits = live_calls(bench, endpoint, numbers)
            account = endpoint.account()
            hits.append(hit_row(name, called, num_hits, account))
            if not ours:
                ours, capacity = called, account["memory_bytes"]
                loaded = sum(it["loaded"] for it in account["models"])
                memory.append(memory_row("platform, full", loaded, endpoint.memory_bytes / MB))
                found = sum(it["hits"] for it in account["models"]) / len(called)
    speeds = [speed_row("hostelry", loaded, ours, found) | {"ours / its": 1.0}]
    more = {row["what"]: row["MB a further one"] for row in memory}
    for name in bench.peers:
        most = min(int(capacity / MB / more[name]), bench.setting.num_models)
        with running_peer(bench, name, most) as peer:
            numbers = next(iter(traces.values()))
            called, failure = run_trace(bench, peer, numbers, bench.setting.peer_s)
            if failure is not None:
                print(f"{name} after {len(called)} requests: {failure}", flush=True)
            times = first_seconds(called) / first_seconds(ours[: len(called)])
            speeds.append(speed_row(name, most, called) | {"ours / its": times})
    print("measured", flush=True)
    return {
        "Calls, one after the other": calls,
        "Memory": memory,
        "Hits in percent": hits,
        f"{bench.setting.callers} callers, Zipf 0.9": speeds,
        "Against the aims": finding_rows(findings(memory, hits)),
    }


def rounds_and_memory(bench: Bench) -> tuple[list[Row], list[Row]]:
    """First and further calls of all contestants, and the memory of the peers."""
    setting = bench.setting
    seconds: dict[str, list[dict[str, float]]] = {}
    order = random.Random(SEED).sample(sorted(bench.answers), len(bench.answers))
    fresh = [it for it in order if it not in {*bench.small, *bench.mixed}]
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(running_endpoint(bench.platform, "rounds"))
        most = max(setting.together, setting.rounds * setting.cold + 1)
        peers = [stack.enter_context(running_peer(bench, name, most)) for name in bench.peers]
        shelves: list[ModelShelf] = [ours, *peers]
        for shelf in shelves:
            bench.checked(shelf, bench.small[0])  # imports the libraries once
        for number in range(setting.rounds):
            cold = fresh[number * setting.cold : (number + 1) * setting.cold]
            for shelf in shelves if number % 2 == 0 else reversed(shelves):
                first = [bench.checked(shelf, target)[0] for target in cold]
                warm = [bench.checked(shelf, cold[0])[0] for _ in range(setting.warm)]
                found = {"first": statistics.median(first), "warm": statistics.median(warm)}
                seconds.setdefault(shelf.name, []).append(found)
        memory = [memory_of_peer(bench, peer) for peer in peers]
    return [call_row(name, seconds[name], seconds["hostelry"]) for name in seconds], memory


def call_row(
    name: str, seconds: Sequence[dict[str, float]], ours: Sequence[dict[str, float]]
) -> Row:
    """A contestant's medians, and the medians of the ratios within rounds."""
    row: Row = {"server": name}
    for kind in ("first", "warm"):
        row[f"{kind}, ms"] = 1000 * statistics.median(it[kind] for it in seconds)
        pairs = zip(ours, seconds, strict=True)
        row[f"{kind}, ours / its"] = statistics.median(a[kind] / b[kind] for a, b in pairs)
    return row


def findings(memory: Sequence[Row], hits: Sequence[Row]) -> list[Finding]:
    """The results, compared with the aims."""
    rows = {row["what"]: row for row in memory}
    alone = rows["a process each"]["MB a model"]
    return [
        Finding(
            what="points of hits below Belady's, at worst",
            value=max(row["Belady"] - row["live"] for row in hits),
            at_most=BELOW_BELADY,
        ),
        Finding(
            what="points of hits below LRU's, at worst",
            value=max(row["LRU"] - row["live"] for row in hits),
            at_most=0.0,
        ),
        Finding(
            what="memory of a loaded model / of a process with it",
            value=ratio(rows["platform, full"]["MB a model"], alone),
            at_most=SHARE_OF_A_PROCESS,
        ),
        Finding(
            what="memory that unloads give back",
            value=rows["hostelry"]["given back, %"] / 100,
            at_least=GIVEN_BACK,
        ),
    ]


if __name__ == "__main__":
    main()
