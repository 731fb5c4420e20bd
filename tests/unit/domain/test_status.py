import ast
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.domain.ai_benchmark_job import AiBenchmarkStatus
from hostelry.domain.component import ComponentStatus
from hostelry.domain.endpoint import EndpointStatus
from hostelry.domain.inference_experiment import ExperimentStatus
from hostelry.domain.recommendation_job import RecommendationStatus
from hostelry.domain.status import (
    AI_BENCHMARK_TRANSITIONS,
    ASKED,
    COMPONENT_TRANSITIONS,
    ENDPOINT_TRANSITIONS,
    EXPERIMENT_TRANSITIONS,
    RECOMMENDATION_TRANSITIONS,
    TRANSFORM_TRANSITIONS,
    Event,
    IllegalTransition,
    can,
    is_final,
    next_status,
)
from hostelry.domain.transform_job import TransformJobStatus

ROOT = Path(__file__).resolve().parents[3]
EVERY: list[EndpointStatus | ComponentStatus] = [*EndpointStatus, *ComponentStatus]
TABLES = [
    pytest.param(ENDPOINT_TRANSITIONS, EndpointStatus, "Endpoint", id="endpoints"),
    pytest.param(COMPONENT_TRANSITIONS, ComponentStatus, "Inference component", id="components"),
    pytest.param(TRANSFORM_TRANSITIONS, TransformJobStatus, "Transform job", id="transform jobs"),
    pytest.param(EXPERIMENT_TRANSITIONS, ExperimentStatus, "Experiment", id="experiments"),
    pytest.param(
        RECOMMENDATION_TRANSITIONS,
        RecommendationStatus,
        "Recommendations job",
        id="recommendations jobs",
    ),
    pytest.param(
        AI_BENCHMARK_TRANSITIONS, AiBenchmarkStatus, "AI benchmark job", id="AI benchmark jobs"
    ),
]
Table = Mapping[Any, Any]
STATUSES = (
    "EndpointStatus.",
    "ComponentStatus.",
    "TransformJobStatus.",
    "ExperimentStatus.",
    "RecommendationStatus.",
    "AiBenchmarkStatus.",
)


@cases(
    "status, event, expected",
    case(
        "a created endpoint is in service",
        EndpointStatus.CREATING,
        Event.READY,
        EndpointStatus.IN_SERVICE,
    ),
    case(
        "a create that fails is failed", EndpointStatus.CREATING, Event.FAIL, EndpointStatus.FAILED
    ),
    case(
        "an update that fails goes back to service",
        EndpointStatus.UPDATING,
        Event.ROLLED_BACK,
        EndpointStatus.IN_SERVICE,
    ),
    case(
        "a delete that comes to no end is failed",
        EndpointStatus.DELETING,
        Event.FAIL,
        EndpointStatus.FAILED,
    ),
    case(
        "a component in service can be updated",
        ComponentStatus.IN_SERVICE,
        Event.UPDATE,
        ComponentStatus.UPDATING,
    ),
    case(
        "a component's update that fails goes back to service",
        ComponentStatus.UPDATING,
        Event.ROLLED_BACK,
        ComponentStatus.IN_SERVICE,
    ),
)
def test_an_event_leads_on(
    status: EndpointStatus | ComponentStatus,
    event: Event,
    expected: EndpointStatus | ComponentStatus,
) -> None:
    assert next_status(status, event) is expected


@pytest.mark.parametrize("status", [it for it in EVERY if it.value != "InService"], ids=str)
def test_an_update_is_refused_elsewhere(status: EndpointStatus | ComponentStatus) -> None:
    assert not can(status, Event.UPDATE)
    with pytest.raises(IllegalTransition, match=f"{status.value} cannot take the event 'update'"):
        next_status(status, Event.UPDATE)


@cases(
    "status, event, expected",
    case("a job that runs is stopped", "InProgress", Event.STOP, "Stopping"),
    case("a stop ends", "Stopping", Event.STOPPED, "Stopped"),
    case("a job being stopped does not complete", "Stopping", Event.COMPLETE, None),
    case("a job being stopped does not fail", "Stopping", Event.FAIL, None),
    case("a job that is over is not stopped", "Completed", Event.STOP, None),
)
def test_events_of_a_transform_job(status: str, event: Event, expected: str | None) -> None:
    at = TransformJobStatus(status)
    if expected is None:
        assert not can(at, event)
    else:
        assert next_status(at, event).value == expected


@pytest.mark.parametrize("status", TransformJobStatus, ids=str)
def test_a_transform_job_ends_once(status: TransformJobStatus) -> None:
    assert is_final(status) is (status.value in ("Completed", "Failed", "Stopped"))


@pytest.mark.parametrize("status", ExperimentStatus, ids=str)
def test_an_experiment_ends_once_and_can_always_fail(status: ExperimentStatus) -> None:
    is_over = status.value in ("Completed", "Cancelled")
    assert is_final(status) is is_over
    assert can(status, Event.FAIL) is not is_over


@pytest.mark.parametrize("status", EVERY, ids=str)
def test_delete_is_possible_from_everywhere(status: EndpointStatus | ComponentStatus) -> None:
    assert next_status(status, Event.DELETE).value == "Deleting"


@pytest.mark.parametrize("status", EVERY, ids=str)
def test_what_ends_by_itself_can_end_badly(status: EndpointStatus | ComponentStatus) -> None:
    assert is_final(status) is (status.value in ("InService", "Failed"))
    assert is_final(status) or can(status, Event.FAIL) or can(status, Event.ROLLED_BACK)
    assert not is_final(status) or all(event in ASKED for event in Event if can(status, event))


@pytest.mark.parametrize(("table", "kind", "_"), TABLES)
def test_every_row_stays_within_its_kind(table: Table, kind: type[Enum], _: str) -> None:
    assert {type(status) for status, _ in table} == {kind}
    assert {type(status) for status in table.values()} == {kind}


@pytest.mark.parametrize(("table", "kind", "_"), TABLES)
def test_every_status_is_reached_from_the_first(table: Table, kind: type[Enum], _: str) -> None:
    reached: set[Enum] = set()
    ahead = {it for it in kind if it.value in ("Creating", "InProgress", "PENDING")}
    while ahead:
        reached |= ahead
        ahead = {after for (before, _), after in table.items() if before in reached} - reached
    assert reached == set(kind)


@pytest.mark.parametrize(("table", "kind", "title"), TABLES)
def test_the_page_shows_the_table(table: Table, kind: type[Enum], title: str) -> None:
    events = [it for it in Event if any(event is it for _, event in table)]
    lines = [
        f"| {title} | {' | '.join(event.value for event in events)} |",
        f"| --- |{' --- |' * len(events)}",
    ]
    for status in kind:
        cells = [table.get((status, event)) for event in events]
        shown = ["" if cell is None else cell.value for cell in cells]
        lines.append(f"| {status.value} | {' | '.join(shown)} |")
    page = (ROOT / "docs" / "control.md").read_text(encoding="utf-8")
    assert "\n".join(lines) in page, "docs/control.md should show\n" + "\n".join(lines)


def named(node: ast.AST) -> Iterator[tuple[str | None, ast.expr]]:
    """The names that a keyword of a call, or a dictionary, gives to values."""
    if isinstance(node, ast.keyword):
        yield node.arg, node.value
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            yield str(key.value) if isinstance(key, ast.Constant) else None, value


def statuses_set(source: str) -> list[str]:
    """Each status that `source` sets by name instead of asking `next_status`."""
    pairs = [pair for node in ast.walk(ast.parse(source)) for pair in named(node)]
    values = [ast.unparse(value) for name, value in pairs if name == "status"]
    return [it for it in values if it.startswith(STATUSES)]


def test_only_a_create_sets_a_status_without_the_tables() -> None:
    package = ROOT / "src" / "hostelry"
    found = [
        (path.name, text)
        for folder in ("api", "reconcile")
        for path in sorted((package / folder).rglob("*.py"))
        for text in statuses_set(path.read_text(encoding="utf-8"))
    ]
    assert found == [
        ("ai_benchmark_job.py", "AiBenchmarkStatus.IN_PROGRESS"),
        ("ai_recommendation_spec.py", "RecommendationStatus.PENDING"),
        ("component.py", "ComponentStatus.CREATING"),
        ("endpoint.py", "EndpointStatus.CREATING"),
        ("experiment_spec.py", "ExperimentStatus.CREATING"),
        ("recommendation_spec.py", "RecommendationStatus.PENDING"),
        ("transform_job.py", "TransformJobStatus.IN_PROGRESS"),
        ("hidden_endpoint.py", "EndpointStatus.CREATING"),
    ]
