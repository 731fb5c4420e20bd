"""A model server without a model. It loads adapters on request, and only takes time.

``python -m benchmarks.adapter_model --at-once N --held N --load-ms N`` prints ``ready PORT`` and
serves until it is killed. X-Amzn-SageMaker-Custom-Attributes says how long a request takes, and for
which adapter it is if no adapter header names one: ``service_us=N;adapter=NAME``. The server works
on some requests at once, and the others wait in order. The answer is ``hit`` or ``load``.
"""

import argparse
import asyncio
import socket
from collections import OrderedDict

import uvloop

from benchmarks.echo_model import ATTRIBUTES, build_refusal
from hostelry.base.clock import SystemClock
from hostelry.base.http import HttpResponse
from hostelry.dataplane.http.exchange import Exchange
from hostelry.dataplane.http.reader import HttpLimits
from hostelry.dataplane.http.server import HttpServer
from hostelry.dataplane.invocation_head import ADAPTER_IDENTIFIER


class AdapterModel:
    """The handler.

    Args:
        at_once: requests that are worked on at a time.
        held: maximum number of loaded adapters. Beyond it, the least recently used is evicted.
        load_s: additional time of a request whose adapter is not loaded.
    """

    def __init__(self, at_once: int, held: int, load_s: float) -> None:
        self._turn = asyncio.Semaphore(at_once)
        self._held = held
        self._load_s = load_s
        self._adapters: OrderedDict[str, None] = OrderedDict()

    async def handle(self, exchange: Exchange) -> None:
        """Take the time that the request's attributes name."""
        headers = exchange.request.headers
        attributes = dict(
            pair.partition("=")[::2] for pair in headers.get(ATTRIBUTES, "").split(";")
        )
        adapter = headers.get(ADAPTER_IDENTIFIER.lower()) or attributes.get("adapter", "")
        async with self._turn:
            hit = self._has(adapter)
            load_s = 0.0 if hit else self._load_s
            await asyncio.sleep(int(attributes.get("service_us", "0")) / 1e6 + load_s)
        exchange.respond(HttpResponse(200, {}, b"hit" if hit else b"load"))

    def _has(self, adapter: str) -> bool:
        """Whether the adapter was loaded. It is loaded afterwards."""
        hit = adapter in self._adapters
        self._adapters[adapter] = None
        self._adapters.move_to_end(adapter)
        if len(self._adapters) > self._held:
            self._adapters.popitem(last=False)
        return hit


async def serve(at_once: int, held: int, load_s: float) -> None:
    """Serve on a free port until killed."""
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    bound.listen(2048)
    bound.setblocking(False)
    model = AdapterModel(at_once, held, load_s)
    server = HttpServer(
        model.handle, build_refusal, HttpLimits(), SystemClock(), admit=lambda _: True
    )
    await server.start(bound)
    print(f"ready {bound.getsockname()[1]}", flush=True)
    await server.sweep_forever()


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--held", type=int, default=64)
    parser.add_argument("--load-ms", type=float, default=40.0)
    given = parser.parse_args()
    uvloop.run(serve(given.at_once, given.held, given.load_ms / 1000))


if __name__ == "__main__":
    main()
