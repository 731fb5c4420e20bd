"""A bucket's notification configuration in S3's XML. Pure."""

from xml.etree import ElementTree
from xml.sax.saxutils import escape

from hostelry.domain.object_event import (
    EVENTS,
    BucketNotification,
    NotificationTarget,
    find_problem,
)
from hostelry.s3.admission import S3Refusal

NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
TARGETS = {"TopicConfiguration": "Topic", "QueueConfiguration": "Queue"}
SERVICES = {"Topic": "sns", "Queue": "sqs"}
BUS = "EventBridgeConfiguration"
MALFORMED = "The XML you provided was not well-formed or did not validate against our schema"


def read_notification(body: bytes) -> BucketNotification:
    """Parse a configuration. Raises S3Refusal."""
    root = _root(body)
    targets: list[NotificationTarget] = []
    to_bus = False
    for child in root:
        name = _name(child)
        if name in TARGETS:
            targets.append(_target(child, TARGETS[name], len(targets)))
        elif name == BUS:
            to_bus = True
        elif name in ("CloudFunctionConfiguration", "LambdaFunctionConfiguration"):
            raise S3Refusal(
                501,
                "NotImplemented",
                "There are no functions here: use a queue, a topic, or EventBridgeConfiguration"
                " and a rule.",
            )
        else:
            raise _malformed(f"it has {name:.100}")
    notification = BucketNotification(targets=tuple(targets), to_bus=to_bus)
    problem = find_problem(notification)
    if problem is not None:
        raise S3Refusal(400, "InvalidArgument", problem)
    return notification


def notification_xml(notification: BucketNotification) -> bytes:
    """Write a configuration as S3 answers it."""
    parts = [_target_xml(it) for it in notification.targets]
    parts += [f"<{BUS}></{BUS}>"] if notification.to_bus else []
    inner = "".join(parts)
    text = f'<NotificationConfiguration xmlns="{NAMESPACE}">{inner}</NotificationConfiguration>'
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}'.encode()


def _root(body: bytes) -> ElementTree.Element:
    if b"<!" in body:
        raise _malformed("it declares a type")
    try:
        root = ElementTree.fromstring(body)
    except (ElementTree.ParseError, ValueError) as error:
        raise _malformed(str(error)) from None
    if _name(root) != "NotificationConfiguration":
        raise _malformed("it is no NotificationConfiguration")
    return root


def _target(element: ElementTree.Element, kind: str, number: int) -> NotificationTarget:
    arns, events, names = _texts(element, kind), _texts(element, "Event"), _texts(element, "Id")
    if len(arns) != 1 or not events:
        raise _malformed(f"a configuration needs one {kind}, and an Event")
    if not arns[0].startswith(f"arn:aws:{SERVICES[kind]}:") or arns[0].count(":") != 5:
        raise S3Refusal(400, "InvalidArgument", f"The ARN is not well formed: {arns[0]:.300}")
    unknown = [it for it in events if it not in EVENTS]
    if unknown:
        raise S3Refusal(
            501,
            "NotImplemented",
            f"The event {unknown[0]:.100} is not served; those of objects that arrive are:"
            f" {', '.join(EVENTS)}.",
        )
    filters = _filters(element)
    return NotificationTarget(
        id=names[0] if names and names[0] else f"{kind.lower()}-{number + 1}",
        arn=arns[0],
        events=tuple(dict.fromkeys(events)),
        prefix=filters.get("prefix", ""),
        suffix=filters.get("suffix", ""),
    )


def _filters(element: ElementTree.Element) -> dict[str, str]:
    found: dict[str, str] = {}
    for rule in element.iter():
        if _name(rule) != "FilterRule":
            continue
        names, values = _texts(rule, "Name"), _texts(rule, "Value")
        name = names[0].lower() if names else ""
        if name not in ("prefix", "suffix"):
            message = "filter rule name must be either prefix or suffix"
            raise S3Refusal(400, "InvalidArgument", message)
        if name in found:
            message = f"Cannot specify more than one {name} rule in a filter."
            raise S3Refusal(400, "InvalidArgument", message)
        found[name] = values[0] if values else ""
    return found


def _target_xml(target: NotificationTarget) -> str:
    kind = "Topic" if target.arn.startswith("arn:aws:sns:") else "Queue"
    events = "".join(f"<Event>{escape(it)}</Event>" for it in target.events)
    filters = "".join(
        f"<FilterRule><Name>{name}</Name><Value>{escape(value)}</Value></FilterRule>"
        for name, value in (("prefix", target.prefix), ("suffix", target.suffix))
        if value
    )
    shown = f"<Filter><S3Key>{filters}</S3Key></Filter>" if filters else ""
    return (
        f"<{kind}Configuration><Id>{escape(target.id)}</Id>"
        f"<{kind}>{escape(target.arn)}</{kind}>{events}{shown}</{kind}Configuration>"
    )


def _texts(element: ElementTree.Element, name: str) -> list[str]:
    return [it.text or "" for it in element if _name(it) == name]


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _malformed(why: str) -> S3Refusal:
    return S3Refusal(400, "MalformedXML", f"{MALFORMED}: {why:.200}.")
