"""Specifications of a component for several instance types, and the instances of its copies."""

from typing import Any

import pytest
from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.domain.component import (
    ComponentSpec,
    ComponentStatus,
    InferenceComponent,
    PlacementStrategy,
    Scheduling,
)

GPU, CPU, ELSEWHERE = "ml.g5.12xlarge", "ml.m5.xlarge", "ml.c5.large"
SMALL = {"MinMemoryRequiredInMb": 1024, "NumberOfCpuCoresRequired": 2}
ON_GPU = {"MinMemoryRequiredInMb": 2048, "NumberOfAcceleratorDevicesRequired": 2}
TOO_MUCH = {**ON_GPU, "NumberOfAcceleratorDevicesRequired": 5}
CONTRADICTS = {"MinMemoryRequiredInMb": 256, "MaxMemoryRequiredInMb": 128}
FOR_GPU = {
    "InstanceType": GPU,
    "Container": {"Image": "for-gpu", "Environment": {"A": "gpu"}},
    "ComputeResourceRequirements": ON_GPU,
}
FOR_CPU = {
    "InstanceType": CPU,
    "ModelName": "m",
    "ComputeResourceRequirements": SMALL,
    "StartupParameters": {"ModelDataDownloadTimeoutInSeconds": 600},
}


@pytest.fixture
def pooled(api: Api) -> None:
    """An endpoint for components on GPU instances, or on others if no GPU type exists."""
    pools = [{"InstanceType": GPU, "Priority": 1}, {"InstanceType": CPU, "Priority": 2}]
    variant = {"VariantName": "main", "InitialInstanceCount": 1, "InstancePools": pools}
    api.make.call(
        "CreateEndpointConfig",
        EndpointConfigName="c",
        ExecutionRoleArn="arn:aws:iam::123456789012:role/HostelryExecutionRole",
        ProductionVariants=[variant],
    )
    api.make.call("CreateEndpoint", EndpointName="e", EndpointConfigName="c")
    api.make.model()


@pytest.fixture
def typed(pooled: None, api: Api) -> None:
    """A component "base" with a specification for each of both types, in service."""
    api.make.component(Specification=None, Specifications=[FOR_CPU, FOR_GPU])
    api.change_component("base", status=ComponentStatus.IN_SERVICE, deadline_at=None)


def spec_of(component: InferenceComponent) -> ComponentSpec:
    assert component.spec is not None
    return component.spec


def images(component: InferenceComponent) -> dict[str, str | None]:
    """The image that each of three instance types would run."""
    typed = {it: spec_of(component).on(it) for it in (GPU, CPU, ELSEWHERE)}
    return {name: None if it is None else it.container.image for name, it in typed.items()}


@pytest.mark.usefixtures("typed")
def test_each_instance_type_runs_its_own_specification(api: Api) -> None:
    assert images(api.component("base")) == {GPU: "for-gpu", CPU: api.make.image, ELSEWHERE: None}
    on_gpu, on_cpu = spec_of(api.component("base")).by_type
    assert (on_gpu.instance_type, on_cpu.instance_type) == (GPU, CPU)
    assert (on_gpu.requirements.accelerators, on_cpu.requirements.cpus) == (2.0, 2.0)
    assert (on_gpu.download_timeout_s, on_cpu.download_timeout_s) == (3600.0, 600.0)
    assert spec_of(api.component("base")).container == on_gpu.container
    shown = api.call("DescribeInferenceComponent", InferenceComponentName="base")
    assert "Specification" not in shown
    assert [it["InstanceType"] for it in shown["Specifications"]] == [CPU, GPU]
    deployed = [it["Container"]["DeployedImage"] for it in shown["Specifications"]]
    assert [it["SpecifiedImage"] for it in deployed] == [api.make.image, "for-gpu"]


@pytest.mark.usefixtures("pooled")
def test_one_specification_holds_for_every_instance_type_that_it_fits(api: Api) -> None:
    api.make.component()
    spec = spec_of(api.component("base"))
    assert spec.by_type == ()
    assert spec.requirements.accelerators == 1.0


@pytest.mark.usefixtures("pooled")
def test_one_specification_may_be_for_one_instance_type(api: Api) -> None:
    given = {**FOR_CPU, "InstanceType": CPU}
    api.make.component(Specification=given)
    assert images(api.component("base")) == {GPU: None, CPU: api.make.image, ELSEWHERE: None}


@pytest.mark.usefixtures("pooled")
@cases(
    "given, message",
    case(
        "one that does not fit its own type",
        [{**FOR_CPU, "ComputeResourceRequirements": ON_GPU}, FOR_GPU],
        f"NumberOfAcceleratorDevicesRequired is 2, but one {CPU} instance offers 0.",
    ),
    case(
        "one that fits no type",
        [{"Container": {"Image": "i"}, "ComputeResourceRequirements": TOO_MUCH}],
        "is 5, but one ml.g5.12xlarge instance offers 4. NumberOfAcceleratorDevicesRequired is"
        " 5, but one ml.m5.xlarge instance offers 0.",
    ),
    case("twice", [FOR_CPU, {**FOR_GPU, "InstanceType": CPU}], "name an instance type twice"),
    case(
        "none for the endpoint's types",
        [{**FOR_CPU, "InstanceType": ELSEWHERE}],
        f"None of Specifications is for {GPU}, {CPU}",
    ),
    case(
        "copies packed on one type and spread on another",
        [{**FOR_CPU, "SchedulingConfig": {"PlacementStrategy": "BINPACK"}}, FOR_GPU],
        "SchedulingConfig must be the same in all Specifications",
    ),
    case(
        "one for another type that contradicts itself",
        [
            {**FOR_CPU, "InstanceType": ELSEWHERE, "ComputeResourceRequirements": CONTRADICTS},
            FOR_GPU,
        ],
        "MaxMemoryRequiredInMb 128 is less than MinMemoryRequiredInMb 256",
    ),
    case(
        "an adapter of several",
        [{"InstanceType": CPU, "BaseInferenceComponentName": "base"}, FOR_GPU],
        "An adapter (BaseInferenceComponentName is given) has one Specification",
    ),
)
def test_specifications_that_cannot_be_are_refused(
    api: Api, given: list[dict[str, Any]], message: str
) -> None:
    params = {"InferenceComponentName": "base", "EndpointName": "e", "Specifications": given}
    assert message in api.refusal("CreateInferenceComponent", **params)
    assert api.call("ListInferenceComponents")["InferenceComponents"] == []


@pytest.mark.usefixtures("typed")
def test_an_update_changes_each_specification_by_its_own(api: Api) -> None:
    new = [
        {"InstanceType": GPU, "Container": {"Environment": {"B": "new"}}},
        {"InstanceType": CPU, "Container": {"ArtifactUrl": "s3://b/new.tar.gz"}},
    ]
    before = spec_of(api.component("base"))
    api.call("UpdateInferenceComponent", InferenceComponentName="base", Specifications=new)
    after = api.component("base")
    assert after.previous_spec == before
    on_gpu, on_cpu = spec_of(after).by_type
    assert on_gpu.container.environment == {"A": "gpu", "B": "new"}
    assert on_gpu.requirements.accelerators == 2.0
    assert on_cpu.container.source is not None
    assert on_cpu.container.source.uri == "s3://b/new.tar.gz"
    assert on_cpu.download_timeout_s == 600.0
    assert spec_of(after).generation > before.generation


@pytest.mark.usefixtures("typed")
def test_an_update_may_leave_an_instance_type(api: Api) -> None:
    new = [{"InstanceType": CPU, "Container": {"Environment": {"B": "new"}}}]
    api.call("UpdateInferenceComponent", InferenceComponentName="base", Specifications=new)
    assert images(api.component("base")) == {GPU: None, CPU: api.make.image, ELSEWHERE: None}


@pytest.mark.usefixtures("typed")
@cases(
    "new, message",
    case(
        "one change for two specifications",
        {"Specification": {"Container": {"Environment": {"B": "new"}}}},
        "Specification.Container.Image is required",
    ),
    case(
        "one image for two specifications",
        {"Specification": {"Container": {"Image": "other"}}},
        "ComputeResourceRequirements is required",
    ),
    case(
        "for a type that the endpoint does not have",
        {"Specifications": [{"InstanceType": ELSEWHERE, "Container": {"Image": "i"}}]},
        "None of Specifications is for",
    ),
)
def test_an_update_of_which_it_is_not_clear_what_it_changes_is_refused(
    api: Api, new: dict[str, Any], message: str
) -> None:
    before = api.component("base")
    assert message in api.refusal("UpdateInferenceComponent", InferenceComponentName="base", **new)
    assert api.component("base") == before


@pytest.mark.usefixtures("typed")
def test_one_whole_specification_takes_the_place_of_several(api: Api) -> None:
    whole = {"Container": {"Image": "any"}, "ComputeResourceRequirements": SMALL}
    api.call("UpdateInferenceComponent", InferenceComponentName="base", Specification=whole)
    assert images(api.component("base")) == {GPU: "any", CPU: "any", ELSEWHERE: "any"}
    shown = api.call("DescribeInferenceComponent", InferenceComponentName="base")
    assert "Specifications" not in shown


@pytest.mark.usefixtures("typed")
def test_after_a_rollback_both_specifications_are_those_before(api: Api) -> None:
    shown = api.call("DescribeInferenceComponent", InferenceComponentName="base")["Specifications"]
    before = api.component("base").spec
    whole = {"Container": {"Image": "bad"}, "ComputeResourceRequirements": SMALL}
    api.call("UpdateInferenceComponent", InferenceComponentName="base", Specification=whole)
    api.change_component("base", status=ComponentStatus.IN_SERVICE, spec=before)
    described = api.call("DescribeInferenceComponent", InferenceComponentName="base")
    assert described["Specifications"] == shown
    new = [{"InstanceType": CPU, "Container": {"Environment": {"B": "new"}}}]
    api.call("UpdateInferenceComponent", InferenceComponentName="base", Specifications=new)
    (on_cpu,) = spec_of(api.component("base")).by_type
    assert on_cpu.requirements.cpus == 2.0


@pytest.mark.usefixtures("pooled")
@cases(
    "given, kept",
    case("spread where nothing is said", None, Scheduling()),
    case(
        "packed", {"PlacementStrategy": "BINPACK"}, Scheduling(strategy=PlacementStrategy.BINPACK)
    ),
    case(
        "over zones, three more in one than in another",
        {
            "PlacementStrategy": "SPREAD",
            "AvailabilityZoneBalance": {"EnforcementMode": "PERMISSIVE", "MaxImbalance": 3},
        },
        Scheduling(max_imbalance=3),
    ),
    case(
        "packed, as many in each zone",
        {
            "PlacementStrategy": "BINPACK",
            "AvailabilityZoneBalance": {"EnforcementMode": "PERMISSIVE"},
        },
        Scheduling(strategy=PlacementStrategy.BINPACK, max_imbalance=0),
    ),
)
def test_scheduling_is_kept_and_echoed(
    api: Api, given: dict[str, Any] | None, kept: Scheduling
) -> None:
    more = {} if given is None else {"SchedulingConfig": given}
    more = {**more, "DataCacheConfig": {"EnableCaching": True}}
    api.make.component(
        Specification={"ModelName": "m", "ComputeResourceRequirements": SMALL, **more}
    )
    assert spec_of(api.component("base")).scheduling == kept
    shown = api.call("DescribeInferenceComponent", InferenceComponentName="base")["Specification"]
    assert {name: shown.get(name) for name in more} == more


def test_why_a_copy_has_no_place_is_shown_while_it_waits(api: Api) -> None:
    api.make.endpoint()
    api.make.component()
    for status, note, failure, shown in (
        (ComponentStatus.CREATING, "it waits", None, "it waits"),
        (ComponentStatus.UPDATING, "it waits", None, "it waits"),
        (ComponentStatus.IN_SERVICE, "an instance died", None, "an instance died"),
        (ComponentStatus.IN_SERVICE, "it waits", "rolled back", "rolled back"),
        (ComponentStatus.FAILED, "it waits", "too late", "too late"),
        (ComponentStatus.DELETING, "it waits", None, None),
        (ComponentStatus.CREATING, "x" * 5000, None, "x" * 1021 + "..."),
    ):
        api.change_component("base", status=status, placement_note=note, failure_reason=failure)
        described = api.call("DescribeInferenceComponent", InferenceComponentName="base")
        assert described.get("FailureReason") == shown
