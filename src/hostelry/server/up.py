"""`hostelry up`, from checked options to a clean end."""

import asyncio
import fcntl
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.ports import free_ports
from hostelry.base.recurring import again_and_again
from hostelry.fleet.copy_log import CopyLog
from hostelry.fleet.sweep import stop_everything
from hostelry.server import objectstore
from hostelry.server.copy_user_option import admitted_copy_user, open_home
from hostelry.server.forwarder import start_forwarder
from hostelry.server.gateway_workers import SharedDoor, shared_door
from hostelry.server.home import (
    ENVIRONMENT_VARIABLE,
    Credentials,
    Home,
    UpConfig,
    load_credentials,
    save_config,
    save_credentials,
)
from hostelry.server.leftovers import end_services
from hostelry.server.ports import require_free_port
from hostelry.server.readiness import door_check, store_check
from hostelry.server.run_file import (
    gateway_names,
    live_run_file,
    remove_run_file,
    save_run_file,
)
from hostelry.server.supervision import PATIENT_LIVENESS, LivenessPolicy
from hostelry.server.supervisor import Command, Service, Supervisor
from hostelry.server.up_options import (
    UpOptions,
    check_options,
    decide_config,
    decide_credentials,
)

LOG = logging.getLogger("hostelry.up")
READY_WITHIN_S = 60.0
POLL_S = 0.05
MAX_LOG_BYTES = 32 * 1024 * 1024
LOG_PAUSE_S = 30.0
CONTROL_GRACE_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How `up` tells its operator what happens: `phase` while it starts or stops, else `say`."""

    phase: Callable[[str], None]
    say: Callable[[str], None]
    ready: Callable[[UpConfig, Credentials], None]


async def run_up(options: UpOptions, environment: Mapping[str, str], report: Report) -> None:
    """Start the platform, keep it running until SIGINT or SIGTERM, and stop all of it.

    Raises TerminalError when it cannot start; by then what it started is stopped again.
    """
    check_options(options)
    home = make_home(options.home)
    with only_one(home):
        end_services(home)
        config, credentials = settle(home, options, environment)
        save_run_file(home, "up", os.getpid(), config.door_port)
        try:
            await supervise(home, config, credentials, environment, report)
        finally:
            remove_run_file(home, "up")


def make_home(root: Path) -> Home:
    """The home, made where it is not there; raises TerminalError where it cannot be."""
    home = Home(root)
    try:
        home.make()
    except OSError as error:
        raise TerminalError(f"the home folder {root} cannot be used: {error}") from None
    return home


@contextmanager
def only_one(home: Home) -> Iterator[None]:
    """Hold the home's lock; raises TerminalError naming the `up` that holds it."""
    with (home.run / "up.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = live_run_file(home, "up")
            who = f"pid {other.pid}" if other else "another process that is starting or stopping"
            raise TerminalError(
                f"a hostelry already runs on {home.root} ({who}); "
                "`hostelry down` stops it, --home DIR starts another beside it"
            ) from None
        yield


def settle(
    home: Home, options: UpOptions, environment: Mapping[str, str]
) -> tuple[UpConfig, Credentials]:
    """Decide keys and ports, and write both for the other processes to read."""
    stored = stored_credentials(home)
    credentials = decide_credentials(options, stored, environment)
    require_free_port(options.host, options.port, "--port", "door")
    if options.embedded_store:
        require_free_port(options.host, options.s3_port, "--s3-port", "object store")
    user = None if options.copy_user is None else admitted_copy_user(options.copy_user, home)
    config = decide_config(options, free_ports(1)[0], len(os.sched_getaffinity(0)), user)
    if credentials != stored:
        save_credentials(home, credentials)
    save_config(home, config)
    if user is not None:
        open_home(home)
    return config, credentials


def stored_credentials(home: Home) -> Credentials | None:
    """The keys of earlier starts; raises TerminalError where they cannot be read."""
    try:
        return load_credentials(home)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise TerminalError(
            f"{home.credentials} is damaged ({error}): restore it, or remove it to get new keys"
        ) from None


async def supervise(
    home: Home,
    config: UpConfig,
    credentials: Credentials,
    environment: Mapping[str, str],
    report: Report,
) -> None:
    """Run the services until a signal asks to stop or one of them cannot start."""
    supervisor = Supervisor(home, report.say)
    asked = asyncio.Event()
    env = service_environment(environment, home)
    async with store_door(config) as store_port:
        with shared_door(home, config) as door:
            listen_for_signals(asked, supervisor)
            for service in services(home, config, credentials, env, store_port):
                supervisor.start(service)
            for service in door.services(home, env):
                supervisor.start(service)
            asking = asyncio.create_task(asked.wait())
            bounding = asyncio.create_task(bound_logs(home.logs))
            try:
                started = asyncio.create_task(until_ready(config, credentials, door, report))
                await first_of(started, asking, supervisor.failed)
                if started.done() and not asking.done():
                    supervisor.now_ready()
                    report.ready(config, credentials)
                    await first_of(asking, supervisor.failed)
            finally:
                asking.cancel()
                bounding.cancel()
                started.cancel()
                door.shut()
                await stop_platform(home, config, supervisor, report, fleet=asked.is_set())


def listen_for_signals(asked: asyncio.Event, supervisor: Supervisor) -> None:
    """The first SIGINT, SIGTERM or SIGHUP asks for a clean stop, the second for a quick one."""

    def received() -> None:
        if asked.is_set():
            supervisor.hurry()
        asked.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:  # nohup, or a shell's background job
            continue
        asyncio.get_running_loop().add_signal_handler(number, received)


async def first_of(*waited: asyncio.Future[None] | asyncio.Task[bool] | asyncio.Task[None]) -> None:
    """Return when one is done; raises what it raised."""
    done, _ = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    for future in done:
        future.result()


async def stop_platform(
    home: Home, config: UpConfig, supervisor: Supervisor, report: Report, *, fleet: bool
) -> None:
    """Stop in the order that loses nothing: no new requests, no new wishes, no copies, no data."""
    report.phase("draining the door")
    workers = gateway_names(config.gateway_workers)
    await asyncio.gather(*[supervisor.stop(name) for name in workers])
    report.phase("stopping control")
    await supervisor.stop("control")
    if fleet:
        report.phase("stopping agents and copies")
        await asyncio.to_thread(stop_everything, home.instances)
    report.phase("stopping the object store")
    await supervisor.stop("objectstore")


async def until_ready(
    config: UpConfig, credentials: Credentials, door: SharedDoor, report: Report
) -> None:
    """Return when the object store and the door answered a signed call, and every worker began."""
    deadline = monotonic_s() + READY_WITHIN_S
    report.phase("waiting for the object store")
    await until_answered(
        store_check(config.s3_url, credentials), f"object store at {config.s3_url}", deadline
    )
    report.phase("waiting for control and the door")
    await until_answered(
        door_check(config.door_url, credentials), f"door at {config.door_url}", deadline
    )
    await until_answered(door.why_not_ready, f"door at {config.door_url}", deadline)


async def until_answered(check: Callable[[], str | None], name: str, deadline: float) -> None:
    """Ask until `check` is content; raises TerminalError with its last reason at the deadline."""
    while (reason := await asyncio.to_thread(check)) is not None:
        if monotonic_s() > deadline:
            raise TerminalError(f"the {name} did not answer in {READY_WITHIN_S:g} s: {reason}")
        await asyncio.sleep(POLL_S)


@asynccontextmanager
async def store_door(config: UpConfig) -> AsyncIterator[int]:
    """The loopback port for the object store, forwarded to where the hostelry listens."""
    if config.s3_endpoint is not None or config.host == objectstore.HOST:
        yield config.s3_port
        return
    inner_port = free_ports(1)[0]
    async with await start_forwarder(config.host, config.s3_port, inner_port):
        yield inner_port


def services(
    home: Home, config: UpConfig, credentials: Credentials, env: Mapping[str, str], store_port: int
) -> list[Service]:
    """What is behind the door, in the order it is started."""
    control = python_service(
        home, env, "control", config.control_port, CONTROL_GRACE_S, PATIENT_LIVENESS
    )
    if config.s3_endpoint is not None:
        return [control]
    return [store_service(home, env, store_port, credentials), control]


def python_service(
    home: Home,
    env: Mapping[str, str],
    name: str,
    port: int,
    grace_s: float,
    liveness: LivenessPolicy,
) -> Service:
    """A process of ours, run with this interpreter; it answers its pulse."""
    argv = [sys.executable, "-m", f"hostelry.server.{name}", "--home", str(home.root)]
    return Service(
        name=name,
        command=lambda: Command(argv=argv, env=env),
        port=port,
        stop_signal=signal.SIGTERM,
        grace_s=grace_s,
        liveness=liveness,
    )


def store_service(
    home: Home, env: Mapping[str, str], port: int, credentials: Credentials
) -> Service:
    """The embedded object store; killed to stop it, see `objectstore`."""

    def command() -> Command:
        started = objectstore.prepare(home, port, credentials, env)
        return Command(
            argv=started.argv,
            env=started.env,
            after=lambda: objectstore.remove_sockets(home),
        )

    return Service(
        name="objectstore",
        command=command,
        port=port,
        stop_signal=signal.SIGKILL,
        grace_s=5.0,
        liveness=PATIENT_LIVENESS,
        is_alive=lambda timeout_s: objectstore.is_alive(port, timeout_s),
    )


def service_environment(inherited: Mapping[str, str], home: Home) -> dict[str, str]:
    """What services inherit: not the operator's AWS settings, and no proxy to this machine."""
    kept = {k: v for k, v in inherited.items() if not k.startswith("AWS_")}
    no_proxy = [v for k, v in kept.items() if k.lower() == "no_proxy" and v]
    local = ",".join([*no_proxy, "127.0.0.1", "localhost"])
    return {
        **kept,
        "NO_PROXY": local,
        "no_proxy": local,
        "PYTHONUNBUFFERED": "1",
        ENVIRONMENT_VARIABLE: str(home.root),
    }


async def bound_logs(
    logs: Path, max_bytes: int = MAX_LOG_BYTES, pause_s: float = LOG_PAUSE_S
) -> None:
    """Cut logs that grow large to their end, for as long as the platform runs."""

    async def look() -> None:
        await asyncio.to_thread(bound_each_log, logs, max_bytes)

    await again_and_again("bounding logs", look, pause_s)


def bound_each_log(logs: Path, max_bytes: int) -> None:
    """Cut each log that grew over `max_bytes`; raises OSError for the last that cannot be cut."""
    failure: OSError | None = None
    for path in logs.glob("*.log"):
        try:
            CopyLog(path).bound(max_bytes)
        except OSError as error:
            failure = error
    if failure is not None:
        raise failure


def log_line(text: str) -> None:
    """Write what the operator is told into this process's log as well."""
    LOG.info("%s", text)
