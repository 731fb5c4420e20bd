"""Topics and subscriptions by ARN, and SNS's errors."""

from hostelry.api.context import CallContext
from hostelry.base.errors import ServiceError
from hostelry.domain.topic import Subscription, Topic
from hostelry.store.records import Versioned

PENDING = "PendingConfirmation"


def invalid(what: str) -> ServiceError:
    """SNS's error for a parameter."""
    return ServiceError("InvalidParameterException", f"Invalid parameter: {what}")


def unserved(field: str, advice: str) -> ServiceError:
    """The error for what this version does not implement."""
    return invalid(f"{field} is not supported by this version of Hostelry. {advice}".strip())


def topic_at(context: CallContext, arn: str) -> Versioned[Topic]:
    """The topic; raises NotFound."""
    prefix, name = _split(context, arn, "TopicArn")
    stored = context.state.topics.get(context.scope, name) if prefix else None
    if stored is None:
        raise ServiceError("NotFoundException", "Topic does not exist", 404)
    return stored


def subscription_at(context: CallContext, arn: str) -> Versioned[Subscription]:
    """The subscription; raises NotFound."""
    prefix, name = _split(context, arn, "SubscriptionArn")
    stored = context.state.subscriptions.get(context.scope, name) if prefix else None
    if stored is None:
        raise ServiceError("NotFoundException", "Subscription does not exist", 404)
    return stored


def subscription_name(subscription: Subscription) -> str:
    """The name of the subscription's record."""
    return subscription.arn.split(":", 5)[5]


def subscriptions_of(context: CallContext, topic_arn: str) -> list[Versioned[Subscription]]:
    """The subscriptions of a topic."""
    stored = context.state.subscriptions.list(context.scope)
    return [it for it in stored if it.value.topic_arn == topic_arn]


def _split(context: CallContext, arn: str, member: str) -> tuple[bool, str]:
    """Whether `arn` is of this account and region, and the name in it."""
    parts = arn.split(":", 5)
    if len(parts) < 6:
        raise invalid(f"{member} Reason: An ARN must have at least 6 elements, not {len(parts)}")
    scope = context.scope
    return parts[:5] == ["arn", "aws", "sns", scope.region, scope.account], parts[5]
