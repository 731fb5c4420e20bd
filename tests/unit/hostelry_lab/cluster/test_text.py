from dataclasses import replace

from hostelry_lab.cluster.cluster_ledger import (
    ClusterLedger,
    ScenarioReport,
    StoreFindings,
    not_run,
)
from hostelry_lab.drill_text import outcome_lines
from hostelry_lab.outcome import DrillOutcome

KILL = ScenarioReport(
    name="gateway-kill",
    means="kill -9 of a host",
    fault_s=9.2,
    calls={"first": 200, "gateways": 115},
    failures={"first": {}, "gateways": {"ConnectionClosedError": 2}},
    slowest_s=0.4,
    leader_s=0.52,
    write_s={"first": 1.25, "gateways": None},
    fenced_s=None,
    served_s=0.1,
    acknowledged=51,
    refused={"ServiceUnavailable": 3},
)
STORE = StoreFindings(
    acknowledged=51,
    lost=(),
    doubled=("w",),
    kept_unacknowledged=1,
    accepted=60,
    epochs=2,
    two_leaders=(),
)


def test_a_scenario_is_a_row_and_the_database_two_lines() -> None:
    scenarios = (KILL, not_run("control-partition", "a cut", "network namespaces need root"))
    ledger = ClusterLedger(scenarios=scenarios, store=STORE, threads_each=4, between="forwarders")
    missed = tuple(ledger.broken_promises())
    lines = outcome_lines(DrillOutcome(drill="cluster", target="t", missed=missed, cluster=ledger))
    assert lines[0] == "cluster: FAIL"
    cells = [it.split() for it in lines]
    assert [
        *("gateway-kill", "9.2", "315", "gateways", "2", "ConnectionClosedError", "0.4"),
        *(
            "0.1",
            "0.5",
            "first",
            "1.2,",
            "gateways",
            "-",
            "-",
            "-",
            "51",
            "3",
            "ServiceUnavailable",
            "PASS",
        ),
    ] in cells
    assert ["control-partition", *["-"] * 11, "NOT", "RUN"] in cells
    assert ["control-partition", "network", "namespaces", "need", "root"] in cells
    text = "\n".join(lines)
    assert "51 acknowledged: 0 lost, 1 made twice; 1 more were kept" in text
    assert "60 accepted writes by 2 epochs, 0 not by the newest" in text
    assert "MISSED    1 writes were made twice, such as w" in text


def test_a_drill_with_a_scenario_that_was_not_run_names_it_and_did_not_pass() -> None:
    skipped = not_run("control-partition", "a cut", "network namespaces need root")
    kept = replace(STORE, doubled=())
    ledger = ClusterLedger(scenarios=(KILL, skipped), store=kept, threads_each=4, between="x")
    outcome = DrillOutcome(
        drill="cluster", target="t", cluster=ledger,
        missed=tuple(ledger.broken_promises()), not_run=ledger.not_run, left_out=ledger.left_out,
    )  # fmt: skip
    assert not outcome.passed
    lines = outcome_lines(outcome)
    assert lines[0] == "cluster: NOT ALL RUN"
    assert lines[2] == "  not run   control-partition: network namespaces need root"
    assert replace(ledger, scenarios=(KILL,)).left_out is None
