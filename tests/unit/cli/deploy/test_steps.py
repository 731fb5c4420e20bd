"""The next step, against a platform of plain values that does what a step asks."""

from dataclasses import replace
from typing import Any

import pytest
from tests.cases import case, cases
from tests.unit.cli.deploy.test_plan import deployment, folder

from hostelry.base.errors import TerminalError
from hostelry.cli.deploy.plan import ModelDeployment
from hostelry.cli.deploy.source import adapters_in
from hostelry.cli.deploy.steps import (
    Action,
    DeployStep,
    Present,
    PresentComponent,
    PresentEndpoint,
    changes,
    next_step,
)

ADAPTERS = adapters_in(folder("es/adapter_config.json", "fr/adapter_config.json"))
SCALED = deployment(adapters=ADAPTERS, min_copies=0, max_copies=2)
ORDER = [
    Action.CREATE_CONFIG, Action.CREATE_ENDPOINT, Action.CREATE_BUCKET, Action.UPLOAD,
    Action.CREATE_MODEL, Action.CREATE_COMPONENT, Action.CREATE_ADAPTER, Action.CREATE_ADAPTER,
    Action.SCALE,
]  # fmt: skip


def component(it: ModelDeployment, **changed: Any) -> PresentComponent:
    asked = it.requirements
    made = PresentComponent(
        endpoint=it.name,
        status="InService",
        model=it.model.name,
        memory_mb=asked.min_memory_bytes // 1024**2,
        cpus=asked.cpus,
        accelerators=asked.accelerators,
        copies=it.copies or 1,
    )
    return replace(made, **changed)


def adapter(it: ModelDeployment, number: int, **changed: Any) -> PresentComponent:
    order = it.adapters[number]
    made = PresentComponent(endpoint=it.name, status="InService", base=it.name, uri=order.uri)
    return replace(made, **changed)


def whole(it: ModelDeployment, **changed: Any) -> Present:
    """All of a deployment, in service."""
    scaling = it.scaling
    present = Present(
        has_bucket=True,
        objects=frozenset(order.key for order in it.objects),
        has_model=True,
        has_config=True,
        endpoint=PresentEndpoint(status="InService", config=it.config.name),
        components={it.name: component(it)}
        | {order.component: adapter(it, number) for number, order in enumerate(it.adapters)},
        bounds=None if scaling is None else (scaling.min_copies, scaling.max_copies),
        has_policy=scaling is not None,
    )
    return replace(present, **changed)


def after(  # noqa: C901 - a row for each action
    step: DeployStep, it: ModelDeployment, now: Present
) -> Present:
    """What is there after a step; what is created or changed takes until the next wait."""
    parts = dict(now.components)
    match step.action:
        case Action.CREATE_CONFIG:
            return replace(now, has_config=True)
        case Action.CREATE_ENDPOINT:
            made = PresentEndpoint(status="Creating", config=it.config.name)
            return replace(now, endpoint=made)
        case Action.UPDATE_ENDPOINT:
            assert now.endpoint is not None
            return replace(
                now, endpoint=replace(now.endpoint, config=it.config.name, status="Updating")
            )
        case Action.DELETE_ENDPOINT:
            assert now.endpoint is not None
            return replace(now, endpoint=replace(now.endpoint, status="Deleting"))
        case Action.CREATE_BUCKET:
            return replace(now, has_bucket=True)
        case Action.UPLOAD:
            assert now.has_bucket
            return replace(now, objects=frozenset(order.key for order in it.objects))
        case Action.CREATE_MODEL:
            return replace(now, has_model=True)
        case Action.CREATE_COMPONENT | Action.UPDATE_COMPONENT:
            parts[step.name] = component(it, status="Updating")
        case Action.SET_COPIES:
            parts[step.name] = replace(parts[step.name], copies=it.copies or 1, status="Updating")
        case Action.CREATE_ADAPTER | Action.UPDATE_ADAPTER:
            assert parts[it.name].status == "InService"
            number = [order.component for order in it.adapters].index(step.name)
            parts[step.name] = adapter(it, number, status="Creating")
        case Action.DELETE_COMPONENT:
            based = [one for one in parts.values() if one.base == step.name]
            assert not [one for one in based if one.status != "Deleting"], "as the API refuses"
            parts[step.name] = replace(parts[step.name], status="Deleting")
        case Action.SCALE:
            assert it.scaling is not None
            bounds = (it.scaling.min_copies, it.scaling.max_copies)
            return replace(now, bounds=bounds, has_policy=True)
        case Action.WAIT:
            return settled(now)
        case Action.FAIL:
            raise AssertionError(step)
    return replace(now, components=parts)


def settled(now: Present) -> Present:
    following = {"Creating": "InService", "Updating": "InService"}
    endpoint = now.endpoint
    if endpoint is not None:
        status = following.get(endpoint.status, endpoint.status)
        endpoint = None if status == "Deleting" else replace(endpoint, status=status)
    parts = {
        name: replace(one, status=following.get(one.status, one.status))
        for name, one in now.components.items()
        if one.status != "Deleting"
    }
    return replace(now, endpoint=endpoint, components=parts)


def run(it: ModelDeployment, now: Present, most: int = 60) -> tuple[Present, list[DeployStep]]:
    """What is there once a run ended by itself or after `most` steps, and the steps it took."""
    taken: list[DeployStep] = []
    for _ in range(most):
        step = next_step(it, now, taken)
        if step is None:
            break
        now = after(step, it, now)
        if step.action is not Action.WAIT:
            taken.append(step)
    return now, taken


def test_from_nothing_every_step_is_taken_once_in_order() -> None:
    now, taken = run(SCALED, Present())
    assert [it.action for it in taken] == ORDER
    assert now == whole(SCALED)
    assert [it.action for it in changes(SCALED, Present())] == ORDER


def test_a_second_run_changes_nothing() -> None:
    assert changes(SCALED, whole(SCALED)) == []
    assert next_step(SCALED, whole(SCALED), []) is None


@pytest.mark.parametrize("killed_after", range(16))
def test_a_run_that_is_killed_anywhere_is_finished_by_the_next(killed_after: int) -> None:
    now, first = run(SCALED, Present(), killed_after)
    now, second = run(SCALED, now)
    assert now == whole(SCALED)
    assert [it.action for it in (*first, *second)] == ORDER


ONE = deployment(copies=2)


@cases(
    "it, present, expected",
    case("another model", ONE, whole(ONE, components={"chat": component(ONE, model="older")}),
        [Action.UPDATE_COMPONENT]),
    case("another reservation", ONE, whole(ONE, components={"chat": component(ONE, cpus=1.0)}),
        [Action.UPDATE_COMPONENT]),
    case("another number of copies", ONE, whole(ONE, components={"chat": component(ONE, copies=1)}),
        [Action.SET_COPIES]),
    case("another instance type", ONE,
        whole(ONE, endpoint=PresentEndpoint(status="InService", config="older")),
        [Action.UPDATE_ENDPOINT]),
    case("other bounds", SCALED, whole(SCALED, bounds=(1, 2)), [Action.SCALE]),
    case("an adapter's other weights", SCALED,
        whole(SCALED, components=dict(whole(SCALED).components)
              | {"chat-es": adapter(SCALED, 0, uri="s3://older")}), [Action.UPDATE_ADAPTER]),
    case("what failed before is remade", ONE,
        whole(ONE, components={"chat": component(ONE, status="Failed")}),
        [Action.DELETE_COMPONENT, Action.CREATE_COMPONENT]),
    case("with its adapters, which go first", SCALED,
        whole(SCALED, components=dict(whole(SCALED).components)
              | {"chat": component(SCALED, status="Failed")}),
        [Action.DELETE_COMPONENT, Action.DELETE_COMPONENT, Action.DELETE_COMPONENT,
         Action.CREATE_COMPONENT, Action.CREATE_ADAPTER, Action.CREATE_ADAPTER]),
    case("so is an endpoint, with its component", ONE,
        whole(ONE, endpoint=PresentEndpoint(status="Failed", config=ONE.config.name)),
        [Action.DELETE_COMPONENT, Action.DELETE_ENDPOINT, Action.CREATE_ENDPOINT,
         Action.CREATE_COMPONENT]),
    case("an update under way is waited for", ONE,
        whole(ONE, components={"chat": component(ONE, status="Updating", copies=7)}),
        [Action.SET_COPIES]),
)  # fmt: skip
def test_only_what_differs_is_changed(
    it: ModelDeployment, present: Present, expected: list[Action]
) -> None:
    now, taken = run(it, present)
    assert [step.action for step in taken] == expected
    assert now == whole(it)


def test_without_a_number_the_copies_that_there_are_stay() -> None:
    it = deployment()
    scaled = whole(it, components={"chat": component(it, copies=5)})
    assert changes(it, scaled) == []


@cases(
    "present, tried, reason",
    case("a component",
        whole(ONE, components={"chat": component(ONE, status="Failed", reason="no memory")}),
        DeployStep(Action.CREATE_COMPONENT, "chat"), "no memory"),
    case("an update that was rolled back",
        whole(ONE, components={"chat": component(ONE, model="older", reason="torn")}),
        DeployStep(Action.UPDATE_COMPONENT, "chat"), "torn"),
    case("an endpoint",
        whole(ONE, endpoint=PresentEndpoint(status="Failed", config="c", reason="no room")),
        DeployStep(Action.CREATE_ENDPOINT, "chat"), "no room"),
    case("an adapter", whole(SCALED, components=dict(whole(SCALED).components)
              | {"chat-es": adapter(SCALED, 0, status="Failed", reason="rank 128")}),
        DeployStep(Action.CREATE_ADAPTER, "chat-es"), "rank 128"),
)  # fmt: skip
def test_what_fails_in_this_run_ends_it_with_the_cause(
    present: Present, tried: DeployStep, reason: str
) -> None:
    it = SCALED if len(present.components) > 1 else ONE
    step = next_step(it, present, [tried])
    assert step is not None
    assert (step.action, step.reason) == (Action.FAIL, reason)
    again = next_step(it, present, [])
    assert again is not None
    assert again.action is not Action.FAIL, "the next run tries again"


@cases(
    "present, error",
    case("an endpoint of models",
        whole(ONE, endpoint=PresentEndpoint(status="InService", config="c", has_models=True)),
        "an endpoint chat with models of its own"),
    case("a component elsewhere",
        whole(ONE, components={"chat": component(ONE, endpoint="shared")}),
        "component chat on endpoint shared: choose another --name"),
)  # fmt: skip
def test_what_belongs_to_something_else_is_left_alone(present: Present, error: str) -> None:
    with pytest.raises(TerminalError, match=error):
        changes(ONE, present)
