"""The drill on separate clusters: a killed leader, a partition, a dead node of Ray."""

import json
import signal
import subprocess
import uuid
from contextlib import suppress

import pytest
from tests.integration.platform import CLI, clean_environment, processes_naming, until

from hostelry_lab.cluster.namespace import cannot

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(400)]
SCENARIOS = ("leader-kill", "control-partition")
LATE = " only after "  # the drill's limits are for a quiet machine


def started(*arguments: str) -> tuple["subprocess.Popen[str]", str]:
    """Start the drill, and return the mark in the environment of its processes."""
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        [*CLI, "chaos", "run", "cluster", "--load", "2", *arguments],
        env=clean_environment() | {"DRILL_MARK": mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return process, mark


@pytest.mark.thorough
def test_a_cluster_loses_nothing_and_has_one_leader() -> None:
    process, mark = started("--json", "--scenarios", ",".join(SCENARIOS))
    printed, errors = process.communicate(timeout=360)
    assert processes_naming(mark) == []
    assert process.returncode in (0, 1), errors
    (outcome,) = json.loads(printed)
    assert [it for it in outcome["missed"] if LATE not in it] == [], errors
    killed, cut = outcome["cluster"]["scenarios"]
    assert killed["failures"] == {"first": {}, "gateways": {}}
    assert killed["leader_s"] > 0
    assert all(count > 20 for count in killed["calls"].values())
    store = outcome["cluster"]["store"]
    assert store["acknowledged"] > 5
    assert store["epochs"] >= 2
    assert store["accepted"] >= store["acknowledged"]
    if (why_not := cannot()) is not None:
        assert cut["not_run"] == why_not
        return
    assert cut["failures"] == {"first": {}, "gateways": {}}
    assert cut["write_s"]["gateways"] > cut["fault_s"] > cut["write_s"]["first"]


@pytest.mark.thorough
def test_a_dead_node_costs_its_streams_alone() -> None:
    process, mark = started("--json", "--scenarios", "node-kill")
    printed, errors = process.communicate(timeout=360)
    assert processes_naming(mark) == []
    assert process.returncode in (0, 1), errors
    (outcome,) = json.loads(printed)
    assert [it for it in outcome["missed"] if LATE not in it] == [], errors
    (died,) = outcome["cluster"]["scenarios"]
    assert died["failures"]["first"]["ModelStreamError"] >= 1
    assert died["copies_s"] > 0
    assert died["acknowledged"] > 5
    assert outcome["cluster"]["store"]["lost"] == []


@pytest.mark.thorough
def test_a_drill_that_is_interrupted_leaves_no_process() -> None:
    process, mark = started()
    # The second control runs, and the next processes are starting.
    until(lambda: any(names_control(it) for it in processes_naming(mark)), "control runs", 120.0)
    assert ended_by_ctrl_c(process) != 0
    assert processes_naming(mark) == []


def ended_by_ctrl_c(process: "subprocess.Popen[str]") -> int:
    """Press Ctrl-C, again if a callback of Python lost it, and return the exit code."""
    for _ in range(4):
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=60)
            break
    assert process.returncode is not None, "it does not end"
    return process.returncode


def names_control(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return b"hostelry.control.main" in file.read().split(b"\0")
    except OSError:
        return False
