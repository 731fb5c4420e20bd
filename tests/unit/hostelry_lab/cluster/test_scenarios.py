import pytest
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry_lab.cluster import drill
from hostelry_lab.cluster.ray_nodes import RAY_DRILL_MISSING
from hostelry_lab.cluster.scenarios import SCENARIOS, chosen_scenarios
from hostelry_lab.cluster.small_cluster import target_of, through


def test_scenarios_are_chosen_by_name_and_run_in_the_order_of_the_drill() -> None:
    assert [it.name for it in chosen_scenarios("store-kill, leader-kill")] == [
        "leader-kill",
        "store-kill",
    ]
    assert chosen_scenarios(None) == list(SCENARIOS)
    with pytest.raises(TerminalError, match="there is no 'leader-dies'; there are leader-kill, "):
        chosen_scenarios("leader-kill,leader-dies")


def test_without_ray_the_death_of_a_node_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drill, "ray_missing", lambda: RAY_DRILL_MISSING)
    reported: list[str] = []
    outcome = drill.run_cluster(chosen_scenarios("node-kill"), 1, None, reported.append)
    assert (outcome.verdict, outcome.not_run) == ("NOT RUN", RAY_DRILL_MISSING)
    assert outcome.left_out == f"node-kill: {RAY_DRILL_MISSING}"
    assert reported == [f"node-kill: not run: {RAY_DRILL_MISSING}"]


def test_a_database_is_refused_for_the_death_of_a_node() -> None:
    with pytest.raises(TerminalError, match="--store: node-kill keeps its records"):
        drill.run_cluster(chosen_scenarios("node-kill"), 1, "postgresql://h/d", print)


@cases(
    "url, target, passed",
    case(
        "everything but the server is kept",
        "postgresql://u:p%40w@db.example:6432/x?sslmode=require",
        ("db.example", 6432),
        "postgresql://u:p%40w@127.0.0.1:99/x?sslmode=require",
    ),
    case(
        "without user and port",
        "postgresql://db.example/x",
        ("db.example", 5432),
        "postgresql://127.0.0.1:99/x",
    ),
)
def test_a_store_is_reached_through_a_link(url: str, target: tuple[str, int], passed: str) -> None:
    assert (target_of(url), through(url, 99)) == (target, passed)


@pytest.mark.parametrize("url", ["sqlite", "mysql://h/d", "postgresql:///d", "postgresql://h:x/d"])
def test_a_store_that_is_no_server_is_refused(url: str) -> None:
    with pytest.raises(TerminalError, match="--store: the drill needs postgresql://"):
        target_of(url)
