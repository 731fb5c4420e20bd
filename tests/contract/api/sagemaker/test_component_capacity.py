"""An endpoint's update never takes the instances that serving copies need."""

from typing import Any

import pytest
from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.domain.copy import CopyPhase
from hostelry.domain.endpoint import EndpointStatus

ARN = "arn:aws:sagemaker:us-west-2:123456789012:"
GPU, CPU = "ml.g5.12xlarge", "ml.m5.xlarge"


def scaled(most: int) -> dict[str, Any]:
    return {
        "ManagedInstanceScaling": {
            "Status": "ENABLED",
            "MinInstanceCount": 1,
            "MaxInstanceCount": most,
        }
    }


@pytest.fixture
def wide(api: Api) -> None:
    """An endpoint of 3 instances. 3 copies with 2 accelerators serve, one with 4 is starting."""
    api.make.endpoint("e", {"InitialInstanceCount": 3})
    api.change_endpoint(status=EndpointStatus.IN_SERVICE, deadline_at=None)
    generation = api.endpoint().active.generation
    for name, copies, devices in (("small", 3, 2), ("large", 1, 4)):
        needs = {"MinMemoryRequiredInMb": 1024, "NumberOfAcceleratorDevicesRequired": devices}
        specification = {"Container": {"Image": "i"}, "ComputeResourceRequirements": needs}
        count = {"CopyCount": copies}
        api.make.component(name, Specification=specification, RuntimeConfig=count)
        api.make.adapter(f"of-{name}", name)
        phase = CopyPhase.READY if name == "small" else CopyPhase.STARTING
        for number in range(copies):
            api.add_copy(f"{name}-{number}", "main", generation, phase, component_name=name)


@pytest.mark.usefixtures("wide")
@cases(
    "variant, message",
    case("as many as there are", {"InitialInstanceCount": 4}, None),
    case("as many as the copies need", {"InitialInstanceCount": 2}, None),
    case(
        "one less",
        {"InitialInstanceCount": 1},
        f"would have at most 1 x {GPU}; of the 3 copies of inference components that serve now,"
        " 1 would have no place there",
    ),
    case("managed, to enough", {"InitialInstanceCount": 1, **scaled(2)}, None),
    case("managed, to less", {"InitialInstanceCount": 1, **scaled(1)}, "1 would have no place"),
    case(
        "of a type that holds none",
        {"InstanceType": "ml.g5.48xlarge", "InitialInstanceCount": 1},
        "NumberOfAcceleratorDevicesRequired is 4, but one ml.g5.48xlarge instance offers 0",
    ),
)
def test_an_update_of_the_endpoint_leaves_room_for_what_serves(
    api: Api, variant: dict[str, Any], message: str | None
) -> None:
    api.make.config("next", variant)
    before = api.endpoint()
    params = {"EndpointName": "e", "EndpointConfigName": "next"}
    if message is None:
        api.call("UpdateEndpoint", **params)
        assert api.endpoint().pending is not None
        return
    assert message in api.refusal("UpdateEndpoint", **params)
    assert api.endpoint() == before


@pytest.mark.usefixtures("wide")
@cases("count, fits", case("enough", 2, True), case("one less", 1, False))
def test_a_new_instance_count_leaves_room_for_what_serves(api: Api, count: int, fits: bool) -> None:
    before = api.endpoint()
    wanted = [{"VariantName": "main", "DesiredInstanceCount": count}]
    params = {"EndpointName": "e", "DesiredWeightsAndCapacities": wanted}
    if fits:
        api.call("UpdateEndpointWeightsAndCapacities", **params)
        assert api.endpoint().active.variants[0].desired_instance_count == count
        return
    message = api.refusal("UpdateEndpointWeightsAndCapacities", **params)
    assert "1 would have no place there. Allow more instances, or lower the copy counts" in message
    assert api.endpoint() == before


@pytest.mark.usefixtures("wide")
def test_copies_that_are_not_wanted_any_more_need_no_room(api: Api) -> None:
    api.change_component("small", desired_copies=2)
    wanted = [{"VariantName": "main", "DesiredInstanceCount": 1}]
    api.call(
        "UpdateEndpointWeightsAndCapacities", EndpointName="e", DesiredWeightsAndCapacities=wanted
    )


@cases("count, fits", case("enough", 2, True), case("one less", 1, False))
def test_a_move_to_another_type_leaves_room_for_what_serves(
    api: Api, count: int, fits: bool
) -> None:
    api.make.endpoint("e")
    api.change_endpoint(status=EndpointStatus.IN_SERVICE, deadline_at=None)
    needs = {"MinMemoryRequiredInMb": 1024, "NumberOfCpuCoresRequired": 3}
    specification = {"Container": {"Image": "i"}, "ComputeResourceRequirements": needs}
    api.make.component("base", Specification=specification, RuntimeConfig={"CopyCount": 2})
    for number in range(2):
        generation = api.endpoint().active.generation
        api.add_copy(f"{number}", "main", generation, CopyPhase.READY, component_name="base")
    api.make.config("next", {"InstanceType": CPU, "InitialInstanceCount": count})
    params = {"EndpointName": "e", "EndpointConfigName": "next"}
    if fits:
        api.call("UpdateEndpoint", **params)
        return
    assert f"would have at most 1 x {CPU};" in api.refusal("UpdateEndpoint", **params)


def test_a_models_endpoint_is_not_asked(api: Api) -> None:
    api.make.model()
    api.make.endpoint("e", {"ModelName": "m", "InitialInstanceCount": 3})
    api.change_endpoint(status=EndpointStatus.IN_SERVICE)
    wanted = [{"VariantName": "main", "DesiredInstanceCount": 1}]
    api.call(
        "UpdateEndpointWeightsAndCapacities", EndpointName="e", DesiredWeightsAndCapacities=wanted
    )
