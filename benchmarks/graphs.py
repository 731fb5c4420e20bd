"""Cost of a graph beside the calls that it makes: a scatter of 8, and a chain of 1 to 5 calls.

Clients call the gateway, it calls the graph's server, that one the gateway, and it the echo model.
``scatter`` waits for 8 calls of which each takes ``sleep_ms``, beside one such call: the aim is
2 ms above it. ``hop`` is what each further call of a chain adds, beside a call of the echo model
through the gateway; the aim is 0.5 ms above that. Rounds alternate; each figure is a median.

``python -m benchmarks.graphs [--setting tiny|short|full]``
"""

import argparse
import os
import statistics
from dataclasses import dataclass
from typing import Any

from benchmarks.gateway_load import JSON, run_load, signed_request
from benchmarks.graph_stack import GraphStack, running_graphs
from benchmarks.load import Load
from benchmarks.record import print_table, write_result

SEED = 0
BODY = b'{"instances": [[1.5, 2.5, 3.5, 4.5]]}'
SLEEP_MS = 20
BRANCHES = 8
CHAINS = (1, 2, 5)
AIM_SCATTER_MS, AIM_HOP_MS = 2.0, 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How long to measure."""

    duration_s: float
    rounds: int
    connections: tuple[int, ...] = (1,)


SETTINGS = {
    "tiny": Setting(duration_s=0.5, rounds=1),
    "short": Setting(duration_s=2.0, rounds=5),
    "full": Setting(duration_s=10.0, rounds=9, connections=(1, 8)),
}


def documents() -> dict[str, str]:
    """The graphs by endpoint."""
    chains = {f"chain-{length}": chain(length) for length in CHAINS}
    return {"scatter": scatter(), **chains}


def scatter() -> str:
    """A scatter of equal branches, stacked."""
    names = [f"b{number}" for number in range(BRANCHES)]
    calls = "".join(f"  {name}: {{call: {{endpoint: echo}}}}\n" for name in names)
    return (
        "output: answer\nsteps:\n  answer: {gather: {of: all, by: stack}}\n"
        f"  all: {{scatter: [{', '.join(names)}]}}\n{calls}"
    )


def chain(length: int) -> str:
    """Calls one after the other, each of the answer before."""
    inputs = ["input", *(f"h{number}" for number in range(length - 1))]
    calls = "".join(
        f"  h{number}: {{call: {{endpoint: echo}}, input: {given}}}\n"
        for number, given in enumerate(inputs)
    )
    return f"output: h{length - 1}\nsteps:\n{calls}"


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--setting", choices=SETTINGS, default="short")
    default_workers = min(4, len(os.sched_getaffinity(0)))
    parser.add_argument("--workers", type=int, default=default_workers, help="of the gateway")
    arguments = parser.parse_args()
    setting = SETTINGS[arguments.setting]
    with running_graphs(documents(), arguments.workers) as graphs:
        rows = [row for count in setting.connections for row in measure(graphs, setting, count)]
    print_table(f"Graphs, gateway of {arguments.workers} workers", rows)
    write_result("graphs", arguments.setting, SEED, {"workers": arguments.workers, "rows": rows})


def measure(graphs: GraphStack, setting: Setting, connections: int) -> list[dict[str, Any]]:
    """A row for each figure, at that many connections."""
    sleeps = {"X-Amzn-SageMaker-Custom-Attributes": f"sleep_ms={SLEEP_MS}"}
    cases: dict[str, tuple[str, dict[str, str]]] = {
        "call": ("echo", {}),
        "slow call": ("echo", sleeps),
        "scatter": ("scatter", sleeps),
        **{f"chain {length}": (f"chain-{length}", {}) for length in CHAINS},
    }
    found: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(setting.rounds):
        for name, (endpoint, headers) in cases.items():
            found[name].append(p50_ms(graphs, endpoint, headers, setting, connections))
    rounds = [dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True)]
    longest = f"chain {CHAINS[-1]}"
    hops_ms = [(it[longest] - it["chain 1"]) / (CHAINS[-1] - 1) for it in rounds]
    above = {
        "scatter above its slowest branch": [it["scatter"] - it["slow call"] for it in rounds],
        "first hop above its call": [it["chain 1"] - it["call"] for it in rounds],
        "further hop": hops_ms,
        "further hop above its call": [
            hop - it["call"] for hop, it in zip(hops_ms, rounds, strict=True)
        ],
    }
    aims = {
        "scatter above its slowest branch": f"{AIM_SCATTER_MS:g}",
        "further hop above its call": f"{AIM_HOP_MS:g}",
    }
    return [
        {
            "connections": connections,
            "figure": name,
            "ms": statistics.median(values),
            "least": min(values),
            "most": max(values),
            "aim": aims.get(name, ""),
        }
        for name, values in (found | above).items()
    ]


def p50_ms(
    graphs: GraphStack, endpoint: str, headers: dict[str, str], setting: Setting, connections: int
) -> float:
    """The median latency of calls of an endpoint."""
    given = {"Content-Type": JSON, **headers}
    request = signed_request(graphs.stack, "invocations", BODY, given, endpoint)
    load = Load(
        port=graphs.stack.gateway_port,
        requests=[request],
        num_connections=connections,
        warm_up_s=0.3,
        duration_s=setting.duration_s,
    )
    measured = run_load(load)
    if measured.errors:
        raise RuntimeError(f"{endpoint}: {measured.errors} calls failed")
    return measured.p50_ms


if __name__ == "__main__":
    main()
