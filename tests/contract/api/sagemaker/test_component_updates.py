"""UpdateInferenceComponent and UpdateInferenceComponentRuntimeConfig."""

from typing import Any

import pytest
from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.domain.component import ComponentSpec, ComponentStatus, InferenceComponent
from hostelry.domain.model import ArtifactSource, SourceKind

ARN = "arn:aws:sagemaker:us-west-2:123456789012:"
NEEDS = {"MinMemoryRequiredInMb": 1024, "NumberOfAcceleratorDevicesRequired": 1}
IN_PROGRESS = f'Cannot update in-progress inference component "{ARN}inference-component/base".'
POLICY = {
    "MaximumBatchSize": {"Type": "CAPACITY_PERCENT", "Value": 50},
    "WaitIntervalInSeconds": 60,
}


@pytest.fixture
def base(api: Api) -> None:
    """A base "base" in service with an adapter "es". Its model is already deleted."""
    api.make.endpoint()
    api.make.model()
    api.make.component(
        Specification={
            "ModelName": "m",
            "Container": {"Environment": {"B": "own"}},
            "ComputeResourceRequirements": NEEDS,
            "StartupParameters": {"ModelDataDownloadTimeoutInSeconds": 300},
        }
    )
    api.make.adapter("es")
    api.make.call("DeleteModel", ModelName="m")
    for name in ("base", "es"):
        api.change_component(name, status=ComponentStatus.IN_SERVICE, deadline_at=None)


def spec_of(component: InferenceComponent) -> ComponentSpec:
    assert component.spec is not None
    return component.spec


@pytest.mark.usefixtures("base")
def test_a_new_specification_stands_beside_the_one_before(api: Api) -> None:
    before = spec_of(api.component("base"))
    api.change_component("base", failure_reason="of an update before")
    api.clock.advance(60.0)
    api.call(
        "UpdateInferenceComponent",
        InferenceComponentName="base",
        Specification={"Container": {"ArtifactUrl": "s3://b/new.tar.gz"}},
        RuntimeConfig={"CopyCount": 3},
    )
    after = api.component("base")
    assert after.status is ComponentStatus.UPDATING
    assert after.previous_spec == before
    assert after.desired_copies == 3
    assert after.failure_reason is None
    assert after.modified_at == api.clock.now()
    assert after.deadline_at is not None
    assert after.deadline_at > api.clock.now()
    spec = spec_of(after)
    assert spec.generation > before.generation
    assert spec.container.source == ArtifactSource(uri="s3://b/new.tar.gz", kind=SourceKind.ARCHIVE)
    assert (spec.container.image, spec.container.environment) == (
        before.container.image,
        before.container.environment,
    )
    assert (spec.requirements, spec.download_timeout_s) == (before.requirements, 300.0)


@pytest.mark.usefixtures("base")
@cases(
    "new, image, environment, shown",
    case(
        "more environment",
        {"Container": {"Environment": {"C": "new"}}},
        None,
        {"A": "1", "B": "own", "C": "new"},
        {"ModelName": "m", "Environment": {"B": "own", "C": "new"}},
    ),
    case(
        "another model starts afresh",
        {"ModelName": "m2"},
        None,
        {"A": "1", "B": "2"},
        {"ModelName": "m2", "Environment": None},
    ),
    case(
        "another image starts afresh",
        {"Container": {"Image": "other"}},
        "other",
        {},
        {"ModelName": None, "Environment": None},
    ),
    case(
        "other timeouts leave the container",
        {"StartupParameters": {"ContainerStartupHealthCheckTimeoutInSeconds": 99}},
        None,
        {"A": "1", "B": "own"},
        {"ModelName": "m", "Environment": {"B": "own"}},
    ),
)
def test_what_an_update_leaves_out_stays(
    api: Api,
    new: dict[str, Any],
    image: str | None,
    environment: dict[str, str],
    shown: dict[str, Any],
) -> None:
    api.make.model("m2")
    api.call("UpdateInferenceComponent", InferenceComponentName="base", Specification=new)
    container = spec_of(api.component("base")).container
    assert container.image == (image or api.make.image)
    assert container.environment == environment
    described = api.call("DescribeInferenceComponent", InferenceComponentName="base")[
        "Specification"
    ]
    assert described.get("ModelName") == shown["ModelName"]
    assert described["Container"].get("Environment") == shown["Environment"]
    assert described["Container"]["DeployedImage"]["SpecifiedImage"] == container.image
    assert described["ComputeResourceRequirements"] == NEEDS


@pytest.mark.usefixtures("base")
def test_several_specifications_are_updated_where_they_fit(api: Api) -> None:
    several = [
        {"InstanceType": "ml.m5.xlarge", "Container": {"Image": "for-cpu"}},
        {"InstanceType": "ml.g5.12xlarge", "Container": {"Image": "for-gpu"}},
    ]
    api.call("UpdateInferenceComponent", InferenceComponentName="base", Specifications=several)
    assert spec_of(api.component("base")).container.image == "for-gpu"
    api.change_component("base", status=ComponentStatus.IN_SERVICE)
    more = {"Container": {"Environment": {"C": "1"}}}
    api.call("UpdateInferenceComponent", InferenceComponentName="base", Specification=more)
    spec = spec_of(api.component("base"))
    assert (spec.container.image, spec.container.environment) == ("for-gpu", {"C": "1"})
    shown = api.call("DescribeInferenceComponent", InferenceComponentName="base")
    assert shown["Specification"]["Container"]["Environment"] == {"C": "1"}
    assert "Specifications" not in shown


@pytest.mark.usefixtures("base")
def test_after_a_rollback_what_is_shown_and_changed_is_what_came_back(api: Api) -> None:
    shown = api.call("DescribeInferenceComponent", InferenceComponentName="base")["Specification"]
    for image in ("bad", "worse"):
        before = api.component("base")
        new = {"Container": {"Image": image}}
        api.call("UpdateInferenceComponent", InferenceComponentName="base", Specification=new)
        api.change_component("base", status=ComponentStatus.IN_SERVICE, spec=before.spec)
        after = api.call("DescribeInferenceComponent", InferenceComponentName="base")[
            "Specification"
        ]
        assert after == shown
    more = {"Container": {"Environment": {"C": "new"}}}
    api.call("UpdateInferenceComponent", InferenceComponentName="base", Specification=more)
    after = api.call("DescribeInferenceComponent", InferenceComponentName="base")["Specification"]
    assert (after["ModelName"], after["Container"]["Environment"]) == (
        "m",
        {"B": "own", "C": "new"},
    )


@pytest.mark.usefixtures("base")
@cases("copies", case("none", 0), case("more", 5))
@cases(
    "operation, member",
    case("by its update", "UpdateInferenceComponent", "RuntimeConfig"),
    case("by its own call", "UpdateInferenceComponentRuntimeConfig", "DesiredRuntimeConfig"),
)
def test_a_new_copy_count_leaves_the_copies_that_run(
    api: Api, operation: str, member: str, copies: int
) -> None:
    before = api.component("base")
    api.call(operation, InferenceComponentName="base", **{member: {"CopyCount": copies}})
    after = api.component("base")
    assert (after.status, after.desired_copies) == (ComponentStatus.UPDATING, copies)
    assert (after.spec, after.previous_spec) == (before.spec, None)
    assert after.deadline_at is not None


@pytest.mark.usefixtures("base")
def test_a_new_copy_count_with_a_deployment_config_shows_it_and_has_no_batches(api: Api) -> None:
    config = {"RollingUpdatePolicy": POLICY}
    api.call(
        "UpdateInferenceComponent",
        InferenceComponentName="base",
        RuntimeConfig={"CopyCount": 3},
        DeploymentConfig=config,
    )
    stored = api.component("base")
    assert (stored.desired_copies, stored.rollout, stored.previous_spec) == (3, None, None)
    shown = api.call("DescribeInferenceComponent", InferenceComponentName="base")
    assert shown["LastDeploymentConfig"] == config


@pytest.mark.usefixtures("base")
def test_an_adapters_update_may_repeat_what_describe_shows_of_its_base(api: Api) -> None:
    shown = api.call("DescribeInferenceComponent", InferenceComponentName="es")["Specification"]
    assert shown["ComputeResourceRequirements"]["MinMemoryRequiredInMb"] == 1024
    again = {**shown, "Container": {"ArtifactUrl": "s3://bucket/es-2.tar.gz"}}
    api.call("UpdateInferenceComponent", InferenceComponentName="es", Specification=again)
    stored = api.component("es")
    assert stored.adapter is not None
    assert stored.adapter.source.uri == "s3://bucket/es-2.tar.gz"
    assert "ComputeResourceRequirements" not in stored.given["Specification"]


@pytest.mark.usefixtures("base")
def test_an_adapters_new_weights_stand_beside_the_ones_before(api: Api) -> None:
    before = api.component("es").adapter
    assert before is not None
    new = {"Container": {"ArtifactUrl": "s3://b/es-2.tar.gz"}}
    api.call("UpdateInferenceComponent", InferenceComponentName="es", Specification=new)
    after = api.component("es")
    assert after.adapter is not None
    assert after.previous_adapter == before
    assert after.adapter.generation > before.generation
    assert after.adapter.source.uri == "s3://b/es-2.tar.gz"
    assert after.deadline_at is not None
    shown = api.call("DescribeInferenceComponent", InferenceComponentName="es")["Specification"]
    assert shown["Container"]["ArtifactUrl"] == "s3://b/es-2.tar.gz"
    assert shown["BaseInferenceComponentName"] == "base"


def test_an_adapter_waits_as_long_as_its_base_may_take(api: Api) -> None:
    api.make.endpoint()
    api.make.component()
    api.clock.advance(30.0)
    api.make.adapter()
    base_deadline, own = api.component("base").deadline_at, api.component("es").deadline_at
    assert base_deadline is not None
    assert own is not None
    assert own >= base_deadline


@pytest.mark.usefixtures("base")
@cases(
    "name, params, message",
    case("nothing", "base", {}, "Nothing to update"),
    case(
        "copies alone, with batches that cannot be",
        "base",
        {
            "RuntimeConfig": {"CopyCount": 1},
            "DeploymentConfig": {
                "RollingUpdatePolicy": {
                    "MaximumBatchSize": {"Type": "COPY_COUNT", "Value": 2},
                    "WaitIntervalInSeconds": 0,
                }
            },
        },
        "MaximumBatchSize is 2; it must be 1 to 1 of 1 copies",
    ),
    case(
        "a DeploymentConfig alone",
        "base",
        {"DeploymentConfig": {"RollingUpdatePolicy": POLICY}},
        "Nothing to update",
    ),
    case("a lost model", "base", {"Specification": {"ModelName": "m"}}, "Could not find model"),
    case(
        "a base into an adapter",
        "base",
        {"Specification": {"BaseInferenceComponentName": "base"}},
        "an update cannot make it an adapter",
    ),
    case(
        "another instance type",
        "base",
        {"Specification": {"InstanceType": "ml.m5.xlarge"}},
        "the variant's instances are ml.g5.12xlarge",
    ),
    case(
        "more than an instance has",
        "base",
        {"Specification": {"ComputeResourceRequirements": {"MinMemoryRequiredInMb": 10**9}}},
        "one ml.g5.12xlarge instance offers",
    ),
    case(
        "copies of an adapter",
        "es",
        {"RuntimeConfig": {"CopyCount": 2}},
        "RuntimeConfig cannot be given for an adapter",
    ),
    case(
        "an adapter to another base",
        "es",
        {"Specification": {"BaseInferenceComponentName": "other"}},
        'an update cannot give it another, "other"',
    ),
    case(
        "an adapter with an image",
        "es",
        {"Specification": {"Container": {"Image": "i"}}},
        "Container.Image cannot be given for an adapter",
    ),
    case(
        "an adapter with requirements of its own",
        "es",
        {"Specification": {"ComputeResourceRequirements": {"MinMemoryRequiredInMb": 128}}},
        "ComputeResourceRequirements cannot be given for an adapter",
    ),
)
def test_an_update_that_cannot_be_is_refused(
    api: Api, name: str, params: dict[str, Any], message: str
) -> None:
    before = api.component(name)
    assert message in api.refusal("UpdateInferenceComponent", InferenceComponentName=name, **params)
    assert api.component(name) == before


@pytest.mark.usefixtures("base")
def test_an_adapter_has_no_copy_count(api: Api) -> None:
    text = api.refusal(
        "UpdateInferenceComponentRuntimeConfig",
        InferenceComponentName="es",
        DesiredRuntimeConfig={"CopyCount": 2},
    )
    assert text.startswith("DesiredRuntimeConfig cannot be given for an adapter")


@pytest.mark.usefixtures("base")
@cases(
    "status, message",
    case("creating", ComponentStatus.CREATING, IN_PROGRESS),
    case("updating", ComponentStatus.UPDATING, IN_PROGRESS),
    case("deleting", ComponentStatus.DELETING, IN_PROGRESS),
    case("failed", ComponentStatus.FAILED, "in status Failed; delete it"),
)
def test_an_update_in_the_wrong_status_is_refused(
    api: Api, status: ComponentStatus, message: str
) -> None:
    api.change_component("base", status=status)
    copies = {"CopyCount": 2}
    assert message in api.refusal(
        "UpdateInferenceComponent", InferenceComponentName="base", RuntimeConfig=copies
    )
    assert message in api.refusal(
        "UpdateInferenceComponentRuntimeConfig",
        InferenceComponentName="base",
        DesiredRuntimeConfig=copies,
    )
