"""SQS: queues and messages, through boto3 and the wire."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError
from tests.cases import case, cases
from tests.message_rig import MessageRig

from hostelry.api.context import CallContext, NotYetError
from hostelry.api.sqs.message import receive_message
from hostelry.base.clock import ManualClock
from hostelry.domain.scope import Scope
from hostelry.domain.shape import Shape
from hostelry.metrics.series.store import MemoryMetrics
from hostelry.store.records import State

Client = Callable[[str], Any]


@pytest.fixture
def sqs(client: Client) -> Any:
    return client("sqs")


@pytest.fixture
def url(sqs: Any) -> str:
    made: str = sqs.create_queue(QueueName="jobs", Attributes={"VisibilityTimeout": "10"})[
        "QueueUrl"
    ]
    return made


def test_a_message_is_received_once_until_its_visibility_ends(
    sqs: Any, url: str, clock: ManualClock
) -> None:
    given = {
        "name": {"DataType": "String", "StringValue": "n"},
        "size": {"DataType": "Number", "StringValue": "3"},
        "blob": {"DataType": "Binary", "BinaryValue": b"\x00\x01"},
    }
    sent = sqs.send_message(QueueUrl=url, MessageBody="hello", MessageAttributes=given)
    asked = {"MessageAttributeNames": ["All"], "MessageSystemAttributeNames": ["All"]}
    (first,) = sqs.receive_message(QueueUrl=url, **asked)["Messages"]
    assert (first["Body"], first["MessageId"]) == ("hello", sent["MessageId"])
    assert first["MessageAttributes"] == given
    assert first["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert first["Attributes"]["ApproximateReceiveCount"] == "1"
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    clock.advance(11.0)
    (second,) = sqs.receive_message(QueueUrl=url, **asked)["Messages"]
    assert second["Attributes"]["ApproximateReceiveCount"] == "2"
    sqs.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])  # outdated: no effect
    shown = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert shown["ApproximateNumberOfMessagesNotVisible"] == "1"
    sqs.delete_message(QueueUrl=url, ReceiptHandle=second["ReceiptHandle"])
    clock.advance(11.0)
    assert "Messages" not in sqs.receive_message(QueueUrl=url)


def test_md5_of_attributes_is_that_of_the_developer_guide(sqs: Any, url: str) -> None:
    # The digest that AWS's clients compute of one String attribute, computed by hand.
    import hashlib
    import struct

    encoded = b"".join(struct.pack("!I", len(it)) + it for it in (b"k", b"String"))
    encoded += b"\x01" + struct.pack("!I", 1) + b"v"
    sent = sqs.send_message(
        QueueUrl=url,
        MessageBody="m",
        MessageAttributes={"k": {"DataType": "String", "StringValue": "v"}},
    )
    assert sent["MD5OfMessageAttributes"] == hashlib.md5(encoded).hexdigest()
    assert sent["MD5OfMessageBody"] == hashlib.md5(b"m").hexdigest()


def test_delays_visibility_changes_and_retention(sqs: Any, url: str, clock: ManualClock) -> None:
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"MessageRetentionPeriod": "60"})
    sqs.send_message(QueueUrl=url, MessageBody="later", DelaySeconds=5)
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    clock.advance(6.0)
    (got,) = sqs.receive_message(QueueUrl=url)["Messages"]
    handle = got["ReceiptHandle"]
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=0)
    (again,) = sqs.receive_message(QueueUrl=url, VisibilityTimeout=1)["Messages"]
    clock.advance(2.0)
    with pytest.raises(sqs.exceptions.MessageNotInflight):
        sqs.change_message_visibility(
            QueueUrl=url, ReceiptHandle=again["ReceiptHandle"], VisibilityTimeout=5
        )
    clock.advance(60.0)
    assert "Messages" not in sqs.receive_message(QueueUrl=url)


def test_a_message_that_is_received_too_often_goes_to_the_dead_letter_queue(
    sqs: Any, url: str, clock: ManualClock
) -> None:
    dead = sqs.create_queue(QueueName="dead")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"][
        "QueueArn"
    ]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 2})
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy})
    assert sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [url]
    sqs.send_message(QueueUrl=url, MessageBody="poison")
    for _ in range(2):
        assert sqs.receive_message(QueueUrl=url)["Messages"]
        clock.advance(11.0)
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    assert sqs.receive_message(QueueUrl=dead)["Messages"][0]["Body"] == "poison"


def test_batches_answer_by_entry(sqs: Any, url: str) -> None:
    entries = [{"Id": "a", "MessageBody": "1"}, {"Id": "b", "MessageBody": "\x01"}]
    answer = sqs.send_message_batch(QueueUrl=url, Entries=entries)
    assert [it["Id"] for it in answer["Successful"]] == ["a"]
    assert [(it["Id"], it["Code"]) for it in answer["Failed"]] == [("b", "InvalidMessageContents")]
    (got,) = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    handles = [
        {"Id": "ok", "ReceiptHandle": got["ReceiptHandle"]},
        {"Id": "bad", "ReceiptHandle": "no"},
    ]
    deleted = sqs.delete_message_batch(QueueUrl=url, Entries=handles)
    assert [it["Id"] for it in deleted["Successful"]] == ["ok"]
    assert [it["Code"] for it in deleted["Failed"]] == ["ReceiptHandleIsInvalid"]


def test_a_queue_is_made_once_tagged_purged_and_deleted(
    sqs: Any, url: str, clock: ManualClock
) -> None:
    assert url == "http://127.0.0.1:8787/123456789012/jobs"
    assert sqs.create_queue(QueueName="jobs")["QueueUrl"] == url
    with pytest.raises(sqs.exceptions.QueueNameExists):
        sqs.create_queue(QueueName="jobs", Attributes={"VisibilityTimeout": "11"})
    sqs.tag_queue(QueueUrl=url, Tags={"a": "1", "b": "2"})
    sqs.untag_queue(QueueUrl=url, TagKeys=["a"])
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"b": "2"}
    assert sqs.get_queue_url(QueueName="jobs")["QueueUrl"] == url
    sqs.create_queue(QueueName="other")
    assert sqs.list_queues(QueueNamePrefix="jo")["QueueUrls"] == [url]
    paged = sqs.list_queues(MaxResults=1)
    assert len(paged["QueueUrls"]) == 1
    assert paged["NextToken"]
    sqs.send_message(QueueUrl=url, MessageBody="m")
    sqs.purge_queue(QueueUrl=url)
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    with pytest.raises(sqs.exceptions.PurgeQueueInProgress):
        sqs.purge_queue(QueueUrl=url)
    sqs.delete_queue(QueueUrl=url)
    with pytest.raises(sqs.exceptions.QueueDoesNotExist) as gone:
        sqs.send_message(QueueUrl=url, MessageBody="m")
    assert gone.value.response["Error"]["Code"] == "AWS.SimpleQueueService.NonExistentQueue"


@cases(
    "operation, params, code",
    case("a name", "create_queue", {"QueueName": "a b"}, "InvalidParameterValue"),
    case("FIFO", "create_queue", {"QueueName": "q.fifo"}, "InvalidParameterValue"),
    case(
        "an encrypted queue",
        "create_queue",
        {"QueueName": "q", "Attributes": {"KmsMasterKeyId": "k"}},
        "InvalidAttributeValue",
    ),
    case(
        "a huge number",
        "create_queue",
        {"QueueName": "q", "Attributes": {"VisibilityTimeout": "9" * 40}},
        "InvalidAttributeValue",
    ),
    case(
        "an unknown attribute",
        "create_queue",
        {"QueueName": "q", "Attributes": {"Colour": "red"}},
        "InvalidAttributeName",
    ),
    case(
        "a dead-letter queue that is not there",
        "create_queue",
        {"QueueName": "q", "Attributes": {"RedrivePolicy": '{"maxReceiveCount": 2}'}},
        "InvalidParameterValue",
    ),
    case(
        "a policy whose list of queues is a number",
        "create_queue",
        {
            "QueueName": "q",
            "Attributes": {
                "RedriveAllowPolicy": '{"redrivePermission":"byQueue","sourceQueueArns":5}'
            },
        },
        "InvalidParameterValue",
    ),
    case(
        "a wait of more than 20 s",
        "receive_message",
        {"QueueUrl": "/123456789012/jobs", "WaitTimeSeconds": 21},
        "InvalidParameterValue",
    ),
    case(
        "a message of more than 1 MiB",
        "send_message",
        {"QueueUrl": "/123456789012/jobs", "MessageBody": "x" * (1024 * 1024 + 1)},
        "InvalidParameterValue",
    ),
    case(
        "a URL that is no queue's",
        "send_message",
        {"QueueUrl": "http://h/../etc", "MessageBody": "x"},
        "InvalidAddress",
    ),
    case(
        "an empty batch",
        "send_message_batch",
        {"QueueUrl": "/123456789012/jobs", "Entries": []},
        "AWS.SimpleQueueService.EmptyBatchRequest",
    ),
)
@pytest.mark.usefixtures("url")
def test_what_is_refused(sqs: Any, operation: str, params: dict[str, Any], code: str) -> None:
    with pytest.raises(ClientError) as refused:
        getattr(sqs, operation)(**params)
    assert refused.value.response["Error"]["Code"] == code


@pytest.mark.usefixtures("url")
def test_an_empty_queue_asks_to_wait_where_that_is_possible(
    state: State, scope: Scope, clock: ManualClock, messages: MessageRig
) -> None:
    context = CallContext(
        scope=scope,
        state=state,
        now=clock.now(),
        get_shape=lambda _: Shape(cpus=1, memory_bytes=1),
        role_arn="r",
        role_name="r",
        metrics=MemoryMetrics(clock),
        messaging=messages.services,
        may_wait=True,
    )
    params = {"QueueUrl": "/123456789012/jobs", "WaitTimeSeconds": 7}
    with pytest.raises(NotYetError) as waits:
        receive_message(context, params)
    assert (waits.value.wait_s, waits.value.next_at) == (7.0, None)
