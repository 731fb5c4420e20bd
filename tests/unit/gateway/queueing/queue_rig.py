"""A gateway's pending queue, with routes and a clock that a test controls."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace
from tests.unit.dataplane.routes_sample import COPIES, HERE, component

from hostelry.aws.runtime import InvokeRequest
from hostelry.base.clock import ManualClock
from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest
from hostelry.dataplane.balancing.destination import find_destination
from hostelry.dataplane.balancing.load_balancer import InFlightRequest, LoadBalancer
from hostelry.dataplane.balancing.outstanding import Outstanding
from hostelry.dataplane.fake import FakeUpstream
from hostelry.dataplane.metering.meter import Measurement, Meter
from hostelry.dataplane.route_table import Destination
from hostelry.dataplane.routes import FixedRoutes
from hostelry.dataplane.tracing.call_document import call_document
from hostelry.dataplane.tracing.call_ring import CallRing
from hostelry.domain.at_zero import AtZero, Wakeable
from hostelry.domain.load import LoadKey, SecondLoad, Wake
from hostelry.domain.routes import ComponentRoute, EndpointRoute, RouteSnapshot
from hostelry.gateway.handlers.admission import send_when_ready
from hostelry.gateway.queueing.pending_queue import PendingQueue
from hostelry.gateway.queueing.request_queues import QueueLimits
from hostelry.http1.upstream import Timeouts

LIMIT_S = 60.0
NOTHING = EndpointRoute(scope=HERE, name="llms", takes_components=True)
ASLEEP = replace(component("llm", ()), at_zero=AtZero.HOLD, wakeable=Wakeable.YES, desired_copies=0)
COMING = replace(ASLEEP, desired_copies=2, waiting_for="no instance has room")
AWAKE = replace(ASLEEP, desired_copies=2, copies=COPIES)


class FakeControlClient:
    """Records its calls, and answers with `wanted`."""

    def __init__(self) -> None:
        self.wakes: list[Wake] = []
        self.asked: list[LoadKey] = []
        self.wanted = False

    async def wake(self, wake: Wake) -> None:
        self.wakes.append(wake)

    async def is_wanted(self, key: LoadKey) -> bool:
        self.asked.append(key)
        await asyncio.sleep(0)
        return self.wanted


class Rig:
    """A pending queue. A test changes its routes and moves its clock."""

    def __init__(self, *components: ComponentRoute, **limits: Any) -> None:
        self.now_s = 100.0
        self.routes = FixedRoutes()
        self.control = FakeControlClient()
        self.counts = Outstanding()
        self.upstream = FakeUpstream()
        self.copies = LoadBalancer(self.upstream, self.counts, lambda: 0.0, lambda: self.now_s)
        self.wall = ManualClock()
        self.meter = Meter(self.wall.now, lambda: int(self.now_s * 1e9))
        self.calls = CallRing(self.wall.now, lambda: int(self.now_s * 1e9))
        self.answers: list[str] = []
        self.placed: list[InFlightRequest] = []
        self.pending_queue = PendingQueue(
            self.routes,
            self.control,
            self.counts,
            QueueLimits(**limits),
            self.wall,
            lambda: self.now_s,
            self.meter,
        )
        self.show(*components)

    def show(self, *components: ComponentRoute) -> None:
        """Publish routes with these components."""
        self.publish(replace(NOTHING, components=components))

    def publish(self, *endpoints: EndpointRoute) -> None:
        self.routes.replace(RouteSnapshot(version="v", endpoints=endpoints))

    async def request(
        self,
        who: str,
        name: str | None = "llm",
        num_bytes: int = 10,
        limit_s: float = LIMIT_S,
        endpoint: str = "llms",
    ) -> None:
        """One request from its arrival to its answer."""  # fmt: skip
        asked = InvokeRequest(endpoint_name=endpoint, stream=False, inference_component_name=name)

        def find() -> Destination:
            return find_destination(self.routes.table, HERE, asked, 0.0)

        async def send(destination: Destination, measured: Measurement) -> InFlightRequest:
            return await self.copies.send(
                destination.copies,
                destination.routing,
                (b"head", b""),
                Timeouts(total_s=1),
                chosen=measured.record_copy,
            )

        trace = self.calls.begin(who, HERE.account, HttpRequest("POST", "/"))
        try:
            pending = self.pending_queue.begin_request(find, num_bytes, limit_s, trace)
            sent = await send_when_ready(self.pending_queue, pending, send)
        except ServiceError as error:
            self.answers.append(f"{who} {error.http_status} {error.message}")
        except asyncio.CancelledError:
            self.answers.append(f"{who} left")
            raise
        else:
            self.answers.append(f"{who} {sent.in_flight.copy.id}")
            self.placed.append(sent.in_flight)
            sent.measured.record_answer()
            sent.measured.end()
        finally:
            self.calls.end(trace, is_whole=True)

    def start(self, who: str, **changes: Any) -> "asyncio.Task[None]":
        return asyncio.get_running_loop().create_task(self.request(who, **changes))

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds
        self.wall.advance(seconds)
        self.pending_queue.tick()

    def spans(self, who: str) -> list[tuple[str, float]]:
        """Name and milliseconds of the recorded spans of a request."""
        (call,) = self.calls.find(ids=frozenset({who}))
        return [(it["name"], it["ms"]) for it in call_document(call)["spans"]]

    def loads(self) -> list[SecondLoad]:
        return [load for closed in self.meter.close_now() for load in closed.loads]

    @property
    def who(self) -> list[str]:
        return [it.split()[0] for it in self.answers]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


Scenario = Callable[[], Coroutine[Any, Any, None]]


@asynccontextmanager
async def no_task_is_left() -> AsyncIterator[None]:
    yield
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, f"tasks were left: {left}"
