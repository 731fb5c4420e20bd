"""Inference components: bases and adapters, from creation to deletion."""

from typing import Any

import pytest
from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.base.errors import ServiceError
from hostelry.domain.component import ComponentStatus
from hostelry.domain.copy import AdapterPlacement, CopyPhase, CopySpec
from hostelry.domain.endpoint import EndpointStatus
from hostelry.domain.model import ArtifactSource, Container, SourceKind

ARN = "arn:aws:sagemaker:us-west-2:123456789012:"
NEEDS = {"MinMemoryRequiredInMb": 1024, "NumberOfAcceleratorDevicesRequired": 1}
OWN = {"Image": "image", "ArtifactUrl": "s3://b/m.tar.gz"}
SPEC = {"Container": OWN, "ComputeResourceRequirements": NEEDS}
MIB = 1024**2


def test_a_base_comes_up_creating_with_a_deadline(api: Api) -> None:
    api.make.endpoint("E")
    api.call(
        "CreateInferenceComponent",
        InferenceComponentName="Base",
        EndpointName="E",
        VariantName="main",
        Specification={
            **SPEC,
            "StartupParameters": {
                "ModelDataDownloadTimeoutInSeconds": 100,
                "ContainerStartupHealthCheckTimeoutInSeconds": 200,
            },
        },
        RuntimeConfig={"CopyCount": 2},
    )
    shown = api.call("DescribeInferenceComponent", InferenceComponentName="Base")
    assert shown["InferenceComponentArn"] == ARN + "inference-component/base"
    assert (shown["EndpointName"], shown["EndpointArn"]) == ("E", ARN + "endpoint/e")
    assert shown["InferenceComponentStatus"] == "Creating"
    assert shown["RuntimeConfig"] == {"DesiredCopyCount": 2, "CurrentCopyCount": 0}
    assert shown["CreationTime"] == shown["LastModifiedTime"] == api.clock.now()
    container = shown["Specification"]["Container"]
    assert container["DeployedImage"]["SpecifiedImage"] == "image"
    assert container["ArtifactUrl"] == OWN["ArtifactUrl"]
    spec = api.component("Base").spec
    assert spec is not None
    assert (spec.download_timeout_s, spec.startup_timeout_s) == (100.0, 200.0)
    deadline_at = api.component("Base").deadline_at
    assert deadline_at is not None
    assert deadline_at > api.clock.now() + 300


@cases(
    "specification, expected",
    case(
        "a model's container",
        {"ModelName": "m"},
        Container(
            image="registry/m",
            source=ArtifactSource(uri="s3://b/m.tar.gz", kind=SourceKind.ARCHIVE),
            environment={"A": "1", "B": "2"},
            role="HostelryExecutionRole",
        ),
    ),
    case(
        "its own container, without artifacts",
        {"Container": {"Image": "own"}},
        Container(image="own", role="HostelryExecutionRole"),
    ),
    case(
        "a model's container with its own artifacts and environment over it",
        {
            "ModelName": "m",
            "Container": {"ArtifactUrl": "s3://b/own.tar.gz", "Environment": {"B": "3"}},
        },
        Container(
            image="registry/m",
            source=ArtifactSource(uri="s3://b/own.tar.gz", kind=SourceKind.ARCHIVE),
            environment={"A": "1", "B": "3"},
            role="HostelryExecutionRole",
        ),
    ),
)
def test_what_a_base_runs(api: Api, specification: dict[str, Any], expected: Container) -> None:
    api.make.endpoint()
    api.make.model(
        PrimaryContainer={
            "Image": "registry/m",
            "ModelDataUrl": "s3://b/m.tar.gz",
            "Environment": {"A": "1", "B": "2"},
        }
    )
    api.make.component(Specification={**specification, "ComputeResourceRequirements": NEEDS})
    api.call("DeleteModel", ModelName="m")
    spec = api.component("base").spec
    assert spec is not None
    assert spec.container == expected
    shown = api.call("DescribeInferenceComponent", InferenceComponentName="base")["Specification"]
    assert shown.get("ModelName") == specification.get("ModelName")
    assert shown["Container"]["DeployedImage"]["SpecifiedImage"] == expected.image


def test_the_requirements_are_in_bytes_and_devices(api: Api) -> None:
    api.make.endpoint()
    needs = {
        "MinMemoryRequiredInMb": 1024,
        "MaxMemoryRequiredInMb": 2048,
        "NumberOfCpuCoresRequired": 0.5,
        "NumberOfAcceleratorDevicesRequired": 2,
    }
    api.make.component(Specification={"Container": OWN, "ComputeResourceRequirements": needs})
    spec = api.component("base").spec
    assert spec is not None
    requirements = spec.requirements
    assert (requirements.min_memory_bytes, requirements.max_memory_bytes) == (
        1024 * MIB,
        2048 * MIB,
    )
    assert (requirements.cpus, requirements.accelerators) == (0.5, 2.0)


def test_timeouts_default_to_the_variants(api: Api) -> None:
    api.make.endpoint(
        "e",
        {
            "ModelDataDownloadTimeoutInSeconds": 111,
            "ContainerStartupHealthCheckTimeoutInSeconds": 222,
        },
    )
    api.make.component()
    spec = api.component("base").spec
    assert spec is not None
    assert (spec.download_timeout_s, spec.startup_timeout_s) == (111.0, 222.0)


def test_one_copy_is_desired_by_default(api: Api) -> None:
    api.make.endpoint()
    api.make.component(RuntimeConfig=None)
    assert api.component("base").desired_copies == 1


def test_of_several_specifications_the_variants_instance_type_decides(api: Api) -> None:
    api.make.endpoint()
    several = [
        {**SPEC, "InstanceType": "ml.m5.xlarge", "Container": {"Image": "for-cpu"}},
        {**SPEC, "InstanceType": "ml.g5.12xlarge", "Container": {"Image": "for-gpu"}},
    ]
    api.make.component(Specification=None, Specifications=several)
    spec = api.component("base").spec
    assert spec is not None
    assert spec.container.image == "for-gpu"
    shown = api.call("DescribeInferenceComponent", InferenceComponentName="base")
    assert [it["InstanceType"] for it in shown["Specifications"]] == [
        "ml.m5.xlarge",
        "ml.g5.12xlarge",
    ]
    assert "Specification" not in shown


def with_needs(**more: Any) -> dict[str, Any]:
    return {**SPEC, "ComputeResourceRequirements": {**NEEDS, **more}}


@cases(
    "params, message",
    case("no endpoint", {"EndpointName": "gone"}, "Could not find endpoint"),
    case(
        "a model's endpoint",
        {"EndpointName": "of-model"},
        "Inference Components are not supported in this Endpoint. Please make sure this"
        " endpoint can deploy inference components.",
    ),
    case("no variant", {"VariantName": "gone"}, 'Could not find variant "gone"'),
    case(
        "a name that is taken, in another case",
        {"InferenceComponentName": "TAKEN"},
        f'Cannot create already existing inference component "{ARN}inference-component/taken".',
    ),
    case(
        "no copies",
        {"RuntimeConfig": {"CopyCount": 0}},
        "the copy count must be an integer larger than 0",
    ),
    case("no specification", {"Specification": None}, "Exactly one of Specification and"),
    case("both forms", {"Specifications": [SPEC]}, "both were given"),
    case(
        "another instance type",
        {"Specification": {**SPEC, "InstanceType": "ml.m5.xlarge"}},
        "the variant's instances are ml.g5.12xlarge",
    ),
    case(
        "no specification for the instance type",
        {"Specification": None, "Specifications": [{**SPEC, "InstanceType": "ml.m5.xlarge"}]},
        "None of Specifications is for ml.g5.12xlarge",
    ),
    case(
        "several without instance types",
        {"Specification": None, "Specifications": [SPEC, SPEC]},
        "Specifications.1.InstanceType is required",
    ),
    case(
        "several for one instance type",
        {"Specification": None, "Specifications": [{**SPEC, "InstanceType": "ml.g5.12xlarge"}] * 2},
        "name an instance type twice",
    ),
    case(
        "nothing to run",
        {"Specification": {"ComputeResourceRequirements": NEEDS}},
        "ModelName or Specification.Container is required",
    ),
    case(
        "no image",
        {"Specification": {**SPEC, "Container": {"Environment": {"A": "1"}}}},
        "Specification.Container.Image is required",
    ),
    case(
        "no model",
        {"Specification": {**SPEC, "ModelName": "gone", "Container": None}},
        f'Could not find model "{ARN}model/gone".',
    ),
    case(
        "no requirements",
        {"Specification": {"Container": OWN}},
        "ComputeResourceRequirements is required",
    ),
    case(
        "more accelerators than an instance has",
        {"Specification": with_needs(NumberOfAcceleratorDevicesRequired=5)},
        "NumberOfAcceleratorDevicesRequired is 5, but one ml.g5.12xlarge instance offers 4",
    ),
    case(
        "more memory than an instance has",
        {"Specification": with_needs(MinMemoryRequiredInMb=10**9)},
        "MinMemoryRequiredInMb is 1000000000, but one ml.g5.12xlarge instance offers 196608",
    ),
    case(
        "half a device",
        {"Specification": with_needs(NumberOfAcceleratorDevicesRequired=1.5)},
        "must be a whole number",
    ),
    case(
        "a part of a device",
        {"Specification": with_needs(AcceleratorPartitionType="mig-1g.5gb")},
        "AcceleratorPartitionType is not supported",
    ),
    case(
        "a large environment",
        {
            "Specification": {
                **SPEC,
                "Container": {**OWN, "Environment": {f"K{n}": "x" * 1000 for n in range(40)}},
            }
        },
        "at most 32768 are allowed",
    ),
)
def test_a_base_that_cannot_be_is_refused(api: Api, params: dict[str, Any], message: str) -> None:
    api.make.model()
    api.make.endpoint()
    api.make.endpoint("of-model", {"ModelName": "m"})
    api.make.component("taken")
    given = {
        "InferenceComponentName": "new",
        "EndpointName": "e",
        "Specification": SPEC,
        "RuntimeConfig": {"CopyCount": 1},
        **params,
    }
    given = {name: without_none(value) for name, value in given.items() if value is not None}
    assert message in api.refusal("CreateInferenceComponent", **given)
    assert len(api.call("ListInferenceComponents")["InferenceComponents"]) == 1


def without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: it for name, it in value.items() if it is not None}
    return value


@cases(
    "status, accepted",
    case("creating", EndpointStatus.CREATING, True),
    case("in service", EndpointStatus.IN_SERVICE, True),
    case("updating", EndpointStatus.UPDATING, True),
    case("failed", EndpointStatus.FAILED, False),
    case("deleting", EndpointStatus.DELETING, False),
)
def test_a_component_needs_an_endpoint_that_lives(
    api: Api, status: EndpointStatus, accepted: bool
) -> None:
    api.make.endpoint()
    api.change_endpoint(status=status)
    if accepted:
        api.make.component()
        return
    with pytest.raises(ServiceError, match=f"in status {status.value}"):
        api.make.component()


def test_current_copies_are_those_that_serve(api: Api) -> None:
    api.make.endpoint()
    now = api.endpoint().active.generation
    api.make.component("base", RuntimeConfig={"CopyCount": 4})
    api.make.adapter("es")
    placed = AdapterPlacement(
        id="es--1", alias="es", source=ArtifactSource(uri="s3://b/k", kind=SourceKind.ARCHIVE)
    )
    spec = CopySpec(
        id="c",
        owner="component/base",
        container=Container(image="i"),
        requirements=None,
        download_timeout_s=1.0,
        startup_timeout_s=1.0,
        adapters=(placed,),
    )
    proven = frozenset({"es--1"})
    of_base: dict[str, Any] = {"component_name": "base", "spec": spec}
    api.add_copy("1", "main", now, CopyPhase.READY, **of_base, proven_adapters=proven)
    api.add_copy("2", "main", now, CopyPhase.READY, **of_base)
    api.add_copy("3", "main", now, CopyPhase.STARTING, **of_base, proven_adapters=proven)
    api.add_copy("4", "main", now, CopyPhase.READY, **of_base, drain_deadline_at=1.0)
    api.add_copy("5", "main", now, CopyPhase.READY, component_name="another")
    api.add_copy("6", "main", now, CopyPhase.READY, **of_base, endpoint_name="another")
    # On instances that an update of the endpoint brings up, or keeps to go back to.
    api.add_copy("7", "main", now + 1, CopyPhase.READY, **of_base, proven_adapters=proven)
    shown = api.call("DescribeInferenceComponent", InferenceComponentName="base")["RuntimeConfig"]
    assert (shown["DesiredCopyCount"], shown["CurrentCopyCount"]) == (4, 2)
    assert shown["PlacementStatus"] == [{"InstanceType": "ml.m5.xlarge", "CurrentCopyCount": 2}]
    shown = api.call("DescribeInferenceComponent", InferenceComponentName="es")["RuntimeConfig"]
    assert (shown["DesiredCopyCount"], shown["CurrentCopyCount"]) == (4, 1)


def test_a_failure_reason_is_shown_within_its_limit(api: Api) -> None:
    api.make.endpoint()
    api.make.component()
    api.change_component("base", status=ComponentStatus.FAILED, failure_reason="y" * 3000)
    shown = api.call("DescribeInferenceComponent", InferenceComponentName="base")
    assert len(shown["FailureReason"]) == 1024


@pytest.mark.parametrize("status", ComponentStatus, ids=lambda status: str(status.value))
def test_a_component_can_be_deleted_in_every_status(api: Api, status: ComponentStatus) -> None:
    api.make.endpoint()
    api.make.component()
    api.change_component("base", status=status, deadline_at=api.clock.now() + 7)
    api.call("DeleteInferenceComponent", InferenceComponentName="base")
    api.call("DeleteInferenceComponent", InferenceComponentName="base")
    assert api.component("base").status is ComponentStatus.DELETING
    assert api.component("base").deadline_at is not None


def test_an_endpoint_goes_after_its_components(api: Api) -> None:
    api.make.endpoint()
    api.make.endpoint("other")
    api.make.component("base")
    api.make.component("elsewhere", "other")
    text = api.refusal("DeleteEndpoint", EndpointName="e")
    assert text == (
        f'Cannot delete endpoint "{ARN}endpoint/e" as it has inference components: base.'
        " Delete them first."
    )
    api.call("DeleteInferenceComponent", InferenceComponentName="base")
    api.call("DeleteEndpoint", EndpointName="e")


def test_a_component_that_is_not_there_could_not_be_found(api: Api) -> None:
    for verb in ("Describe", "Delete"):
        text = api.refusal(f"{verb}InferenceComponent", InferenceComponentName="Gone")
        assert text == f'Could not find inference component "{ARN}inference-component/gone".'
