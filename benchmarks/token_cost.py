"""Processor time of a streamed token in each process on its way: engine, HTTP server, gateway.

A random Llama of two layers with the demo model's vocabulary, so that the model itself takes little
time. The ways: the engine in process, the LLM server, and the server behind a gateway. A token's
time is a batch's processor time divided by its tokens, so it has a share of the request's own time.

``python -m benchmarks.token_cost [--rounds N] [--model FOLDER] [--smoke]``
"""

import argparse
import shutil
import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.aims import Finding, finding_rows
from benchmarks.contest import FIRST_TOKEN, LAST_TOKEN
from benchmarks.models import tiny_model
from benchmarks.peers import process_tree
from benchmarks.peers.behind_gateway import gateway_before
from benchmarks.peers.contestant import Ask, Contestant
from benchmarks.peers.lmi import PORT, start_lmi
from benchmarks.peers.worker import Setup, start_worker
from benchmarks.record import print_table, write_result
from hostelry.base.ports import free_port
from hostelry.cli.demo import demo_model_folder

SEED = 20261130
VOCABULARY = 49152
PROMPT_TOKENS = 32
RANK = 16
MOST_US = 100.0  # the aim: a streamed token at 32 streams, in all processes, above the bare engine
ENGINE, SERVER, GATEWAY = "bare engine", "server", "behind the gateway"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Requests that are sent at once."""

    requests: int
    streamed: bool
    new_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way to the engine, and the processes on it by their names."""

    name: str
    contestant: Contestant
    parts: dict[str, Callable[[], float]]


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.token_cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="[default: %(default)s]")
    parser.add_argument("--model", type=Path, help="a model folder; default a random one")
    parser.add_argument("--smoke", action="store_true", help="few tokens and one round")
    given = parser.parse_args(argv)
    loads = list_loads((1, 3) if given.smoke else (1, 16, 32), 8 if given.smoke else 256)
    rounds = 1 if given.smoke else given.rounds
    tokens = range(5, 250) if given.smoke else range(FIRST_TOKEN, LAST_TOKEN)
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as running:
        folder = Path(scratch)
        model = given.model or (tiny_model if given.smoke else write_model)(folder / "tiny")
        rows = []
        for way in start_ways(model, folder, running):
            for load in loads:
                rows.append(measure(way, load, rounds, tokens))
                print(rows[-1], flush=True)
    measured = {"costs": rows, "findings": finding_rows([find_total(rows)])}
    print_table("costs", rows)
    print_table("findings", measured["findings"])
    write_result("token_cost", "smoke" if given.smoke else "short", SEED, measured)


def list_loads(streams: Sequence[int], new_tokens: int) -> list[Load]:
    """Each number of streams, and the largest without streaming."""
    streamed = [Load(requests=it, streamed=True, new_tokens=new_tokens) for it in streams]
    return [*streamed, Load(requests=streams[-1], streamed=False, new_tokens=new_tokens)]


def write_model(folder: Path) -> Path:
    """A random Llama of two layers with the demo model's tokenizer."""
    from tests.models import tiny_llama  # needs transformers, as `benchmarks.models` says

    tiny_llama(folder, vocab_size=VOCABULARY, max_position_embeddings=2048)
    shutil.copy(demo_model_folder() / "tokenizer.json", folder)
    return folder


def start_ways(model: Path, scratch: Path, running: ExitStack) -> list[Way]:
    """The running ways."""
    setup = Setup(model=str(model), adapters={}, num_threads=1, options={})
    bare = start_worker(ENGINE, "benchmarks.peers.engine_worker", setup, scratch / "engine.log")
    running.callback(bare.stop)
    port = free_port()
    server = start_lmi(SERVER, model, {}, scratch, 1, RANK, {PORT: str(port)})
    running.callback(server.stop)
    gateway = running.enter_context(gateway_before(port, scratch / "gateway"))
    through = server.through(GATEWAY, gateway.batches, gateway.pids)
    parts: dict[str, Callable[[], float]] = {
        "HTTP": lambda: process_tree.own_cpu_s(server.pid),
        "engine": lambda: process_tree.cpu_s(server.pid) - process_tree.own_cpu_s(server.pid),
    }
    before = {"gateway": lambda: sum(process_tree.cpu_s(it) for it in gateway.pids)}
    return [
        Way(name=ENGINE, contestant=bare, parts={"engine": lambda: process_tree.cpu_s(bare.pid)}),
        Way(name=SERVER, contestant=server, parts=parts),
        Way(name=GATEWAY, contestant=through, parts={**parts, **before}),
    ]


def measure(way: Way, load: Load, rounds: int, tokens: range) -> dict[str, Any]:
    """A row: the microseconds of one token by process, the median of the rounds."""
    asks = [
        Ask(
            prompt=tuple(tokens[7 * number + place] for place in range(PROMPT_TOKENS)),
            adapter=None,
            max_tokens=load.new_tokens,
        )
        for number in range(load.requests)
    ]
    spent: dict[str, list[float]] = {name: [] for name in ("HTTP", "engine", "gateway")}
    speeds: list[float] = []
    way.contestant.run(asks, streamed=load.streamed)  # warms up
    repeats = max(1, 16 // load.requests)  # a clock tick is 10 ms
    for _ in range(rounds):
        before = {name: read() for name, read in way.parts.items()}
        outcomes = [way.contestant.run(asks, streamed=load.streamed) for _ in range(repeats)]
        speeds += [outcome.tokens_per_s for outcome in outcomes]
        count = repeats * load.requests * load.new_tokens
        for name, read in way.parts.items():
            spent[name].append(1e6 * (read() - before[name]) / count)
    costs = {name: statistics.median(it) if it else 0.0 for name, it in spent.items()}
    return {
        "way": way.name,
        "requests": load.requests,
        "streamed": load.streamed,
        **{f"{name} us": cost for name, cost in costs.items()},
        "tokens/s": statistics.median(speeds),
    }


def find_total(rows: Sequence[dict[str, Any]]) -> Finding:
    """The time of a streamed token at the most streams behind the gateway, above the engine's."""
    streamed = [row for row in rows if row["streamed"]]
    ends = {row["way"]: row for row in streamed}  # the last load of each way
    whole = sum(value for name, value in ends[GATEWAY].items() if name.endswith(" us"))
    above = whole - ends[ENGINE]["engine us"]
    what = f"us of a streamed token at {ends[GATEWAY]['requests']} streams above the bare engine"
    return Finding(what=what, value=above, at_most=MOST_US)


if __name__ == "__main__":
    main()
