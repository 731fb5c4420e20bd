"""SNS: topics, subscriptions and messages, through boto3 and the wire."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError
from tests.cases import case, cases
from tests.message_rig import MessageRig

from hostelry.base.clock import ManualClock
from hostelry.domain.metric import Metric, MetricStat
from hostelry.domain.scope import Scope

Client = Callable[[str], Any]
ARN = "arn:aws:sns:us-west-2:123456789012:t"
HOOK = "http://hook.example/sns"


@pytest.fixture
def sns(client: Client) -> Any:
    made = client("sns")
    made.create_topic(Name="t")
    return made


@pytest.fixture
def queue(client: Client) -> Callable[[], list[dict[str, Any]]]:
    """Makes the queue "q", and receives its messages."""
    sqs = client("sqs")
    url = sqs.create_queue(QueueName="q")["QueueUrl"]

    def received() -> list[dict[str, Any]]:
        answer = sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"]
        )
        found: list[dict[str, Any]] = answer.get("Messages", [])
        return found

    return received


QUEUE = "arn:aws:sqs:us-west-2:123456789012:q"


def test_a_topic_has_what_terraform_reads(sns: Any) -> None:
    given = {"DisplayName": "alerts", "DeliveryPolicy": '{"http": {}}'}
    made = sns.create_topic(Name="full", Attributes=given, Tags=[{"Key": "a", "Value": "1"}])
    arn = made["TopicArn"]
    assert sns.create_topic(Name="full")["TopicArn"] == arn
    with pytest.raises(sns.exceptions.InvalidParameterException, match="different tags"):
        sns.create_topic(Name="full", Tags=[{"Key": "a", "Value": "2"}])
    with pytest.raises(sns.exceptions.InvalidParameterException, match="different attributes"):
        sns.create_topic(Name="full", Attributes={"DisplayName": "other"})
    shown = sns.get_topic_attributes(TopicArn=arn)["Attributes"]
    assert shown["DisplayName"] == "alerts"
    assert shown["Owner"] == "123456789012"
    assert json.loads(shown["Policy"])["Statement"][0]["Resource"] == arn
    effective = json.loads(shown["EffectiveDeliveryPolicy"])["http"]["defaultHealthyRetryPolicy"]
    assert (effective["numRetries"], effective["minDelayTarget"]) == (3, 20)
    sns.set_topic_attributes(TopicArn=arn, AttributeName="DisplayName", AttributeValue="")
    assert sns.get_topic_attributes(TopicArn=arn)["Attributes"]["DisplayName"] == ""
    rate = "LambdaSuccessFeedbackSampleRate"
    sns.set_topic_attributes(TopicArn=arn, AttributeName=rate, AttributeValue="0")
    with pytest.raises(sns.exceptions.InvalidParameterException, match=rate):
        sns.set_topic_attributes(TopicArn=arn, AttributeName=rate, AttributeValue="100")
    sns.tag_resource(ResourceArn=arn, Tags=[{"Key": "b", "Value": "2"}])
    sns.untag_resource(ResourceArn=arn, TagKeys=["a"])
    assert sns.list_tags_for_resource(ResourceArn=arn)["Tags"] == [{"Key": "b", "Value": "2"}]
    assert {it["TopicArn"] for it in sns.list_topics()["Topics"]} == {ARN, arn}
    sns.delete_topic(TopicArn=arn)
    sns.delete_topic(TopicArn=arn)
    with pytest.raises(sns.exceptions.NotFoundException, match="Topic does not exist"):
        sns.get_topic_attributes(TopicArn=arn)


def test_a_queue_gets_the_envelope_or_the_raw_message(
    sns: Any, queue: Callable[[], list[dict[str, Any]]]
) -> None:
    arn = sns.subscribe(TopicArn=ARN, Protocol="sqs", Endpoint=QUEUE)["SubscriptionArn"]
    attributes = {"kind": {"DataType": "String", "StringValue": "x"}}
    sent = sns.publish(TopicArn=ARN, Subject="s", Message="m", MessageAttributes=attributes)
    (got,) = queue()
    envelope = json.loads(got["Body"])
    assert envelope["Type"] == "Notification"
    assert (envelope["MessageId"], envelope["Subject"]) == (sent["MessageId"], "s")
    assert envelope["MessageAttributes"] == {"kind": {"Type": "String", "Value": "x"}}
    assert not {"Signature", "SigningCertURL"} & set(envelope), "nothing is signed"
    sns.set_subscription_attributes(
        SubscriptionArn=arn, AttributeName="RawMessageDelivery", AttributeValue="true"
    )
    sns.publish(TopicArn=ARN, Message="raw", MessageAttributes=attributes)
    (raw,) = queue()
    assert (raw["Body"], raw["MessageAttributes"]) == ("raw", attributes)


def test_an_http_subscription_is_confirmed_by_its_token(
    sns: Any, messages: MessageRig, clock: ManualClock
) -> None:
    asked = sns.subscribe(TopicArn=ARN, Protocol="http", Endpoint=HOOK)
    assert asked["SubscriptionArn"] == "pending confirmation"
    (waiting,) = messages.deliveries.subscriptions()
    (delivery,) = messages.deliveries.due(waiting, clock.now(), 10)
    assert delivery.headers["x-amz-sns-message-type"] == "SubscriptionConfirmation"
    content = json.loads(delivery.body)
    assert content["SubscribeURL"].startswith("http://127.0.0.1:8787/?Action=ConfirmSubscription")
    (listed,) = sns.list_subscriptions_by_topic(TopicArn=ARN)["Subscriptions"]
    assert listed["SubscriptionArn"] == "PendingConfirmation"
    sns.publish(TopicArn=ARN, Message="too early")
    assert len(messages.deliveries.due(waiting, clock.now(), 10)) == 1
    with pytest.raises(sns.exceptions.InvalidParameterException, match="Token"):
        sns.confirm_subscription(TopicArn=ARN, Token="guess")
    for _ in range(2):
        done = sns.confirm_subscription(TopicArn=ARN, Token=content["Token"])
        assert done["SubscriptionArn"] == waiting
    shown = sns.get_subscription_attributes(SubscriptionArn=waiting)["Attributes"]
    assert (shown["PendingConfirmation"], shown["RawMessageDelivery"]) == ("false", "false")
    counts = sns.get_topic_attributes(TopicArn=ARN)["Attributes"]
    assert (counts["SubscriptionsConfirmed"], counts["SubscriptionsPending"]) == ("1", "0")
    again = sns.subscribe(TopicArn=ARN, Protocol="http", Endpoint=HOOK)
    assert again["SubscriptionArn"] == waiting
    sns.unsubscribe(SubscriptionArn=waiting)
    sns.unsubscribe(SubscriptionArn=waiting)
    assert sns.list_subscriptions()["Subscriptions"] == []


def test_an_outdated_token_confirms_nothing(
    sns: Any, messages: MessageRig, clock: ManualClock
) -> None:
    sns.subscribe(TopicArn=ARN, Protocol="http", Endpoint=HOOK)
    (waiting,) = messages.deliveries.subscriptions()
    (delivery,) = messages.deliveries.due(waiting, clock.now(), 10)
    clock.advance(3 * 24 * 3600.0)
    with pytest.raises(sns.exceptions.InvalidParameterException, match="Token"):
        sns.confirm_subscription(TopicArn=ARN, Token=json.loads(delivery.body)["Token"])


def test_an_address_that_the_operator_trusts_is_confirmed(sns: Any) -> None:
    arn = sns.subscribe(TopicArn=ARN, Protocol="http", Endpoint="http://trusted/")
    assert arn["SubscriptionArn"].startswith(ARN + ":")


def test_a_batch_answers_by_entry(sns: Any, queue: Callable[[], list[dict[str, Any]]]) -> None:
    sns.subscribe(TopicArn=ARN, Protocol="sqs", Endpoint=QUEUE)
    entries = [{"Id": "a", "Message": "1"}, {"Id": "b", "Message": "2", "Subject": "\n"}]
    answer = sns.publish_batch(TopicArn=ARN, PublishBatchRequestEntries=entries)
    assert [it["Id"] for it in answer["Successful"]] == ["a"]
    assert [it["Id"] for it in answer["Failed"]] == ["b"]
    assert [json.loads(it["Body"])["Message"] for it in queue()] == ["1"]


def test_each_protocol_gets_its_own_text(
    sns: Any, queue: Callable[[], list[dict[str, Any]]]
) -> None:
    sns.subscribe(TopicArn=ARN, Protocol="sqs", Endpoint=QUEUE)
    text = json.dumps({"default": "d", "sqs": "for queues", "email": "e"})
    sns.publish(TopicArn=ARN, Message=text, MessageStructure="json")
    assert [json.loads(it["Body"])["Message"] for it in queue()] == ["for queues"]


def test_a_queue_that_is_gone_sends_to_the_dead_letter_queue_and_is_counted(
    sns: Any, client: Client, queue: Callable[[], list[dict[str, Any]]], messages: MessageRig
) -> None:
    policy = json.dumps({"deadLetterTargetArn": QUEUE})
    gone = "arn:aws:sqs:us-west-2:123456789012:gone"
    sns.subscribe(TopicArn=ARN, Protocol="sqs", Endpoint=gone, Attributes={"RedrivePolicy": policy})
    sns.publish(TopicArn=ARN, Message="lost")
    (letter,) = queue()
    assert json.loads(letter["Body"])["Message"] == "lost"
    now = messages.clock.now()
    metric = Metric(
        namespace="AWS/SNS",
        name="NumberOfNotificationsFailed",
        dimensions=(("TopicName", "t"),),
    )
    stat = MetricStat(metric=metric, statistic="Sum", period_s=60)
    here = Scope("123456789012", "us-west-2")
    (point,) = messages.metrics.datapoints(here, stat, now - 60, now + 60)
    assert point.value == 1.0


NOT_SUPPORTED = "not supported by this version of Hostelry"
SUBSCRIBE = {"TopicArn": ARN, "Protocol": "sqs", "Endpoint": QUEUE}


@cases(
    "operation, params, text",
    case("a name", "create_topic", {"Name": "a b"}, "Topic Name"),
    case("a FIFO topic", "create_topic", {"Name": "t.fifo"}, NOT_SUPPORTED),
    case(
        "an encrypted topic",
        "create_topic",
        {"Name": "x", "Attributes": {"KmsMasterKeyId": "alias/k"}},
        NOT_SUPPORTED,
    ),
    case(
        "email",
        "subscribe",
        {"TopicArn": ARN, "Protocol": "email", "Endpoint": "a@b.example"},
        "Subscribe with the protocol http",
    ),
    case(
        "an address of another protocol",
        "subscribe",
        {"TopicArn": ARN, "Protocol": "https", "Endpoint": HOOK},
        "Endpoint must match the specified protocol",
    ),
    case(
        "an address that the operator does not allow",
        "subscribe",
        {"TopicArn": ARN, "Protocol": "http", "Endpoint": "http://forbidden/"},
        "forbidden here",
    ),
    case(
        "a file outside the folder",
        "subscribe",
        {"TopicArn": ARN, "Protocol": "file", "Endpoint": "../../etc/cron.d/x.jsonl"},
        "letters, digits",
    ),
    case(
        "a queue that is no ARN",
        "subscribe",
        {"TopicArn": ARN, "Protocol": "sqs", "Endpoint": "http://q"},
        "SQS endpoint ARN",
    ),
    case(
        "a filter policy that is none",
        "subscribe",
        {**SUBSCRIBE, "Attributes": {"FilterPolicy": '{"a": "b"}'}},
        "must be an object or an array",
    ),
    case(
        "a throttle policy",
        "subscribe",
        {**SUBSCRIBE, "Attributes": {"DeliveryPolicy": '{"throttlePolicy": {}}'}},
        "throttlePolicy is not supported",
    ),
    case("empty", "publish", {"TopicArn": ARN, "Message": ""}, "Empty message"),
    case(
        "more than 256 KB",
        "publish",
        {"TopicArn": ARN, "Message": "x" * (256 * 1024 + 1)},
        "Message too long",
    ),
    case("subject", "publish", {"TopicArn": ARN, "Message": "m", "Subject": "a\nb"}, "Subject"),
    case(
        "a structured message without default",
        "publish",
        {"TopicArn": ARN, "Message": "{}", "MessageStructure": "json"},
        "No default entry",
    ),
    case("a phone", "publish", {"PhoneNumber": "+1", "Message": "m"}, NOT_SUPPORTED),
    case("no ARN", "publish", {"TopicArn": "t", "Message": "m"}, "at least 6 elements"),
    case("no topic", "publish", {"TopicArn": ARN + "x", "Message": "m"}, "Topic does not exist"),
)
def test_what_is_refused(sns: Any, operation: str, params: dict[str, Any], text: str) -> None:
    with pytest.raises(ClientError) as refused:
        getattr(sns, operation)(**params)
    assert text in refused.value.response["Error"]["Message"]
