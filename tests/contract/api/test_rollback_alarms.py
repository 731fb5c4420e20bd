"""AutoRollbackConfiguration and the waits of a blue/green update: kept, shown and refused."""

from collections.abc import Callable
from typing import Any

import pytest

from hostelry.base.clock import ManualClock
from hostelry.domain.component import ComponentStatus, InferenceComponent
from hostelry.domain.endpoint import Bake, Endpoint, EndpointStatus, UpdateGuard
from hostelry.domain.scope import Scope

Call = Callable[..., dict[str, Any]]
Refused = Callable[..., str]
ALARMS = {"AutoRollbackConfiguration": {"Alarms": [{"AlarmName": "errors"}]}}
ROLLING = {
    "RollingUpdatePolicy": {
        "MaximumBatchSize": {"Type": "COPY_COUNT", "Value": 1},
        "WaitIntervalInSeconds": 60,
    }
}


def blue_green(**more: Any) -> dict[str, Any]:
    traffic = {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 0}
    return {"BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": traffic, **more}}


@pytest.fixture
def alarms(call_as: Call, scope: Scope) -> None:
    """A metric alarm "errors" and a composite alarm "any"."""
    call_as(
        scope,
        "PutMetricAlarm",
        "cloudwatch",
        AlarmName="errors",
        Namespace="AWS/SageMaker",
        MetricName="Invocation5XXErrors",
        Statistic="Sum",
        Period=10,
        EvaluationPeriods=1,
        Threshold=1.0,
        ComparisonOperator="GreaterThanThreshold",
    )
    call_as(scope, "PutCompositeAlarm", "cloudwatch", AlarmName="any", AlarmRule="ALARM(errors)")


@pytest.fixture
def models(make: Any, change: Callable[..., None]) -> None:
    """An endpoint "e" of models in service, and a second configuration "c2"."""
    make.model()
    make.endpoint("e", {"ModelName": "m"})
    make.config("c2", {"ModelName": "m"})
    change(status=EndpointStatus.IN_SERVICE, deadline_at=None)


@pytest.mark.usefixtures("alarms")
def test_a_rolling_update_keeps_its_alarms(
    call: Call,
    make: Any,
    change_component: Callable[..., None],
    component: Callable[[str], InferenceComponent],
) -> None:
    make.endpoint()
    make.component(RuntimeConfig={"CopyCount": 2})
    change_component("base", status=ComponentStatus.IN_SERVICE, deadline_at=None)
    named = {"Alarms": [{"AlarmName": "errors"}, {"AlarmName": "any"}, {"AlarmName": "errors"}]}
    config = {**ROLLING, "AutoRollbackConfiguration": named}
    call(
        "UpdateInferenceComponent",
        InferenceComponentName="base",
        Specification={"Container": {"Image": "new"}},
        DeploymentConfig=config,
    )
    rollout = component("base").rollout
    assert rollout is not None
    assert rollout.policy.alarm_names == ("errors", "any")
    shown = call("DescribeInferenceComponent", InferenceComponentName="base")
    assert shown["LastDeploymentConfig"] == config


@pytest.mark.usefixtures("alarms", "models")
def test_an_endpoints_update_keeps_its_guard(
    call: Call, endpoint: Callable[[], Endpoint], change: Callable[..., None], clock: ManualClock
) -> None:
    config = {
        **blue_green(TerminationWaitInSeconds=300, MaximumExecutionTimeoutInSeconds=1800),
        **ALARMS,
    }
    call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2", DeploymentConfig=config)
    pending = endpoint().pending
    assert pending is not None
    assert pending.guard == UpdateGuard(
        alarm_names=("errors",), bake_s=300.0, max_execution_s=1800.0
    )
    shown = call("DescribeEndpoint", EndpointName="e")
    assert shown["LastDeploymentConfig"] == config
    assert shown["EndpointConfigName"] == "e-config"
    before = endpoint().active
    change(active=pending, pending=None, bake=Bake(before=before, since=clock.now()))
    shown = call("DescribeEndpoint", EndpointName="e")
    assert shown["EndpointConfigName"] == "e-config", "the old one until the update is finished"
    summary = shown["PendingDeploymentSummary"]
    assert summary["EndpointConfigName"] == "c2"
    assert summary["ProductionVariants"][0]["VariantStatus"][0]["Status"] == "Baking"


@pytest.mark.usefixtures("alarms", "models")
def test_a_retained_deployment_config_guards_too(
    call: Call, endpoint: Callable[[], Endpoint], change: Callable[..., None]
) -> None:
    change(given={**endpoint().given, "DeploymentConfig": {**blue_green(), **ALARMS}})
    call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2", RetainDeploymentConfig=True)
    pending = endpoint().pending
    assert pending is not None
    assert pending.guard == UpdateGuard(alarm_names=("errors",))


@pytest.mark.usefixtures("models")
def test_an_alarm_that_does_not_exist_guards_nothing(
    refused: Refused, endpoint: Callable[[], Endpoint]
) -> None:
    text = refused(
        "UpdateEndpoint",
        EndpointName="e",
        EndpointConfigName="c2",
        DeploymentConfig={**blue_green(), **ALARMS},
    )
    assert 'there is no alarm "errors"' in text
    assert endpoint().pending is None


@pytest.mark.usefixtures("models")
def test_an_update_without_a_deployment_config_has_no_guard(
    call: Call, endpoint: Callable[[], Endpoint]
) -> None:
    call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2")
    pending = endpoint().pending
    assert pending is not None
    assert pending.guard is None


def test_at_a_creation_alarms_are_only_kept_for_later(call: Call, make: Any) -> None:
    make.config("c")
    config = {**blue_green(), **ALARMS}
    call("CreateEndpoint", EndpointName="e", EndpointConfigName="c", DeploymentConfig=config)
    assert call("DescribeEndpoint", EndpointName="e")["LastDeploymentConfig"] == config
