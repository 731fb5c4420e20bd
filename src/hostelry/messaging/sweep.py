"""Removal of what is past its time: messages of queues, requests to confirm, known publications."""

from contextlib import suppress

from hostelry.base.errors import Conflict
from hostelry.messaging.deliveries import Deliveries
from hostelry.messaging.failed_delivery import place_of, queue_at
from hostelry.messaging.queue_messages import QueueMessages
from hostelry.store.records import State

ORPHANED_S = 60.0  # a queue that is being made may have no record yet


def sweep(state: State, queues: QueueMessages, deliveries: Deliveries, now: float) -> None:
    """Remove messages that were kept for their time, and subscriptions not confirmed in time."""
    deliveries.forget_publications(now)
    for arn in queues.queues():
        queue = queue_at(state, arn)
        kept_s = ORPHANED_S if queue is None else queue.number("MessageRetentionPeriod")
        queues.drop(arn, now - kept_s)
    for stored in state.subscriptions.list():
        waiting = stored.value
        if not waiting.is_confirmed and now >= waiting.token_until:
            scope, name = place_of(waiting.arn)
            with suppress(Conflict):
                state.subscriptions.delete(scope, name, expect=stored.version)
