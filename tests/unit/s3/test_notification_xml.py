"""Notification configurations in XML: read, answered, refused."""

import pytest
from tests.cases import case, cases

from hostelry.domain.object_event import BucketNotification, NotificationTarget
from hostelry.s3.admission import S3Refusal
from hostelry.s3.notification_xml import notification_xml, read_notification

ARN = "arn:aws:sqs:us-west-2:123456789012:q"
EVENT = "<Event>s3:ObjectCreated:*</Event>"


def document(inner: str) -> bytes:
    return (
        '<NotificationConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"{inner}</NotificationConfiguration>"
    ).encode()


def queue(inner: str, prefix: str = "", id: str = "a") -> str:
    rule = f"<FilterRule><Name>prefix</Name><Value>{prefix}</Value></FilterRule>"
    filters = f"<Filter><S3Key>{rule}</S3Key></Filter>"
    return (
        f"<QueueConfiguration><Id>{id}</Id><Queue>{ARN}</Queue>{inner}{filters}"
        "</QueueConfiguration>"
    )


def test_a_configuration_is_answered_as_it_was_put() -> None:
    target = NotificationTarget(
        id="<1>", arn=ARN, events=("s3:ObjectCreated:Put",), prefix="a&b/", suffix=".csv"
    )
    topic = NotificationTarget(
        id="t", arn="arn:aws:sns:us-west-2:123456789012:t", events=("s3:ObjectCreated:Copy",)
    )
    for given in (
        BucketNotification(targets=(target, topic), to_bus=True),
        BucketNotification(),
    ):
        assert read_notification(notification_xml(given)) == given


@cases(
    "body, code, words",
    case("no XML", b"<a", "MalformedXML", "well-formed"),
    case("another", b"<Other/>", "MalformedXML", "no NotificationConfiguration"),
    case("entities", b'<!DOCTYPE a [<!ENTITY b "c">]><a/>', "MalformedXML", "declares"),
    case("no event", document(queue("")), "MalformedXML", "an Event"),
    case(
        "an event that is not served",
        document(queue("<Event>s3:ObjectRemoved:*</Event>")),
        "NotImplemented",
        "s3:ObjectRemoved:* is not served",
    ),
    case("a function", document("<CloudFunctionConfiguration/>"), "NotImplemented", "functions"),
    case(
        "prefixes that overlap",
        document(queue(EVENT, "in/") + queue(EVENT, "in/a", "b")),
        "InvalidArgument",
        "ambiguously",
    ),
    case(
        "one id twice",
        document(queue(EVENT, "in/") + queue(EVENT, "out/")),
        "InvalidArgument",
        "unique",
    ),
    case(
        "an ARN of another service",
        document(queue(EVENT).replace(":sqs:", ":lambda:")),
        "InvalidArgument",
        "not well formed",
    ),
    case(
        "another filter",
        document(queue(EVENT).replace("prefix<", "middle<")),
        "InvalidArgument",
        "prefix or suffix",
    ),
)
def test_a_configuration_is_refused(body: bytes, code: str, words: str) -> None:
    with pytest.raises(S3Refusal) as refused:
        read_notification(body)
    assert refused.value.code == code
    assert words in refused.value.message


def test_prefixes_that_do_not_overlap_are_taken() -> None:
    found = read_notification(document(queue(EVENT, "in/") + queue(EVENT, "out/", "b")))
    assert [it.id for it in found.find_targets("s3:ObjectCreated:Put", "out/a")] == ["b"]
    assert found.find_targets("s3:ObjectCreated:Put", "else/a") == ()
