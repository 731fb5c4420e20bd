"""Endpoints: creation, descriptions, updates, and deletion from every status."""

from typing import Any

import pytest
from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.domain.copy import CopyPhase
from hostelry.domain.endpoint import EndpointStatus

ARN = "arn:aws:sagemaker:us-west-2:123456789012:"
OF_MODEL = {"VariantName": "AllTraffic", "ModelName": "m", "InstanceType": "ml.m5.xlarge"}
OTHER = {**OF_MODEL, "VariantName": "other"}
SCALED = {"Status": "ENABLED", "MinInstanceCount": 1, "MaxInstanceCount": 2}


def test_an_endpoint_comes_up_creating_with_a_deadline(api: Api) -> None:
    api.make.model()
    api.make.endpoint("e", {**OF_MODEL, "InitialInstanceCount": 2}, OTHER)
    shown = api.call("DescribeEndpoint", EndpointName="e")
    assert shown["EndpointStatus"] == "Creating"
    assert shown["EndpointArn"] == ARN + "endpoint/e"
    assert shown["EndpointConfigName"] == "e-config"
    assert shown["CreationTime"] == shown["LastModifiedTime"] == api.clock.now()
    assert "PendingDeploymentSummary" not in shown
    first, second = shown["ProductionVariants"]
    assert (first["VariantName"], second["VariantName"]) == ("AllTraffic", "other")
    assert (first["CurrentInstanceCount"], first["DesiredInstanceCount"]) == (0, 2)
    assert first["DeployedImages"][0]["SpecifiedImage"] == api.make.image
    assert first["VariantStatus"][0]["Status"] == "Creating"
    deadline_at = api.endpoint().deadline_at
    assert deadline_at is not None
    assert deadline_at > api.clock.now() + 3600 + 240


def test_an_endpoint_shows_its_metrics_configuration(api: Api) -> None:
    metrics = {"EnableEnhancedMetrics": True}
    api.make.config("c", MetricsConfig=metrics)
    api.call("CreateEndpoint", EndpointName="e", EndpointConfigName="c")
    assert api.call("DescribeEndpoint", EndpointName="e")["MetricsConfig"] == metrics


def test_an_endpoint_for_components_waits_for_instances_only(api: Api) -> None:
    api.make.endpoint("e", {"ManagedInstanceScaling": SCALED})
    (variant,) = api.call("DescribeEndpoint", EndpointName="e")["ProductionVariants"]
    assert "DeployedImages" not in variant
    assert variant["ManagedInstanceScaling"] == SCALED
    deadline_at = api.endpoint().deadline_at
    assert deadline_at is not None
    assert api.clock.now() < deadline_at < api.clock.now() + 3600


def test_model_and_configuration_may_go_while_the_endpoint_uses_them(api: Api) -> None:
    api.make.model()
    api.make.endpoint("e", OF_MODEL)
    api.call("DeleteModel", ModelName="m")
    api.call("DeleteEndpointConfig", EndpointConfigName="e-config")
    shown = api.call("DescribeEndpoint", EndpointName="e")
    assert shown["EndpointConfigName"] == "e-config"
    model = api.endpoint().active.variants[0].model
    assert model is not None
    assert model.containers[0].image == api.make.image


def test_a_model_that_went_before_the_endpoint_came_is_missed(api: Api) -> None:
    api.make.model()
    api.make.config("c", OF_MODEL)
    api.call("DeleteModel", ModelName="m")
    text = api.refusal("CreateEndpoint", EndpointName="e", EndpointConfigName="c")
    assert text == f'Could not find model "{ARN}model/m".'


@cases(
    "params, message",
    case(
        "no configuration",
        {"EndpointConfigName": "gone"},
        f'Could not find endpoint configuration "{ARN}endpoint-config/gone".',
    ),
    case(
        "a name that is taken, in another case",
        {"EndpointName": "E"},
        f'Cannot create already existing endpoint "{ARN}endpoint/e".',
    ),
    case(
        "a wait that is longer than the whole",
        {
            "DeploymentConfig": {
                "BlueGreenUpdatePolicy": {
                    "TrafficRoutingConfiguration": {
                        "Type": "ALL_AT_ONCE",
                        "WaitIntervalInSeconds": 0,
                    },
                    "TerminationWaitInSeconds": 600,
                    "MaximumExecutionTimeoutInSeconds": 600,
                }
            }
        },
        "TerminationWaitInSeconds 600 must be less than MaximumExecutionTimeoutInSeconds 600",
    ),
    case(
        "a rolling update of inference components",
        {
            "DeploymentConfig": {
                "RollingUpdatePolicy": {
                    "MaximumBatchSize": {"Type": "INSTANCE_COUNT", "Value": 1},
                    "WaitIntervalInSeconds": 0,
                }
            }
        },
        "DeploymentConfig.RollingUpdatePolicy is not supported",
    ),
    case(
        "a canary of inference components",
        {
            "DeploymentConfig": {
                "BlueGreenUpdatePolicy": {
                    "TrafficRoutingConfiguration": {"Type": "CANARY", "WaitIntervalInSeconds": 0}
                }
            }
        },
        "Type=CANARY is not supported",
    ),
)
def test_an_endpoint_that_cannot_be_is_refused(
    api: Api, params: dict[str, Any], message: str
) -> None:
    api.make.endpoint("e")
    given = {"EndpointName": "new", "EndpointConfigName": "e-config", **params}
    assert message in api.refusal("CreateEndpoint", **given)


def test_counts_are_of_what_serves(api: Api) -> None:
    api.make.model()
    api.make.endpoint("e", {**OF_MODEL, "InitialInstanceCount": 5})
    now = api.endpoint().active.generation
    api.add_copy("ready", "AllTraffic", now, CopyPhase.READY)
    api.add_copy("starting", "AllTraffic", now, CopyPhase.STARTING)
    api.add_copy("draining", "AllTraffic", now, CopyPhase.READY, drain_deadline_at=9.0)
    api.add_copy("old", "AllTraffic", now - 1, CopyPhase.READY)
    api.add_copy("other", "other", now, CopyPhase.READY)
    (variant,) = api.call("DescribeEndpoint", EndpointName="e")["ProductionVariants"]
    assert (variant["CurrentInstanceCount"], variant["DesiredInstanceCount"]) == (1, 5)


def test_an_endpoint_for_components_counts_running_instances(api: Api) -> None:
    api.make.endpoint("e")
    api.add_copy("one", "main", api.endpoint().active.generation, CopyPhase.STARTING)
    (variant,) = api.call("DescribeEndpoint", EndpointName="e")["ProductionVariants"]
    assert variant["CurrentInstanceCount"] == 1


def test_a_failure_reason_is_shown_within_its_limit(api: Api) -> None:
    api.make.endpoint("e")
    api.change_endpoint(status=EndpointStatus.FAILED, failure_reason="x" * 5000)
    shown = api.call("DescribeEndpoint", EndpointName="e")
    assert shown["EndpointStatus"] == "Failed"
    assert len(shown["FailureReason"]) == 1024
    assert shown["FailureReason"].endswith("...")


@pytest.mark.parametrize("status", EndpointStatus, ids=lambda status: str(status.value))
def test_an_endpoint_can_be_deleted_in_every_status(api: Api, status: EndpointStatus) -> None:
    api.make.endpoint("e")
    api.change_endpoint(status=status, deadline_at=api.clock.now() + 7)
    api.call("DeleteEndpoint", EndpointName="e")
    shown = api.call("DescribeEndpoint", EndpointName="e")
    assert shown["EndpointStatus"] == "Deleting"
    assert api.endpoint().deadline_at is not None
    api.call("DeleteEndpoint", EndpointName="e")


def test_a_repeated_delete_does_not_put_its_deadline_off(api: Api) -> None:
    api.make.endpoint("e")
    api.call("DeleteEndpoint", EndpointName="e")
    deadline_at = api.endpoint().deadline_at
    api.clock.advance(5.0)
    api.call("DeleteEndpoint", EndpointName="e")
    assert api.endpoint().deadline_at == deadline_at


@pytest.mark.parametrize("verb", ["Describe", "Update", "Delete"])
def test_an_endpoint_that_is_not_there_could_not_be_found(api: Api, verb: str) -> None:
    more = {"EndpointConfigName": "c"} if verb == "Update" else {}
    text = api.refusal(f"{verb}Endpoint", EndpointName="Gone", **more)
    assert text == f'Could not find endpoint "{ARN}endpoint/gone".'
