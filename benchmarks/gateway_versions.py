"""The gateway of this checkout and the gateway of an earlier one, in turns, in one run.

Each round starts the gateway of each checkout in front of the same echo model server, and sends
signed invocations with the root's key. This checkout also gets them with the key of a user whose
policy decides each call. Throughput and the gateway's processor time for a request are ratios to
the earlier checkout's run of the same round. The claim: at most 3 % are lost.

``python -m benchmarks.gateway_versions EARLIER [--rounds 5] [--duration-s 6]``. EARLIER is a folder
with a clone and its ``.venv``.
"""

import argparse
import contextlib
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.aims import Finding, finding_rows
from benchmarks.gateway_load import run_load
from benchmarks.load import Load
from benchmarks.record import print_table, write_result
from benchmarks.stack import cpu_s, stopped_after
from benchmarks.wrk import has_wrk, run_wrk

EARLIER, ROOT, USER = "earlier", "root's key", "user's key"
NUM_CONNECTIONS = 32
WARM_UP_S = 1.0
AT_LEAST = 0.97

# The earlier checkout runs this with its own modules.
SERVE = """
import json, sys
from benchmarks.gateway_load import signed_request
from {module} import {function}
with {function}() as stack:
    request = signed_request(stack, "invocations", b"x" * 1024, {{}})
    served = dict(port=stack.gateway_port, pids=stack.gateway_pids, request=request.decode())
    print(json.dumps(served), flush=True)
    sys.stdin.read()
"""
PLAIN = SERVE.format(module="benchmarks.stack", function="running_stack")
AS_USER = SERVE.format(module="benchmarks.stack_user", function="running_user_stack")


class Served(msgspec.Struct, kw_only=True):
    """What a started stack prints: its port, the gateway's processes, and a signed request."""

    port: int
    pids: tuple[int, ...]
    request: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One contestant's measurement in one round."""

    per_s: float
    cpu_us: float
    errors: int


@contextlib.contextmanager
def running(checkout: Path, code: str) -> Iterator[Served]:
    """A stack of the checkout, with the modules of that checkout."""
    python = checkout / ".venv" / "bin" / "python"
    started = subprocess.Popen(
        [str(python), "-c", code],
        cwd=checkout,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with stopped_after(started):
        assert started.stdout is not None  # Popen was called with pipes
        assert started.stdin is not None
        yield msgspec.json.decode(started.stdout.readline(), type=Served)
        started.stdin.close()
        started.wait(15)


def measure(checkout: Path, code: str, duration_s: float) -> Sample:
    """Start a stack, send the load, and stop the stack."""
    with running(checkout, code) as served:
        load = Load(
            port=served.port,
            requests=[served.request.encode()],
            num_connections=NUM_CONNECTIONS,
            duration_s=duration_s,
            warm_up_s=WARM_UP_S,
        )
        before_s = sum(cpu_s(pid) for pid in served.pids)
        measured = run_wrk(load) if has_wrk() else run_load(load)
        spent_s = sum(cpu_s(pid) for pid in served.pids) - before_s
    total = measured.total if not has_wrk() else measured.count * (1 + WARM_UP_S / duration_s)
    return Sample(per_s=measured.per_s, cpu_us=spent_s / total * 1e6, errors=measured.errors)


def compare(rounds: Sequence[Mapping[str, Sample]]) -> tuple[list[dict[str, Any]], list[Finding]]:
    """The table of contestants, and the findings of the ratios of each round."""
    rows, findings = [], []
    for name in (EARLIER, ROOT, USER):
        found = [it[name] for it in rounds]
        speeds = [it[name].per_s / it[EARLIER].per_s for it in rounds]
        costs = [it[name].cpu_us / it[EARLIER].cpu_us for it in rounds]
        rows.append(
            {
                "gateway": name,
                "requests/s": round(statistics.median(it.per_s for it in found)),
                "us of CPU": round(statistics.median(it.cpu_us for it in found), 1),
                "speed ratio": round(statistics.median(speeds), 3),
                "least": round(min(speeds), 3),
                "most": round(max(speeds), 3),
                "CPU ratio": round(statistics.median(costs), 3),
                "errors": sum(it.errors for it in found),
            }
        )
        if name != EARLIER:
            what = f"requests/s, {name} / earlier"
            findings.append(Finding(what=what, value=statistics.median(speeds), at_least=AT_LEAST))
    return rows, findings


def main() -> None:
    """Measure in turns, and print and keep the result."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gateway_versions")
    parser.add_argument("earlier", type=Path, help="a folder with a clone and its .venv")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--duration-s", type=float, default=6.0)
    given = parser.parse_args()
    if not (given.earlier / ".venv" / "bin" / "python").exists():
        sys.exit(f"{given.earlier} has no .venv/bin/python: run `make install` there")
    here = Path.cwd()
    contestants = ((EARLIER, given.earlier.resolve(), PLAIN), (ROOT, here, PLAIN))
    contestants = (*contestants, (USER, here, AS_USER))
    rounds = []
    for number in range(given.rounds):
        turn = contestants if number % 2 == 0 else contestants[::-1]
        rounds.append({it: measure(at, code, given.duration_s) for it, at, code in turn})
        print(f"round {number + 1} of {given.rounds}", flush=True)
    rows, findings = compare(rounds)
    print_table("The gateway and an earlier one, one worker", rows)
    print_table("Findings", finding_rows(findings))
    write_result("gateway_versions", "full", 0, {"rows": rows})


if __name__ == "__main__":
    main()
