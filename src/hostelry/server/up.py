"""`hostelry up`, from checked options to a clean end."""

import asyncio
import fcntl
import logging
import math
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.recurring import run_periodically
from hostelry.fleet.launch.copy_log import CopyLog
from hostelry.fleet.local.sweep import stop_everything
from hostelry.server.adoption import Act, Fate, adoption_sentence, fates
from hostelry.server.gateway_workers import SharedDoor, shared_door
from hostelry.server.home import Credentials, Home, UpConfig
from hostelry.server.readiness import door_check, store_check
from hostelry.server.run_file import (
    RunFile,
    gateway_names,
    kind_of,
    live_run_file,
    remove_run_file,
    save_run_file,
    worker_numbers,
)
from hostelry.server.services import (
    door_digest,
    service_environment,
    services,
    watcher_service,
)
from hostelry.server.start import Start, settled
from hostelry.server.supervisor import Service, Supervisor
from hostelry.server.up_options import UpOptions, check_options

LOG = logging.getLogger("hostelry.up")
READY_WITHIN_S = 60.0
POLL_S = 0.05
MAX_LOG_BYTES = 32 * 1024 * 1024
LOG_PAUSE_S = 30.0


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


async def supervise(
    start: Start, environment: Mapping[str, str], report: Report, again: Again | None
) -> None:
    """Run the services until a signal asks to stop or one of them cannot start."""
    home, config = start.home, start.config
    supervisor = Supervisor(home, report.say)
    asked = asyncio.Event()
    env = service_environment(environment, home)
    behind = services(start, env)
    watchers = [watcher_service(home, environment, again.argv)] if again else []
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


async def bound_logs(
    logs: Path, max_bytes: int = MAX_LOG_BYTES, pause_s: float = LOG_PAUSE_S
) -> None:
    """Cut logs that grow large to their end, for as long as the platform runs."""

    async def look() -> None:
        await asyncio.to_thread(bound_each_log, logs, max_bytes)

    await run_periodically("bounding logs", look, pause_s)


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
