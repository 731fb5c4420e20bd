"""RollingUpdatePolicy of endpoints: kept, shown and refused; instances that updates terminate."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.base.clock import ManualClock
from hostelry.domain.copy import CopyPhase, InstanceState
from hostelry.domain.endpoint import Endpoint, EndpointStatus, Shift, ShiftStage, UpdateGuard
from hostelry.domain.scope import Scope
from hostelry.domain.traffic import FleetSize, FleetUnit, TrafficPolicy, TrafficType
from hostelry.store.records import State

Call = Callable[..., dict[str, Any]]
Refused = Callable[..., str]
ONE = {"Type": "INSTANCE_COUNT", "Value": 1}
HALF = {"Type": "CAPACITY_PERCENT", "Value": 50}


def rolling(**more: Any) -> dict[str, Any]:
    policy = {"MaximumBatchSize": ONE, "WaitIntervalInSeconds": 60, **more}
    return {"RollingUpdatePolicy": policy}


@pytest.fixture
def models(make: Any, change: Callable[..., None]) -> None:
    """An endpoint "e" of two instances in service, and a second configuration "c2" of four."""
    make.model()
    make.endpoint("e", {"ModelName": "m", "InitialInstanceCount": 2})
    make.config("c2", {"ModelName": "m", "InitialInstanceCount": 4})
    change(status=EndpointStatus.IN_SERVICE, deadline_at=None)


@pytest.mark.usefixtures("models")
@cases(
    "config, guard",
    case(
        "the least",
        rolling(),
        UpdateGuard(
            traffic=TrafficPolicy(
                type=TrafficType.ROLLING,
                size=FleetSize(unit=FleetUnit.INSTANCE_COUNT, value=1),
                wait_s=60.0,
            )
        ),
    ),
    case(
        "everything",
        rolling(
            MaximumBatchSize=HALF,
            RollbackMaximumBatchSize=ONE,
            MaximumExecutionTimeoutInSeconds=1800,
        ),
        UpdateGuard(
            max_execution_s=1800.0,
            traffic=TrafficPolicy(
                type=TrafficType.ROLLING,
                size=FleetSize(unit=FleetUnit.CAPACITY_PERCENT, value=50),
                wait_s=60.0,
                rollback_size=FleetSize(unit=FleetUnit.INSTANCE_COUNT, value=1),
            ),
        ),
    ),
)
@pytest.mark.parametrize("retained", [False, True], ids=["given", "retained"])
def test_a_policy_is_kept_and_shown(
    call: Call,
    endpoint: Callable[[], Endpoint],
    change: Callable[..., None],
    config: dict[str, Any],
    guard: UpdateGuard,
    retained: bool,
) -> None:
    given: dict[str, Any] = {"DeploymentConfig": config}
    if retained:
        change(given={**endpoint().given, **given})
        given = {"RetainDeploymentConfig": True}
    call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2", **given)
    pending = endpoint().pending
    assert pending is not None
    assert pending.guard == guard
    assert call("DescribeEndpoint", EndpointName="e")["LastDeploymentConfig"] == config


def test_at_a_creation_the_policy_is_kept_for_later(call: Call, make: Any) -> None:
    make.model()
    make.config("c", {"ModelName": "m", "InitialInstanceCount": 2})
    config = rolling()
    call("CreateEndpoint", EndpointName="e", EndpointConfigName="c", DeploymentConfig=config)
    assert call("DescribeEndpoint", EndpointName="e")["LastDeploymentConfig"] == config


@pytest.mark.usefixtures("models")
@cases(
    "config, message",
    case(
        "more than half",
        rolling(MaximumBatchSize={"Type": "CAPACITY_PERCENT", "Value": 51}),
        "MaximumBatchSize.Value is 51; it must be 5 to 50 per cent of the instances.",
    ),
    case(
        "more instances than half",
        rolling(MaximumBatchSize={"Type": "INSTANCE_COUNT", "Value": 3}),
        "MaximumBatchSize.Value is 3, and variant main has 4 instances; it must be 1 to 2",
    ),
    case(
        "a rollback of more than all",
        rolling(RollbackMaximumBatchSize={"Type": "CAPACITY_PERCENT", "Value": 101}),
        "RollbackMaximumBatchSize.Value is 101; it must be 1 to 100 per cent.",
    ),
    case(
        "a rollback of more instances than there are",
        rolling(RollbackMaximumBatchSize={"Type": "INSTANCE_COUNT", "Value": 5}),
        "RollbackMaximumBatchSize.Value is 5; it must be 1 to 4, the instances of variant",
    ),
    case(
        "waits that take all the time",
        rolling(WaitIntervalInSeconds=150, MaximumExecutionTimeoutInSeconds=600),
        "RollingUpdatePolicy: 4 times WaitIntervalInSeconds 150 must be less than"
        " MaximumExecutionTimeoutInSeconds 600.",
    ),
    case(
        "two policies",
        {
            **rolling(),
            "BlueGreenUpdatePolicy": {
                "TrafficRoutingConfiguration": {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 0}
            },
        },
        "give one of them",
    ),
)
def test_a_policy_that_cannot_be_is_refused(
    refused: Refused, endpoint: Callable[[], Endpoint], config: dict[str, Any], message: str
) -> None:
    params = {"EndpointName": "e", "EndpointConfigName": "c2", "DeploymentConfig": config}
    assert message in refused("UpdateEndpoint", **params)
    assert endpoint().pending is None


@pytest.mark.usefixtures("models")
@cases(
    "variant, message",
    case(
        "another variant",
        {"VariantName": "other"},
        "has the variants main, the new configuration has other: DeploymentConfig"
        ".RollingUpdatePolicy needs the same ones.",
    ),
    case(
        "a serverless one",
        {
            "InstanceType": None,
            "InitialInstanceCount": None,
            "ServerlessConfig": {"MemorySizeInMB": 1024, "MaxConcurrency": 1},
        },
        'Variant "main" is serverless. Use BlueGreenUpdatePolicy.',
    ),
)
def test_variants_without_instances_to_replace_are_refused(
    call: Call,
    refused: Refused,
    endpoint: Callable[[], Endpoint],
    variant: dict[str, Any],
    message: str,
) -> None:
    plain = {
        "VariantName": "main",
        "ModelName": "m",
        "InstanceType": "ml.m5.xlarge",
        "InitialInstanceCount": 2,
    }
    given = {name: it for name, it in {**plain, **variant}.items() if it is not None}
    call("CreateEndpointConfig", EndpointConfigName="c3", ProductionVariants=[given])
    params = {"EndpointName": "e", "EndpointConfigName": "c3", "DeploymentConfig": rolling()}
    assert message in refused("UpdateEndpoint", **params)
    assert endpoint().pending is None


@pytest.mark.usefixtures("models")
@cases(
    "stage, status, message, of_old",
    case("it bakes", ShiftStage.BAKING, "Baking", "baking 40 s of 60 s", ["Updating"]),
    case(
        "old instances leave",
        ShiftStage.LEAVING,
        "Updating",
        "the old instances that it replaces are being terminated",
        ["Updating", "Deleting"],
    ),
    case("the next comes up", ShiftStage.COMING, "Creating", "batch 2 comes up", ["Updating"]),
)
def test_the_stage_of_a_batch_is_shown(
    call: Call,
    endpoint: Callable[[], Endpoint],
    change: Callable[..., None],
    run: Callable[..., None],
    state: State,
    scope: Scope,
    clock: ManualClock,
    stage: ShiftStage,
    status: str,
    message: str,
    of_old: list[str],
) -> None:
    call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2", DeploymentConfig=rolling())
    run("1", "main", endpoint().active.generation, CopyPhase.READY)
    terminate(state, scope)
    change(shift=Shift(step=1, since=clock.now(), stage=stage))
    clock.advance(40.0)
    shown = call("DescribeEndpoint", EndpointName="e")
    found = shown["ProductionVariants"][0]["VariantStatus"]
    assert [it["Status"] for it in found] == of_old
    (coming,) = shown["PendingDeploymentSummary"]["ProductionVariants"][0]["VariantStatus"]
    expected = f"batch 1 of 4: 25 % of traffic; {message}; no alarm is watched"
    assert (coming["Status"], coming["StatusMessage"]) == (status, expected)
    assert coming["StartTime"] == clock.now() - 40.0


def terminate(state: State, scope: Scope) -> None:
    """Every instance is being terminated."""
    for stored in state.instances.list(scope):
        leaving = replace(stored.value, state=InstanceState.TERMINATING)
        state.instances.put(scope, stored.value.id, leaving, expect=stored.version)


@pytest.mark.usefixtures("models")
@cases(
    "later, expected",
    case("of the configuration before", 1, ["Deleting"]),
    case("of the present one, as it shrinks", 0, []),
)
def test_instances_that_an_update_replaced_are_shown_until_they_are_gone(
    call: Call,
    endpoint: Callable[[], Endpoint],
    change: Callable[..., None],
    run: Callable[..., None],
    state: State,
    scope: Scope,
    later: int,
    expected: list[str],
) -> None:
    active = endpoint().active
    run("1", "main", active.generation, CopyPhase.READY)
    terminate(state, scope)
    change(active=replace(active, generation=active.generation + later))
    shown = call("DescribeEndpoint", EndpointName="e")
    assert shown["EndpointStatus"] == "InService", "waiters are not held up by long streams"
    found = shown["ProductionVariants"][0].get("VariantStatus", [])
    assert [it["Status"] for it in found] == expected
    if expected:
        assert found[0]["StatusMessage"] == "replaced instances that are being terminated: 1"
    change(status=EndpointStatus.DELETING)
    shown = call("DescribeEndpoint", EndpointName="e")["ProductionVariants"][0]["VariantStatus"]
    assert [it["Status"] for it in shown] == ["Deleting"]
