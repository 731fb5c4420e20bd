"""Time until another control leads, after the leader was killed or frozen.

Two real control processes share one PostgreSQL on this machine, with an endpoint and its agent. The
seconds are from the signal until the other control has the lease, serves (its routes are published)
and has acknowledged a write. Then a frozen leader is thawed, and must step down.

    python -m benchmarks.leader --trials 20
"""

import argparse
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.integration.control_rig import (
    ControlUnderTest,
    create_config,
    create_endpoint,
    endpoint_status,
)
from tests.integration.leader_rig import Controls, controls
from tests.postgres_rig import postgres_database

from benchmarks.record import print_table, write_result
from hostelry.control.standby import STEPPED_DOWN

POLL_S = 0.01
PATIENCE_S = 60.0
SETTLED_S = 1.2  # longer than a renewal interval, so that the signal falls anywhere in one


def main() -> None:
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=20, help="of each kind")
    trials = parser.parse_args().trials
    measured: dict[str, list[dict[str, float]]] = {"kill -9": [], "freeze": []}
    with (
        tempfile.TemporaryDirectory(prefix="hostelry-leader-") as folder,
        postgres_database() as url,
        controls(Path(folder), url, 2) as found,
    ):
        sagemaker = found.leader().client()
        create_endpoint(sagemaker, "chat")
        found.all[0].until(
            lambda: endpoint_status(sagemaker, "chat") == "InService", "the endpoint serves"
        )
        for number in range(trials):
            for kind, times in measured.items():
                times.append(trial(found, kind, f"{kind.split()[0]}-{number}", number / trials))
    rows = [row(kind, what, times) for kind, times in measured.items() for what in times[0]]
    print_table("Seconds to a new leader", rows)
    write_result("leader", "two controls, one PostgreSQL, one endpoint", 0, {"trials": measured})


def trial(found: Controls, kind: str, name: str, phase: float) -> dict[str, float]:
    """The times of a trial, whose signal is `phase` seconds late. Both controls run afterwards."""
    old = found.leader()
    (other,) = [it for it in found.all if it is not old]
    assert old.process is not None
    time.sleep(SETTLED_S + phase)
    signalled_s = time.perf_counter()
    old.process.send_signal(signal.SIGKILL if kind == "kill -9" else signal.SIGSTOP)
    times = {
        "lease": seconds_until(lambda: found.is_led_by(other, other), signalled_s),
        "serves": seconds_until(lambda: other.health().get("ready"), signalled_s),
    }
    create_config(other.client(), name)
    times["write"] = time.perf_counter() - signalled_s
    if kind == "freeze":
        old.process.send_signal(signal.SIGCONT)
        code = old.process.wait(PATIENCE_S)
        if code != STEPPED_DOWN:
            raise RuntimeError(f"the thawed leader ended with code {code}")
    old.process.wait(PATIENCE_S)
    restart(found, old)
    return times


def restart(found: Controls, control: ControlUnderTest) -> None:
    """Restart a control, and wait until it is on standby."""
    control.begin()
    seconds_until(lambda: control.health().get("role") == "standby", time.perf_counter())
    seconds_until(lambda: found.knows_all(control), time.perf_counter())


def seconds_until(holds: Callable[[], Any], since_s: float) -> float:
    """Seconds from `since_s` until `holds`. Raises RuntimeError after PATIENCE_S."""
    while not holds():
        if time.perf_counter() - since_s > PATIENCE_S:
            raise RuntimeError(f"not within {PATIENCE_S:g} s")
        time.sleep(POLL_S)
    return time.perf_counter() - since_s


def row(kind: str, what: str, times: list[dict[str, float]]) -> dict[str, Any]:
    """One line of the table."""
    found = sorted(it[what] for it in times)
    return {
        "leader": kind,
        "until": what,
        "trials": len(found),
        "p50_s": round(found[len(found) // 2], 2),
        "max_s": round(found[-1], 2),
    }


if __name__ == "__main__":
    main()
