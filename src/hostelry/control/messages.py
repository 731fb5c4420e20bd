"""Topics and queues in control: wiring, deliveries and removal of old records."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from hostelry.base.clock import Clock
from hostelry.control.data import ControlData
from hostelry.home.home import Home, UpConfig
from hostelry.messaging.deliveries import Deliveries
from hostelry.messaging.delivery_loop import DeliveryDeps, DeliveryLoop
from hostelry.messaging.failed_delivery import TopicMetrics
from hostelry.messaging.line_files import LineFiles
from hostelry.messaging.queue_messages import Arrivals, QueueMessages
from hostelry.messaging.services import Messaging, sweep
from hostelry.messaging.topic_publisher import TopicMissingError, TopicPublisher
from hostelry.messaging.web_delivery import GuardedClient
from hostelry.scaling.loop.alarm_actions import AddressFile

SWEEP_S = 60.0
PORT_FILES = ("run/*.json", "instances/*/agent.json", "instances/*/copies/*/copy.json")


class MessageServer:
    """Topics and queues of one control process. `deliver` and `sweep` run until cancelled."""

    def __init__(
        self,
        home: Home,
        config: UpConfig,
        data: ControlData,
        clock: Clock,
        addresses: AddressFile,
    ) -> None:
        state = self._state = data.state
        self._clock = clock
        deliveries, arrivals = Deliveries(data.messages), Arrivals()
        self._deliveries = deliveries
        counts = TopicMetrics(data.metrics, clock)
        self._poster = GuardedClient(
            lambda address: addresses.present().refusal(address),
            lambda: list_own_ports(home, config),
        )
        self._loop = DeliveryLoop(
            DeliveryDeps(
                state=state,
                deliveries=deliveries,
                arrivals=arrivals,
                metrics=counts,
                clock=clock,
                post=self._poster.post,
                append=lambda name, text: LineFiles(home.root / addresses.present().folder).append(
                    name, text
                ),
            )
        )
        self.services = Messaging(
            queues=QueueMessages(data.messages),
            topics=TopicPublisher(
                state, deliveries, arrivals, counts, clock, config.client_url, self._loop.wake
            ),
            arrivals=arrivals,
            gateway_url=config.client_url,
            address_refusal=lambda address: addresses.present().refusal(address),
            is_trusted=lambda address: addresses.present().is_confirmed(address),
        )

    def publish_alarm(self, topic_arn: str, subject: str, message: str, message_id: str) -> bool:
        """Publish an alarm's message. False if the topic does not exist."""
        try:
            self.services.topics.publish(topic_arn, subject, message, message_id=message_id)
        except TopicMissingError:
            return False
        return True

    async def deliver(self) -> None:
        """Deliver messages until cancelled."""
        try:
            await self._loop.run()
        finally:
            await self._poster.close()

    async def sweep(self) -> None:
        """Remove expired messages and deliveries periodically, until cancelled."""
        while True:
            await asyncio.to_thread(
                lambda: sweep(
                    self._state, self.services.queues, self._deliveries, self._clock.now()
                )
            )
            await self._clock.sleep(SWEEP_S)


def list_own_ports(home: Home, config: UpConfig) -> frozenset[int]:
    """Every port that a process of this platform listens on now."""
    configured = {config.gateway_port, config.s3_port, config.control_port, config.jobs_port}
    files = (path for pattern in PORT_FILES for path in home.root.glob(pattern))
    return frozenset(configured | {port for path in files for port in _read_ports(path)})


def _read_ports(path: Path) -> Iterator[int]:
    try:
        content = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return
    yield from _find_ports(content)


def _find_ports(value: Any) -> Iterator[int]:
    if not isinstance(value, dict):
        return
    for name, member in value.items():
        if name == "port" and isinstance(member, int):
            yield member
        else:
            yield from _find_ports(member)
