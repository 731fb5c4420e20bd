"""UpdateEndpoint and UpdateEndpointWeightsAndCapacities."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.base.errors import ServiceError
from hostelry.domain.component import ComponentStatus
from hostelry.domain.endpoint import EndpointStatus

ARN = "arn:aws:sagemaker:us-west-2:123456789012:"
OF_MODEL = {"VariantName": "AllTraffic", "ModelName": "m", "InstanceType": "ml.m5.xlarge"}
OTHER = {**OF_MODEL, "VariantName": "other"}
SCALED = {"Status": "ENABLED", "MinInstanceCount": 1, "MaxInstanceCount": 2}


def in_service(api: Api, *variants: Any) -> None:
    if variants:
        api.make.model()
    api.make.endpoint("e", *variants)
    api.change_endpoint(status=EndpointStatus.IN_SERVICE, deadline_at=None)


def test_an_update_is_pending_beside_what_serves(api: Api) -> None:
    in_service(api, {**OF_MODEL, "InitialInstanceCount": 2})
    api.make.config("new", OF_MODEL)
    api.clock.advance(60.0)
    api.change_endpoint(failure_reason="of an update before")
    api.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="new")
    shown = api.call("DescribeEndpoint", EndpointName="e")
    assert (shown["EndpointStatus"], shown["EndpointConfigName"]) == ("Updating", "e-config")
    assert "FailureReason" not in shown
    pending = shown["PendingDeploymentSummary"]
    assert (pending["EndpointConfigName"], pending["StartTime"]) == ("new", api.clock.now())
    assert pending["ProductionVariants"][0]["InstanceType"] == "ml.m5.xlarge"
    assert shown["LastModifiedTime"] == api.clock.now()
    stored = api.endpoint()
    assert stored.pending is not None
    assert stored.pending.generation > stored.active.generation
    assert stored.deadline_at is not None


def test_a_generation_is_never_used_again(api: Api) -> None:
    in_service(api)
    generations = [api.endpoint().active.generation]
    for number in range(2):
        api.make.config(f"new-{number}")
        api.call("UpdateEndpoint", EndpointName="e", EndpointConfigName=f"new-{number}")
        pending = api.endpoint().pending
        assert pending is not None
        generations.append(pending.generation)
        api.change_endpoint(status=EndpointStatus.IN_SERVICE, pending=None)
    found = api.state.endpoints.get(api.scope, "e")
    assert found is not None
    api.state.endpoints.delete(api.scope, "e", expect=found.version)
    api.call("CreateEndpoint", EndpointName="e", EndpointConfigName="new-0")
    generations.append(api.endpoint().active.generation)
    assert generations == sorted(set(generations))


@cases(
    "params, count, weight",
    case("nothing unless asked", {}, 1, 1.0),
    case("everything", {"RetainAllVariantProperties": True}, 3, 0.25),
    case(
        "all but the count",
        {
            "RetainAllVariantProperties": True,
            "ExcludeRetainedVariantProperties": [
                {"VariantPropertyType": "DesiredInstanceCount"},
                {"VariantPropertyType": "DataCaptureConfig"},
            ],
        },
        1,
        0.25,
    ),
    case(
        "all but the weight",
        {
            "RetainAllVariantProperties": True,
            "ExcludeRetainedVariantProperties": [{"VariantPropertyType": "DesiredWeight"}],
        },
        3,
        1.0,
    ),
)
def test_an_update_retains_what_it_asks_for(
    api: Api, params: dict[str, Any], count: int, weight: float
) -> None:
    in_service(api, OF_MODEL)
    wanted = {"VariantName": "AllTraffic", "DesiredInstanceCount": 3, "DesiredWeight": 0.25}
    api.call(
        "UpdateEndpointWeightsAndCapacities",
        EndpointName="e",
        DesiredWeightsAndCapacities=[wanted],
    )
    api.change_endpoint(status=EndpointStatus.IN_SERVICE)
    api.make.config("new", OF_MODEL, OTHER)
    api.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="new", **params)
    pending = api.endpoint().pending
    assert pending is not None
    kept, added = pending.variants
    assert (kept.desired_instance_count, kept.desired_weight) == (count, weight)
    assert (added.desired_instance_count, added.desired_weight) == (1, 1.0)


def test_the_deployment_configuration_of_an_update_is_shown_and_can_be_kept(api: Api) -> None:
    all_at_once = {
        "BlueGreenUpdatePolicy": {
            "TrafficRoutingConfiguration": {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 0}
        }
    }
    in_service(api)
    rows: list[tuple[dict[str, Any], Any]] = [
        ({"DeploymentConfig": all_at_once}, all_at_once),
        ({"RetainDeploymentConfig": True}, all_at_once),
        ({}, None),
    ]
    for number, (params, shown) in enumerate(rows):
        api.make.config(f"c{number}")
        api.call("UpdateEndpoint", EndpointName="e", EndpointConfigName=f"c{number}", **params)
        assert api.call("DescribeEndpoint", EndpointName="e").get("LastDeploymentConfig") == shown
        api.change_endpoint(status=EndpointStatus.IN_SERVICE, pending=None)


@cases(
    "config, message",
    case("no configuration", "gone", "Could not find endpoint configuration"),
    case("the one in use", "e-config", "is already in use"),
    case("of a model", "of-model", "hosts inference components; an update cannot"),
    case("another variant name", "renamed", 'must keep that name, not "renamed"'),
)
def test_an_update_of_a_component_endpoint_that_cannot_be_is_refused(
    api: Api, config: str, message: str
) -> None:
    in_service(api)
    api.make.model()
    api.make.config("of-model", OF_MODEL)
    api.make.config("renamed", {"VariantName": "renamed"})
    before = api.endpoint()
    assert message in api.refusal("UpdateEndpoint", EndpointName="e", EndpointConfigName=config)
    assert api.endpoint() == before


ON_CPU = {"MinMemoryRequiredInMb": 1024, "NumberOfCpuCoresRequired": 4}
IMAGE = {"Container": {"Image": "djl-inference:1"}}


def needing(needs: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**IMAGE, "ComputeResourceRequirements": needs, **more}


@cases(
    "given",
    case("it fits", {"Specification": needing(ON_CPU)}),
    case(
        "the same specification was given for both types",
        {
            "Specifications": [
                needing(ON_CPU, InstanceType="ml.m5.xlarge"),
                needing(ON_CPU, InstanceType="ml.g5.12xlarge"),
            ],
            "Specification": None,
        },
    ),
    case(
        "another specification was given for the new type",
        {
            "Specifications": [
                needing(ON_CPU, InstanceType="ml.m5.xlarge"),
                needing({"MinMemoryRequiredInMb": 20_000}, InstanceType="ml.g5.12xlarge"),
            ],
            "Specification": None,
        },
    ),
)
def test_an_endpoint_for_components_moves_to_another_instance_type(
    api: Api, given: dict[str, Any]
) -> None:
    in_service(api)
    api.make.component("base", **given)
    api.make.adapter("es")
    api.make.config("moved", {"InstanceType": "ml.m5.xlarge"})
    api.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="moved")
    pending = api.endpoint().pending
    assert pending is not None
    assert pending.variants[0].variant.instance_type == "ml.m5.xlarge"
    assert api.call("DescribeEndpoint", EndpointName="e")["EndpointStatus"] == "Updating"


TOO_MUCH = [
    pytest.param(
        {"Specification": needing({**ON_CPU, "NumberOfAcceleratorDevicesRequired": 1})},
        "NumberOfAcceleratorDevicesRequired is 1, but one ml.m5.xlarge instance offers 0",
        id="too many accelerators",
    ),
    pytest.param(
        {"Specification": needing({**ON_CPU, "NumberOfCpuCoresRequired": 4.5})},
        "NumberOfCpuCoresRequired is 4.5, but one ml.m5.xlarge instance offers 4",
        id="too many cores",
    ),
    pytest.param(
        {"Specification": needing({"MinMemoryRequiredInMb": 16385})},
        "MinMemoryRequiredInMb is 16385, but one ml.m5.xlarge instance offers 16384",
        id="too much memory",
    ),
    pytest.param(
        {"Specification": needing(ON_CPU, InstanceType="ml.g5.12xlarge")},
        "it moves to ml.m5.xlarge: it has no specification for ml.m5.xlarge.",
        id="a specification for the old type only",
    ),
    pytest.param(
        {
            "Specifications": [
                needing({"MinMemoryRequiredInMb": 16385}, InstanceType="ml.m5.xlarge"),
                needing({"MinMemoryRequiredInMb": 128}, InstanceType="ml.g5.12xlarge"),
            ],
            "Specification": None,
        },
        "MinMemoryRequiredInMb is 16385, but one ml.m5.xlarge instance offers 16384",
        id="its specification for the new type asks too much",
    ),
]


@pytest.mark.parametrize(("given", "message"), TOO_MUCH)
def test_a_component_that_cannot_move_is_named_with_the_limit(
    api: Api, given: dict[str, Any], message: str
) -> None:
    in_service(api)
    api.make.component("fits", Specification=needing(ON_CPU))
    api.make.component("stays", **given)
    api.make.config("moved", {"InstanceType": "ml.m5.xlarge"})
    before = api.endpoint()
    text = api.refusal("UpdateEndpoint", EndpointName="e", EndpointConfigName="moved")
    assert message in text
    assert f'"{ARN}inference-component/stays" cannot be on endpoint' in text
    assert api.endpoint() == before
    api.call("DeleteInferenceComponent", InferenceComponentName="stays")
    api.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="moved")


@pytest.mark.parametrize(("given", "message"), TOO_MUCH)
def test_a_component_that_could_not_follow_a_move_is_refused_while_it_is_under_way(
    api: Api, given: dict[str, Any], message: str
) -> None:
    in_service(api)
    api.make.config("moved", {"InstanceType": "ml.m5.xlarge"})
    api.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="moved")
    with pytest.raises(ServiceError, match="cannot be on endpoint") as caught:
        api.make.component("stays", **given)
    assert message in caught.value.message
    assert api.call("ListInferenceComponents")["InferenceComponents"] == []


def test_an_update_of_a_component_is_held_to_a_move_under_way(api: Api) -> None:
    in_service(api)
    api.make.component("base", Specification=needing(ON_CPU))
    found = api.state.components.get(api.scope, "base")
    assert found is not None
    serving = replace(found.value, status=ComponentStatus.IN_SERVICE)
    api.state.components.put(api.scope, "base", serving, expect=found.version)
    api.make.config("moved", {"InstanceType": "ml.m5.xlarge"})
    api.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="moved")
    more = {"Specification": {"ComputeResourceRequirements": {"MinMemoryRequiredInMb": 16385}}}
    text = api.refusal("UpdateInferenceComponent", InferenceComponentName="base", **more)
    assert "one ml.m5.xlarge instance offers 16384" in text
    less = {"Specification": {"ComputeResourceRequirements": {"MinMemoryRequiredInMb": 16384}}}
    api.call("UpdateInferenceComponent", InferenceComponentName="base", **less)


def test_a_model_endpoint_cannot_become_one_for_components(api: Api) -> None:
    in_service(api, OF_MODEL)
    api.make.config("new")
    text = api.refusal("UpdateEndpoint", EndpointName="e", EndpointConfigName="new")
    assert "hosts models; an update cannot make it host inference components" in text


def test_a_configuration_of_the_same_name_made_again_is_another(api: Api) -> None:
    in_service(api)
    api.call("DeleteEndpointConfig", EndpointConfigName="e-config")
    api.clock.advance(1.0)
    api.make.config("e-config")
    api.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="e-config")
    assert api.call("DescribeEndpoint", EndpointName="e")["EndpointStatus"] == "Updating"


IN_PROGRESS = f'Cannot update in-progress endpoint "{ARN}endpoint/e".'


@cases(
    "status, message",
    case("creating", EndpointStatus.CREATING, IN_PROGRESS),
    case("updating", EndpointStatus.UPDATING, IN_PROGRESS),
    case("deleting", EndpointStatus.DELETING, IN_PROGRESS),
    case("failed", EndpointStatus.FAILED, "in status Failed; delete it"),
)
def test_an_update_in_the_wrong_status_is_refused(
    api: Api, status: EndpointStatus, message: str
) -> None:
    api.make.endpoint("e")
    api.make.config("new")
    api.change_endpoint(status=status)
    assert message in api.refusal("UpdateEndpoint", EndpointName="e", EndpointConfigName="new")
    weight = {"VariantName": "main", "DesiredWeight": 1.0}
    assert message in api.refusal(
        "UpdateEndpointWeightsAndCapacities",
        EndpointName="e",
        DesiredWeightsAndCapacities=[weight],
    )


def test_weights_and_counts_of_several_variants_change_at_once(api: Api) -> None:
    in_service(api, OF_MODEL, OTHER)
    api.call(
        "UpdateEndpointWeightsAndCapacities",
        EndpointName="e",
        DesiredWeightsAndCapacities=[
            {"VariantName": "AllTraffic", "DesiredWeight": 0.0},
            {"VariantName": "other", "DesiredInstanceCount": 4},
        ],
    )
    shown = api.call("DescribeEndpoint", EndpointName="e")
    assert shown["EndpointStatus"] == "Updating"
    first, second = shown["ProductionVariants"]
    assert (first["DesiredWeight"], first["DesiredInstanceCount"]) == (0.0, 1)
    assert (second["DesiredWeight"], second["DesiredInstanceCount"]) == (1.0, 4)
    assert "PendingDeploymentSummary" not in shown


@cases(
    "changes, message",
    case("gone", [{"VariantName": "gone", "DesiredWeight": 1.0}], "Could not find"),
    case("named twice", [{"VariantName": "main", "DesiredWeight": 1.0}] * 2, "named twice"),
    case("no change", [{"VariantName": "main"}], "is required"),
    case(
        "a count that follows copies",
        [{"VariantName": "main", "DesiredInstanceCount": 3}],
        "cannot be set: its ManagedInstanceScaling is ENABLED",
    ),
    case(
        "a serverless variant's change",
        [{"VariantName": "main", "ServerlessUpdateConfig": {"MaxConcurrency": 1}}],
        'ServerlessUpdateConfig: variant "main" has instances',
    ),
    case("no number", [{"VariantName": "main", "DesiredWeight": float("inf")}], "finite"),
)
def test_a_change_of_weights_that_cannot_be_is_refused(
    api: Api, changes: list[dict[str, Any]], message: str
) -> None:
    in_service(api, {"ManagedInstanceScaling": SCALED})
    assert message in api.refusal(
        "UpdateEndpointWeightsAndCapacities",
        EndpointName="e",
        DesiredWeightsAndCapacities=changes,
    )
    assert api.call("DescribeEndpoint", EndpointName="e")["EndpointStatus"] == "InService"


def test_a_models_variant_keeps_an_instance(api: Api) -> None:
    in_service(api, OF_MODEL)
    text = api.refusal(
        "UpdateEndpointWeightsAndCapacities",
        EndpointName="e",
        DesiredWeightsAndCapacities=[{"VariantName": "AllTraffic", "DesiredInstanceCount": 0}],
    )
    assert "at least 1 instance" in text
