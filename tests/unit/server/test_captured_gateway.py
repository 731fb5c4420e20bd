"""The whole gateway over copies that are no processes: which answers it captures."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.gateway.capture.capture_sample import AT, CAPTURE, all_records, spool
from tests.unit.gateway.routes_sample import HERE, variant
from tests.unit.server.test_metered_gateway import (
    CREDENTIALS,
    LoadBalancer,
    Sink,
    broken_middle,
    failing,
    whole,
)

from hostelry.base.clock import ManualClock
from hostelry.base.http import HttpRequest
from hostelry.domain.routes import EndpointRoute, RouteSnapshot
from hostelry.gateway.capture.spool import SpoolLimits
from hostelry.gateway.http.exchange import Exchange
from hostelry.gateway.http.reader import Received
from hostelry.gateway.http.reply import BrokenError, Reply
from hostelry.gateway.routes import FixedRoutes
from hostelry.server.gateway import build_gateway
from hostelry.server.gateway_memory import own_memory
from hostelry.server.home import UpConfig

ROUTES = RouteSnapshot(
    version="v",
    endpoints=(
        EndpointRoute(
            scope=HERE,
            name="e",
            takes_components=False,
            variants=(replace(variant("v", 1.0), capture=CAPTURE),),
        ),
    ),
)


class GoneSink(Sink):
    """A client that left."""

    async def write(self, *parts: bytes) -> None:
        raise ConnectionResetError


def streamed(reply: Reply) -> None:
    reply.head_came(200, {"content-type": "application/json"})
    for chunk in (b'{"a"', b": 1}"):
        reply.chunk_came(chunk)
    reply.completed(reusable=True)


def captured(
    answer: Callable[[Reply], None], action: str, folder: Path, sink: type[Sink]
) -> list[tuple[bytes, bytes]]:
    """Input and output of each record that one request leaves on disk."""

    async def main() -> None:
        limits = SpoolLimits(min_free_bytes=0)
        memory = replace(own_memory(ManualClock(AT).now), spool=spool(folder, limits))
        config = UpConfig(gateway_port=1, control_port=2, insecure_no_auth=True)
        routes, upstream = FixedRoutes(ROUTES), LoadBalancer(answer)
        gateway = build_gateway(
            config,
            CREDENTIALS,
            routes,
            upstream,  # type: ignore[arg-type]
            memory=memory,
        )
        headers = {"host": "localhost", "content-type": "application/json"}
        request = HttpRequest("POST", f"/endpoints/e/{action}", "", headers, b"[1]")
        with contextlib.suppress(ConnectionResetError):
            await gateway.dispatcher.handle(Exchange(sink(), Received(request, True, True), b""))
        await gateway.capture.write()

    asyncio.run(main())
    return [(it.input, it.output) for it in all_records(folder)]


@pytest.mark.parametrize(
    ("answer", "action", "sink", "records"),
    [
        pytest.param(whole, "invocations", Sink, [(b"[1]", b"{}")], id="a whole answer"),
        pytest.param(
            streamed,
            "invocations-response-stream",
            Sink,
            [(b"[1]", b'{"a": 1}')],
            id="a stream, put together",
        ),
        pytest.param(lambda it: whole(it, 400), "invocations", Sink, [], id="not a failure"),
        pytest.param(
            lambda it: whole(it, 500), "invocations-response-stream", Sink, [], id="nor a stream's"
        ),
        pytest.param(failing(BrokenError("gone")), "invocations", Sink, [], id="not a dead model"),
        pytest.param(
            broken_middle, "invocations-response-stream", Sink, [], id="not a stream that breaks"
        ),
        pytest.param(
            streamed, "invocations-response-stream", GoneSink, [], id="not one whose client left"
        ),
    ],
)
def test_answers_are_captured_that_were_given_whole(
    tmp_path: Path,
    answer: Callable[[Reply], None],
    action: str,
    sink: type[Sink],
    records: list[tuple[bytes, bytes]],
) -> None:
    assert captured(answer, action, tmp_path, sink) == records
