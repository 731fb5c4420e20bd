"""SNS topics and their subscriptions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from hostelry.domain.scope import Scope


class SubscriptionProtocol(Enum):
    """How a subscription's messages are delivered; the values are SNS's names, and `file`."""

    HTTP = "http"
    HTTPS = "https"
    SQS = "sqs"
    FILE = "file"

    @property
    def is_web(self) -> bool:
        """Whether messages are posted to a web address."""
        return self in (SubscriptionProtocol.HTTP, SubscriptionProtocol.HTTPS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One topic; `attributes` are those that a caller has set, by SNS's names."""

    scope: Scope
    name: str
    created_at: float
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def arn(self) -> str:
        """Its ARN."""
        return f"arn:aws:sns:{self.scope.region}:{self.scope.account}:{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """One subscription, named by its ARN; `token` confirms it, before `token_until`.

    `attributes` are those that a caller has set, by SNS's names.
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
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_raw(self) -> bool:
        """Whether messages come without SNS's envelope."""
        return self.attributes.get("RawMessageDelivery") == "true"
