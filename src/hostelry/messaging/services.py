"""Topics and queues for API operations, and the removal of old records."""

from collections.abc import Callable
from contextlib import suppress

import msgspec

from hostelry.base.errors import Conflict
from hostelry.messaging.deliveries import Deliveries
from hostelry.messaging.failed_delivery import parse_arn, queue_at
from hostelry.messaging.queue_messages import Arrivals, QueueMessages
from hostelry.messaging.topic_publisher import TopicPublisher
from hostelry.store.records import State


class Messaging(msgspec.Struct, frozen=True, kw_only=True):
    """Dependencies of the operations of sns and sqs.

    `address_refusal` says why the operator does not allow a web address (None: it is allowed).
    `is_trusted` is True for an address that needs no confirmation. QueueUrls begin with
    `gateway_url`.
    """

    queues: QueueMessages
    topics: TopicPublisher
    arrivals: Arrivals
    gateway_url: str
    address_refusal: Callable[[str], str | None] = lambda _: None
    is_trusted: Callable[[str], bool] = lambda _: False


ORPHANED_S = 60.0  # before this, the queue's record may not be written yet


def sweep(state: State, queues: QueueMessages, deliveries: Deliveries, now: float) -> None:
    """Remove messages whose retention has ended, and subscriptions not confirmed in time."""
    deliveries.forget_publications(now)
    for arn in queues.queues():
        queue = queue_at(state, arn, parse_arn(arn)[0].account)
        kept_s = ORPHANED_S if queue is None else queue.number("MessageRetentionPeriod")
        queues.drop(arn, now - kept_s)
    for stored in state.subscriptions.list():
        waiting = stored.value
        if not waiting.is_confirmed and now >= waiting.token_until:
            scope, name = parse_arn(waiting.arn)
            with suppress(Conflict):
                state.subscriptions.delete(scope, name, expect=stored.version)
