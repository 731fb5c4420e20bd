"""Publishes to topics, for API operations, alarms and all other senders.

Once `publish` returns, the message is in the database: in the subscribed queues, and as a waiting
delivery for each address and file.
"""

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence

from hostelry.base.clock import Clock
from hostelry.base.errors import HostelryError
from hostelry.domain.messaging import AttributeValue, Subscription, SubscriptionProtocol, Topic
from hostelry.messaging.deliveries import (
    Deliveries,
    NewDelivery,
    RepeatablePublication,
    RepeatedPublicationError,
)
from hostelry.messaging.failed_delivery import (
    DELIVERED,
    FILTERED_OUT,
    PUBLISHED,
    REDRIVEN,
    TopicMetrics,
    get_dead_letter_queue,
    parse_arn,
    queue_at,
)
from hostelry.messaging.fan_out import (
    DEFAULT_BODY,
    Outgoing,
    TopicMessage,
    build_headers,
    confirmation_text,
    fan_out,
)
from hostelry.messaging.queue_messages import Arrivals, NewMessage
from hostelry.store.records import State

LOG = logging.getLogger(__name__)
TOO_MANY = "too many messages wait for this subscription"


class TopicMissingError(HostelryError):
    """No topic has this ARN."""


class TopicPublisher:
    """Publishes to topics. Thread-safe.

    Args:
        state: has topics, subscriptions and queues.
        deliveries: stores accepted messages.
        arrivals: is notified of new messages in queues.
        metrics: counts messages.
        clock: dates messages.
        gateway_url: the base of links in messages.
        wake: is called with each subscription that has a new delivery.
    """

    def __init__(
        self,
        state: State,
        deliveries: Deliveries,
        arrivals: Arrivals,
        metrics: TopicMetrics,
        clock: Clock,
        gateway_url: str,
        wake: Callable[[str], None],
    ) -> None:
        self._state = state
        self._deliveries = deliveries
        self._arrivals = arrivals
        self._metrics = metrics
        self._clock = clock
        self._gateway_url = gateway_url
        self._wake = wake

    def publish(
        self,
        topic_arn: str,
        subject: str | None,
        message: str,
        attributes: Mapping[str, AttributeValue] | None = None,
        *,
        bodies: Mapping[str, str] | None = None,
        message_id: str | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> str:
        """Publish a message durably, and return its id. Raises TopicMissingError.

        `check` is called between steps of filtering. If it raises, nothing is published. `bodies`
        are texts for single protocols, instead of `message`. Messages with the same `message_id`,
        if it is given, are published to a topic once within a day.
        """
        topic = self.topic(topic_arn)
        if topic is None:
            raise TopicMissingError(topic_arn)
        sent = TopicMessage(
            id=message_id or str(uuid.uuid4()),
            topic_arn=topic_arn,
            subject=subject,
            bodies={**(bodies or {}), DEFAULT_BODY: message},
            attributes=attributes or {},
            at=self._clock.now(),
        )
        subscriptions = self.subscriptions(topic)
        outgoing = fan_out(sent, subscriptions, self._gateway_url, check)
        once = (
            None
            if message_id is None
            else RepeatablePublication(topic_arn=topic_arn, message_id=message_id, at=sent.at)
        )
        try:
            self._accept(outgoing, sent.at, once)
        except RepeatedPublicationError:
            LOG.info("message %s was published to %s before", sent.id, topic_arn)
            return sent.id
        self._metrics.count(topic_arn, PUBLISHED)
        confirmed = sum(it.is_confirmed for it in subscriptions)
        self._metrics.count(topic_arn, FILTERED_OUT, confirmed - len(outgoing))
        return sent.id

    def ask_to_confirm(self, subscription: Subscription) -> None:
        """Send a web address the request to confirm its subscription."""
        now, message_id = self._clock.now(), str(uuid.uuid4())
        asked = NewDelivery(
            subscription_arn=subscription.arn,
            message_id=message_id,
            body=confirmation_text(subscription, message_id, now, self._gateway_url),
            headers=build_headers(subscription, "SubscriptionConfirmation", message_id),
            accepted_at=now,
        )
        self._deliveries.accept([asked], [])
        self._wake(subscription.arn)

    def topic(self, topic_arn: str) -> Topic | None:
        """The topic of that ARN."""
        if not topic_arn.startswith("arn:aws:sns:") or topic_arn.count(":") != 5:
            return None
        scope, name = parse_arn(topic_arn)
        stored = self._state.topics.get(scope, name)
        return None if stored is None else stored.value

    def subscriptions(self, topic: Topic) -> Sequence[Subscription]:
        """The topic's subscriptions."""
        stored = self._state.subscriptions.list(topic.scope)
        return [it.value for it in stored if it.value.topic_arn == topic.arn]

    def _accept(
        self, outgoing: Sequence[Outgoing], now: float, once: RepeatablePublication | None
    ) -> None:
        """Add everything in one transaction, and count messages that cannot be delivered."""
        queued: list[NewMessage] = []
        letters: list[NewMessage] = []
        deliveries: list[NewDelivery] = []
        failed: list[tuple[Outgoing, str]] = []
        for sent in outgoing:
            if sent.subscription.protocol is SubscriptionProtocol.SQS:
                message, problem = self._to_queue(sent, now)
                if message is not None:
                    queued.append(message)
                else:
                    failed.append((sent, problem))
                    letters += get_dead_letter_queue(
                        self._state, sent.subscription, sent.body, problem, now
                    )
            else:
                deliveries.append(_delivery(sent, now))
        too_many = self._deliveries.accept(deliveries, [*queued, *letters], once)
        refused = {it.subscription_arn for it in too_many}
        failed += [(it, TOO_MANY) for it in outgoing if it.subscription.arn in refused]
        for sent, problem in failed:
            self._metrics.count_failed(sent.subscription, sent.message_id, problem)
        for delivery in deliveries:
            self._wake(delivery.subscription_arn)
        for message in (*queued, *letters):
            self._arrivals.announce(message.queue_arn)
        if outgoing:
            self._metrics.count(outgoing[0].subscription.topic_arn, DELIVERED, len(queued))
            self._metrics.count(outgoing[0].subscription.topic_arn, REDRIVEN, len(letters))

    def _to_queue(self, it: Outgoing, now: float) -> tuple[NewMessage | None, str]:
        """The queue's message, or None and why the queue cannot have it."""
        queue = queue_at(self._state, it.subscription.endpoint, it.subscription.scope.account)
        if queue is None:
            return None, "the queue does not exist"
        if it.problem is not None:
            return None, it.problem
        if len(it.body.encode()) > queue.number("MaximumMessageSize"):
            return None, "the message is larger than the queue's MaximumMessageSize"
        message = NewMessage(
            id=str(uuid.uuid4()),
            queue_arn=queue.arn,
            body=it.body,
            sent_at=now,
            visible_at=now + queue.number("DelaySeconds"),
            sender=queue.scope.account,
            attributes=it.attributes,
        )
        return message, ""


def _delivery(it: Outgoing, now: float) -> NewDelivery:
    return NewDelivery(
        subscription_arn=it.subscription.arn,
        message_id=it.message_id,
        body=it.body,
        headers=it.headers,
        accepted_at=now,
    )
