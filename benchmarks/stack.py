"""Fixture of gateway measurements: a home, echo model servers, and a real gateway process."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import msgspec
from msgspec.structs import replace

from hostelry.base.clock import monotonic_s
from hostelry.base.files import write_whole
from hostelry.base.ports import free_port
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.route_delta import build_snapshot
from hostelry.domain.routes import (
    ComponentRoute,
    CopyRoute,
    EndpointRoute,
    RouteSnapshot,
    ShadowRoute,
    VariantRoute,
)
from hostelry.domain.scope import Scope
from hostelry.home.home import (
    Credentials,
    Home,
    UpConfig,
    new_credentials,
    save_config,
    save_credentials,
)
from hostelry.home.ports import bind
from hostelry.processes.gateway_workers import shared_listener

ENDPOINT_NAME = "echo"
COMPONENTS_ENDPOINT = "components"
READY_TIMEOUT_S = 20.0
AnyProcess = subprocess.Popen[str] | subprocess.Popen[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Running processes: an echo model server and a gateway whose endpoint ``echo`` leads to it."""

    credentials: Credentials
    gateway_port: int
    echo_port: int
    echo_pid: int
    gateway_pids: tuple[int, ...]
    control_port: int = 0
    routes: RouteSnapshot | None = None
    mirror_pid: int | None = None

    @property
    def gateway_cpu_s(self) -> float:
        """Processor time of the gateway. Unlike latency, it is valid on a busy machine."""
        return sum(cpu_s(pid) for pid in self.gateway_pids)

    @property
    def mirror_cpu_s(self) -> float:
        """Processor time of the mirror process, which the gateway's time does not include."""
        return 0.0 if self.mirror_pid is None else cpu_s(self.mirror_pid)


@contextlib.contextmanager
def running_stack(
    num_workers: int = 1,
    *,
    reads_json: bool = False,
    shadows: Mapping[str, str] | None = None,
    mirrors_in_workers: bool = False,
    num_components: int = 0,
    prepare: Callable[[Home, Credentials], object] | None = None,
) -> Iterator[Stack]:
    """Start all and stop them afterwards. The gateway reads its routes from its file.

    `shadows` are further endpoints of the same copy, each mirrored to an address by a separate
    process, or by the workers with `mirrors_in_workers`. `num_components` components are on another
    endpoint, each with a copy that is the same server. `prepare` is called before the gateway
    starts.
    """
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        echo = stack.enter_context(running_echo(reads_json=reads_json))
        home = Home(Path(folder) / "home")
        home.make()
        credentials = new_credentials("111122223333", "us-west-2")
        save_credentials(home, credentials)
        if prepare is not None:
            prepare(home, credentials)
        has_mirror = bool(shadows) and not mirrors_in_workers
        config = UpConfig(
            gateway_port=free_port(),
            control_port=free_port(),
            gateway_workers=num_workers,
            mirror_process=has_mirror,
        )
        save_config(home, config)
        copies = (CopyRoute(id="c-echo", address=f"http://127.0.0.1:{echo.port}"),)
        routes = routes_of(credentials, copies, shadows or {})
        if num_components:
            many = components_endpoint(credentials, copies[0].address, num_components)
            routes = build_snapshot((*routes.endpoints, many))
        write_whole(home.routes, msgspec.json.encode(routes))
        mirror = stack.enter_context(running_mirror(home)) if has_mirror else None
        workers = stack.enter_context(running_workers(home, config))
        yield Stack(
            credentials=credentials,
            gateway_port=config.gateway_port,
            control_port=config.control_port,
            routes=routes,
            echo_port=echo.port,
            echo_pid=echo.pid,
            gateway_pids=tuple(worker.pid for worker in workers),
            mirror_pid=None if mirror is None else mirror.pid,
        )


@contextlib.contextmanager
def running_mirror(home: Home) -> Iterator[AnyProcess]:
    """The mirror process, as `hostelry up` starts it, once it takes requests."""
    command = [sys.executable, "-m", "hostelry.services.mirror", "--home", str(home.root)]
    started = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    with stopped_after(started) as mirror:
        give_up_at_s = monotonic_s() + READY_TIMEOUT_S
        while not home.mirror.exists():
            if mirror.poll() is not None or monotonic_s() > give_up_at_s:
                raise RuntimeError(f"the mirror process has not made {home.mirror}")
            time.sleep(0.01)
        yield mirror


@contextlib.contextmanager
def running_workers(home: Home, config: UpConfig) -> Iterator[list[AnyProcess]]:
    """The gateway's workers on one socket, as `hostelry up` starts them, all of them ready."""
    with contextlib.ExitStack() as stack:
        listening = bind(config.host, config.gateway_port)
        listener = stack.enter_context(shared_listener(home, config, listening))
        workers: list[AnyProcess] = []
        for service in listener.list_workers(home, os.environ):
            command = service.command()
            started = subprocess.Popen(
                command.argv,
                env=command.env,
                pass_fds=command.pass_fds,
                stderr=subprocess.DEVNULL,
            )
            workers.append(stack.enter_context(stopped_after(started)))
        wait_for_gateway(config.gateway_url, workers[0], listener.why_not_ready)
        yield workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Echo:
    """A running echo model server."""

    port: int
    pid: int


@contextlib.contextmanager
def running_echo(*, reads_json: bool = False) -> Iterator[Echo]:
    """An echo model server."""
    command = [sys.executable, "-m", "benchmarks.echo_model", *(["--json"] if reads_json else [])]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with stopped_after(process):
        assert process.stdout is not None  # Popen was called with a pipe
        with process.stdout:
            yield Echo(port=int(process.stdout.readline().split()[1]), pid=process.pid)


def cpu_s(pid: int) -> float:
    """Processor time that a process has used, to the nanosecond if the kernel counts them."""
    with contextlib.suppress(OSError, ValueError):
        threads = Path(f"/proc/{pid}/task").iterdir()
        spent_ns = sum(int((it / "schedstat").read_text().split()[0]) for it in threads)
        if spent_ns:
            return spent_ns / 1e9
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def stopped_after(
    process: AnyProcess,
) -> Iterator[AnyProcess]:
    """Terminate `process` at the end. Kill it if it does not end."""
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def routes_of(
    credentials: Credentials,
    copies: tuple[CopyRoute, ...],
    shadows: Mapping[str, str],
    name: str = ENDPOINT_NAME,
) -> RouteSnapshot:
    """Routes with the model endpoint `name` on `copies`, and one more for each of `shadows`."""
    variant = VariantRoute(
        name="AllTraffic",
        weight=1.0,
        routing=RoutingStrategy.LEAST_OUTSTANDING_REQUESTS,
        copies=copies,
    )
    endpoint = EndpointRoute(
        scope=Scope(credentials.account_id, credentials.region),
        name=name,
        takes_components=False,
        variants=(variant,),
    )
    mirrored = (
        replace(
            endpoint,
            name=name,
            shadow=ShadowRoute(
                name="shadow",
                share=1.0,
                routing=RoutingStrategy.LEAST_OUTSTANDING_REQUESTS,
                copies=(CopyRoute(id=f"c-{name}", address=address),),
            ),
        )
        for name, address in shadows.items()
    )
    return RouteSnapshot(version="1", endpoints=(endpoint, *mirrored))


def component_name(number: int) -> str:
    """The name of a component of `components_endpoint`, counted from 0."""
    return f"component-{number:05}"


def components_endpoint(
    credentials: Credentials, address: str, num_components: int
) -> EndpointRoute:
    """An endpoint with `num_components` components, each with one copy at `address`."""
    components = tuple(
        ComponentRoute(
            name=component_name(number),
            variant_name="AllTraffic",
            routing=RoutingStrategy.LEAST_OUTSTANDING_REQUESTS,
            copies=(CopyRoute(id=f"c-{number:05}", address=address),),
            desired_copies=1,
        )
        for number in range(num_components)
    )
    return EndpointRoute(
        scope=Scope(credentials.account_id, credentials.region),
        name=COMPONENTS_ENDPOINT,
        takes_components=True,
        components=components,
    )


def wait_for_gateway(
    url: str, process: AnyProcess, why_not_ready: Callable[[], str | None] = lambda: None
) -> None:
    """Wait until the gateway answers. Raises RuntimeError if it does not come up."""
    give_up_at_s = monotonic_s() + READY_TIMEOUT_S
    while process.poll() is None and monotonic_s() < give_up_at_s:
        with contextlib.suppress(OSError), urlopen(f"{url}/ping", timeout=1):
            if why_not_ready() is None:
                return
        time.sleep(0.01)
    raise RuntimeError(f"the gateway did not answer at {url} within {READY_TIMEOUT_S:g} s")
