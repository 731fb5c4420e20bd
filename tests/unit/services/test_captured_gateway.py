"""The whole gateway over copies without processes: the answers that it captures."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, NoReturn

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.dataplane.capture.capture_sample import AT, CAPTURE, all_records, content, spool
from tests.unit.dataplane.routes_sample import HERE, variant
from tests.unit.services.test_metered_gateway import (
    CREDENTIALS,
    LoadBalancer,
    Sink,
    broken_middle,
    failing,
    whole,
)

from hostelry.base.clock import ManualClock
from hostelry.base.http import HttpRequest
from hostelry.dataplane.capture.spool import SpoolLimits
from hostelry.dataplane.fake import FakeReplyConnection
from hostelry.dataplane.http.exchange import Exchange
from hostelry.dataplane.http.reader import Received
from hostelry.dataplane.routes import FixedRoutes
from hostelry.domain.data_capture import DataCapture
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.load import Divergence
from hostelry.domain.routes import CopyRoute, EndpointRoute, RouteSnapshot, ShadowRoute
from hostelry.home.home import UpConfig
from hostelry.http1.reply import BrokenError, Reply
from hostelry.http1.upstream import Timeouts
from hostelry.services.gateway import Gateway, build_gateway
from hostelry.services.gateway_memory import open_own_memory

SHADOW_ADDRESS = "http://127.0.0.1:9"


def routes_of(capture: DataCapture, shadow: ShadowRoute | None = None) -> FixedRoutes:
    """The endpoint "e", captured, and its shadow."""
    endpoint = EndpointRoute(
        scope=HERE,
        name="e",
        takes_components=False,
        variants=(replace(variant("v", 1.0), capture=capture),),
        shadow=shadow,
    )
    return FixedRoutes(RouteSnapshot(version="v", endpoints=(endpoint,)))


class GoneSink(Sink):
    """A client that left."""

    async def wait_for_room(self) -> None:
        raise ConnectionResetError


def streamed(reply: Reply) -> None:
    reply.set_head(200, {"content-type": "application/json"})
    for chunk in (b'{"a"', b": 1}"):
        reply.add_chunk(chunk)
    reply.end(reusable=True)


class Copies(LoadBalancer):
    """Copies. The shadow's answer with their names."""

    def __init__(
        self, answer: Callable[[Reply], None], shadow_answer: Callable[[Reply], None]
    ) -> None:
        super().__init__(answer)
        self._shadow_answer = shadow_answer
        self.heads: list[bytes] = []

    async def send(
        self,
        address: str,
        parts: tuple[bytes, bytes],
        timeouts: Timeouts,
        whole_below_bytes: int | None = None,
    ) -> Reply:
        self.heads.append(parts[0])
        if address != SHADOW_ADDRESS:
            return await super().send(address, parts, timeouts, whole_below_bytes)
        reply = Reply(FakeReplyConnection())
        self._shadow_answer(reply)
        return reply


def gateway_in(folder: Path, routes: FixedRoutes, upstream: LoadBalancer) -> Gateway:
    limits = SpoolLimits(min_free_bytes=0)
    memory = replace(open_own_memory(ManualClock(AT).now), spool=spool(folder, limits))
    config = UpConfig(gateway_port=1, control_port=2, insecure_no_auth=True)
    return build_gateway(
        config,
        CREDENTIALS,
        routes,
        upstream,  # type: ignore[arg-type]
        memory=memory,
    )


async def ask(gateway: Gateway, action: str, sink: type[Sink], session: str = "") -> None:
    headers = {"host": "localhost", "content-type": "application/json"}
    if session:
        headers["x-amzn-sagemaker-session-id"] = session
    request = HttpRequest("POST", f"/endpoints/e/{action}", "", headers, b"[1]")
    with contextlib.suppress(ConnectionResetError):
        await gateway.dispatcher.handle(Exchange(sink(), Received(request, True, True), b""))
    await asyncio.sleep(0)  # the shadow's turn comes once production's request is sent


def answers_apart(answer: Callable[[Reply], None], action: str) -> tuple[int, int, int]:
    """Pairs, equal ones and near ones, of requests that production's copy answers with `answer`."""

    async def main() -> tuple[int, int, int]:
        route = ShadowRoute(
            name="shadow",
            share=1.0,
            routing=RoutingStrategy.RANDOM,
            copies=(CopyRoute(id="c-shadow", address=SHADOW_ADDRESS),),
        )
        config = UpConfig(gateway_port=1, control_port=2, insecure_no_auth=True)
        routes = routes_of(CAPTURE, route)
        upstream: Any = Copies(answer, streamed)
        gateway = build_gateway(config, CREDENTIALS, routes, upstream)
        await ask(gateway, action, Sink)
        await mirrored(gateway)
        found = Divergence()
        for _ in range(20):
            await asyncio.sleep(0.02)
            loads = (load for span in gateway.meter.close_now() for load in span.loads)
            found = reduce(Divergence.plus, (it.divergence for it in loads), found)
            if found.pairs:
                break
        await gateway.mirror.close()
        return found.counts

    return asyncio.run(main())


async def mirrored(gateway: Gateway) -> None:
    """Return once nothing is under way on the shadow's copies."""
    while True:
        if not gateway.mirror.num_in_flight:
            return
        await asyncio.sleep(0)


def captured(
    answer: Callable[[Reply], None], action: str, folder: Path, sink: type[Sink]
) -> list[tuple[bytes, bytes]]:
    """Input and output of each record that one request leaves on disk."""

    async def main() -> None:
        gateway = gateway_in(folder, routes_of(CAPTURE), LoadBalancer(answer))
        await ask(gateway, action, sink)
        await gateway.capture.write()

    asyncio.run(main())
    return [(it.input, it.output) for it in all_records(folder)]


def shadow_route(capture: DataCapture | None, share: float = 1.0) -> ShadowRoute:
    return ShadowRoute(
        name="shadow",
        share=share,
        routing=RoutingStrategy.RANDOM,
        copies=(CopyRoute(id="c-shadow", address=SHADOW_ADDRESS),),
        capture=capture,
    )


def captured_with_shadow(
    shadow_answer: Callable[[Reply], None],
    folder: Path,
    percent: int = 100,
    share: float = 1.0,
    actions: Sequence[str] = ("invocations",),
    answer: Callable[[Reply], None] = whole,
) -> dict[str, list[tuple[str | None, bytes, bytes]]]:
    """Event id, input and output of each record, by variant."""

    async def main() -> None:
        capture = replace(CAPTURE, percent=percent)
        routes = routes_of(capture, shadow_route(capture, share))
        gateway = gateway_in(folder, routes, Copies(answer, shadow_answer))
        for action in actions:
            await ask(gateway, action, Sink)
            await mirrored(gateway)
        await gateway.capture.write()

    asyncio.run(main())
    found: dict[str, list[tuple[str | None, bytes, bytes]]] = {"v": [], "shadow": []}
    for path in folder.glob("*.records"):
        head, records = content(path)
        assert head.object_uri.startswith(f"s3://seen/here/e/{head.key.variant_name}/")
        found[head.key.variant_name] += [(it.head.event_id, it.input, it.output) for it in records]
    return found


@cases(
    "answer, action, sink, records",
    case("a whole answer", whole, "invocations", Sink, [(b"[1]", b"{}")]),
    case(
        "a stream, put together",
        streamed,
        "invocations-response-stream",
        Sink,
        [(b"[1]", b'{"a": 1}')],
    ),
    case("not a failure", lambda it: whole(it, 400), "invocations", Sink, []),
    case("nor a stream's", lambda it: whole(it, 500), "invocations-response-stream", Sink, []),
    case("not a dead model", failing(BrokenError("gone")), "invocations", Sink, []),
    case("not a stream that breaks", broken_middle, "invocations-response-stream", Sink, []),
    case("not one whose client left", streamed, "invocations-response-stream", GoneSink, []),
)
def test_answers_are_captured_that_were_given_whole(
    tmp_path: Path,
    answer: Callable[[Reply], None],
    action: str,
    sink: type[Sink],
    records: list[tuple[bytes, bytes]],
) -> None:
    assert captured(answer, action, tmp_path, sink) == records


@cases(
    "shadow_answer, action, outputs",
    case("an answer", streamed, "invocations", [b'{"a": 1}']),
    case("a stream, put together", streamed, "invocations-response-stream", [b'{"a": 1}']),
    case("not a failure", lambda it: whole(it, 500), "invocations", []),
    case("not a dead model", failing(BrokenError("gone")), "invocations", []),
    case("not a stream that breaks", broken_middle, "invocations-response-stream", []),
)
def test_a_shadows_answer_is_captured_under_its_own_name(
    tmp_path: Path,
    shadow_answer: Callable[[Reply], None],
    action: str,
    outputs: list[bytes],
) -> None:
    found = captured_with_shadow(shadow_answer, tmp_path, actions=[action])
    ((event_id, *sides),) = found["v"]
    assert sides == [b"[1]", b"{}"]
    assert found["shadow"] == [(event_id, b"[1]", output) for output in outputs]


def test_both_answers_to_a_request_are_captured_or_none(tmp_path: Path) -> None:
    found = captured_with_shadow(streamed, tmp_path, 40, actions=["invocations"] * 100)
    ids = {name: [event_id for event_id, *_ in records] for name, records in found.items()}
    assert ids["shadow"] == ids["v"]
    assert len(set(ids["v"])) == 40


def test_of_a_shadow_those_are_captured_that_are_mirrored(tmp_path: Path) -> None:
    found = captured_with_shadow(streamed, tmp_path, share=0.5, actions=["invocations"] * 20)
    ids = {name: {event_id for event_id, *_ in records} for name, records in found.items()}
    assert len(ids["v"]) == 20
    assert len(ids["shadow"]) == pytest.approx(10, abs=3), "the share is even within a few"
    assert ids["shadow"] < ids["v"]


def test_a_shadows_answer_is_captured_where_productions_fails(tmp_path: Path) -> None:
    found = captured_with_shadow(streamed, tmp_path, answer=lambda it: whole(it, 500))
    assert (found["v"], [output for *_, output in found["shadow"]]) == ([], [b'{"a": 1}'])


@cases(
    "answer, action, counts",
    case("equal answers", streamed, "invocations", (1, 1, 1)),
    case("other answers", whole, "invocations", (1, 0, 0)),
    case("streams", streamed, "invocations-response-stream", (1, 1, 1)),
    case("not a failure", lambda it: whole(it, 500), "invocations", (0, 0, 0)),
    case("nor half of one", broken_middle, "invocations-response-stream", (0, 0, 0)),
)
def test_a_shadows_answers_are_compared_with_productions(
    answer: Callable[[Reply], None], action: str, counts: tuple[int, int, int]
) -> None:
    assert answers_apart(answer, action) == counts


@cases(
    "session, has_session",
    case("as it is", "", [False, False]),
    case("without its session", "NEW_SESSION", [True, False]),
)
async def test_a_shadow_gets_productions_head(
    tmp_path: Path, session: str, has_session: list[bool]
) -> None:
    copies = Copies(whole, whole)
    gateway = gateway_in(tmp_path, routes_of(CAPTURE, shadow_route(None)), copies)
    await ask(gateway, "invocations", Sink, session)
    await mirrored(gateway)
    lines = [head.splitlines() for head in copies.heads]
    assert [any(b"Session-Id" in it for it in head) for head in lines] == has_session
    kept = [[it for it in head if b"Session-Id" not in it] for head in lines]
    assert kept[0] == kept[1]


def broken(*_: object, **__: object) -> NoReturn:
    raise ZeroDivisionError("a defect")


@pytest.mark.parametrize("action", ["invocations", "invocations-response-stream"])
@cases(
    "part, name, dropped",
    case("whose turn it is", "mirror", "is_turn", 1),
    case("the offer", "mirror", "offer", 1),
    case("whether it is captured", "capture", "is_turn", 1),
    case("the capture's beginning", "capture", "begin", 1),
    case("the capture's end", "capture", "put", 0),
)
def test_a_defect_of_a_tap_costs_the_client_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    action: str,
    part: str,
    name: str,
    dropped: int,
) -> None:
    async def main() -> tuple[list[bytes], Gateway]:
        routes = routes_of(CAPTURE, shadow_route(CAPTURE))
        gateway = gateway_in(tmp_path, routes, Copies(whole, streamed))
        monkeypatch.setattr(getattr(gateway, part), name, broken)
        written: list[bytes] = []

        class KeptSink(Sink):
            def write(self, *parts: bytes) -> bool:
                written.extend(parts)
                return False

        await ask(gateway, action, KeptSink)
        await mirrored(gateway)
        return written, gateway

    written, gateway = asyncio.run(main())
    assert b"".join(written).startswith(b"HTTP/1.1 200 ")
    assert caplog.text.count("a tap of requests failed") <= 1, "once in a while"
    loads = [load for span in gateway.meter.close_now() for load in span.loads]
    found = {load.key.variant_name: load for load in loads}
    assert found["v"].finished == 1
    assert found["shadow"].dropped == dropped
    counts = gateway.capture.counts()
    assert sum(it.dropped for it in counts.values()) == (part == "capture")
