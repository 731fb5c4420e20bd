"""SQS queues and their messages."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hostelry.domain.scope import Scope

DEFAULTS: Mapping[str, str] = {
    "DelaySeconds": "0",
    "MaximumMessageSize": "1048576",
    "MessageRetentionPeriod": "345600",
    "ReceiveMessageWaitTimeSeconds": "0",
    "VisibilityTimeout": "30",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """One queue; `attributes` are those that a caller has set, by SQS's names."""

    scope: Scope
    name: str
    created_at: float
    modified_at: float
    purged_at: float = 0.0
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def arn(self) -> str:
        """Its ARN."""
        return f"arn:aws:sqs:{self.scope.region}:{self.scope.account}:{self.name}"

    def number(self, name: str) -> int:
        """The value of a numeric attribute, its default where none was set."""
        return int(self.attributes.get(name, DEFAULTS[name]))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterRule:
    """A queue's RedrivePolicy: where messages go that were received `most_receives` times."""

    queue_arn: str
    most_receives: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeValue:
    """The value of a message attribute: `kind` is its DataType; binary values are base64."""

    kind: str
    value: str

    @property
    def is_binary(self) -> bool:
        """Whether the value is bytes."""
        return self.kind.partition(".")[0] == "Binary"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedMessage:
    """A message of a queue, as a receiver gets it."""

    id: str
    body: str
    attributes: Mapping[str, AttributeValue]
    sent_at: float
    receives: int
    first_received_at: float
    handle: str
    sender: str
