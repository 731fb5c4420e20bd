"""A storm of callers that finish, leave early, and meet dying copies: every place is given back."""

import asyncio
import random
from pathlib import Path

import pytest
from tests.integration.gateway_rig import (
    EchoProcess,
    GatewayRig,
    component,
    components_endpoint,
    dead_copy,
    model_endpoint,
    snapshot_of,
)

from hostelry.base.clock import SystemClock
from hostelry.dataplane.balancing.outstanding import Outstanding
from hostelry.dataplane.http.reader import HttpLimits
from hostelry.dataplane.http.server import HttpServer
from hostelry.dataplane.routes import FixedRoutes
from hostelry.home.ports import bind
from hostelry.http1.upstream import UpstreamPool
from hostelry.services.gateway import build_gateway

pytestmark = pytest.mark.integration
NUM_CALLERS = 120
ATTRIBUTES = [
    "",
    "sleep_ms=30",
    "status=500",
    "close=start",
    "close=middle",
    "chunks=5;interval_ms=10",
]


async def call(rig: GatewayRig, source: random.Random) -> None:
    """One client's call, whole or streamed. An impatient client disconnects after a moment."""
    action = source.choice(["invocations", "invocations-response-stream"])
    headers = {
        "X-Amzn-SageMaker-Custom-Attributes": source.choice(ATTRIBUTES),
        "Connection": "close",
    }
    endpoint = source.choice(["storm", "llms"])
    if endpoint == "llms":
        headers["X-Amzn-SageMaker-Inference-Component"] = source.choice(["base", "pirate", "poet"])
    request = rig.signed(f"/endpoints/{endpoint}/{action}", b"x" * source.randrange(3000), headers)
    reader, writer = await asyncio.open_connection("127.0.0.1", rig.config.gateway_port)
    writer.write(request[: source.choice([len(request), len(request), 100])])
    patience_s = source.choice([0.0, 0.005, 0.02, 2.0])
    try:
        async with asyncio.timeout(patience_s):
            await reader.read()
    except (TimeoutError, ConnectionError):
        pass
    finally:
        writer.transport.abort()


async def storm(rig: GatewayRig, copy: EchoProcess, seed: int) -> tuple[int, int]:
    """Requests under way at the height of the storm and after it."""
    pool = UpstreamPool()
    copies = (copy.route, dead_copy())
    adapters = [component(name, copies, adapter_id=f"{name}-1") for name in ("pirate", "poet")]
    llms = components_endpoint("llms", component("base", copies), *adapters)
    routes = FixedRoutes(snapshot_of("1", model_endpoint("storm", *copies), llms))
    counts = Outstanding()
    dispatcher = build_gateway(rig.config, rig.credentials, routes, pool, counts=counts).dispatcher
    server = HttpServer(dispatcher.handle, dispatcher.refusal_answer, HttpLimits(), SystemClock())
    await server.start(bind("127.0.0.1", rig.config.gateway_port))
    source = random.Random(seed)
    callers = [asyncio.create_task(call(rig, source)) for _ in range(NUM_CALLERS)]
    highest = 0
    while not all(it.done() for it in callers):
        highest = max(highest, counts.total)
        await asyncio.sleep(0.002)
    await asyncio.gather(*callers)
    await server.stop(5.0)
    pool.close()
    return highest, counts.total


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nothing_is_counted_after_a_storm(tmp_path: Path, seed: int) -> None:
    copy = EchoProcess("storm")
    try:
        highest, left = asyncio.run(storm(GatewayRig(tmp_path), copy, seed))
    finally:
        copy.kill()
    assert highest > 0
    assert left == 0
