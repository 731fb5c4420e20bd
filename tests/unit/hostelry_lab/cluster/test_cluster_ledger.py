"""Scenarios between hosts, and the database at the end: which promises are broken."""

from dataclasses import replace

import pytest
from tests.cases import case, cases

from hostelry_lab.call import OK, LoadCall
from hostelry_lab.cluster.cluster_ledger import (
    AcceptedWrite,
    ClusterLedger,
    ClusterWrite,
    LeaderSight,
    ScenarioFacts,
    ScenarioLimits,
    add_findings,
    findings,
    in_progress,
    not_run,
    report,
)

CLOSED = "ConnectionClosedError"
FIRST, GATEWAYS = "first", "gateways"


def call(began_at: float, outcome: str = OK) -> LoadCall:
    return LoadCall(began_at=began_at, ended_at=began_at + 0.1, outcome=outcome)


def write(name: str, began_at: float = 0.0, outcome: str = OK) -> ClusterWrite:
    return ClusterWrite(
        name=name, host=FIRST, began_at=began_at, ended_at=began_at + 0.1, outcome=outcome
    )


def accepted(revision: int, name: str, epoch: int | None, newest: int) -> AcceptedWrite:
    return AcceptedWrite(revision=revision, name=name, epoch=epoch, newest=newest)


BEFORE = LeaderSight(at=90.0, epoch=4, holder="a")
FACTS = ScenarioFacts(
    name="s",
    means="by a fault",
    fault_at=100.0,
    healed_at=110.0,
    calls={FIRST: [call(99.0), call(111.0)], GATEWAYS: [call(99.95), call(112.0)]},
    writes=[write("w1", 99.0), write("w2", 101.0, "ServiceUnavailable"), write("w3", 103.0)],
    before=BEFORE,
    sights=[LeaderSight(at=102.0, epoch=5, holder="b")],
    fenced_at=112.0,
    copies_at=104.0,
)
LIMITS = ScenarioLimits(leader_s=3.0, write_s=10.0, fenced_s=5.0)
CUT = replace(LIMITS, cut_off=frozenset({GATEWAYS}), served_s=2.0)
NODE = replace(CUT, errors=frozenset({"ModelError"}), copies_s=30.0)


def with_call(host: str, made: LoadCall) -> ScenarioFacts:
    return replace(FACTS, calls={**FACTS.calls, host: [*FACTS.calls[host], made]})


@cases(
    "facts, limits, words",
    case("all as promised", FACTS, LIMITS, []),
    case(
        "a call failed",
        with_call(FIRST, call(105.0, CLOSED)),
        LIMITS,
        [f"1 calls failed at the first host, none may: 1 {CLOSED}"],
    ),
    case("one before the fault", with_call(FIRST, call(98.0, CLOSED)), LIMITS, []),
    case("at a host cut off", with_call(GATEWAYS, call(105.0, CLOSED)), CUT, []),
    case(
        "there, long after the fault",
        with_call(GATEWAYS, call(112.5, CLOSED)),
        CUT,
        ["began more than 2 s after the fault's end"],
    ),
    case("at the other", with_call(FIRST, call(105.0, CLOSED)), CUT, ["at the first host"]),
    case(
        "a host that never came back",
        replace(FACTS, calls={FIRST: [call(111.0)], GATEWAYS: [call(100.5)]}),
        LIMITS,
        ["no call was answered at the gateways host after"],
    ),
    case("no leader", replace(FACTS, sights=[]), LIMITS, ["a new leader: never"]),
    case(
        "a late leader",
        replace(FACTS, sights=[LeaderSight(at=104.0, epoch=5, holder="b")]),
        LIMITS,
        ["a new leader only after 4.0 s (limit 3 s)"],
    ),
    case(
        "the old epoch again",
        replace(FACTS, sights=[LeaderSight(at=101.0, epoch=4, holder="a")]),
        LIMITS,
        ["a new leader: never"],
    ),
    case("none is asked for", replace(FACTS, sights=[]), replace(LIMITS, leader_s=None), []),
    case(
        "writes of before the fault alone",
        replace(FACTS, writes=[write("w1", 99.0), write("w2", 99.95)]),
        LIMITS,
        ["an acknowledged write: never"],
    ),
    case("it leads on", replace(FACTS, fenced_at=None), LIMITS, ["that was fenced: never"]),
    case(
        "calls pass a cut",
        with_call(GATEWAYS, call(105.0)),
        replace(CUT, no_calls=frozenset({GATEWAYS})),
        ["the fault had no effect: the gateways host answered"],
    ),
    case(
        "writes pass a cut",
        FACTS,
        replace(LIMITS, no_writes=frozenset({FIRST})),
        ["the fault had no effect: the first host acknowledged"],
    ),
    case("by a modelled error", with_call(GATEWAYS, call(105.0, "ModelError")), NODE, []),
    case(
        "by another",
        with_call(GATEWAYS, call(105.0, CLOSED)),
        NODE,
        [f"at the gateways host by errors that are not modelled: {CLOSED}"],
    ),
    case("no copy", replace(FACTS, copies_at=None), NODE, ["an answer of each copy: never"]),
    case(
        "a late copy",
        replace(FACTS, copies_at=131.0),
        NODE,
        ["an answer of each copy only after 31.0 s (limit 30 s)"],
    ),
    case("the fault failed", replace(FACTS, trouble="no node"), LIMITS, ["no node"]),
)
def test_a_scenario_misses_what_it_promised(
    facts: ScenarioFacts, limits: ScenarioLimits, words: list[str]
) -> None:
    missed = report(facts, limits).missed
    assert len(missed) == len(words)
    assert all(word in it for word, it in zip(words, missed, strict=True)), missed


def test_a_scenario_is_measured_from_its_fault() -> None:
    found = report(with_call(GATEWAYS, call(105.0, CLOSED)), CUT)
    assert (found.fault_s, found.leader_s, found.served_s) == (10.0, 2.0, 5.0)
    assert found.write_s == {FIRST: pytest.approx(3.1), GATEWAYS: None}
    assert found.fenced_s == 2.0
    assert found.failures == {FIRST: {}, GATEWAYS: {CLOSED: 1}}
    assert found.calls == {FIRST: 1, GATEWAYS: 3}
    assert (found.acknowledged, found.refused) == (1, {"ServiceUnavailable": 1})


WRITES = [write("a"), write("b"), write("c", outcome=CLOSED), write("d", outcome=CLOSED)]
ACCEPTED = [accepted(1, "a", 1, 1), accepted(2, "b", 1, 1), accepted(3, "c", 2, 2)]


@cases(
    "kept, more, words",
    case("one more was kept than was acknowledged", {"a", "b", "c"}, [], []),
    case("one is lost", {"a"}, [], ["1 acknowledged writes are lost, such as b"]),
    case("one made twice", {"a", "b"}, [accepted(4, "a", 2, 2)], ["made twice, such as a"]),
    case("others may be", {"a", "b"}, [accepted(4, "x", 2, 2), accepted(5, "x", 2, 2)], []),
    case(
        "an epoch goes back",
        {"a", "b"},
        [accepted(4, "d", 1, 1)],
        ["written by epoch 1 after one of epoch 2"],
    ),
    case(
        "an epoch that is over writes",
        {"a", "b"},
        [accepted(4, "d", 2, 3)],
        ["by epoch 2 when 3 was the newest"],
    ),
    case("nobody's epoch", {"a", "b"}, [accepted(4, "d", None, 2)], ["without an epoch"]),
)
def test_the_database_has_each_acknowledged_write_once_and_one_leader(
    kept: set[str], more: list[AcceptedWrite], words: list[str]
) -> None:
    broken = findings(WRITES, kept, [*ACCEPTED, *more]).broken_promises()
    assert len(broken) == len(words)
    assert all(word in it for word, it in zip(words, broken, strict=True)), broken


def test_a_drill_without_an_acknowledged_write_proves_nothing() -> None:
    assert findings([], set(), []).broken_promises() == [
        "no write was acknowledged: nothing is proved"
    ]


def test_the_drill_names_the_scenario_that_missed_and_counts_what_was_kept() -> None:
    store = findings(WRITES, {"a", "b", "c"}, ACCEPTED)
    assert (store.acknowledged, store.kept_unacknowledged, store.epochs) == (2, 1, 2)
    rows = (not_run("n", "by root", "no root"), report(replace(FACTS, sights=[]), LIMITS))
    ledger = ClusterLedger(scenarios=rows, store=store, threads_each=1, between="nothing")
    (broken,) = ledger.broken_promises()
    assert broken.startswith("s: a new leader: never")
    assert ledger.not_run is None
    assert replace(ledger, scenarios=rows[:1]).not_run == "no root"


@cases(
    "outcomes, words",
    case("those of the dead node alone", [OK, "ModelStreamError"], None),
    case("none failed", [OK, OK], "the fault had no effect: none of 2 streams"),
    case("all failed", ["ModelStreamError"] * 2, "all of 2 streams in progress"),
)
def test_streams_in_progress_show_that_one_node_died(
    outcomes: list[str], words: str | None
) -> None:
    earlier = [call(98.0, OK), call(98.0, CLOSED)]
    found = in_progress([*earlier, *(call(99.95, it) for it in outcomes)], 100.0)
    assert found is None if words is None else (found or "").startswith(words)


def test_the_databases_of_two_clusters_are_counted_together() -> None:
    one = findings([write("w1"), write("w2")], {"w1"}, [accepted(1, "w1", 4, 4)])
    other = findings([write("v1"), write("v2", outcome=CLOSED)], {"v2"}, ())
    found = add_findings(one, other)
    assert (found.acknowledged, found.lost, found.kept_unacknowledged) == (3, ("w2", "v1"), 1)
    assert (found.accepted, found.epochs, found.two_leaders) == (1, 1, ())
