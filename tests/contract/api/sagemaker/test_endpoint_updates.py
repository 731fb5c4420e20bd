"""UpdateEndpoint and UpdateEndpointWeightsAndCapacities."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.base.clock import ManualClock
from hostelry.base.errors import ServiceError
from hostelry.domain.component import ComponentStatus
from hostelry.domain.endpoint import Endpoint, EndpointStatus
from hostelry.domain.scope import Scope
from hostelry.store.records import State

Call = Callable[..., dict[str, Any]]
Refused = Callable[..., str]
ARN = "arn:aws:sagemaker:us-west-2:123456789012:"
OF_MODEL = {"VariantName": "AllTraffic", "ModelName": "m", "InstanceType": "ml.m5.xlarge"}
OTHER = {**OF_MODEL, "VariantName": "other"}
SCALED = {"Status": "ENABLED", "MinInstanceCount": 1, "MaxInstanceCount": 2}


def in_service(call: Call, make: Any, change: Callable[..., None], *variants: Any) -> None:
    if variants:
        make.model()
    make.endpoint("e", *variants)
    change(status=EndpointStatus.IN_SERVICE, deadline_at=None)


def test_an_update_is_pending_beside_what_serves(
    call: Call,
    make: Any,
    change: Callable[..., None],
    clock: ManualClock,
    endpoint: Callable[[], Endpoint],
) -> None:
    in_service(call, make, change, {**OF_MODEL, "InitialInstanceCount": 2})
    make.config("new", OF_MODEL)
    clock.advance(60.0)
    change(failure_reason="of an update before")
    call("UpdateEndpoint", EndpointName="e", EndpointConfigName="new")
    shown = call("DescribeEndpoint", EndpointName="e")
    assert (shown["EndpointStatus"], shown["EndpointConfigName"]) == ("Updating", "e-config")
    assert "FailureReason" not in shown
    pending = shown["PendingDeploymentSummary"]
    assert (pending["EndpointConfigName"], pending["StartTime"]) == ("new", clock.now())
    assert pending["ProductionVariants"][0]["InstanceType"] == "ml.m5.xlarge"
    assert shown["LastModifiedTime"] == clock.now()
    stored = endpoint()
    assert stored.pending is not None
    assert stored.pending.generation > stored.active.generation
    assert stored.deadline_at is not None


def test_a_generation_is_never_used_again(
    call: Call,
    make: Any,
    change: Callable[..., None],
    endpoint: Callable[[], Endpoint],
    state: State,
    scope: Scope,
) -> None:
    in_service(call, make, change)
    generations = [endpoint().active.generation]
    for number in range(2):
        make.config(f"new-{number}")
        call("UpdateEndpoint", EndpointName="e", EndpointConfigName=f"new-{number}")
        pending = endpoint().pending
        assert pending is not None
        generations.append(pending.generation)
        change(status=EndpointStatus.IN_SERVICE, pending=None)
    found = state.endpoints.get(scope, "e")
    assert found is not None
    state.endpoints.delete(scope, "e", expect=found.version)
    call("CreateEndpoint", EndpointName="e", EndpointConfigName="new-0")
    generations.append(endpoint().active.generation)
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
    call: Call,
    make: Any,
    change: Callable[..., None],
    endpoint: Callable[[], Endpoint],
    params: dict[str, Any],
    count: int,
    weight: float,
) -> None:
    in_service(call, make, change, OF_MODEL)
    wanted = {"VariantName": "AllTraffic", "DesiredInstanceCount": 3, "DesiredWeight": 0.25}
    call(
        "UpdateEndpointWeightsAndCapacities",
        EndpointName="e",
        DesiredWeightsAndCapacities=[wanted],
    )
    change(status=EndpointStatus.IN_SERVICE)
    make.config("new", OF_MODEL, OTHER)
    call("UpdateEndpoint", EndpointName="e", EndpointConfigName="new", **params)
    pending = endpoint().pending
    assert pending is not None
    kept, added = pending.variants
    assert (kept.desired_instance_count, kept.desired_weight) == (count, weight)
    assert (added.desired_instance_count, added.desired_weight) == (1, 1.0)


def test_the_deployment_configuration_of_an_update_is_shown_and_can_be_kept(
    call: Call, make: Any, change: Callable[..., None]
) -> None:
    all_at_once = {
        "BlueGreenUpdatePolicy": {
            "TrafficRoutingConfiguration": {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 0}
        }
    }
    in_service(call, make, change)
    rows: list[tuple[dict[str, Any], Any]] = [
        ({"DeploymentConfig": all_at_once}, all_at_once),
        ({"RetainDeploymentConfig": True}, all_at_once),
        ({}, None),
    ]
    for number, (params, shown) in enumerate(rows):
        make.config(f"c{number}")
        call("UpdateEndpoint", EndpointName="e", EndpointConfigName=f"c{number}", **params)
        assert call("DescribeEndpoint", EndpointName="e").get("LastDeploymentConfig") == shown
        change(status=EndpointStatus.IN_SERVICE, pending=None)


@cases(
    "config, message",
    case("no configuration", "gone", "Could not find endpoint configuration"),
    case("the one in use", "e-config", "is already in use"),
    case("of a model", "of-model", "hosts inference components; an update cannot"),
    case("another variant name", "renamed", 'must keep that name, not "renamed"'),
)
def test_an_update_of_a_component_endpoint_that_cannot_be_is_refused(
    call: Call,
    make: Any,
    change: Callable[..., None],
    endpoint: Callable[[], Endpoint],
    refused: Refused,
    config: str,
    message: str,
) -> None:
    in_service(call, make, change)
    make.model()
    make.config("of-model", OF_MODEL)
    make.config("renamed", {"VariantName": "renamed"})
    before = endpoint()
    assert message in refused("UpdateEndpoint", EndpointName="e", EndpointConfigName=config)
    assert endpoint() == before


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
    call: Call,
    make: Any,
    change: Callable[..., None],
    endpoint: Callable[[], Endpoint],
    given: dict[str, Any],
) -> None:
    in_service(call, make, change)
    make.component("base", **given)
    make.adapter("es")
    make.config("moved", {"InstanceType": "ml.m5.xlarge"})
    call("UpdateEndpoint", EndpointName="e", EndpointConfigName="moved")
    pending = endpoint().pending
    assert pending is not None
    assert pending.variants[0].variant.instance_type == "ml.m5.xlarge"
    assert call("DescribeEndpoint", EndpointName="e")["EndpointStatus"] == "Updating"


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
    call: Call,
    make: Any,
    change: Callable[..., None],
    endpoint: Callable[[], Endpoint],
    refused: Refused,
    given: dict[str, Any],
    message: str,
) -> None:
    in_service(call, make, change)
    make.component("fits", Specification=needing(ON_CPU))
    make.component("stays", **given)
    make.config("moved", {"InstanceType": "ml.m5.xlarge"})
    before = endpoint()
    text = refused("UpdateEndpoint", EndpointName="e", EndpointConfigName="moved")
    assert message in text
    assert f'"{ARN}inference-component/stays" cannot be on endpoint' in text
    assert endpoint() == before
    call("DeleteInferenceComponent", InferenceComponentName="stays")
    call("UpdateEndpoint", EndpointName="e", EndpointConfigName="moved")


@pytest.mark.parametrize(("given", "message"), TOO_MUCH)
def test_a_component_that_could_not_follow_a_move_is_refused_while_it_is_under_way(
    call: Call,
    make: Any,
    change: Callable[..., None],
    refused: Refused,
    given: dict[str, Any],
    message: str,
) -> None:
    in_service(call, make, change)
    make.config("moved", {"InstanceType": "ml.m5.xlarge"})
    call("UpdateEndpoint", EndpointName="e", EndpointConfigName="moved")
    with pytest.raises(ServiceError, match="cannot be on endpoint") as caught:
        make.component("stays", **given)
    assert message in caught.value.message
    assert call("ListInferenceComponents")["InferenceComponents"] == []


def test_an_update_of_a_component_is_held_to_a_move_under_way(
    call: Call, make: Any, change: Callable[..., None], refused: Refused, state: State, scope: Scope
) -> None:
    in_service(call, make, change)
    make.component("base", Specification=needing(ON_CPU))
    found = state.components.get(scope, "base")
    assert found is not None
    serving = replace(found.value, status=ComponentStatus.IN_SERVICE)
    state.components.put(scope, "base", serving, expect=found.version)
    make.config("moved", {"InstanceType": "ml.m5.xlarge"})
    call("UpdateEndpoint", EndpointName="e", EndpointConfigName="moved")
    more = {"Specification": {"ComputeResourceRequirements": {"MinMemoryRequiredInMb": 16385}}}
    text = refused("UpdateInferenceComponent", InferenceComponentName="base", **more)
    assert "one ml.m5.xlarge instance offers 16384" in text
    less = {"Specification": {"ComputeResourceRequirements": {"MinMemoryRequiredInMb": 16384}}}
    call("UpdateInferenceComponent", InferenceComponentName="base", **less)


def test_a_model_endpoint_cannot_become_one_for_components(
    call: Call, make: Any, change: Callable[..., None], refused: Refused
) -> None:
    in_service(call, make, change, OF_MODEL)
    make.config("new")
    text = refused("UpdateEndpoint", EndpointName="e", EndpointConfigName="new")
    assert "hosts models; an update cannot make it host inference components" in text


def test_a_configuration_of_the_same_name_made_again_is_another(
    call: Call, make: Any, change: Callable[..., None], clock: ManualClock
) -> None:
    in_service(call, make, change)
    call("DeleteEndpointConfig", EndpointConfigName="e-config")
    clock.advance(1.0)
    make.config("e-config")
    call("UpdateEndpoint", EndpointName="e", EndpointConfigName="e-config")
    assert call("DescribeEndpoint", EndpointName="e")["EndpointStatus"] == "Updating"


IN_PROGRESS = f'Cannot update in-progress endpoint "{ARN}endpoint/e".'


@cases(
    "status, message",
    case("creating", EndpointStatus.CREATING, IN_PROGRESS),
    case("updating", EndpointStatus.UPDATING, IN_PROGRESS),
    case("deleting", EndpointStatus.DELETING, IN_PROGRESS),
    case("failed", EndpointStatus.FAILED, "in status Failed; delete it"),
)
def test_an_update_in_the_wrong_status_is_refused(
    make: Any, change: Callable[..., None], refused: Refused, status: EndpointStatus, message: str
) -> None:
    make.endpoint("e")
    make.config("new")
    change(status=status)
    assert message in refused("UpdateEndpoint", EndpointName="e", EndpointConfigName="new")
    weight = {"VariantName": "main", "DesiredWeight": 1.0}
    assert message in refused(
        "UpdateEndpointWeightsAndCapacities",
        EndpointName="e",
        DesiredWeightsAndCapacities=[weight],
    )


def test_weights_and_counts_of_several_variants_change_at_once(
    call: Call, make: Any, change: Callable[..., None]
) -> None:
    in_service(call, make, change, OF_MODEL, OTHER)
    call(
        "UpdateEndpointWeightsAndCapacities",
        EndpointName="e",
        DesiredWeightsAndCapacities=[
            {"VariantName": "AllTraffic", "DesiredWeight": 0.0},
            {"VariantName": "other", "DesiredInstanceCount": 4},
        ],
    )
    shown = call("DescribeEndpoint", EndpointName="e")
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
    call: Call,
    make: Any,
    change: Callable[..., None],
    refused: Refused,
    changes: list[dict[str, Any]],
    message: str,
) -> None:
    in_service(call, make, change, {"ManagedInstanceScaling": SCALED})
    assert message in refused(
        "UpdateEndpointWeightsAndCapacities",
        EndpointName="e",
        DesiredWeightsAndCapacities=changes,
    )
    assert call("DescribeEndpoint", EndpointName="e")["EndpointStatus"] == "InService"


def test_a_models_variant_keeps_an_instance(
    call: Call, make: Any, change: Callable[..., None], refused: Refused
) -> None:
    in_service(call, make, change, OF_MODEL)
    text = refused(
        "UpdateEndpointWeightsAndCapacities",
        EndpointName="e",
        DesiredWeightsAndCapacities=[{"VariantName": "AllTraffic", "DesiredInstanceCount": 0}],
    )
    assert "at least 1 instance" in text
