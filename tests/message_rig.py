"""Topics and queues over a store in memory, with a subscriber whose answers a test sets."""

import shutil
import tempfile
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hostelry.base.clock import ManualClock
from hostelry.domain.messaging import Subscription, SubscriptionProtocol, Topic
from hostelry.domain.scope import Scope
from hostelry.messaging.deliveries import Deliveries
from hostelry.messaging.delivery_loop import DeliveryDeps, DeliveryLoop
from hostelry.messaging.failed_delivery import TopicMetrics
from hostelry.messaging.queue_messages import Arrivals, QueueMessages
from hostelry.messaging.services import Messaging
from hostelry.messaging.tables import MessageTables
from hostelry.messaging.topic_publisher import TopicPublisher
from hostelry.metrics.series.store import MemoryMetrics
from hostelry.store.database import Database, open_database
from hostelry.store.memory import MemoryStore
from hostelry.store.records import State, open_state

HERE = Scope("123456789012", "us-west-2")
GATEWAY = "http://127.0.0.1:8787"


@dataclass
class Subscriber:
    """Records posts. Answers with the codes in its list, then 200. Exceptions in it are raised."""

    answers: list[int | Exception] = field(default_factory=list)
    posted: list[tuple[str, Mapping[str, str], bytes]] = field(default_factory=list)
    lines: list[tuple[str, str]] = field(default_factory=list)

    async def post(self, address: str, headers: Mapping[str, str], body: bytes) -> int:
        self.posted.append((address, headers, body))
        answer = self.answers.pop(0) if self.answers else 200
        if isinstance(answer, Exception):
            raise answer
        return answer

    def append(self, name: str, text: str) -> None:
        self.lines.append((name, text))


def scratch_file(rig: object) -> Path:
    """A file for as long as `rig` lives."""
    folder = Path(tempfile.mkdtemp(prefix="hostelry-messages-"))
    weakref.finalize(rig, shutil.rmtree, folder, ignore_errors=True)
    return folder / "messages.db"


class MessageRig:
    """The parts of messaging, connected as in control."""

    def __init__(
        self,
        state: State | None = None,
        clock: ManualClock | None = None,
        where: Path | str | Database | None = None,
        trusted: frozenset[str] = frozenset(),
    ) -> None:
        self.state = state or open_state(MemoryStore())
        self.clock = clock or ManualClock()
        self.metrics = MemoryMetrics(self.clock)
        self.subscriber = Subscriber()
        where = where or scratch_file(self)
        self.database = open_database(where) if isinstance(where, Path | str) else where
        self.tables = MessageTables(self.database)
        self.deliveries = Deliveries(self.tables)
        self.arrivals = Arrivals()
        counts = TopicMetrics(self.metrics, self.clock)
        self.loop = DeliveryLoop(
            DeliveryDeps(
                state=self.state,
                deliveries=self.deliveries,
                arrivals=self.arrivals,
                metrics=counts,
                clock=self.clock,
                post=self.subscriber.post,
                append=self.subscriber.append,
            )
        )
        self.services = Messaging(
            queues=QueueMessages(self.tables),
            topics=TopicPublisher(
                self.state,
                self.deliveries,
                self.arrivals,
                counts,
                self.clock,
                GATEWAY,
                self.loop.wake,
            ),
            arrivals=self.arrivals,
            gateway_url=GATEWAY,
            address_refusal=lambda it: "forbidden here" if "forbidden" in it else None,
            is_trusted=lambda it: it in trusted,
        )

    def topic(self, name: str = "t", **attributes: str) -> Topic:
        made = Topic(scope=HERE, name=name, created_at=0.0, attributes=attributes)
        self.state.topics.put(HERE, name, made, expect=None)
        return made

    def subscription(
        self, topic: Topic, protocol: str, endpoint: str, *, confirmed: bool = True, **given: str
    ) -> Subscription:
        made = Subscription(
            scope=HERE,
            arn=f"{topic.arn}:{endpoint.rpartition('/')[2].replace(':', '-')}",
            topic_arn=topic.arn,
            protocol=SubscriptionProtocol(protocol),
            endpoint=endpoint,
            created_at=0.0,
            is_confirmed=confirmed,
            token="" if confirmed else "token",
            token_until=self.clock.now() + 60.0,
            attributes=given,
        )
        self.state.subscriptions.put(HERE, made.arn.split(":", 5)[5], made, expect=None)
        return made
