"""RollingUpdatePolicy of endpoints is stored, shown or refused, and updates end old instances."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.domain.copy import CopyPhase, InstanceState
from hostelry.domain.endpoint import EndpointStatus, Shift, ShiftStage, UpdateGuard
from hostelry.domain.scope import Scope
from hostelry.domain.traffic import FleetSize, FleetUnit, TrafficPolicy, TrafficType
from hostelry.store.records import State

ONE = {"Type": "INSTANCE_COUNT", "Value": 1}
HALF = {"Type": "CAPACITY_PERCENT", "Value": 50}


def rolling(**more: Any) -> dict[str, Any]:
    policy = {"MaximumBatchSize": ONE, "WaitIntervalInSeconds": 60, **more}
    return {"RollingUpdatePolicy": policy}


@pytest.fixture
def models(api: Api) -> None:
    """An endpoint "e" of two instances in service, and a second configuration "c2" of four."""
    api.make.model()
    api.make.endpoint("e", {"ModelName": "m", "InitialInstanceCount": 2})
    api.make.config("c2", {"ModelName": "m", "InitialInstanceCount": 4})
    api.change_endpoint(status=EndpointStatus.IN_SERVICE, deadline_at=None)


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
    api: Api, config: dict[str, Any], guard: UpdateGuard, retained: bool
) -> None:
    given: dict[str, Any] = {"DeploymentConfig": config}
    if retained:
        api.change_endpoint(given={**api.endpoint().given, **given})
        given = {"RetainDeploymentConfig": True}
    api.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2", **given)
    pending = api.endpoint().pending
    assert pending is not None
    assert pending.guard == guard
    assert api.call("DescribeEndpoint", EndpointName="e")["LastDeploymentConfig"] == config


def test_at_a_creation_the_policy_is_kept_for_later(api: Api) -> None:
    api.make.model()
    api.make.config("c", {"ModelName": "m", "InitialInstanceCount": 2})
    config = rolling()
    api.call("CreateEndpoint", EndpointName="e", EndpointConfigName="c", DeploymentConfig=config)
    assert api.call("DescribeEndpoint", EndpointName="e")["LastDeploymentConfig"] == config


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
def test_a_policy_that_cannot_be_is_refused(api: Api, config: dict[str, Any], message: str) -> None:
    params = {"EndpointName": "e", "EndpointConfigName": "c2", "DeploymentConfig": config}
    assert message in api.refusal("UpdateEndpoint", **params)
    assert api.endpoint().pending is None


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
    api: Api, variant: dict[str, Any], message: str
) -> None:
    plain = {
        "VariantName": "main",
        "ModelName": "m",
        "InstanceType": "ml.m5.xlarge",
        "InitialInstanceCount": 2,
    }
    given = {name: it for name, it in {**plain, **variant}.items() if it is not None}
    api.call("CreateEndpointConfig", EndpointConfigName="c3", ProductionVariants=[given])
    params = {"EndpointName": "e", "EndpointConfigName": "c3", "DeploymentConfig": rolling()}
    assert message in api.refusal("UpdateEndpoint", **params)
    assert api.endpoint().pending is None


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
    api: Api, stage: ShiftStage, status: str, message: str, of_old: list[str]
) -> None:
    api.call(
        "UpdateEndpoint", EndpointName="e", EndpointConfigName="c2", DeploymentConfig=rolling()
    )
    api.add_copy("1", "main", api.endpoint().active.generation, CopyPhase.READY)
    terminate(api.state, api.scope)
    api.change_endpoint(shift=Shift(step=1, since=api.clock.now(), stage=stage))
    api.clock.advance(40.0)
    shown = api.call("DescribeEndpoint", EndpointName="e")
    found = shown["ProductionVariants"][0]["VariantStatus"]
    assert [it["Status"] for it in found] == of_old
    (coming,) = shown["PendingDeploymentSummary"]["ProductionVariants"][0]["VariantStatus"]
    expected = f"batch 1 of 4: 25 % of traffic; {message}; no alarm is watched"
    assert (coming["Status"], coming["StatusMessage"]) == (status, expected)
    assert coming["StartTime"] == api.clock.now() - 40.0


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
    api: Api, later: int, expected: list[str]
) -> None:
    active = api.endpoint().active
    api.add_copy("1", "main", active.generation, CopyPhase.READY)
    terminate(api.state, api.scope)
    api.change_endpoint(active=replace(active, generation=active.generation + later))
    shown = api.call("DescribeEndpoint", EndpointName="e")
    assert shown["EndpointStatus"] == "InService", "waiters are not held up by long streams"
    found = shown["ProductionVariants"][0].get("VariantStatus", [])
    assert [it["Status"] for it in found] == expected
    if expected:
        assert found[0]["StatusMessage"] == "replaced instances that are being terminated: 1"
    api.change_endpoint(status=EndpointStatus.DELETING)
    shown = api.call("DescribeEndpoint", EndpointName="e")["ProductionVariants"][0]["VariantStatus"]
    assert [it["Status"] for it in shown] == ["Deleting"]
