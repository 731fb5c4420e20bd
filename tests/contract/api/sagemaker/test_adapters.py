"""Adapter components: weights that live in the copies of their base."""

from typing import Any

from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.domain.component import ComponentStatus

ARN = "arn:aws:sagemaker:us-west-2:123456789012:"
NEEDS = {"MinMemoryRequiredInMb": 1024, "NumberOfAcceleratorDevicesRequired": 1}
OWN = {"Image": "image", "ArtifactUrl": "s3://b/m.tar.gz"}
SPEC = {"Container": OWN, "ComputeResourceRequirements": NEEDS}
MIB = 1024**2


def without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: it for name, it in value.items() if it is not None}
    return value


def test_an_adapter_lives_in_its_base_and_reserves_nothing(api: Api) -> None:
    api.make.endpoint()
    api.make.component("base", RuntimeConfig={"CopyCount": 3})
    api.make.adapter("es")
    stored = api.component("es")
    assert stored.spec is None
    assert stored.adapter is not None
    assert (stored.adapter.base_name, stored.adapter.source.uri) == (
        "base",
        "s3://bucket/es.tar.gz",
    )
    assert stored.variant_name == "main"
    shown = api.call("DescribeInferenceComponent", InferenceComponentName="es")
    assert shown["Specification"] == {
        "BaseInferenceComponentName": "base",
        "Container": {"ArtifactUrl": "s3://bucket/es.tar.gz"},
        "ComputeResourceRequirements": NEEDS,
    }
    assert shown["RuntimeConfig"] == {"DesiredCopyCount": 3, "CurrentCopyCount": 0}


@cases(
    "specification, more, message",
    case("no base", {"BaseInferenceComponentName": "gone"}, {}, "Could not find"),
    case("on an adapter", {"BaseInferenceComponentName": "es"}, {}, "is an adapter itself"),
    case(
        "a base of another endpoint",
        {"BaseInferenceComponentName": "elsewhere"},
        {},
        'is on endpoint "other"',
    ),
    case("a failed base", {"BaseInferenceComponentName": "failed"}, {}, "in status Failed"),
    case("no weights", {"Container": {}}, {}, "ArtifactUrl is required"),
    case("no container", {"Container": None}, {}, "ArtifactUrl is required"),
    case("a folder", {"Container": {"ArtifactUrl": "s3://b/folder/"}}, {}, "one .tar.gz object"),
    case("an image", {"Container": OWN}, {}, "Container.Image cannot be given"),
    case(
        "an environment",
        {"Container": {"ArtifactUrl": "s3://b/k", "Environment": {"A": "1"}}},
        {},
        "Container.Environment cannot be given",
    ),
    case("a model", {"ModelName": "m"}, {}, "ModelName cannot be given"),
    case(
        "requirements",
        {"ComputeResourceRequirements": NEEDS},
        {},
        "ComputeResourceRequirements cannot be given",
    ),
    case(
        "copies",
        {},
        {"RuntimeConfig": {"CopyCount": 1}},
        "RuntimeConfig cannot be given for an adapter",
    ),
    case("a variant", {}, {"VariantName": "main"}, "VariantName cannot be given for an adapter"),
)
def test_an_adapter_that_cannot_be_is_refused(
    api: Api, specification: dict[str, Any], more: dict[str, Any], message: str
) -> None:
    api.make.endpoint()
    api.make.endpoint("other")
    api.make.component("base")
    api.make.component("elsewhere", "other")
    api.make.component("failed")
    api.change_component("failed", status=ComponentStatus.FAILED)
    api.make.adapter("es")
    given = {
        "BaseInferenceComponentName": "base",
        "Container": {"ArtifactUrl": "s3://b/k.tar.gz"},
        **specification,
    }
    text = api.refusal(
        "CreateInferenceComponent",
        InferenceComponentName="new",
        EndpointName="e",
        Specification=without_none(given),
        **more,
    )
    assert message in text


def test_an_adapter_shows_the_first_requirements_of_a_base_with_several(api: Api) -> None:
    types = ("ml.g5.12xlarge", "ml.g5.24xlarge")
    pools = [{"InstanceType": it, "Priority": at} for at, it in enumerate(types, 1)]
    variant = {"VariantName": "main", "InstancePools": pools, "InitialInstanceCount": 1}
    api.call(
        "CreateEndpointConfig",
        EndpointConfigName="pools",
        ExecutionRoleArn="arn:aws:iam::123456789012:role/HostelryExecutionRole",
        ProductionVariants=[variant],
    )
    api.call("CreateEndpoint", EndpointName="e", EndpointConfigName="pools")
    needs = [{"MinMemoryRequiredInMb": 1024 * at} for at in (2, 3)]
    several = [
        {"InstanceType": it, "Container": OWN, "ComputeResourceRequirements": need}
        for it, need in zip(types, needs, strict=True)
    ]
    api.make.component("base", Specification=None, Specifications=several)
    api.make.adapter("es")
    shown = api.call("DescribeInferenceComponent", InferenceComponentName="es")["Specification"]
    assert shown["ComputeResourceRequirements"] == needs[0]


def test_a_base_goes_after_its_adapters(api: Api) -> None:
    api.make.endpoint()
    api.make.component("base")
    for number in range(12):
        api.make.adapter(f"a{number:02}")
    text = api.refusal("DeleteInferenceComponent", InferenceComponentName="base")
    assert "is a base inference component for one or more associated" in text
    assert "adapter inference components: a00, a01," in text
    assert "a09, ..." in text
    for number in range(12):
        api.call("DeleteInferenceComponent", InferenceComponentName=f"a{number:02}")
    api.call("DeleteInferenceComponent", InferenceComponentName="base")


def test_an_adapter_has_time_limits_of_its_own(api: Api) -> None:
    api.make.endpoint()
    api.make.component("base")
    api.make.adapter("es")
    limits = {
        "ModelDataDownloadTimeoutInSeconds": 3600,
        "ContainerStartupHealthCheckTimeoutInSeconds": 3000,
    }
    specification = api.call("DescribeInferenceComponent", InferenceComponentName="es")[
        "Specification"
    ]
    api.call(
        "CreateInferenceComponent",
        InferenceComponentName="fr",
        EndpointName="e",
        Specification={
            **{it: specification[it] for it in ("BaseInferenceComponentName", "Container")},
            "StartupParameters": limits,
        },
    )
    own, other = api.component("fr"), api.component("es")
    assert own.adapter is not None
    assert (own.adapter.download_timeout_s, own.adapter.startup_timeout_s) == (3600, 3000)
    assert own.deadline_at is not None
    assert other.deadline_at is not None
    assert own.deadline_at > other.deadline_at
    shown = api.call("DescribeInferenceComponent", InferenceComponentName="fr")["Specification"]
    assert shown["StartupParameters"] == limits
