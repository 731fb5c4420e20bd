"""AutoRollbackConfiguration and the waits of a blue/green update: kept, shown and refused."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.domain.component import ComponentStatus
from hostelry.domain.copy import CopyPhase
from hostelry.domain.endpoint import (
    Bake,
    Deployment,
    EndpointStatus,
    Shift,
    UpdateGuard,
)
from hostelry.domain.traffic import FleetSize, FleetUnit, TrafficPolicy, TrafficType

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
def alarms(api: Api) -> None:
    """A metric alarm "errors" and a composite alarm "any"."""
    api.call_as(
        api.scope,
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
    api.call_as(
        api.scope, "PutCompositeAlarm", "cloudwatch", AlarmName="any", AlarmRule="ALARM(errors)"
    )


@pytest.fixture
def models(api: Api) -> None:
    """An endpoint "e" of models in service, and a second configuration "c2"."""
    api.make.model()
    api.make.endpoint("e", {"ModelName": "m"})
    api.make.config("c2", {"ModelName": "m"})
    api.change_endpoint(status=EndpointStatus.IN_SERVICE, deadline_at=None)


@pytest.mark.usefixtures("alarms")
def test_a_rolling_update_keeps_its_alarms(api: Api) -> None:
    api.make.endpoint()
    api.make.component(RuntimeConfig={"CopyCount": 2})
    api.change_component("base", status=ComponentStatus.IN_SERVICE, deadline_at=None)
    named = {"Alarms": [{"AlarmName": "errors"}, {"AlarmName": "any"}, {"AlarmName": "errors"}]}
    config = {**ROLLING, "AutoRollbackConfiguration": named}
    api.call(
        "UpdateInferenceComponent",
        InferenceComponentName="base",
        Specification={"Container": {"Image": "new"}},
        DeploymentConfig=config,
    )
    rollout = api.component("base").rollout
    assert rollout is not None
    assert rollout.policy.alarm_names == ("errors", "any")
    shown = api.call("DescribeInferenceComponent", InferenceComponentName="base")
    assert shown["LastDeploymentConfig"] == config


@pytest.mark.usefixtures("alarms", "models")
def test_an_endpoints_update_keeps_its_guard(api: Api) -> None:
    config = {
        **blue_green(TerminationWaitInSeconds=300, MaximumExecutionTimeoutInSeconds=1800),
        **ALARMS,
    }
    api.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2", DeploymentConfig=config)
    pending = api.endpoint().pending
    assert pending is not None
    assert pending.guard == UpdateGuard(
        alarm_names=("errors",), bake_s=300.0, max_execution_s=1800.0
    )
    shown = api.call("DescribeEndpoint", EndpointName="e")
    assert shown["LastDeploymentConfig"] == config
    assert shown["EndpointConfigName"] == "e-config"
    before = api.endpoint().active
    api.change_endpoint(
        active=pending, pending=None, bake=Bake(before=before, since=api.clock.now())
    )
    shown = api.call("DescribeEndpoint", EndpointName="e")
    assert shown["EndpointConfigName"] == "e-config", "the old one until the update is finished"
    summary = shown["PendingDeploymentSummary"]
    assert summary["EndpointConfigName"] == "c2"
    assert summary["ProductionVariants"][0]["VariantStatus"][0]["Status"] == "Baking"


def of_size(kind: str, unit: str, value: int, wait_s: int = 60) -> dict[str, Any]:
    field = {"CANARY": "CanarySize", "LINEAR": "LinearStepSize"}[kind]
    size = {"Type": unit, "Value": value}
    return {"TrafficRoutingConfiguration": {
        "Type": kind, "WaitIntervalInSeconds": wait_s, field: size
    }}  # fmt: skip


@pytest.mark.usefixtures("models")
@cases(
    "policy, traffic",
    case(
        "a canary",
        of_size("CANARY", "CAPACITY_PERCENT", 10),
        TrafficPolicy(
            type=TrafficType.CANARY,
            size=FleetSize(unit=FleetUnit.CAPACITY_PERCENT, value=10),
            wait_s=60.0,
        ),
    ),
    case(
        "in steps",
        of_size("LINEAR", "CAPACITY_PERCENT", 20, 0),
        TrafficPolicy(
            type=TrafficType.LINEAR, size=FleetSize(unit=FleetUnit.CAPACITY_PERCENT, value=20)
        ),
    ),
)
def test_steps_are_kept_and_shown(api: Api, policy: dict[str, Any], traffic: TrafficPolicy) -> None:
    config = {"BlueGreenUpdatePolicy": {**policy, "TerminationWaitInSeconds": 300}}
    api.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2", DeploymentConfig=config)
    pending = api.endpoint().pending
    assert pending is not None
    assert pending.guard == UpdateGuard(bake_s=300.0, traffic=traffic)
    assert api.call("DescribeEndpoint", EndpointName="e")["LastDeploymentConfig"] == config


@pytest.mark.usefixtures("alarms", "models")
@cases(
    "shift, after_s, status, message",
    case("the new instances come up", None, 5.0, "Creating", None),
    case(
        "a step begins",
        Shift(step=2, since=0.0),
        1.0,
        "ActivatingTraffic",
        "step 2 of 5: 40 % of traffic; baking 1 s of 300 s; alarms watched: errors",
    ),
    case(
        "a step is watched",
        Shift(step=2, since=0.0),
        40.0,
        "Baking",
        "step 2 of 5: 40 % of traffic; baking 40 s of 300 s; alarms watched: errors",
    ),
    case(
        "on the way back, until old instances can serve",
        Shift(step=2, since=0.0, failure="an alarm"),
        40.0,
        "Updating",
        "an alarm",
    ),
)
def test_the_step_of_an_update_is_shown(
    api: Api, shift: Shift | None, after_s: float, status: str, message: str | None
) -> None:
    config = {
        "BlueGreenUpdatePolicy": of_size("LINEAR", "CAPACITY_PERCENT", 20, 300),
        **ALARMS,
    }
    api.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2", DeploymentConfig=config)
    api.change_endpoint(shift=shift and replace(shift, since=api.clock.now()))
    api.clock.advance(after_s)
    shown = api.call("DescribeEndpoint", EndpointName="e")
    assert (shown["EndpointStatus"], shown["EndpointConfigName"]) == ("Updating", "e-config")
    summary = shown["PendingDeploymentSummary"]
    assert summary["EndpointConfigName"] == "c2"
    (found,) = summary["ProductionVariants"][0]["VariantStatus"]
    assert (found["Status"], found.get("StatusMessage")) == (status, message)
    assert found["StartTime"] == api.clock.now() - after_s


@pytest.mark.usefixtures("models")
@cases(
    "policy, message",
    case(
        "no size",
        {"TrafficRoutingConfiguration": {"Type": "CANARY", "WaitIntervalInSeconds": 60}},
        "TrafficRoutingConfiguration.CanarySize is required for CANARY.",
    ),
    case(
        "the size of another type",
        {
            "TrafficRoutingConfiguration": {
                "Type": "LINEAR",
                "WaitIntervalInSeconds": 60,
                "CanarySize": {"Type": "CAPACITY_PERCENT", "Value": 10},
                "LinearStepSize": {"Type": "CAPACITY_PERCENT", "Value": 10},
            }
        },
        "TrafficRoutingConfiguration.CanarySize is for CANARY; Type is LINEAR.",
    ),
    case(
        "all instances",
        of_size("CANARY", "INSTANCE_COUNT", 1),
        "CanarySize.Value is 1, and variant main has 1 instance; use CAPACITY_PERCENT",
    ),
    case(
        "a step of more than half",
        of_size("LINEAR", "CAPACITY_PERCENT", 51),
        "LinearStepSize.Value is 51; it must be 10 to 50 per cent",
    ),
    case(
        "waits that take all the time",
        {**of_size("LINEAR", "CAPACITY_PERCENT", 25, 200), "MaximumExecutionTimeoutInSeconds": 600},
        "3 times WaitIntervalInSeconds 200 and TerminationWaitInSeconds 0 must be less than"
        " MaximumExecutionTimeoutInSeconds 600.",
    ),
)
def test_steps_that_cannot_be_are_refused(api: Api, policy: dict[str, Any], message: str) -> None:
    config = {"BlueGreenUpdatePolicy": policy}
    params = {"EndpointName": "e", "EndpointConfigName": "c2", "DeploymentConfig": config}
    assert message in api.refusal("UpdateEndpoint", **params)
    assert api.endpoint().pending is None


@pytest.mark.usefixtures("models")
def test_steps_between_fleets_that_take_other_requests_are_refused(api: Api) -> None:
    output = {"OutputConfig": {"S3OutputPath": "s3://b/out"}}
    variant = {
        "VariantName": "main",
        "ModelName": "m",
        "InstanceType": "ml.m5.xlarge",
        "InitialInstanceCount": 1,
    }
    api.call(
        "CreateEndpointConfig",
        EndpointConfigName="queued",
        ProductionVariants=[variant],
        AsyncInferenceConfig=output,
    )
    policy = of_size("CANARY", "CAPACITY_PERCENT", 10)
    text = api.refusal(
        "UpdateEndpoint",
        EndpointName="e",
        EndpointConfigName="queued",
        DeploymentConfig={"BlueGreenUpdatePolicy": policy},
    )
    assert "takes single-model requests" in text
    assert "are asynchronous single-model: both cannot share the traffic. Use ALL_AT_ONCE." in text
    assert api.endpoint().pending is None


@pytest.fixture
def moving(api: Api) -> Deployment:
    """An endpoint of components on its way, guarded, to instances without accelerators."""
    api.make.endpoint()
    api.change_endpoint(status=EndpointStatus.IN_SERVICE, deadline_at=None)
    needs = {"MinMemoryRequiredInMb": 1024}
    specification = {"Container": {"Image": "i"}, "ComputeResourceRequirements": needs}
    api.make.component(Specification=specification)
    api.change_component("base", status=ComponentStatus.IN_SERVICE, deadline_at=None)
    api.make.config("c2", {"InstanceType": "ml.m5.xlarge"})
    config = {**blue_green(TerminationWaitInSeconds=300), **ALARMS}
    api.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2", DeploymentConfig=config)
    pending = api.endpoint().pending
    assert pending is not None
    return pending


@pytest.mark.usefixtures("alarms")
@cases(
    "failure, status",
    case(
        "on trial",
        None,
        {
            "Status": "Baking",
            "StatusMessage": "step 1 of 1: 100 % of traffic; baking 0 s of 300 s; alarms"
            " watched: errors",
        },
    ),
    case("on its way back", "an alarm", {"Status": "Updating", "StatusMessage": "an alarm"}),
)
def test_the_trial_of_an_endpoint_of_components_is_shown(
    api: Api, moving: Deployment, failure: str | None, status: dict[str, str]
) -> None:
    assert moving.guard == UpdateGuard(alarm_names=("errors",), bake_s=300.0)
    before = api.endpoint().active
    api.clock.advance(60.0)
    bake = Bake(before=before, since=api.clock.now(), failure=failure)
    api.change_endpoint(active=moving, pending=None, bake=bake)
    for number, deployment in enumerate((before, before, moving)):
        generation = deployment.generation
        api.add_copy(f"{number}", "main", generation, CopyPhase.READY, component_name="base")
    shown = api.call("DescribeEndpoint", EndpointName="e")
    assert (shown["EndpointStatus"], shown["EndpointConfigName"]) == ("Updating", "e-config")
    (variant,) = shown["ProductionVariants"]
    assert variant["CurrentInstanceCount"] == 2, "of the configuration that is shown"
    summary = shown["PendingDeploymentSummary"]
    assert summary["EndpointConfigName"] == "c2"
    (coming,) = summary["ProductionVariants"]
    assert (coming["InstanceType"], coming["CurrentInstanceCount"]) == ("ml.m5.xlarge", 1)
    assert coming["VariantStatus"] == [{**status, "StartTime": api.clock.now()}]
    shown = api.call("DescribeInferenceComponent", InferenceComponentName="base")["RuntimeConfig"]
    assert shown["CurrentCopyCount"] == 1, "those that are kept do not count"


@pytest.mark.usefixtures("alarms")
def test_a_component_that_could_not_follow_or_go_back_is_refused(
    api: Api, moving: Deployment
) -> None:
    def message(needs: dict[str, Any]) -> str:
        specification = {
            "Container": {"Image": "i"},
            "ComputeResourceRequirements": {"MinMemoryRequiredInMb": 1024, **needs},
        }
        return api.refusal(
            "CreateInferenceComponent",
            InferenceComponentName="another",
            EndpointName="e",
            VariantName="main",
            Specification=specification,
            RuntimeConfig={"CopyCount": 1},
        )

    of_gpu = {"NumberOfAcceleratorDevicesRequired": 1}
    assert "when it moves to ml.m5.xlarge" in message(of_gpu), "it could not follow"
    bake = Bake(before=moving, since=api.clock.now())
    api.change_endpoint(active=api.endpoint().active, pending=None, bake=bake)
    assert "when it moves to ml.m5.xlarge" in message(of_gpu), "it could not go back"


@pytest.mark.usefixtures("alarms")
@cases(
    "policy, message",
    case(
        "a trial that could not end in time",
        {"TerminationWaitInSeconds": 600, "MaximumExecutionTimeoutInSeconds": 600},
        "must be less than MaximumExecutionTimeoutInSeconds 600",
    ),
    case(
        "a canary",
        {
            "TrafficRoutingConfiguration": {
                "Type": "CANARY",
                "WaitIntervalInSeconds": 60,
                "CanarySize": {"Type": "INSTANCE_COUNT", "Value": 1},
            }
        },
        "Use ALL_AT_ONCE",
    ),
    case(
        "in steps",
        {"TrafficRoutingConfiguration": {"Type": "LINEAR", "WaitIntervalInSeconds": 60}},
        "Use ALL_AT_ONCE",
    ),
)
def test_a_policy_that_cannot_be_kept_is_refused_for_components(
    api: Api, policy: dict[str, Any], message: str
) -> None:
    api.make.endpoint()
    api.change_endpoint(status=EndpointStatus.IN_SERVICE, deadline_at=None)
    api.make.config("c2")
    config = {**blue_green(**policy), **ALARMS}
    params = {"EndpointName": "e", "EndpointConfigName": "c2", "DeploymentConfig": config}
    assert message in api.refusal("UpdateEndpoint", **params)
    assert api.endpoint().pending is None


@pytest.mark.usefixtures("alarms", "models")
def test_a_retained_deployment_config_guards_too(api: Api) -> None:
    api.change_endpoint(
        given={**api.endpoint().given, "DeploymentConfig": {**blue_green(), **ALARMS}}
    )
    api.call(
        "UpdateEndpoint", EndpointName="e", EndpointConfigName="c2", RetainDeploymentConfig=True
    )
    pending = api.endpoint().pending
    assert pending is not None
    assert pending.guard == UpdateGuard(alarm_names=("errors",))


@pytest.mark.usefixtures("models")
def test_an_alarm_that_does_not_exist_guards_nothing(api: Api) -> None:
    text = api.refusal(
        "UpdateEndpoint",
        EndpointName="e",
        EndpointConfigName="c2",
        DeploymentConfig={**blue_green(), **ALARMS},
    )
    assert 'there is no alarm "errors"' in text
    assert api.endpoint().pending is None


@pytest.mark.usefixtures("models")
def test_an_update_without_a_deployment_config_has_no_guard(api: Api) -> None:
    api.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2")
    pending = api.endpoint().pending
    assert pending is not None
    assert pending.guard is None


def test_at_a_creation_alarms_are_only_kept_for_later(api: Api) -> None:
    api.make.config("c")
    config = {**blue_green(), **ALARMS}
    api.call("CreateEndpoint", EndpointName="e", EndpointConfigName="c", DeploymentConfig=config)
    assert api.call("DescribeEndpoint", EndpointName="e")["LastDeploymentConfig"] == config
