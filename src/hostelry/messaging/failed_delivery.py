"""Handles deliveries that failed for good: dead letters and counts."""

import json
import logging
import uuid
from collections.abc import Sequence

from hostelry.base.clock import Clock
from hostelry.domain.messaging import AttributeValue, Queue, Subscription
from hostelry.domain.metric import Metric, Sample
from hostelry.domain.scope import Scope
from hostelry.messaging.queue_messages import NewMessage
from hostelry.metrics.protocol import MetricWriter
from hostelry.store.records import State

LOG = logging.getLogger(__name__)
NAMESPACE = "AWS/SNS"
PUBLISHED = "NumberOfMessagesPublished"
DELIVERED = "NumberOfNotificationsDelivered"
FAILED = "NumberOfNotificationsFailed"
FILTERED_OUT = "NumberOfNotificationsFilteredOut"
REDRIVEN = "NumberOfNotificationsRedrivenToDlq"


class TopicMetrics:
    """Counts of topics, as metrics of AWS/SNS."""

    def __init__(self, metrics: MetricWriter, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock

    def count(self, topic_arn: str, name: str, number: int = 1) -> None:
        """Add `number` to the topic's metric of that name."""
        if number == 0:
            return
        scope, topic_name = parse_arn(topic_arn)
        metric = Metric(namespace=NAMESPACE, name=name, dimensions=(("TopicName", topic_name),))
        sample = Sample(
            metric=metric,
            at=self._clock.now(),
            values=(float(number),),
            counts=(1.0,),
            unit="Count",
        )
        self._metrics.emit(scope, [sample])

    def count_failed(self, subscription: Subscription, message_id: str, problem: str) -> None:
        """Count and log a message that a subscription will never get."""
        LOG.warning(
            "message %s was not delivered to %s (%s): %s",
            message_id,
            subscription.arn,
            subscription.endpoint,
            problem,
        )
        self.count(subscription.topic_arn, FAILED)


def get_dead_letter_queue(
    state: State, subscription: Subscription, body: str, problem: str, now: float
) -> Sequence[NewMessage]:
    """Build the message to the subscription's dead-letter queue. Empty without a queue."""
    policy = subscription.attributes.get("RedrivePolicy")
    if not policy:
        return ()
    target = json.loads(policy)["deadLetterTargetArn"]
    if queue_at(state, target, subscription.scope.account) is None:
        LOG.warning("the dead-letter queue %s of %s is gone", target, subscription.arn)
        return ()
    letter = NewMessage(
        id=str(uuid.uuid4()),
        queue_arn=target,
        body=body,
        sent_at=now,
        visible_at=now,
        sender=subscription.scope.account,
        attributes={"ErrorMessage": AttributeValue(kind="String", value=problem[:1024])},
    )
    return (letter,)


def queue_at(state: State, arn: str, account: str) -> Queue | None:
    """The queue of that ARN, or None if `account` has no such queue."""
    if not arn.startswith("arn:aws:sqs:") or arn.count(":") != 5:
        return None
    scope, name = parse_arn(arn)
    stored = state.queues.get(scope, name) if scope.account == account else None
    return None if stored is None else stored.value


def parse_arn(arn: str) -> tuple[Scope, str]:
    """Parse scope and name from a topic's or queue's ARN."""
    _, _, _, region, account, name = arn.split(":", 5)
    return Scope(account, region), name
