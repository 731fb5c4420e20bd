"""A boto3 program on the operations without a network: its waiters, paginators and error texts."""

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError, WaiterError
from msgspec.structs import replace

from hostelry.base.clock import ManualClock
from hostelry.domain.component import ComponentStatus
from hostelry.domain.endpoint import EndpointStatus
from hostelry.domain.scope import Scope
from hostelry.store.records import State

Client = Callable[[str], Any]
ROLE = "arn:aws:iam::123456789012:role/HostelryExecutionRole"
NOW = {"Delay": 0, "MaxAttempts": 1}


def message(error: Any) -> str:
    assert error.value.response["Error"]["Code"] == "ValidationException"
    assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    return str(error.value.response["Error"]["Message"])


def test_two_base_models_and_an_adapter_from_first_to_last(
    client: Client, state: State, scope: Scope, clock: ManualClock
) -> None:
    sm = client("sagemaker")
    sm.create_endpoint_config(
        EndpointConfigName="llms",
        ExecutionRoleArn=ROLE,
        ProductionVariants=[
            {
                "VariantName": "AllTraffic",
                "InstanceType": "ml.g5.12xlarge",
                "InitialInstanceCount": 1,
                "ModelDataDownloadTimeoutInSeconds": 3600,
                "ContainerStartupHealthCheckTimeoutInSeconds": 3600,
                "ManagedInstanceScaling": {
                    "Status": "ENABLED",
                    "MinInstanceCount": 1,
                    "MaxInstanceCount": 2,
                },
                "RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
            }
        ],
    )
    sm.create_endpoint(EndpointName="llms", EndpointConfigName="llms")
    for name in ("llama", "mistral"):
        sm.create_model(
            ModelName=name,
            ExecutionRoleArn=ROLE,
            PrimaryContainer={
                "Image": "763104351884.dkr.ecr.us-west-2.amazonaws.com/djl-inference:0.27.0",
                "Environment": {"OPTION_ENABLE_LORA": "true"},
                "ModelDataUrl": f"s3://bucket/{name}.tar.gz",
            },
        )
        sm.create_inference_component(
            InferenceComponentName=name,
            EndpointName="llms",
            VariantName="AllTraffic",
            Specification={
                "ModelName": name,
                "ComputeResourceRequirements": {
                    "NumberOfAcceleratorDevicesRequired": 2,
                    "MinMemoryRequiredInMb": 7 * 2 * 1024,
                },
            },
            RuntimeConfig={"CopyCount": 1},
        )
    sm.create_inference_component(
        InferenceComponentName="es",
        EndpointName="llms",
        Specification={
            "BaseInferenceComponentName": "llama",
            "Container": {"ArtifactUrl": "s3://bucket/es.tar.gz"},
        },
    )
    shown = sm.describe_inference_component(InferenceComponentName="es")
    assert shown["InferenceComponentStatus"] == "Creating"
    assert shown["CreationTime"].timestamp() == clock.now()

    with pytest.raises(ClientError) as refused:
        sm.delete_inference_component(InferenceComponentName="llama")
    assert "is a base inference component for one or more associated" in message(refused)
    for name in ("es", "llama", "mistral"):
        sm.delete_inference_component(InferenceComponentName=name)
        found = state.components.get(scope, name)
        assert found is not None
        assert found.value.status is ComponentStatus.DELETING
    sm.delete_endpoint(EndpointName="llms")
    sm.delete_endpoint_config(EndpointConfigName="llms")
    for name in ("llama", "mistral"):
        sm.delete_model(ModelName=name)


def test_the_waiters_see_service_failure_and_the_end(
    client: Client, state: State, scope: Scope
) -> None:
    sm = client("sagemaker")
    variant = {"VariantName": "v", "InstanceType": "ml.m5.xlarge", "InitialInstanceCount": 1}
    sm.create_endpoint_config(
        EndpointConfigName="c", ExecutionRoleArn=ROLE, ProductionVariants=[variant]
    )
    sm.create_endpoint(EndpointName="e", EndpointConfigName="c")
    in_service, deleted = sm.get_waiter("endpoint_in_service"), sm.get_waiter("endpoint_deleted")

    def settle(status: EndpointStatus) -> None:
        found = state.endpoints.get(scope, "e")
        assert found is not None
        state.endpoints.put(scope, "e", replace(found.value, status=status), expect=found.version)

    with pytest.raises(WaiterError, match="Max attempts exceeded"):
        in_service.wait(EndpointName="e", WaiterConfig=NOW)
    settle(EndpointStatus.IN_SERVICE)
    in_service.wait(EndpointName="e", WaiterConfig=NOW)
    settle(EndpointStatus.FAILED)
    with pytest.raises(WaiterError, match="terminal failure"):
        in_service.wait(EndpointName="e", WaiterConfig=NOW)
    sm.delete_endpoint(EndpointName="e")
    found = state.endpoints.get(scope, "e")
    assert found is not None
    state.endpoints.delete(scope, "e", expect=found.version)
    deleted.wait(EndpointName="e", WaiterConfig=NOW)


def test_a_paginator_walks_all_pages(client: Client) -> None:
    sm = client("sagemaker")
    for number in range(23):
        sm.create_model(ModelName=f"m{number:02}", PrimaryContainer={"Image": "i"})
    pages = sm.get_paginator("list_models").paginate(SortBy="Name", SortOrder="Ascending")
    names = [model["ModelName"] for page in pages for model in page["Models"]]
    assert names == [f"m{number:02}" for number in range(23)]


def test_the_texts_that_the_sdk_looks_for(client: Client) -> None:
    sm = client("sagemaker")
    sm.create_model(ModelName="m", PrimaryContainer={"Image": "i"})
    with pytest.raises(ClientError) as refused:
        sm.create_model(ModelName="m", PrimaryContainer={"Image": "i"})
    assert "Cannot create already existing model" in message(refused)
    for resource, member in (
        ("model", "ModelName"),
        ("endpoint_config", "EndpointConfigName"),
        ("endpoint", "EndpointName"),
        ("inference_component", "InferenceComponentName"),
    ):
        with pytest.raises(ClientError) as refused:
            getattr(sm, f"describe_{resource}")(**{member: "x"})
        assert "Could not find" in message(refused)


def test_the_execution_role_is_found_as_the_sdk_does(client: Client) -> None:
    arn = client("sts").get_caller_identity()["Arn"]
    kind, role, _ = arn.split(":")[-1].split("/")
    assert (arn.split(":")[2], kind) == ("sts", "assumed-role")
    assert client("iam").get_role(RoleName=role)["Role"]["Arn"] == ROLE
    with pytest.raises(ClientError) as refused:
        client("iam").get_role(RoleName="Admin")
    assert refused.value.response["Error"]["Code"] == "NoSuchEntity"
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 404


def test_an_operation_that_is_not_there_is_refused_as_unknown(client: Client) -> None:
    with pytest.raises(ClientError) as refused:
        client("sagemaker").list_training_jobs()
    assert refused.value.response["Error"]["Code"] == "UnknownOperationException"
    assert "sagemaker:ListTrainingJobs" in refused.value.response["Error"]["Message"]
