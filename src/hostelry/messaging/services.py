"""Topics and queues as operations use them."""

from collections.abc import Callable
from dataclasses import dataclass

from hostelry.messaging.arrivals import Arrivals
from hostelry.messaging.queue_messages import QueueMessages
from hostelry.messaging.topic_publisher import TopicPublisher


@dataclass(frozen=True, slots=True, kw_only=True)
class Messaging:
    """What operations of sns and sqs use.

    `address_refusal` says why the operator does not allow a web address, None where that is
    allowed; `is_trusted` whether it needs no confirmation. QueueUrls begin with `gateway_url`.
    """

    queues: QueueMessages
    topics: TopicPublisher
    arrivals: Arrivals
    gateway_url: str
    address_refusal: Callable[[str], str | None] = lambda _: None
    is_trusted: Callable[[str], bool] = lambda _: False
