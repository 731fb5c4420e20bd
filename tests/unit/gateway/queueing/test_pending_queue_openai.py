"""OpenAI clients of models without a copy: they wait too, and errors have the format of OpenAI."""

import asyncio
import json

from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.dataplane.routes_sample import COPIES, HERE
from tests.unit.gateway.queueing.queue_rig import ASLEEP, AWAKE, NOTHING, settle

from hostelry.base.http import HttpRequest
from hostelry.dataplane.fake import WrittenAnswer
from hostelry.dataplane.http.exchange import Exchange
from hostelry.dataplane.http.reader import Received
from hostelry.dataplane.routes import FixedRoutes
from hostelry.domain.at_zero import AtZero, Wakeable
from hostelry.domain.routes import ComponentRoute, RouteSnapshot
from hostelry.home.home import UpConfig, new_credentials
from hostelry.http1.upstream import UpstreamPool
from hostelry.services.gateway import Gateway, build_gateway

CREDENTIALS = new_credentials(HERE.account, HERE.region)


def routes_of(*components: ComponentRoute) -> RouteSnapshot:
    return RouteSnapshot(version="v", endpoints=(replace(NOTHING, components=components),))


async def complete(parts: Gateway, name: str = "llm") -> tuple[int, dict[str, str]]:
    """The status and the error object of a completion request."""
    sink = WrittenAnswer()
    request = HttpRequest(
        method="POST",
        path="/v1/completions",
        headers={"authorization": f"Bearer {CREDENTIALS.openai_api_key}"},
        body=json.dumps({"model": name}).encode(),
    )
    await parts.dispatcher.handle(Exchange(sink, Received(request, True, True), b""))
    head, _, body = sink.written.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]


@cases(
    "route",
    case("compat", replace(ASLEEP, at_zero=AtZero.COMPAT)),
    case("off on purpose", replace(ASLEEP, wakeable=Wakeable.NO_TARGET)),
)
async def test_openai_requests_that_may_not_wait_get_no_capacity(route: ComponentRoute) -> None:
    config = UpConfig(control_port=1)
    parts = build_gateway(config, CREDENTIALS, FixedRoutes(routes_of(route)), UpstreamPool())
    status, error = await complete(parts)
    assert (status, error["code"], error["type"]) == (503, "no_capacity", "server_error")
    assert "`llm`" in error["message"]


async def test_who_is_held_waits_until_there_is_a_copy_or_the_line_is_full() -> None:
    config = UpConfig(control_port=1, hold_requests_each=1)
    routes = FixedRoutes(routes_of(ASLEEP))
    parts = build_gateway(config, CREDENTIALS, routes, UpstreamPool())
    waiting = asyncio.create_task(complete(parts))
    await settle()
    assert parts.pending_queue.num_held == 1
    status, error = await complete(parts)
    assert (status, error["code"]) == (503, "no_capacity")
    assert "1 requests wait for it already" in error["message"]
    # The only copy refuses connections, and is an error of a client that does not wait.
    routes.replace(routes_of(replace(AWAKE, at_zero=AtZero.COMPAT, copies=COPIES[:1])))
    status, error = await waiting
    assert (status, error["code"]) == (503, "no_capacity")
    assert parts.pending_queue.num_held == 0
