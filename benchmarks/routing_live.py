"""The same measurement as in simulated time, over real connections: a gateway and its copies."""

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as SigningCredentials

from benchmarks.open_load import Due, Outcome, Plan
from benchmarks.routing_simulation import WARM_UP_SHARE, Simulated
from benchmarks.routing_trace import Asked, Fleet
from benchmarks.stack import stopped_after, wait_for_gateway
from hostelry.base.files import write_whole
from hostelry.base.ports import free_port
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.routes import ComponentRoute, CopyRoute, EndpointRoute, RouteSnapshot
from hostelry.domain.scope import Scope
from hostelry.home.home import (
    Credentials,
    Home,
    UpConfig,
    new_credentials,
    save_config,
    save_credentials,
)
from hostelry.loadtest.tally import percentile

ENDPOINT_NAME = "llms"
BASE_NAME = "base"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveGateway:
    """A running gateway, which serves requests signed by `credentials` at `port`."""

    credentials: Credentials
    port: int


def measure(fleet: Fleet, strategy: str, asked: list[Asked], num_clients: int = 0) -> Simulated:
    """Send requests at their times, or one after another by `num_clients`, and return the results.

    Copies and gateway are new for each measurement, so that one strategy's loaded adapters do not
    help the next strategy.
    """
    with running_copies(fleet) as copies, running_gateway(fleet, strategy, copies) as gateway:
        requests = [sign_request(gateway, strategy, each) for each in asked]
        plan = Plan(port=gateway.port, requests=requests, num_clients=num_clients)
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.open_load"],
            input=msgspec.json.encode(plan),
            stdout=subprocess.PIPE,
            check=True,
        )
    return summary(msgspec.json.decode(done.stdout, type=Outcome))


def summary(outcome: Outcome) -> Simulated:
    """The measured part of an outcome. Raises RuntimeError if a request failed."""
    failed = [each for each in outcome.answers if each.status != 200]
    if failed:
        raise RuntimeError(
            f"{len(failed)} requests failed, the first with {failed[0].body[:200]!r}"
        )
    last_s = max(each.began_s for each in outcome.answers)
    from_s = last_s * WARM_UP_SHARE
    counted = [each for each in outcome.answers if each.began_s >= from_s]
    took_ms = sorted((each.ended_s - each.began_s) * 1000 for each in counted)
    ended = [each for each in outcome.answers if from_s <= each.ended_s <= last_s]
    return Simulated(
        p50_ms=percentile(took_ms, 0.50),
        p99_ms=percentile(took_ms, 0.99),
        per_s=len(ended) / (last_s - from_s),
        hit_rate=sum(each.body == b"hit" for each in counted) / len(counted),
    )


@contextlib.contextmanager
def running_copies(fleet: Fleet) -> Iterator[tuple[CopyRoute, ...]]:
    """Model servers, each in its process."""
    command = [sys.executable, "-m", "benchmarks.adapter_model", "--at-once", str(fleet.at_once)]
    command += ["--held", str(fleet.held), "--load-ms", str(fleet.load_ms)]
    with contextlib.ExitStack() as stack:
        started = [
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            for _ in range(fleet.num_copies)
        ]
        for process in started:
            stack.enter_context(stopped_after(process))
        ports = []
        for process in started:
            assert process.stdout is not None  # Popen was called with a pipe
            stack.enter_context(process.stdout)
            ports.append(int(process.stdout.readline().split()[1]))
        yield tuple(
            CopyRoute(id=f"c-{number}", address=f"http://127.0.0.1:{port}")
            for number, port in enumerate(ports)
        )


@contextlib.contextmanager
def running_gateway(
    fleet: Fleet, strategy: str, copies: tuple[CopyRoute, ...]
) -> Iterator[LiveGateway]:
    """A gateway process whose routes lead to `copies` with the routing of `strategy`."""
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder) / "home")
        home.make()
        credentials = new_credentials("111122223333", "us-west-2")
        save_credentials(home, credentials)
        config = UpConfig(gateway_port=free_port(), control_port=free_port())
        save_config(home, config)
        snapshot = routes(fleet, strategy, copies, credentials)
        write_whole(home.routes, msgspec.json.encode(snapshot))
        command = [sys.executable, "-m", "hostelry.services.gateway", "--home", str(home.root)]
        with stopped_after(subprocess.Popen(command, stderr=subprocess.DEVNULL)) as gateway:
            wait_for_gateway(config.gateway_url, gateway)
            yield LiveGateway(credentials=credentials, port=config.gateway_port)


def routes(
    fleet: Fleet, strategy: str, copies: tuple[CopyRoute, ...], credentials: Credentials
) -> RouteSnapshot:
    """The routes of a base and its adapters. Every copy has all of them."""
    least, at_random = RoutingStrategy.LEAST_OUTSTANDING_REQUESTS, RoutingStrategy.RANDOM
    names = [f"adapter-{number}" for number in range(fleet.num_adapters)]
    components = tuple(
        ComponentRoute(
            name=name,
            variant_name="AllTraffic",
            routing=at_random if strategy == "random" else least,
            copies=copies,
            adapter_id=None if name == BASE_NAME else f"{name}-1",
        )
        for name in (BASE_NAME, *names)
    )
    endpoint = EndpointRoute(
        scope=Scope(credentials.account_id, credentials.region),
        name=ENDPOINT_NAME,
        takes_components=True,
        components=components,
    )
    return RouteSnapshot(version="1", endpoints=(endpoint,))


def sign_request(gateway: LiveGateway, strategy: str, asked: Asked) -> Due:
    """A request as botocore would send it.

    For least outstanding requests, the base is called, and the copy gets the adapter in the
    attributes. So the gateway sees no adapter.
    """
    attributes = f"service_us={round(asked.service_ms * 1000)}"
    named = asked.adapter
    if strategy == "least outstanding":
        attributes, named = f"{attributes};adapter={asked.adapter}-1", BASE_NAME
    headers = {
        "X-Amzn-SageMaker-Inference-Component": named,
        "X-Amzn-SageMaker-Custom-Attributes": attributes,
    }
    return Due(asked.at_ms / 1000, signed_call(gateway, ENDPOINT_NAME, headers, b"{}"))


def signed_call(
    gateway: LiveGateway, endpoint_name: str, headers: dict[str, str], body: bytes
) -> bytes:
    """A whole HTTP request, signed: an invocation of an endpoint."""
    path = f"/endpoints/{endpoint_name}/invocations"
    request = AWSRequest("POST", f"http://127.0.0.1:{gateway.port}{path}", headers, body)
    keys = gateway.credentials
    signer = SigningCredentials(keys.access_key_id, keys.secret_access_key)
    SigV4Auth(signer, "sagemaker", keys.region).add_auth(request)
    lines = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    first = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\n"
    head = f"{first}{lines}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
