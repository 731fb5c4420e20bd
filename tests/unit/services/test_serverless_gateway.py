"""Requests for a serverless endpoint through the whole gateway: each environment has one."""

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.cases import case, cases
from tests.unit.dataplane.routes_sample import COPIES
from tests.unit.gateway.queueing.queue_rig import FakeControlClient
from tests.unit.services.test_metered_gateway import CREDENTIALS

from hostelry.base.http import HttpRequest
from hostelry.dataplane.balancing.outstanding import InFlightCounts
from hostelry.dataplane.fake import FakeReplyConnection, WrittenAnswer
from hostelry.dataplane.http.exchange import Exchange
from hostelry.dataplane.http.reader import Received
from hostelry.dataplane.routes import FixedRoutes
from hostelry.dataplane.shared.count_table import CountTable
from hostelry.dataplane.shared.counts import SharedCounts
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.routes import CopyRoute, EndpointRoute, RouteSnapshot, VariantRoute
from hostelry.domain.scope import Scope
from hostelry.domain.serverless import MAX_PAYLOAD_BYTES, ServerlessConfig
from hostelry.home.home import UpConfig
from hostelry.http1.reply import BrokenError, ConnectError, Reply
from hostelry.http1.upstream import Timeouts
from hostelry.services.gateway import build_gateway

PATH = "/endpoints/fn/invocations"


class Sink(WrittenAnswer):
    """Keeps the answer that a client gets."""

    @property
    def text(self) -> str:
        """Its status, the code of its error, and the error's message."""
        head, _, body = self.written.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        codes = [it.split(": ")[1] for it in lines if it.startswith("x-amzn-ErrorType")]
        error = json.loads(body) if codes else {}
        message = [it for name, it in error.items() if name.lower() == "message"]
        return " ".join([lines[0].split()[1], *codes, *message])


class Environments:
    """Environments that answer when a test says so. `asked` has their addresses, in order."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.replies: dict[str, Reply] = {}
        self.refusing: set[str] = set()

    async def send(
        self,
        address: str,
        parts: tuple[bytes, bytes],
        timeouts: Timeouts,
        whole_below_bytes: int | None = None,
    ) -> Reply:
        if address in self.refusing:
            raise ConnectError("refused")
        self.asked.append(address[-1])
        reply = self.replies[address[-1]] = Reply(FakeReplyConnection())
        await reply.head()
        return reply

    def answer(self, number: str) -> None:
        reply = self.replies.pop(number)
        reply.set_head(200, {"content-type": "text/csv"})
        reply.add_chunk(b"1")
        reply.end(reusable=True)

    def die(self, number: str) -> None:
        self.replies.pop(number).fail(BrokenError("gone"))


class Rig:
    """A gateway worker with a serverless endpoint of at most `most` requests at once."""

    def __init__(
        self,
        copies: tuple[CopyRoute, ...] = COPIES,
        most: int = 3,
        counts: InFlightCounts | None = None,
        ready: int = 0,
    ) -> None:
        self.environments = Environments()
        self.control = FakeControlClient()
        self.routes = FixedRoutes()
        self.most, self.ready = most, ready
        self.show(*copies)
        self.gateway = build_gateway(
            UpConfig(gateway_port=1, control_port=2, insecure_no_auth=True),
            CREDENTIALS,
            self.routes,
            self.environments,  # type: ignore[arg-type]
            counts,
            control=self.control,
        )
        self.answers: list[str] = []

    def show(self, *copies: CopyRoute) -> None:
        config = ServerlessConfig(
            memory_mb=1024, max_concurrency=self.most, provisioned_concurrency=self.ready
        )
        variant = VariantRoute(
            name="AllTraffic",
            weight=1.0,
            routing=RoutingStrategy.RANDOM,
            copies=copies,
            serverless=config,
        )
        scope = Scope(CREDENTIALS.account_id, CREDENTIALS.region)
        endpoint = EndpointRoute(
            scope=scope, name="fn", takes_components=False, variants=(variant,)
        )
        self.routes.replace(RouteSnapshot(version=str(len(copies)), endpoints=(endpoint,)))

    async def request(self, who: str, body: bytes = b"1,2", **headers: str) -> None:
        asked = HttpRequest("POST", PATH, "", {"host": "localhost", **headers}, body)
        sink = Sink()
        exchange = Exchange(sink, Received(asked, True, True), b"")
        await self.gateway.dispatcher.handle(exchange)
        self.answers.append(f"{who} {sink.text}")

    def start(self, who: str, **more: Any) -> "asyncio.Task[None]":
        return asyncio.get_running_loop().create_task(self.request(who, **more))


async def settle() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


async def test_an_environment_gets_one_request_at_a_time_and_more_are_asked_for() -> None:
    rig = Rig()
    requests = [rig.start(who) for who in "abc"]
    await settle()
    assert rig.environments.asked == ["1", "2"]
    assert [it.concurrency for it in rig.control.wakes] == [3]
    await rig.request("d")
    assert rig.answers == [
        "d 429 ThrottlingException Endpoint fn takes 3 requests at once (MaxConcurrency), and"
        " as many are under way. Try again, or raise MaxConcurrency."
    ]
    rig.environments.answer("2")
    await settle()
    assert rig.environments.asked == ["1", "2", "2"], "the one that waited follows at once"
    rig.environments.answer("1")
    rig.environments.answer("2")
    await asyncio.gather(*requests)
    assert sorted(rig.answers[1:]) == ["a 200", "b 200", "c 200"]
    (load,) = (it for span in rig.gateway.meter.close_now() for it in span.loads)
    assert (load.finished, load.bytes_in, load.bytes_out) == (3, 9, 3)
    assert (load.arrivals, load.throttled) == (3, 1), "what is refused has not arrived"
    again = rig.start("e")
    await settle()
    assert rig.environments.asked[3:] == ["1"], "the first free one; the last ones become idle"
    rig.environments.answer("1")
    await again


async def test_requests_from_zero_wait_for_their_environments_in_order() -> None:
    rig = Rig(copies=())
    requests = [rig.start(who) for who in "abc"]
    await settle()
    assert [(it.held, it.concurrency) for it in rig.control.wakes] == [(1, 1)]
    rig.show(*COPIES)
    await settle()
    assert rig.environments.asked == ["1", "2"]
    rig.environments.answer("1")
    await settle()
    assert rig.answers == ["a 200"]
    rig.environments.answer("2")
    rig.environments.answer("1")
    await asyncio.gather(*requests)
    assert sorted(rig.answers) == ["a 200", "b 200", "c 200"]


async def test_a_refusing_environment_is_passed_over_and_a_dead_one_is_the_models_error() -> None:
    rig = Rig()
    rig.environments.refusing.add(COPIES[0].address)
    requests = [rig.start("a")]
    await settle()
    assert rig.environments.asked == ["2"]
    rig.environments.die("2")
    await asyncio.gather(*requests)
    assert rig.answers[0].startswith("a 424 ModelError Received server error (0)")
    again = rig.start("b")
    await settle()
    assert rig.environments.asked == ["2", "2"], "the place of the dead one was given back"
    rig.environments.answer("2")
    await again
    assert rig.answers[1:] == ["b 200"]


async def test_a_client_that_leaves_gives_its_place_back() -> None:
    rig = Rig(copies=(), most=1)
    gone = rig.start("a")
    await settle()
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    rig.show(*COPIES)
    request = rig.start("b")
    await settle()
    rig.environments.answer("1")
    await request
    assert rig.answers == ["b 200"]


async def test_requests_beyond_the_provisioned_ones_of_all_workers_are_spillover(
    tmp_path: Path,
) -> None:
    counts = [SharedCounts(CountTable(tmp_path / "counts", 2), it) for it in (0, 1)]
    one, two = (Rig(COPIES, 3, it, ready=1) for it in counts)
    first = one.start("a")
    await settle()
    second = two.start("b")
    await settle()
    one.environments.answer("1")
    two.environments.answer("2")
    await asyncio.gather(first, second)
    spilled = [
        sum(it.spilled for span in rig.gateway.meter.close_now() for it in span.loads)
        for rig in (one, two)
    ]
    assert spilled == [0, 1]


async def test_two_workers_share_the_limit_and_the_environments(tmp_path: Path) -> None:
    counts = [SharedCounts(CountTable(tmp_path / "counts", 2), it) for it in (0, 1)]
    one, two = (Rig(COPIES, 2, it) for it in counts)
    first = one.start("a")
    await settle()
    second = two.start("b")
    await settle()
    assert (one.environments.asked, two.environments.asked) == (["1"], ["2"])
    await one.request("c")
    assert one.answers[0].startswith("c 429 ThrottlingException")
    two.environments.answer("2")
    await second
    third = one.start("d")
    await settle()
    assert one.environments.asked == ["1", "2"]
    one.environments.answer("1")
    one.environments.answer("2")
    await asyncio.gather(first, third)


@cases(
    "body, headers, expected",
    case(
        "a body over 4 MB",
        b"1" * (MAX_PAYLOAD_BYTES + 1),
        {},
        "a 400 ValidationError The body has 4194305 bytes; endpoint fn is serverless and takes"
        " at most 4194304.",
    ),
    case(
        "a session",
        b"1",
        {"x-amzn-sagemaker-session-id": "NEW_SESSION"},
        "a 400 ValidationError Endpoint fn is serverless and keeps no sessions, as its"
        " environments end when they are idle. Leave SessionId out.",
    ),
    case(
        "a model of many",
        b"1",
        {"x-amzn-sagemaker-target-model": "m.tar.gz"},
        "a 400 ValidationError Endpoint fn",
    ),
)
def test_what_serverless_endpoints_do_not_take_is_refused(
    body: bytes, headers: dict[str, str], expected: str
) -> None:
    rig = Rig()
    asyncio.run(rig.request("a", body, **headers))
    assert rig.answers[0].startswith(expected)
    assert rig.environments.asked == []
