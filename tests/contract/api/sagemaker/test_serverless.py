"""Serverless endpoints: accepted values, descriptions, in-place changes and updates."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.base.errors import ServiceError
from hostelry.domain.endpoint import Endpoint, EndpointStatus, EndpointVariant
from hostelry.domain.serverless import ServerlessConfig

ROLE = "arn:aws:iam::123456789012:role/HostelryExecutionRole"
REGISTRY = "763104351884.dkr.ecr.us-west-2.amazonaws.com"
CPU_IMAGE = f"{REGISTRY}/djl-inference:0.33.0-cpu-full"
PRIMARY = {"Image": CPU_IMAGE, "ModelDataUrl": "s3://bucket/model.tar.gz"}
VPC = {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]}


def serverless(memory_mb: int = 2048, most: int = 5, ready: int = 0) -> dict[str, Any]:
    config = {"MemorySizeInMB": memory_mb, "MaxConcurrency": most}
    if ready:
        config["ProvisionedConcurrency"] = ready
    return {"VariantName": "main", "ModelName": "m", "ServerlessConfig": config}


@pytest.fixture
def create(api: Api) -> Callable[..., None]:
    """`create(name, variant)`: its configuration, NAME-config, and the endpoint."""

    def create(name: str, variant: dict[str, Any]) -> None:
        config = f"{name}-config"
        api.call("CreateEndpointConfig", EndpointConfigName=config, ProductionVariants=[variant])
        api.call("CreateEndpoint", EndpointName=name, EndpointConfigName=config)

    return create


@pytest.fixture
def model(api: Api) -> None:
    api.make.model("m", PrimaryContainer=PRIMARY)


def variant_of(endpoint: Endpoint) -> EndpointVariant:
    (variant,) = endpoint.active.variants
    return variant


def settled(api: Api, stored: Endpoint) -> None:
    """Change the records as a reconciler does when everything has started."""
    variants = tuple(replace(it, serverless_before=None) for it in stored.active.variants)
    active = replace(stored.active, variants=variants)
    api.change_endpoint(status=EndpointStatus.IN_SERVICE, active=active, deadline_at=None)


@pytest.mark.usefixtures("model")
@cases(
    "given, environments",
    case("one that may go to zero begins with one", serverless(), 1),
    case("provisioned ones all begin", serverless(ready=3), 3),
    case("the largest there is", serverless(6144, 200, 200), 200),
)
def test_it_is_created_and_described_without_instance_counts(
    api: Api, create: Callable[..., None], given: dict[str, Any], environments: int
) -> None:
    create("e", given)
    wanted = variant_of(api.endpoint())
    assert (wanted.environments, wanted.desired_instance_count) == (environments, 1)
    shown = api.call("DescribeEndpoint", EndpointName="e")["ProductionVariants"][0]
    assert shown["CurrentServerlessConfig"] == given["ServerlessConfig"]
    assert not {"CurrentInstanceCount", "DesiredInstanceCount", "DesiredServerlessConfig"} & set(
        shown
    )
    assert shown["DeployedImages"][0]["SpecifiedImage"] == CPU_IMAGE
    config = api.call("DescribeEndpointConfig", EndpointConfigName="e-config")
    assert config["ProductionVariants"] == [given]


@pytest.mark.usefixtures("model")
def test_its_cpus_follow_its_memory(create: Callable[..., None], api: Api) -> None:
    create("e", serverless(3072, 4))
    config = variant_of(api.endpoint()).serverless
    assert config is not None
    assert (config.environment.cpus, config.environment.max_memory_bytes) == (1.737, 3 * 1024**3)
    assert (config.shape.cpus, config.shape.memory_bytes) == (6.948, 12 * 1024**3)
    assert config.shape.accelerators == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param(
            {"PrimaryContainer": {**PRIMARY, "Mode": "MultiModel", "ModelDataUrl": "s3://b/m/"}},
            "has Mode MultiModel, which serverless variants do not support",
            id="many models",
        ),
        pytest.param(
            {
                "PrimaryContainer": {
                    "Image": CPU_IMAGE,
                    "ModelDataSource": {
                        "S3DataSource": {
                            "S3Uri": "s3://bucket/model/",
                            "S3DataType": "S3Prefix",
                            "CompressionType": "None",
                        }
                    },
                }
            },
            "has ModelDataSource, which serverless variants do not support. Give ModelDataUrl",
            id="files that are not packed",
        ),
        pytest.param(
            {"PrimaryContainer": PRIMARY, "VpcConfig": VPC}, "has VpcConfig", id="in a VPC"
        ),
        *(
            pytest.param(
                {"PrimaryContainer": {**PRIMARY, "Image": f"{REGISTRY}/{image}"}},
                "built for accelerators; serverless variants have none",
                id=image,
            )
            for image in (
                "pytorch-inference:2.1.0-gpu-py310-cu118-ubuntu20.04-sagemaker",
                "djl-inference:0.33.0-lmi15.0.0-cu128",
                "huggingface-pytorch-inference-neuronx:2.1.2-neuronx-py310-sdk2.20.0",
            )
        ),
    ],
)
def test_a_model_that_no_serverless_variant_can_run_is_refused(
    api: Api, given: dict[str, Any], message: str
) -> None:
    api.make.model("m", **given)
    assert message in api.refusal(
        "CreateEndpointConfig", EndpointConfigName="c", ProductionVariants=[serverless()]
    )


@pytest.mark.usefixtures("model")
def test_an_account_has_a_thousand_concurrent_requests(
    api: Api, create: Callable[..., None]
) -> None:
    for number in range(5):
        create(f"e{number}", serverless(most=200))
    with pytest.raises(ServiceError) as caught:
        create("more", serverless(most=1))
    assert caught.value.code == "ResourceLimitExceeded"
    assert "is 1000 Total Concurrency, with current utilization of 1000" in caught.value.message
    api.call("DeleteEndpoint", EndpointName="e0")
    create("another", serverless(most=200))


@pytest.mark.usefixtures("model")
def test_an_account_has_fifty_serverless_endpoints(create: Callable[..., None]) -> None:
    for number in range(50):
        create(f"e{number}", serverless(most=1))
    with pytest.raises(ServiceError) as caught:
        create("more", serverless(most=1))
    assert caught.value.code == "ResourceLimitExceeded"
    assert "serverless endpoints' is 50 Serverless endpoints" in caught.value.message


@pytest.mark.usefixtures("model")
@cases(
    "changed, expected, environments",
    case("the most", {"MaxConcurrency": 9},
        ServerlessConfig(memory_mb=2048, max_concurrency=9, provisioned_concurrency=2), 2),
    case("those kept", {"ProvisionedConcurrency": 4},
        ServerlessConfig(memory_mb=2048, max_concurrency=5, provisioned_concurrency=4), 4),
    case("fewer of both", {"MaxConcurrency": 3, "ProvisionedConcurrency": 1},
        ServerlessConfig(memory_mb=2048, max_concurrency=3, provisioned_concurrency=1), 2),
)  # fmt: skip
def test_its_concurrency_is_changed_in_place(
    api: Api,
    create: Callable[..., None],
    changed: dict[str, int],
    expected: ServerlessConfig,
    environments: int,
) -> None:
    create("e", serverless(ready=2))
    settled(api, api.endpoint())
    api.call(
        "UpdateEndpointWeightsAndCapacities",
        EndpointName="e",
        DesiredWeightsAndCapacities=[{"VariantName": "main", "ServerlessUpdateConfig": changed}],
    )
    wanted = variant_of(api.endpoint())
    assert (wanted.serverless, wanted.environments) == (expected, environments)
    shown = api.call("DescribeEndpoint", EndpointName="e")
    assert shown["EndpointStatus"] == "Updating"
    (variant,) = shown["ProductionVariants"]
    assert variant["CurrentServerlessConfig"]["ProvisionedConcurrency"] == 2
    assert variant["DesiredServerlessConfig"]["MaxConcurrency"] == expected.max_concurrency
    settled(api, api.endpoint())
    (variant,) = api.call("DescribeEndpoint", EndpointName="e")["ProductionVariants"]
    assert variant["CurrentServerlessConfig"]["MaxConcurrency"] == expected.max_concurrency
    assert "DesiredServerlessConfig" not in variant


@pytest.mark.usefixtures("model")
@cases(
    "changed, message",
    case("instances", {"DesiredInstanceCount": 2}, "is serverless, and the platform chooses its"),
    case("nothing", {}, "or DesiredWeightsAndCapacities.1.ServerlessUpdateConfig is required"),
    case("more kept than may be", {"ServerlessUpdateConfig": {"ProvisionedConcurrency": 6}},
        "ProvisionedConcurrency is 6; it cannot be more than MaxConcurrency"),
    case("fewer than are kept", {"ServerlessUpdateConfig": {"MaxConcurrency": 1}},
        "cannot be more than MaxConcurrency, which is 1"),
)  # fmt: skip
def test_a_change_in_place_that_cannot_be_is_refused(
    create: Callable[..., None], api: Api, changed: dict[str, Any], message: str
) -> None:
    create("e", serverless(ready=2))
    settled(api, api.endpoint())
    assert message in api.refusal(
        "UpdateEndpointWeightsAndCapacities",
        EndpointName="e",
        DesiredWeightsAndCapacities=[{"VariantName": "main", **changed}],
    )


@pytest.mark.usefixtures("model")
def test_instances_cannot_become_serverless_but_the_reverse_can(
    api: Api, create: Callable[..., None]
) -> None:
    create("e", serverless())
    settled(api, api.endpoint())
    api.make.config("instances", {"ModelName": "m"})
    api.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="instances")
    pending = api.endpoint().pending
    assert pending is not None
    assert (pending.variants[0].serverless, pending.variants[0].desired_instance_count) == (None, 1)
    api.change_endpoint(status=EndpointStatus.IN_SERVICE, active=pending, pending=None)
    message = api.refusal("UpdateEndpoint", EndpointName="e", EndpointConfigName="e-config")
    assert "has instances; an update cannot make it serverless" in message


@pytest.mark.usefixtures("model")
def test_an_update_to_another_serverless_configuration_comes_up_beside_it(
    api: Api, create: Callable[..., None]
) -> None:
    create("e", serverless())
    settled(api, api.endpoint())
    api.call(
        "CreateEndpointConfig",
        EndpointConfigName="larger",
        ProductionVariants=[serverless(4096, 7, 3)],
    )
    api.call(
        "UpdateEndpoint",
        EndpointName="e",
        EndpointConfigName="larger",
        RetainAllVariantProperties=True,
    )
    shown = api.call("DescribeEndpoint", EndpointName="e")
    (pending,) = shown["PendingDeploymentSummary"]["ProductionVariants"]
    assert pending["CurrentServerlessConfig"]["MemorySizeInMB"] == 4096
    assert "InstanceType" not in pending
    (variant,) = shown["ProductionVariants"]
    assert variant["CurrentServerlessConfig"]["MemorySizeInMB"] == 2048


@pytest.mark.usefixtures("model")
def test_deployment_guardrails_are_for_instances(api: Api, create: Callable[..., None]) -> None:
    create("e", serverless())
    settled(api, api.endpoint())
    api.call(
        "CreateEndpointConfig", EndpointConfigName="other", ProductionVariants=[serverless(1024)]
    )
    message = api.refusal(
        "UpdateEndpoint",
        EndpointName="e",
        EndpointConfigName="other",
        DeploymentConfig={
            "BlueGreenUpdatePolicy": {
                "TrafficRoutingConfiguration": {
                    "Type": "ALL_AT_ONCE",
                    "WaitIntervalInSeconds": 0,
                },
                "TerminationWaitInSeconds": 60,
            }
        },
    )
    assert "deployment guardrails" in message
