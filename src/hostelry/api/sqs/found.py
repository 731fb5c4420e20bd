"""Queues by URL, and SQS's errors."""

import re

from hostelry.api.context import CallContext
from hostelry.base.errors import ServiceError
from hostelry.domain.queue import Queue
from hostelry.store.records import Versioned

URL = re.compile(r"(?:https?://[^/]+)?/(\d{12})/([A-Za-z0-9_-]{1,80}(?:\.fifo)?)")


def queue_url(context: CallContext, queue: Queue) -> str:
    """The queue's URL, which is at the gateway."""
    return f"{context.messages.gateway_url}/{queue.scope.account}/{queue.name}"


def queue_of(context: CallContext, url: str) -> Versioned[Queue]:
    """The queue; raises InvalidAddress or QueueDoesNotExist."""
    match = URL.fullmatch(url)
    if match is None:
        raise ServiceError(
            "InvalidAddress", f"The address {url:.300} is not valid for this endpoint."
        )
    stored = context.state.queues.get(context.scope, match[2])
    if stored is None or match[1] != context.scope.account:
        raise missing()
    return stored


def missing() -> ServiceError:
    """The error for a queue that does not exist."""
    return ServiceError("QueueDoesNotExist", "The specified queue does not exist.")


def invalid_value(name: str, value: object, reason: str) -> ServiceError:
    """SQS's error for a parameter of a request."""
    return ServiceError(
        "InvalidParameterValue",
        f"Value {value!s:.300} for parameter {name} is invalid. Reason: {reason}",
    )
