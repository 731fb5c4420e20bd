"""A gateway in front of one model server, reached by its OpenAI routes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from benchmarks.peers.completions import HttpBatches, openai_body
from benchmarks.peers.lmi import BASE
from benchmarks.stack import running_workers
from hostelry.base.files import write_whole
from hostelry.base.ports import free_port
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.routes import ComponentRoute, CopyRoute, EndpointRoute, RouteSnapshot
from hostelry.domain.scope import Scope
from hostelry.home.home import Home, UpConfig, new_credentials, save_config, save_credentials


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayWay:
    """The way through a gateway: how it sends requests, and its processes."""

    batches: HttpBatches
    pids: tuple[int, ...]


@contextmanager
def gateway_before(port: int, folder: Path) -> Iterator[GatewayWay]:
    """A gateway of one worker whose component `base` is the server on `port`."""
    home = Home(folder)
    home.make()
    credentials = new_credentials("111122223333", "us-west-2")
    save_credentials(home, credentials)
    config = UpConfig(gateway_port=free_port(), control_port=free_port(), gateway_workers=1)
    save_config(home, config)
    component = ComponentRoute(
        name=BASE,
        variant_name="AllTraffic",
        routing=RoutingStrategy.LEAST_OUTSTANDING_REQUESTS,
        copies=(CopyRoute(id="c-1", address=f"http://127.0.0.1:{port}"),),
        adapter_id=None,
        serves_llm=True,
    )
    endpoint = EndpointRoute(
        scope=Scope(credentials.account_id, credentials.region),
        name="llms",
        takes_components=True,
        components=(component,),
    )
    routes = RouteSnapshot(version="1", endpoints=(endpoint,))
    write_whole(home.routes, msgspec.json.encode(routes))
    with running_workers(home, config) as workers:
        key = credentials.openai_api_key
        batches = HttpBatches(
            port=config.gateway_port,
            body_of=partial(openai_body, base=BASE),
            headers={"Authorization": f"Bearer {key}"},
        )
        yield GatewayWay(batches=batches, pids=tuple(worker.pid for worker in workers))
