"""Endpoint configurations and endpoints of asynchronous inference."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError
from tests.cases import case, cases

from hostelry.domain.async_request import AsyncInference
from hostelry.domain.endpoint import Endpoint, EndpointStatus
from hostelry.domain.scope import Scope
from hostelry.store.records import State

Call = Callable[..., dict[str, Any]]
Refused = Callable[..., str]
TOPICS = "arn:aws:sns:us-west-2:123456789012:"
PATHS = {"S3OutputPath": "s3://out/answers/", "S3FailurePath": "s3://out/failures"}
VARIANT = {"VariantName": "main", "InstanceType": "ml.m5.xlarge", "InitialInstanceCount": 1}
OF_MODEL = {**VARIANT, "ModelName": "m"}
NOTIFIED = {
    "SuccessTopic": TOPICS + "done",
    "ErrorTopic": TOPICS + "failed",
    "IncludeInferenceResponseIn": ["SUCCESS_NOTIFICATION_TOPIC", "ERROR_NOTIFICATION_TOPIC"],
}
EVERYTHING = {
    "ClientConfig": {"MaxConcurrentInvocationsPerInstance": 7},
    "OutputConfig": {**PATHS, "KmsKeyId": "alias/k", "NotificationConfig": NOTIFIED},
}


def output(**fields: Any) -> dict[str, Any]:
    return {"OutputConfig": {**PATHS, **fields}}


@cases(
    "given, expected",
    case(
        "with every field",
        EVERYTHING,
        AsyncInference(
            output_uri="s3://out/answers",
            failure_uri="s3://out/failures",
            max_concurrent_per_instance=7,
            success_topic_arn=TOPICS + "done",
            error_topic_arn=TOPICS + "failed",
            include_response_in=("SUCCESS_NOTIFICATION_TOPIC", "ERROR_NOTIFICATION_TOPIC"),
            kms_key_id="alias/k",
        ),
    ),
    case(
        "with a bucket alone",
        {"OutputConfig": {"S3OutputPath": "s3://out"}},
        AsyncInference(output_uri="s3://out", max_concurrent_per_instance=4),
    ),
    case(
        "with web addresses of S3",
        output(
            S3OutputPath="https://out.s3.us-west-2.amazonaws.com/a/b/",
            S3FailurePath="https://s3.us-west-2.amazonaws.com/bad/c",
        ),
        AsyncInference(output_uri="s3://out/a/b", failure_uri="s3://bad/c"),
    ),
    case(
        "with members that are empty",
        {**output(S3FailurePath="s3://x", KmsKeyId="", NotificationConfig={}), "ClientConfig": {}},
        AsyncInference(output_uri="s3://out/answers", failure_uri="s3://x"),
    ),
)
def test_a_configuration_is_echoed_and_kept_as_settings(
    call: Call,
    make: Any,
    state: State,
    scope: Scope,
    given: dict[str, Any],
    expected: AsyncInference,
) -> None:
    make.model()
    make.config("c", OF_MODEL, AsyncInferenceConfig=given)
    shown = call("DescribeEndpointConfig", EndpointConfigName="c")
    assert shown["AsyncInferenceConfig"] == given
    found = state.endpoint_configs.get(scope, "c")
    assert found is not None
    assert found.value.async_inference == expected


@cases(
    "given, variant, message",
    case("no place", {"OutputConfig": {}}, {}, "OutputConfig.S3OutputPath is required"),
    case(
        "a web address that is not S3's",
        output(S3OutputPath="https://example.com/x"),
        {},
        'S3OutputPath "https://example.com/x" is not supported',
    ),
    case(
        "answers in messages to a success topic that is not given",
        output(NotificationConfig={"IncludeInferenceResponseIn": ["SUCCESS_NOTIFICATION_TOPIC"]}),
        {},
        "NotificationConfig.SuccessTopic is not given",
    ),
    case(
        "answers in messages to an error topic that is not given",
        output(
            NotificationConfig={
                "SuccessTopic": TOPICS + "done",
                "IncludeInferenceResponseIn": ["ERROR_NOTIFICATION_TOPIC"],
            }
        ),
        {},
        "NotificationConfig.ErrorTopic is not given",
    ),
    case(
        "an endpoint for components",
        EVERYTHING,
        {"ModelName": None},
        "InvokeEndpointAsync cannot name an inference component",
    ),
    case(
        "a multi-model container",
        EVERYTHING,
        {"ModelName": "many"},
        "InvokeEndpointAsync has no TargetModel",
    ),
)
def test_a_configuration_that_cannot_be_is_refused(
    call: Call,
    make: Any,
    refused: Refused,
    given: dict[str, Any],
    variant: dict[str, Any],
    message: str,
) -> None:
    make.model()
    many = {"Image": make.image, "ModelDataUrl": "s3://bucket/models/", "Mode": "MultiModel"}
    make.model("many", PrimaryContainer=many)
    asked = {name: it for name, it in {**OF_MODEL, **variant}.items() if it is not None}
    assert message in refused(
        "CreateEndpointConfig",
        EndpointConfigName="c",
        ExecutionRoleArn="arn:aws:iam::123456789012:role/HostelryExecutionRole",
        ProductionVariants=[asked],
        AsyncInferenceConfig=given,
    )
    assert call("ListEndpointConfigs")["EndpointConfigs"] == []


@cases(
    "given",
    case(
        "more than 1000 at once",
        {**output(), "ClientConfig": {"MaxConcurrentInvocationsPerInstance": 1001}},
    ),
    case("a topic that is no ARN", output(NotificationConfig={"SuccessTopic": "done"})),
    case(
        "answers in messages to an unknown kind of topic",
        output(NotificationConfig={"IncludeInferenceResponseIn": ["ALL"]}),
    ),
    case("a place that is not in S3", output(S3OutputPath="ftp://out/x")),
    case("failures without a bucket", output(S3FailurePath="s3:///x")),
    case("a key's name with a blank", output(KmsKeyId="no key")),
)
def test_values_beyond_the_service_model_are_refused(
    make: Any, client: Callable[[str], Any], given: dict[str, Any]
) -> None:
    make.model()
    with pytest.raises(ClientError, match="1 validation error detected"):
        client("sagemaker").create_endpoint_config(
            EndpointConfigName="c", ProductionVariants=[OF_MODEL], AsyncInferenceConfig=given
        )


def topics(call: Call, *names: str) -> list[str]:
    """Topics whose messages go to a queue each; the queues' URLs."""
    urls = []
    for name in names:
        call("CreateTopic", "sns", Name=name)
        url = call("CreateQueue", "sqs", QueueName=name)["QueueUrl"]
        arn = f"arn:aws:sqs:us-west-2:123456789012:{name}"
        call("Subscribe", "sns", TopicArn=TOPICS + name, Protocol="sqs", Endpoint=arn)
        urls.append(url)
    return urls


def test_creating_and_changing_an_endpoint_sends_a_test_message_to_its_topics(
    call: Call, make: Any, change: Callable[..., None], endpoint: Callable[[], Endpoint]
) -> None:
    urls = topics(call, "done", "failed")
    make.model()
    for name in ("c", "c2"):
        make.config(name, OF_MODEL, AsyncInferenceConfig=EVERYTHING)

    def received() -> list[list[dict[str, Any]]]:
        texts = []
        for url in urls:
            answer = call("ReceiveMessage", "sqs", QueueUrl=url, MaxNumberOfMessages=10)
            messages = answer.get("Messages", [])
            texts.append([json.loads(json.loads(it["Body"])["Message"]) for it in messages])
        return texts

    message = {
        "eventVersion": "1.0",
        "eventSource": "aws:sagemaker",
        "eventName": "TestNotification",
    }
    call("CreateEndpoint", EndpointName="e", EndpointConfigName="c")
    assert received() == [[message], [message]]
    assert call("DescribeEndpoint", EndpointName="e")["AsyncInferenceConfig"] == EVERYTHING
    change(status=EndpointStatus.IN_SERVICE)
    resize = [{"VariantName": "main", "DesiredInstanceCount": 2}]
    call(
        "UpdateEndpointWeightsAndCapacities",
        EndpointName="e",
        DesiredWeightsAndCapacities=resize,
    )
    assert received() == [[message], [message]]
    change(status=EndpointStatus.IN_SERVICE)
    call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2")
    assert received() == [[message], [message]]
    pending = endpoint().pending
    assert pending is not None
    assert pending.config.name == "c2"


def test_an_endpoint_whose_topic_does_not_exist_is_refused(
    call: Call, make: Any, refused: Refused
) -> None:
    topics(call, "done")
    make.model()
    make.config("c", OF_MODEL, AsyncInferenceConfig=EVERYTHING)
    text = refused("CreateEndpoint", EndpointName="e", EndpointConfigName="c")
    assert f"names topic {TOPICS}failed, which does not exist" in text
    assert call("ListEndpoints")["Endpoints"] == []


RESOURCE = {
    "ResourceId": "endpoint/e/variant/main",
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
}


@pytest.fixture
def at_zero(
    call: Call, make: Any, change: Callable[..., None], endpoint: Callable[[], Endpoint]
) -> Callable[[], int]:
    """Makes the asynchronous endpoint "e", with no instance desired; returns its count."""
    make.model()
    make.config("c", OF_MODEL, AsyncInferenceConfig=output())
    call("CreateEndpoint", EndpointName="e", EndpointConfigName="c")
    change(status=EndpointStatus.IN_SERVICE)
    resize = [{"VariantName": "main", "DesiredInstanceCount": 0}]
    call("UpdateEndpointWeightsAndCapacities", EndpointName="e", DesiredWeightsAndCapacities=resize)
    change(status=EndpointStatus.IN_SERVICE)
    return lambda: endpoint().active.variants[0].desired_instance_count


def test_a_queue_may_have_no_instance_and_be_scaled_from_there(
    call: Call, scaling: Call, at_zero: Callable[[], int]
) -> None:
    assert at_zero() == 0
    (shown,) = call("DescribeEndpoint", EndpointName="e")["ProductionVariants"]
    assert (shown["DesiredInstanceCount"], shown["CurrentInstanceCount"]) == (0, 0)
    scaling("RegisterScalableTarget", **RESOURCE, MinCapacity=0, MaxCapacity=2)
    scaling(
        "PutScheduledAction",
        **RESOURCE,
        ScheduledActionName="night",
        Schedule="cron(0 22 * * ? *)",
        ScalableTargetAction={"MinCapacity": 0, "MaxCapacity": 0},
    )


@cases(
    "settings, count",
    case("with a queue: none", {"AsyncInferenceConfig": output()}, 0),
    case("without a queue: one", {}, 1),
)
def test_an_update_retains_that_there_is_no_instance_where_that_is_possible(
    call: Call,
    make: Any,
    at_zero: Callable[[], int],
    endpoint: Callable[[], Endpoint],
    settings: dict[str, Any],
    count: int,
) -> None:
    assert at_zero() == 0
    make.config("c2", OF_MODEL, **settings)
    call(
        "UpdateEndpoint",
        EndpointName="e",
        EndpointConfigName="c2",
        RetainAllVariantProperties=True,
    )
    pending = endpoint().pending
    assert pending is not None
    assert [it.desired_instance_count for it in pending.variants] == [count]


def test_an_endpoint_that_answers_at_once_keeps_an_instance(
    call: Call, make: Any, refused: Refused, unscaled: Any, change: Callable[..., None]
) -> None:
    make.model()
    make.endpoint("e", OF_MODEL)
    change(status=EndpointStatus.IN_SERVICE)
    text = refused(
        "UpdateEndpointWeightsAndCapacities",
        EndpointName="e",
        DesiredWeightsAndCapacities=[{"VariantName": "main", "DesiredInstanceCount": 0}],
    )
    assert "Only endpoints with an AsyncInferenceConfig can have none." in text
    code, text = unscaled("RegisterScalableTarget", **RESOURCE, MinCapacity=0, MaxCapacity=2)
    assert code == "ValidationException"
    assert "a real-time variant needs at least 1 instance" in text
