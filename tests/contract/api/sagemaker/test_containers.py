"""Models with several containers: stored and shown fields, and places that refuse such models."""

from typing import Any

import pytest
from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.domain.model import ExecutionMode

IMAGE = "echo:1"
MANY = {"Image": IMAGE, "Mode": "MultiModel", "ModelDataUrl": "s3://b/many/"}
DIRECT = {"InferenceExecutionConfig": {"Mode": "Direct"}}
PLAIN = {"VariantName": "v", "InstanceType": "ml.m5.large", "InitialInstanceCount": 1}


def named(*names: str | None, **given: Any) -> list[dict[str, Any]]:
    """ContainerDefinitions with these ContainerHostnames. None gives no hostname."""
    hosts = ({} if it is None else {"ContainerHostname": it} for it in names)
    return [{"Image": IMAGE, **host, **given} for host in hosts]


@cases(
    "containers, more, names, mode",
    case("a pipeline without names", named(None, None, None), {},
        ["container-1", "container-2", "container-3"], ExecutionMode.SERIAL),
    case("a pipeline with names", named("a", "b"), {"InferenceExecutionConfig": {"Mode": "Serial"}},
        ["a", "b"], ExecutionMode.SERIAL),
    case("direct", named("a", "b"), DIRECT, ["a", "b"], ExecutionMode.DIRECT),
    case("fifteen", named(*[None] * 15), {}, [f"container-{it}" for it in range(1, 16)],
        ExecutionMode.SERIAL),
    case("a pipeline with one step of many models", [*named(None), MANY], {},
        ["container-1", "container-2"], ExecutionMode.SERIAL),
    case("a lone container", named("only"), {}, [None], ExecutionMode.SERIAL),
)  # fmt: skip
def test_containers_are_stored_by_name_and_shown_as_given(
    api: Api,
    containers: list[dict[str, Any]],
    more: dict[str, Any],
    names: list[str | None],
    mode: ExecutionMode,
) -> None:
    api.call("CreateModel", ModelName="m", Containers=containers, **more)
    stored = api.state.models.get(api.scope, "m")
    assert stored is not None
    assert [it.hostname for it in stored.value.containers] == names
    assert stored.value.execution is mode
    shown = api.call("DescribeModel", ModelName="m")
    assert shown["Containers"] == containers
    assert shown.get("InferenceExecutionConfig") == more.get("InferenceExecutionConfig")


@cases(
    "params, message",
    case("a name twice", {"Containers": named("a", "b", "a")}, '"a" is given to 2 containers'),
    case("names for some of a pipeline", {"Containers": named("a", None)},
        "Containers.2.ContainerHostname is missing"),
    case("direct without a name", {"Containers": named("a", None), **DIRECT},
        "Containers.2.ContainerHostname is required"),
    case("direct with one container", {"Containers": named("a"), **DIRECT},
        "needs Containers of 2 to 15"),
    case("direct with a primary container", {"PrimaryContainer": {"Image": IMAGE}, **DIRECT},
        "needs Containers of 2"),
    case("two steps of many models", {"Containers": [MANY, MANY]},
        "a pipeline may have one such container"),
    case("direct with many models",
        {"Containers": [{**MANY, "ContainerHostname": "a"}, *named("b")], **DIRECT},
        'Container "a" has Mode MultiModel'),
    case("no image", {"Containers": [*named(None), {}]}, "Containers.2.Image is required"),
)  # fmt: skip
def test_containers_that_no_model_can_have(api: Api, params: dict[str, Any], message: str) -> None:
    assert message in api.refusal("CreateModel", ModelName="m", **params)


@pytest.fixture
def models(api: Api) -> None:
    api.call("CreateModel", ModelName="chain", Containers=named(None, None))
    api.call("CreateModel", ModelName="direct", Containers=named("a", "b"), **DIRECT)
    api.call("CreateModel", ModelName="m", PrimaryContainer={"Image": IMAGE})


@cases(
    "model, variant, config, message",
    case("a pipeline without servers", "chain",
        {"VariantName": "v", "ServerlessConfig": {"MemorySizeInMB": 1024, "MaxConcurrency": 1}}, {},
        "inference pipelines are not"),
    case("asynchronous requests cannot name a container", "direct", PLAIN,
        {"AsyncInferenceConfig": {"OutputConfig": {"S3OutputPath": "s3://out/x"}}},
        "has no TargetContainerHostname"),
    case("a shadow of a pipeline", "chain", PLAIN,
        {"ShadowProductionVariants": [{**PLAIN, "VariantName": "s", "ModelName": "m"}]},
        "which has 2 containers"),
)  # fmt: skip
def test_configurations_that_models_of_several_containers_cannot_have(
    models: None,
    api: Api,
    model: str,
    variant: dict[str, Any],
    config: dict[str, Any],
    message: str,
) -> None:
    variants = [{**variant, "ModelName": model}]
    found = api.refusal(
        "CreateEndpointConfig", EndpointConfigName="c", ProductionVariants=variants, **config
    )
    assert message in found


@cases(
    "config",
    case("asynchronous",
        {"AsyncInferenceConfig": {"OutputConfig": {"S3OutputPath": "s3://out/x"}}}),
    case("captured", {"DataCaptureConfig": {
        "InitialSamplingPercentage": 100, "DestinationS3Uri": "s3://out/y",
        "CaptureOptions": [{"CaptureMode": "InputAndOutput"}]}}),
)  # fmt: skip
def test_a_pipeline_may_be_asynchronous_and_captured(
    models: None, api: Api, config: dict[str, Any]
) -> None:
    variants = [{**PLAIN, "ModelName": "chain"}]
    api.call("CreateEndpointConfig", EndpointConfigName="c", ProductionVariants=variants, **config)
    api.call("CreateEndpoint", EndpointName="e", EndpointConfigName="c")
    (shown,) = api.call("DescribeEndpoint", EndpointName="e")["ProductionVariants"]
    assert len(shown["DeployedImages"]) == 2


def test_instance_pools_need_the_same_containers_to_name(models: None, api: Api) -> None:
    pools = [
        {"InstanceType": "ml.m5.large", "Priority": 1},
        {"InstanceType": "ml.m5.xlarge", "Priority": 2, "ModelNameOverride": "m"},
    ]
    variant = {
        "VariantName": "v", "ModelName": "direct", "InitialInstanceCount": 1,
        "InstancePools": pools,
    }  # fmt: skip
    api.call("CreateEndpointConfig", EndpointConfigName="c", ProductionVariants=[variant])
    found = api.refusal("CreateEndpoint", EndpointName="e", EndpointConfigName="c")
    assert "different containers that requests name" in found


@cases(
    "model, message",
    case("a pipeline", "chain", None),
    case("direct", "direct", "no container; create a model of the one container"),
)
def test_a_transform_job_goes_through_a_pipeline_alone(
    models: None, api: Api, model: str, message: str | None
) -> None:
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://in/csv"}}
    job = {
        "TransformJobName": "j",
        "ModelName": model,
        "TransformInput": {"DataSource": source},
        "TransformOutput": {"S3OutputPath": "s3://out/answers/"},
        "TransformResources": {"InstanceType": "ml.m5.xlarge", "InstanceCount": 1},
    }
    if message is None:
        assert api.call("CreateTransformJob", **job)["TransformJobArn"]
    else:
        assert message in api.refusal("CreateTransformJob", **job)


def test_a_component_has_one_container(models: None, api: Api) -> None:
    api.make.endpoint()
    specification = {
        "ModelName": "chain",
        "ComputeResourceRequirements": {"MinMemoryRequiredInMb": 128},
    }
    found = api.refusal(
        "CreateInferenceComponent",
        InferenceComponentName="c",
        EndpointName="e",
        VariantName="main",
        Specification=specification,
        RuntimeConfig={"CopyCount": 1},
    )
    assert 'with model "chain", which has 2 containers' in found
