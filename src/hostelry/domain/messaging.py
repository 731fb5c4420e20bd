"""SNS topics with their subscriptions, SQS queues, and requests to publish."""

from collections.abc import Mapping
from enum import Enum

import msgspec

from hostelry.domain.scope import Scope


class SubscriptionProtocol(Enum):
    """How a subscription's messages are delivered. Values are SNS's names, and `file`."""

    HTTP = "http"
    HTTPS = "https"
    SQS = "sqs"
    FILE = "file"

    @property
    def is_web(self) -> bool:
        """Whether messages are posted to a web address."""
        return self in (SubscriptionProtocol.HTTP, SubscriptionProtocol.HTTPS)


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """One topic. `attributes` has the attributes set by callers, by SNS's names."""

    scope: Scope
    name: str
    created_at: float
    attributes: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def arn(self) -> str:
        """Its ARN."""
        return f"arn:aws:sns:{self.scope.region}:{self.scope.account}:{self.name}"


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """One subscription. Its record has its ARN as name. `token` confirms it until `token_until`.

    `attributes` has the attributes set by callers, by SNS's names.
    """

    scope: Scope
    arn: str
    topic_arn: str
    protocol: SubscriptionProtocol
    endpoint: str
    created_at: float
    is_confirmed: bool
    token: str = ""
    token_until: float = 0.0
    is_authenticated: bool = False
    attributes: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def is_raw(self) -> bool:
        """Whether messages come without SNS's envelope."""
        return self.attributes.get("RawMessageDelivery") == "true"


DEFAULTS: Mapping[str, str] = {
    "DelaySeconds": "0",
    "MaximumMessageSize": "1048576",
    "MessageRetentionPeriod": "345600",
    "ReceiveMessageWaitTimeSeconds": "0",
    "VisibilityTimeout": "30",
}


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """One queue. `attributes` has the attributes set by callers, by SQS's names."""

    scope: Scope
    name: str
    created_at: float
    modified_at: float
    purged_at: float = 0.0
    attributes: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def arn(self) -> str:
        """Its ARN."""
        return f"arn:aws:sqs:{self.scope.region}:{self.scope.account}:{self.name}"

    def number(self, name: str) -> int:
        """The value of a numeric attribute, or its default."""
        return int(self.attributes.get(name, DEFAULTS[name]))


class DeadLetterRule(msgspec.Struct, frozen=True, kw_only=True):
    """A queue's RedrivePolicy: the queue for messages that were received `most_receives` times."""

    queue_arn: str
    most_receives: int


class AttributeValue(msgspec.Struct, frozen=True, kw_only=True):
    """The value of a message attribute. `kind` is its DataType. Binary values are base64."""

    kind: str
    value: str

    @property
    def is_binary(self) -> bool:
        """Whether the value consists of bytes."""
        return self.kind.partition(".")[0] == "Binary"


class QueuedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a queue, as a receiver gets it."""

    id: str
    body: str
    attributes: Mapping[str, AttributeValue]
    sent_at: float
    receives: int
    first_received_at: float
    handle: str
    sender: str


class PublicationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A message for a topic. Repeats have the same `message_id`."""

    topic_arn: str
    subject: str | None = None
    message: str
    message_id: str
