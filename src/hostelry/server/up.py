"""`hostelry up`, from checked options to a clean end."""

import asyncio
import fcntl
import logging
import math
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.ports import free_ports
from hostelry.base.recurring import again_and_again
from hostelry.fleet.copy_log import CopyLog
from hostelry.fleet.sweep import stop_everything
from hostelry.server import objectstore, watcher
from hostelry.server.adoption import Act, Fate, adoption_sentence, fates
from hostelry.server.copy_user_option import decided_copy_user, open_home
from hostelry.server.gateway_workers import SharedDoor, shared_door
from hostelry.server.home import (
    ENVIRONMENT_VARIABLE,
    Credentials,
    Home,
    UpConfig,
    load_config,
    load_credentials,
    save_config,
    save_credentials,
)
from hostelry.server.leftovers import end_services, find_services
from hostelry.server.port_choice import Ports, chosen_ports, wishes
from hostelry.server.ports import is_free
from hostelry.server.pulse import line_path, take_door
from hostelry.server.readiness import door_check, store_check
from hostelry.server.run_file import (
    RunFile,
    gateway_names,
    kind_of,
    live_run_file,
    remove_run_file,
    save_run_file,
    service_path,
    worker_numbers,
)
from hostelry.server.started_by import digest, program_of, service_digest
from hostelry.server.supervision import PATIENT_LIVENESS
from hostelry.server.supervisor import Command, Service, Supervisor
from hostelry.server.up_options import (
    UpOptions,
    check_options,
    decide_config,
    decide_credentials,
    listening_host,
)

LOG = logging.getLogger("hostelry.up")
READY_WITHIN_S = 60.0
POLL_S = 0.05
MAX_LOG_BYTES = 32 * 1024 * 1024
LOG_PAUSE_S = 30.0
DOOR_GIVEN_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How `up` tells its operator what happens: `phase` while it starts or stops, else `say`."""

    phase: Callable[[str], None]
    say: Callable[[str], None]
    ready: Callable[[UpConfig, Credentials], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """How a detached `up` is started again once it was killed: by `argv`, from its options.

    `lock` is the descriptor that holds the home's lock, where this one was started so.
    """

    argv: tuple[str, ...]
    lock: int | None = None


async def run_up(
    options: UpOptions, environment: Mapping[str, str], report: Report, again: Again | None = None
) -> None:
    """Start the platform, keep it running until SIGINT or SIGTERM, and stop all of it.

    What an `up` that was killed has left running is adopted. With `again`, a watcher starts it
    again when it is killed itself. Raises TerminalError when it cannot start; by then what it
    started is stopped again.
    """
    check_options(options)
    home = make_home(options.home)
    with only_one(home, again.lock if again else None):
        if again is None:  # in the foreground nobody starts it again
            home.kept.unlink(missing_ok=True)
        with settled(home, options, environment, report.say) as start:
            for line in start.ports.said:
                report.say(line)
            save_run_file(home, "up", os.getpid(), start.config.door_port)
            try:
                await supervise(start, environment, report, again)
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
def only_one(home: Home, held: int | None = None) -> Iterator[None]:
    """Hold the home's lock, or keep it by the descriptor that holds it.

    Raises TerminalError naming the `up` that holds it.
    """
    with home.up_lock.open("a") if held is None else os.fdopen(held, "a") as file:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What a start is decided to be, and the processes of an earlier one that still live."""

    home: Home
    config: UpConfig
    credentials: Credentials
    ports: Ports
    found: Mapping[str, RunFile]


@contextmanager
def settled(
    home: Home, options: UpOptions, environment: Mapping[str, str], say: Callable[[str], None]
) -> Iterator[Start]:
    """Decide keys, ports and the user of copies, and write all for the other processes to read.

    The ports are this start's own for the block.
    """
    stored = stored_credentials(home)
    credentials = decide_credentials(options, stored, environment)
    user, note = decided_copy_user(options.copy_user, home)
    if note is not None:
        say(note)
    found = find_services(home)
    inherited = inherited_door(home, found)
    if inherited is None:
        # Workers that do not give the socket away would keep its port from their successors.
        end_services(home, ["gateway"], at_once=True)
        found = {name: it for name, it in found.items() if kind_of(name) != "gateway"}
    control, store = found.get("control"), found.get("objectstore")
    before = earlier_config(home)
    door, s3 = wishes(options.port, options.s3_port, before)
    with chosen_ports(
        listening_host(options),
        door,
        s3 if options.embedded_store else None,
        inherited=inherited,
        own_s3=before.s3_port if before and store else None,
    ) as ports:
        control_port = decide_control_port(before, control)
        num_cpus = len(os.sched_getaffinity(0))
        config = decide_config(options, ports, control_port, num_cpus, user)
        if credentials != stored:
            save_credentials(home, credentials)
        if config != before:
            save_config(home, config)
        if user is not None:
            open_home(home)
        yield Start(
            home=home,
            config=config,
            credentials=credentials,
            ports=ports,
            found=found,
        )


def inherited_door(home: Home, found: Mapping[str, RunFile]) -> socket.socket | None:
    """The listening socket of the door, from any gateway worker that lives and answers."""
    for name in found:
        if kind_of(name) == "gateway":
            door = take_door(line_path(service_path(home, name)), DOOR_GIVEN_WITHIN_S)
            if door is not None:
                return door
    return None


def decide_control_port(before: UpConfig | None, living: RunFile | None) -> int:
    """Where control listens: where it did, as workers that live on know, or anywhere else."""
    if living is not None and living.port:
        return living.port
    if before is not None and is_free("127.0.0.1", before.control_port):
        return before.control_port
    return free_ports(1)[0]


def earlier_config(home: Home) -> UpConfig | None:
    """What the last `up` was started with, if that can be read."""
    try:
        return load_config(home)
    except (OSError, msgspec.DecodeError):
        return None


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
    start: Start, environment: Mapping[str, str], report: Report, again: Again | None
) -> None:
    """Run the services until a signal asks to stop or one of them cannot start."""
    home, config = start.home, start.config
    supervisor = Supervisor(home, report.say)
    asked = asyncio.Event()
    env = service_environment(environment, home)
    behind = services(start, env)
    watchers = [watcher_service(home, environment, again)] if again else []
    decided = decide(start, [*behind, *watchers])
    adopted = [it for it in decided if decided[it].act is Act.ADOPT]
    if sentence := adoption_sentence(decided):
        report.say(sentence)
    with shared_door(home, config, start.ports.door, worker_numbers(adopted)) as door:
        listen_for_signals(asked, supervisor)
        begin(
            supervisor,
            start.found,
            decided,
            [*behind, *door.services(home, env, door_digest(start))],
        )
        within_s = math.inf if adopted else READY_WITHIN_S
        asking = asyncio.create_task(asked.wait())
        bounding = asyncio.create_task(bound_logs(home.logs))
        started = asyncio.create_task(
            until_ready(config, start.credentials, door, report, within_s)
        )
        if adopted:
            supervisor.now_ready()
        try:
            await first_of(started, asking, supervisor.failed)
            if started.done() and not asking.done():
                supervisor.now_ready()
                keep_up(supervisor, start, decided, watchers, report)
                report.ready(config, start.credentials)
                await first_of(asking, supervisor.failed)
        finally:
            for task in (asking, bounding, started):
                task.cancel()
            door.shut()
            await stop_platform(home, config, supervisor, report, fleet=asked.is_set())


def door_digest(start: Start) -> str:
    """What the gateway's workers are started by."""
    return service_digest("gateway", start.config, start.credentials)


def decide(start: Start, wanted: Sequence[Service]) -> dict[str, Fate]:
    """What becomes of each process that runs, or that the platform needs."""
    digests = {service.name: service.digest for service in wanted}
    workers = gateway_names(start.config.gateway_workers)
    digests |= dict.fromkeys(workers, door_digest(start))
    return fates({name: it.digest for name, it in start.found.items()}, digests)


def begin(
    supervisor: Supervisor,
    found: Mapping[str, RunFile],
    decided: Mapping[str, Fate],
    wanted: Sequence[Service],
) -> None:
    """Adopt, replace and start what is wanted; end what is not.

    Workers of the gateway are replaced beside their predecessors, which finish what they have: the
    socket is shared. What has a port of its own waits until that is free.
    """
    for name, fate in decided.items():
        if fate.act is Act.END:
            supervisor.retire(found[name])
    for service in wanted:
        act = decided[service.name].act
        if act is Act.ADOPT:
            supervisor.start(service, adopted=found[service.name])
        elif act is Act.REPLACE and kind_of(service.name) == "gateway":
            supervisor.retire(found[service.name])
            supervisor.start(service)
        else:
            supervisor.start(service, replaced=found.get(service.name))


def keep_up(
    supervisor: Supervisor,
    start: Start,
    decided: Mapping[str, Fate],
    watchers: Sequence[Service],
    report: Report,
) -> None:
    """From here on a killed `up` is started again, where it was asked for in the background."""
    if not watchers:
        return
    try:
        start.home.kept.touch(mode=0o600)
    except OSError as error:
        report.say(f"a killed `up` will not be started again: {error}")
    else:
        begin(supervisor, start.found, {"watcher": decided["watcher"]}, watchers)


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
    if fleet:
        home.kept.unlink(missing_ok=True)
        await supervisor.stop("watcher")
    report.phase("draining the door")
    workers = gateway_names(config.gateway_workers)
    await asyncio.gather(*[supervisor.stop(name) for name in workers], supervisor.retired())
    report.phase("stopping control")
    await supervisor.stop("control")
    if fleet:
        report.phase("stopping agents and copies")
        await asyncio.to_thread(stop_everything, home.instances)
    report.phase("stopping the object store")
    await supervisor.stop("s3door")
    await supervisor.stop("objectstore")


async def until_ready(
    config: UpConfig,
    credentials: Credentials,
    door: SharedDoor,
    report: Report,
    within_s: float,
) -> None:
    """Return when the object store and the door answered a signed call, and every worker began."""
    deadline = monotonic_s() + within_s
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


def services(start: Start, env: Mapping[str, str]) -> list[Service]:
    """What is behind the door, in the order it is started."""
    config, control = start.config, control_service(start, env)
    if config.s3_endpoint is not None:
        return [control]
    if not config.has_s3_door:
        return [store_service(start.home, env, config.s3_port, start.credentials), control]
    living = start.found.get("objectstore")
    inner_port = living.port if living and living.port else free_ports(1)[0]
    store = store_service(start.home, env, inner_port, start.credentials)
    return [store, s3_door_service(config, env, inner_port), control]


def s3_door_service(config: UpConfig, env: Mapping[str, str], inner_port: int) -> Service:
    """What passes the S3 port on another address than loopback on to the object store."""
    argv = [sys.executable, "-m", "hostelry.server.forwarder", "--host", config.host]
    argv += ["--port", str(config.s3_port), "--target", str(inner_port)]
    return Service(
        name="s3door",
        command=lambda: Command(argv=argv, env=env),
        port=config.s3_port,
        digest=digest(argv),
        liveness=PATIENT_LIVENESS,
    )


def control_service(start: Start, env: Mapping[str, str]) -> Service:
    """Control, run with this interpreter; it answers its pulse."""
    argv = [sys.executable, "-m", "hostelry.server.control", "--home", str(start.home.root)]
    return Service(
        name="control",
        command=lambda: Command(argv=argv, env=env),
        port=start.config.control_port,
        digest=service_digest("control", start.config, start.credentials),
        liveness=PATIENT_LIVENESS,
    )


def store_service(
    home: Home, env: Mapping[str, str], port: int, credentials: Credentials
) -> Service:
    """The embedded object store; killed to stop it, see `objectstore`."""

    def command() -> Command:
        started = objectstore.prepare(home, port, credentials, env)
        return Command(argv=started.argv, env=started.env)

    keys = (credentials.access_key_id, credentials.secret_access_key)
    return Service(
        name="objectstore",
        command=command,
        port=port,
        digest=digest(port, keys, program_of(objectstore.weed_binary())),
        after=lambda: objectstore.remove_sockets(home),
        liveness=PATIENT_LIVENESS,
        is_alive=lambda timeout_s: objectstore.is_alive(port, timeout_s),
    )


def watcher_service(home: Home, environment: Mapping[str, str], again: Again) -> Service:
    """What starts a killed `up` again; see `watcher`."""
    argv = [sys.executable, "-I", "-S", watcher.__file__]
    argv += [str(home.kept), str(home.up_lock), str(home.logs / "up.log"), *again.argv]
    return Service(
        name="watcher",
        command=lambda: Command(argv=argv, env=environment),
        port=0,
        digest=digest(argv),
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
