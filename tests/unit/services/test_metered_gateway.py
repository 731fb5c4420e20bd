"""The whole gateway over copies without processes: its meter's records of each request."""

import asyncio
from collections.abc import Callable

import pytest
from tests.cases import case, cases
from tests.unit.dataplane.routes_sample import COPIES, SNAPSHOT

from hostelry.base.clock import ManualClock
from hostelry.base.http import HttpRequest
from hostelry.dataplane.fake import FakeReplyConnection, FakeUpstream
from hostelry.dataplane.http.exchange import Exchange
from hostelry.dataplane.http.reader import Received
from hostelry.dataplane.routes import FixedRoutes
from hostelry.domain.load import SecondLoad
from hostelry.home.home import Credentials, UpConfig
from hostelry.http1.reply import (
    BrokenError,
    ConnectError,
    DeadlineError,
    Reply,
    UpstreamError,
)
from hostelry.http1.upstream import Timeouts
from hostelry.services.gateway import Gateway, build_gateway

CREDENTIALS = Credentials(
    account_id="111122223333",
    region="us-west-2",
    access_key_id="AKIAEXAMPLE",
    secret_access_key="secret",
    internal_key="internal-key",
    openai_api_key="sk-x",
)
WHOLE = "/endpoints/llms/invocations"
STREAM = "/endpoints/llms/invocations-response-stream"
CHAT = "/v1/chat/completions"


class LoadBalancer(FakeUpstream):
    """Copies whose answers a test feeds by hand. `answer` gets each request."""

    def __init__(self, answer: Callable[[Reply], None]) -> None:
        super().__init__()
        self._answer = answer
        self.replies: list[Reply] = []

    async def send(
        self,
        address: str,
        parts: tuple[bytes, bytes],
        timeouts: Timeouts,
        whole_below_bytes: int | None = None,
    ) -> Reply:
        reply = Reply(FakeReplyConnection())
        self.replies.append(reply)
        self._answer(reply)
        await reply.head()
        return reply


class Sink:
    """A client that never has room at once."""

    def write(self, *parts: bytes) -> bool:
        return True

    async def wait_for_room(self) -> None:
        await asyncio.sleep(0)


def whole(reply: Reply, status: int = 200) -> None:
    reply.set_head(status, {"content-type": "application/json"})
    reply.add_chunk(b"{}")
    reply.end(reusable=True)


def failing(error: UpstreamError) -> Callable[[Reply], None]:
    def fail(reply: Reply) -> None:
        raise error

    return fail


def broken_middle(reply: Reply) -> None:
    reply.set_head(200, {"content-type": "text/event-stream"})
    reply.add_chunk(b"one")
    reply.fail(BrokenError("gone"))


def half(reply: Reply) -> None:
    reply.set_head(200, {"content-type": "text/event-stream"})
    reply.add_chunk(b"one")


def request(path: str, component: str = "base") -> HttpRequest:
    headers = {"host": "localhost", "x-amzn-sagemaker-inference-component": component}
    body = b'{"model": "%b"}' % component.encode()
    return HttpRequest("POST", path, "", headers, body)


@pytest.fixture(autouse=True)
def within_one_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """The meter counts by the second: no request is in two."""
    monkeypatch.setattr("hostelry.services.gateway.SystemClock", ManualClock)


def gateway(upstream: FakeUpstream) -> Gateway:
    config = UpConfig(gateway_port=1, control_port=2, insecure_no_auth=True)
    return build_gateway(config, CREDENTIALS, FixedRoutes(SNAPSHOT), upstream)  # type: ignore[arg-type]


def seen(parts: Gateway, name: str = "base") -> SecondLoad:
    """All that the meter has of a name."""
    loads = [it for span in parts.meter.close_now() for it in span.loads]
    (found,) = [it for it in loads if it.key.component_name == name]
    return found


def served(answer: Callable[[Reply], None], path: str, component: str = "base") -> SecondLoad:
    async def main() -> SecondLoad:
        parts = gateway(LoadBalancer(answer))
        exchange = Exchange(Sink(), Received(request(path, component), True, True), b"")
        await parts.dispatcher.handle(exchange)
        return seen(parts, component)

    return asyncio.run(main())


@pytest.mark.parametrize("path", [WHOLE, STREAM, CHAT])
@cases(
    "answer, errors",
    case("an answer", whole, (0, 0, 0)),
    case("a 400 of the model", lambda it: whole(it, 400), (1, 0, 1)),
    case("a 500 of the model", lambda it: whole(it, 500), (0, 1, 1)),
    case("a model that dies", failing(BrokenError("gone")), (0, 1, 1)),
    case("a model that is late", failing(DeadlineError("late")), (0, 1, 1)),
)
def test_a_request_is_counted_with_how_it_went(
    path: str, answer: Callable[[Reply], None], errors: tuple[int, int, int]
) -> None:
    load = served(answer, path)
    assert (load.errors_4xx, load.errors_5xx, load.model_errors) == errors
    assert (load.arrivals, load.finished, sum(load.arrivals_by_copy.values())) == (1, 1, 1)
    answered = 0 if answer.__name__ == "fail" else 1
    assert sum(load.model_latency_us.counts) == sum(load.overhead_latency_us.counts) == answered


@pytest.mark.parametrize("path", [STREAM, CHAT])
def test_a_stream_that_breaks_is_an_error_of_its_own(path: str) -> None:
    load = served(broken_middle, path)
    assert (load.broken_streams, load.errors_5xx, load.finished) == (1, 0, 1)
    assert sum(load.first_chunk_latency_us.counts) == 1
    assert load.model_latency_us.counts == ()


@pytest.mark.parametrize("path", [WHOLE, CHAT])
def test_no_capacity_is_counted_for_the_component_that_has_none(path: str) -> None:
    load = served(whole, path, "asleep")
    assert (load.no_capacity, load.arrivals, load.finished) == (1, 1, 1)
    assert load.errors_5xx == load.errors_4xx == 0


def test_copies_that_cannot_be_reached_are_a_5xx() -> None:
    load = served(failing(ConnectError("refused")), WHOLE)
    assert (load.errors_5xx, load.model_errors, load.finished) == (1, 1, 1)
    assert sum(load.arrivals_by_copy.values()) == len(COPIES)


@pytest.mark.parametrize("path", [STREAM, CHAT])
async def test_a_stream_is_in_flight_until_its_last_byte_or_its_client_goes(path: str) -> None:
    copies = LoadBalancer(half)
    parts = gateway(copies)
    exchange = Exchange(Sink(), Received(request(path), True, True), b"")
    serving = asyncio.ensure_future(parts.dispatcher.handle(exchange))
    for _ in range(10):
        await asyncio.sleep(0)
    under_way = seen(parts)
    assert (under_way.finished, under_way.in_flight_max, under_way.on_copies_max) == (0, 1, 1)
    serving.cancel()
    await asyncio.wait([serving])
    over = seen(parts)
    assert (over.finished, over.errors_5xx, over.broken_streams) == (1, 0, 0)
    parts.meter.close_now()
    assert parts.meter.close_now()[0].loads == ()
