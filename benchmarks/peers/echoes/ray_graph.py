"""An echo model and compositions of it on Ray Serve: ``ray_graph.py PORT BRANCHES CHAIN...``.

``/echo`` is the model, ``/scatter`` calls it BRANCHES times at once, and ``/chain-N`` N times in
turn. ``?sleep_ms=N`` lets the model wait. Runs in Ray's own environment, and composes models by
handles as its manual does. A chain awaits each answer: passing them on unawaited was slower here.
"""

import asyncio
import sys
import time
from typing import Any

import ray
from ray import serve
from starlette.requests import Request

PORT, BRANCHES = int(sys.argv[1]), int(sys.argv[2])
CHAINS = [int(it) for it in sys.argv[3:]]


# By default a replica takes five requests at a time, and the others would wait.
@serve.deployment(max_ongoing_requests=256, ray_actor_options={"num_cpus": 0.1})
class Echo:
    """Returns the value of a request."""

    async def __call__(self, request: Request) -> Any:
        """Answer one request over HTTP."""
        return await self.answer(await request.json(), sleep_of(request))

    async def answer(self, value: Any, sleep_s: float) -> Any:
        """Answer one call of a composition."""
        if sleep_s:
            await asyncio.sleep(sleep_s)
        return value


@serve.deployment(max_ongoing_requests=256, ray_actor_options={"num_cpus": 0.1})
class Composition:
    """Calls the echo."""

    def __init__(self) -> None:
        self._echo = serve.get_app_handle("echo")

    async def __call__(self, request: Request) -> Any:
        """Answer a scatter or a chain, by the path."""
        value, sleep_s = await request.json(), sleep_of(request)
        name, _, length = request.url.path.strip("/").partition("-")
        if name == "scatter":
            calls = [self._echo.answer.remote(value, sleep_s) for _ in range(BRANCHES)]
            return await asyncio.gather(*calls)
        for _ in range(int(length)):
            value = await self._echo.answer.remote(value, sleep_s)
        return value


def sleep_of(request: Request) -> float:
    """Seconds that the model is to wait."""
    return float(request.query_params.get("sleep_ms", 0)) / 1000


ray.init(include_dashboard=False, configure_logging=False)
serve.start(http_options={"host": "127.0.0.1", "port": PORT})
serve.run(Echo.bind(), name="echo", route_prefix="/echo")
serve.run(Composition.bind(), name="composition", route_prefix="/")
while True:
    time.sleep(3600)
