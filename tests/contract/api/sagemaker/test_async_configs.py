"""Endpoint configurations and endpoints of asynchronous inference."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError
from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.domain.async_request import AsyncInference
from hostelry.domain.endpoint import EndpointStatus

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
    api: Api, given: dict[str, Any], expected: AsyncInference
) -> None:
    api.make.model()
    api.make.config("c", OF_MODEL, AsyncInferenceConfig=given)
    shown = api.call("DescribeEndpointConfig", EndpointConfigName="c")
    assert shown["AsyncInferenceConfig"] == given
    found = api.state.endpoint_configs.get(api.scope, "c")
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
    api: Api, given: dict[str, Any], variant: dict[str, Any], message: str
) -> None:
    api.make.model()
    many = {"Image": api.make.image, "ModelDataUrl": "s3://bucket/models/", "Mode": "MultiModel"}
    api.make.model("many", PrimaryContainer=many)
    asked = {name: it for name, it in {**OF_MODEL, **variant}.items() if it is not None}
    assert message in api.refusal(
        "CreateEndpointConfig",
        EndpointConfigName="c",
        ExecutionRoleArn="arn:aws:iam::123456789012:role/HostelryExecutionRole",
        ProductionVariants=[asked],
        AsyncInferenceConfig=given,
    )
    assert api.call("ListEndpointConfigs")["EndpointConfigs"] == []


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
    api: Api, client: Callable[[str], Any], given: dict[str, Any]
) -> None:
    api.make.model()
    with pytest.raises(ClientError, match="1 validation error detected"):
        client("sagemaker").create_endpoint_config(
            EndpointConfigName="c", ProductionVariants=[OF_MODEL], AsyncInferenceConfig=given
        )


def topics(api: Api, *names: str) -> list[str]:
    """Create topics, each with a queue for its messages. Returns the queues' URLs."""
    urls = []
    for name in names:
        api.call("CreateTopic", "sns", Name=name)
        url = api.call("CreateQueue", "sqs", QueueName=name)["QueueUrl"]
        arn = f"arn:aws:sqs:us-west-2:123456789012:{name}"
        api.call("Subscribe", "sns", TopicArn=TOPICS + name, Protocol="sqs", Endpoint=arn)
        urls.append(url)
    return urls


def test_creating_and_changing_an_endpoint_sends_a_test_message_to_its_topics(api: Api) -> None:
    urls = topics(api, "done", "failed")
    api.make.model()
    for name in ("c", "c2"):
        api.make.config(name, OF_MODEL, AsyncInferenceConfig=EVERYTHING)

    def received() -> list[list[dict[str, Any]]]:
        texts = []
        for url in urls:
            answer = api.call("ReceiveMessage", "sqs", QueueUrl=url, MaxNumberOfMessages=10)
            messages = answer.get("Messages", [])
            texts.append([json.loads(json.loads(it["Body"])["Message"]) for it in messages])
        return texts

    message = {
        "eventVersion": "1.0",
        "eventSource": "aws:sagemaker",
        "eventName": "TestNotification",
    }
    api.call("CreateEndpoint", EndpointName="e", EndpointConfigName="c")
    assert received() == [[message], [message]]
    assert api.call("DescribeEndpoint", EndpointName="e")["AsyncInferenceConfig"] == EVERYTHING
    api.change_endpoint(status=EndpointStatus.IN_SERVICE)
    resize = [{"VariantName": "main", "DesiredInstanceCount": 2}]
    api.call(
        "UpdateEndpointWeightsAndCapacities",
        EndpointName="e",
        DesiredWeightsAndCapacities=resize,
    )
    assert received() == [[message], [message]]
    api.change_endpoint(status=EndpointStatus.IN_SERVICE)
    api.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2")
    assert received() == [[message], [message]]
    pending = api.endpoint().pending
    assert pending is not None
    assert pending.config.name == "c2"


def test_an_endpoint_whose_topic_does_not_exist_is_refused(api: Api) -> None:
    topics(api, "done")
    api.make.model()
    api.make.config("c", OF_MODEL, AsyncInferenceConfig=EVERYTHING)
    text = api.refusal("CreateEndpoint", EndpointName="e", EndpointConfigName="c")
    assert f"names topic {TOPICS}failed, which does not exist" in text
    assert api.call("ListEndpoints")["Endpoints"] == []


RESOURCE = {
    "ResourceId": "endpoint/e/variant/main",
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
}


@pytest.fixture
def at_zero(api: Api) -> Callable[[], int]:
    """Creates the asynchronous endpoint "e" without instances, and returns its instance count."""
    api.make.model()
    api.make.config("c", OF_MODEL, AsyncInferenceConfig=output())
    api.call("CreateEndpoint", EndpointName="e", EndpointConfigName="c")
    api.change_endpoint(status=EndpointStatus.IN_SERVICE)
    resize = [{"VariantName": "main", "DesiredInstanceCount": 0}]
    api.call(
        "UpdateEndpointWeightsAndCapacities", EndpointName="e", DesiredWeightsAndCapacities=resize
    )
    api.change_endpoint(status=EndpointStatus.IN_SERVICE)
    return lambda: api.endpoint().active.variants[0].desired_instance_count


def test_a_queue_may_have_no_instance_and_be_scaled_from_there(
    api: Api, at_zero: Callable[[], int]
) -> None:
    assert at_zero() == 0
    (shown,) = api.call("DescribeEndpoint", EndpointName="e")["ProductionVariants"]
    assert (shown["DesiredInstanceCount"], shown["CurrentInstanceCount"]) == (0, 0)
    api.scaling("RegisterScalableTarget", **RESOURCE, MinCapacity=0, MaxCapacity=2)
    api.scaling(
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
    api: Api, at_zero: Callable[[], int], settings: dict[str, Any], count: int
) -> None:
    assert at_zero() == 0
    api.make.config("c2", OF_MODEL, **settings)
    api.call(
        "UpdateEndpoint",
        EndpointName="e",
        EndpointConfigName="c2",
        RetainAllVariantProperties=True,
    )
    pending = api.endpoint().pending
    assert pending is not None
    assert [it.desired_instance_count for it in pending.variants] == [count]


def test_an_endpoint_that_answers_at_once_keeps_an_instance(api: Api) -> None:
    api.make.model()
    api.make.endpoint("e", OF_MODEL)
    api.change_endpoint(status=EndpointStatus.IN_SERVICE)
    text = api.refusal(
        "UpdateEndpointWeightsAndCapacities",
        EndpointName="e",
        DesiredWeightsAndCapacities=[{"VariantName": "main", "DesiredInstanceCount": 0}],
    )
    assert "Only endpoints with an AsyncInferenceConfig can have none." in text
    code, text = api.scaling_refusal(
        "RegisterScalableTarget", **RESOURCE, MinCapacity=0, MaxCapacity=2
    )
    assert code == "ValidationException"
    assert "a real-time variant needs at least 1 instance" in text
