"""`hostelry up`, from checked options to a clean end."""

import asyncio
import logging
import math
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from hostelry.base.clock import monotonic_s
from hostelry.base.concurrency import run_periodically
from hostelry.base.errors import TerminalError
from hostelry.cluster.start import check_cluster
from hostelry.fleet.launch.copy_log import CopyLog
from hostelry.fleet.launch.warm import ForkedInterpreter
from hostelry.home.home import Credentials, Home, UpConfig, make_home
from hostelry.home.run_file import (
    RunFile,
    gateway_names,
    get_service_kind,
    lock_home,
    remove_run_file,
    save_run_file,
    worker_numbers,
)
from hostelry.home.up_options import UpOptions, check_options
from hostelry.processes.adoption import (
    AdoptionAction,
    AdoptionDecision,
    adoption_sentence,
    decide_adoption,
)
from hostelry.processes.fleets import stop_fleet
from hostelry.processes.gateway_host import gateway_host_plan
from hostelry.processes.gateway_workers import shared_listener
from hostelry.processes.jumpstart import stock_catalogues
from hostelry.processes.readiness import gateway_check, health_check, store_check
from hostelry.processes.service_forks import ServiceForks
from hostelry.processes.services import (
    gateway_digest,
    list_services,
    service_environment,
    watcher_service,
)
from hostelry.processes.start import StartPlan, start_plan
from hostelry.processes.supervisor import ServiceSpec, Supervisor

LOG = logging.getLogger("hostelry.up")
READY_WITHIN_S = 60.0
POLL_S = 0.05
MAX_LOG_BYTES = 32 * 1024 * 1024
LOG_PAUSE_S = 30.0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of `up` to its operator.

    `phase` gets each step of a start or stop, `say` other facts. `ready` is called once all serve.
    """

    phase: Callable[[str], None]
    say: Callable[[str], None]
    ready: Callable[[UpConfig, Credentials], None]


class Relaunch(msgspec.Struct, frozen=True, kw_only=True):
    """Restart of a killed detached `up` by the command `argv`.

    `lock` is the descriptor that holds the home's lock, if the watcher has started this `up`.
    """

    argv: tuple[str, ...]
    lock: int | None = None


async def run_up(
    options: UpOptions,
    environment: Mapping[str, str],
    report: Report,
    relaunch: Relaunch | None = None,
    forked: ForkedInterpreter | None = None,
) -> None:
    """Start the platform, keep it running until SIGINT or SIGTERM, and stop all of it.

    Processes that a killed `up` has left are adopted. With `relaunch`, a watcher starts `up` again
    when it is killed. Services are forked from the interpreter `forked`, if given. Raises
    TerminalError if the platform cannot start, after all its processes are stopped.
    """
    check_options(options)
    check_cluster(options)
    home = make_home(options.home)
    with lock_home(home, relaunch.lock if relaunch else None):
        if relaunch is None:  # in the foreground no watcher starts it again
            home.kept.unlink(missing_ok=True)
        home.draining.unlink(missing_ok=True)
        if home.backup_cut.exists():
            # Imported late: it loads SQLAlchemy, and few starts follow a killed backup.
            from hostelry.backup.cut import remove_leftovers

            remove_leftovers(home)
        planned = gateway_host_plan if options.gateway_only else start_plan
        with planned(home, options, environment, report.say) as start:
            for line in start.ports.notes:
                report.say(line)
            save_run_file(home, "up", os.getpid(), start.config.gateway_port)
            try:
                await supervise(start, environment, report, relaunch, forked)
            finally:
                remove_run_file(home, "up")


async def supervise(
    start: StartPlan,
    environment: Mapping[str, str],
    report: Report,
    relaunch: Relaunch | None,
    forked: ForkedInterpreter | None,
) -> None:
    """Run the services until a signal asks to stop or one of them cannot start."""
    home, config = start.home, start.config
    asked = asyncio.Event()
    env = service_environment(environment, home)
    behind = list_services(start, env)
    watchers = [watcher_service(home, environment, relaunch.argv)] if relaunch else []
    decided = decide_actions(start, [*behind, *watchers])
    adopted = [it for it in decided if decided[it].action is AdoptionAction.ADOPT]
    if sentence := adoption_sentence(decided):
        report.say(sentence)
    with shared_listener(home, config, start.ports.listener, worker_numbers(adopted)) as listener:
        desired = [*behind, *listener.list_workers(home, env, gateway_digest(start))]
        forks = ServiceForks(home, [it.module for it in desired if it.module], env, forked)
        supervisor = Supervisor(home, report.say, forks)
        listen_for_signals(asked, supervisor)
        apply_actions(supervisor, start.found, decided, desired)

        def find_absent() -> str | None:
            return listener.why_not_ready() or supervisor.why_not_ready()

        within_s = math.inf if adopted else READY_WITHIN_S
        asking = asyncio.create_task(asked.wait())
        bounding = asyncio.create_task(bound_logs(home.logs))
        started = asyncio.create_task(
            wait_until_ready(config, start.credentials, find_absent, report, within_s)
        )
        refusing = asyncio.create_task(listener.refuse_early())
        started.add_done_callback(lambda _: refusing.cancel())
        if any(get_service_kind(name) == "gateway" for name in start.found):
            refusing.cancel()  # an earlier worker serves until its successor does
        if adopted:
            supervisor.now_ready()
        try:
            await wait_first(started, asking, supervisor.failed)
            if started.done() and not asking.done():
                supervisor.now_ready()
                arm_watcher(supervisor, home, start.found, decided, watchers, report)
                report.ready(config, start.credentials)
                await wait_first(asking, supervisor.failed)
        finally:
            for task in (asking, bounding, refusing, started):
                task.cancel()
            listener.shut()
            await stop_platform(home, config, supervisor, report, fleet=asked.is_set())
            forks.close()


def decide_actions(start: StartPlan, desired: Sequence[ServiceSpec]) -> dict[str, AdoptionDecision]:
    """The decision on each process that runs or that the platform needs."""
    digests = {service.name: service.digest for service in desired}
    workers = gateway_names(start.config.gateway_workers)
    digests |= dict.fromkeys(workers, gateway_digest(start))
    return decide_adoption({name: it.digest for name, it in start.found.items()}, digests)


def apply_actions(
    supervisor: Supervisor,
    found: Mapping[str, RunFile],
    decided: Mapping[str, AdoptionDecision],
    desired: Sequence[ServiceSpec],
) -> None:
    """Adopt, replace and start the desired services, and end all others.

    Gateway workers share a socket, so the new worker starts first. The old worker serves until the
    new one listens, and then finishes its requests. A node proxy with its predecessor's socket is
    replaced alike. Any other service starts when the old process has freed its port.
    """
    for name, decision in decided.items():
        if decision.action is AdoptionAction.END:
            supervisor.retire(found[name])
    for service in desired:
        action = decided[service.name].action
        if action is AdoptionAction.ADOPT:
            supervisor.start(service, adopted=found[service.name])
        elif action is AdoptionAction.REPLACE and (
            get_service_kind(service.name) == "gateway" or service.starts_beside
        ):
            supervisor.start(service, beside=found[service.name])
        else:
            supervisor.start(service, replaced=found.get(service.name))


def arm_watcher(
    supervisor: Supervisor,
    home: Home,
    found: Mapping[str, RunFile],
    decided: Mapping[str, AdoptionDecision],
    watchers: Sequence[ServiceSpec],
    report: Report,
) -> None:
    """From now on, have a detached `up` started again when it is killed."""
    if not watchers:
        return
    try:
        home.kept.touch(mode=0o600)
    except OSError as error:
        report.say(f"a killed `up` will not be started again: {error}")
    else:
        apply_actions(supervisor, found, {"watcher": decided["watcher"]}, watchers)


def listen_for_signals(asked: asyncio.Event, supervisor: Supervisor) -> None:
    """Have the first SIGINT, SIGTERM or SIGHUP stop the platform, and the second one hurry."""

    def handle_signal() -> None:
        if asked.is_set():
            supervisor.hurry()
        asked.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:  # nohup, or a shell's background job
            continue
        asyncio.get_running_loop().add_signal_handler(number, handle_signal)


async def wait_first(
    *waited: asyncio.Future[None] | asyncio.Task[bool] | asyncio.Task[None],
) -> None:
    """Wait until one is done, and raise its exception if it has one."""
    done, _ = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    for future in done:
        future.result()


async def stop_platform(
    home: Home, config: UpConfig, supervisor: Supervisor, report: Report, *, fleet: bool
) -> None:
    """Stop in an order that loses no request: gateway, control, copies, object store."""

    async def stop_all(*names: str) -> None:
        await asyncio.gather(*map(supervisor.stop, names))

    if fleet:
        home.kept.unlink(missing_ok=True)
        await supervisor.stop("watcher")
        await drain(home, config, supervisor, report)
    report.phase("draining the gateway")
    # The console's streams never end, so the gateway cannot wait for them.
    await stop_all("console", *gateway_names(config.gateway_workers))
    await supervisor.wait_retired()
    report.phase("stopping the mirror, jobs and control")
    await stop_all("mirror", "peers", "jobs")
    await stop_all("link", "control")  # last, because the others report to them
    if fleet and not config.is_gateway_host:
        report.phase("stopping agents and copies")
        if (problem := await asyncio.to_thread(stop_fleet, home)) is not None:
            report.say(problem)
    await supervisor.stop("proxy")
    if config.is_gateway_host:
        return
    report.phase("stopping the object store")
    await stop_all("s3door", "objectstore")


async def drain(home: Home, config: UpConfig, supervisor: Supervisor, report: Report) -> None:
    """Have /health answer 503 for the configured time while requests are still served."""
    if config.drain_s:
        report.phase(f"draining for {config.drain_s:g} s: /health answers 503")
        home.draining.touch(mode=0o600)
        await supervisor.pause(config.drain_s)


async def wait_until_ready(
    config: UpConfig,
    credentials: Credentials,
    find_absent: Callable[[], str | None],
    report: Report,
    within_s: float,
) -> None:
    """Wait until object store and gateway answer a signed call, and every worker has started.

    `find_absent` names the workers that have not started.
    """
    deadline = monotonic_s() + within_s
    if not config.is_gateway_host:
        report.phase("waiting for the object store")
        await wait_for_answer(
            store_check(config.s3_url, credentials), f"object store at {config.s3_url}", deadline
        )
    report.phase("waiting for control and the gateway")
    check = (
        health_check(config.gateway_url)
        if config.is_gateway_host
        else gateway_check(config.gateway_url, credentials)
    )
    waited = [wait_for_answer(check, f"gateway at {config.gateway_url}", deadline)]
    if config.has_own_s3 and not config.is_gateway_host:
        waited.append(asyncio.to_thread(stock_catalogues, config.s3_url, credentials))
    await asyncio.gather(*waited)
    await wait_for_answer(find_absent, f"gateway at {config.gateway_url}", deadline)


async def wait_for_answer(check: Callable[[], str | None], name: str, deadline: float) -> None:
    """Poll `check` until it returns None. Raises TerminalError with its last reason if late."""
    while (reason := await asyncio.to_thread(check)) is not None:
        if monotonic_s() > deadline:
            raise TerminalError(f"the {name} did not answer in {READY_WITHIN_S:g} s: {reason}")
        await asyncio.sleep(POLL_S)


async def bound_logs(
    logs: Path, max_bytes: int = MAX_LOG_BYTES, pause_s: float = LOG_PAUSE_S
) -> None:
    """Cut large logs, so that their ends stay, until cancelled."""

    async def look() -> None:
        await asyncio.to_thread(bound_each_log, logs, max_bytes)

    await run_periodically("bounding logs", look, pause_s)


def bound_each_log(logs: Path, max_bytes: int) -> None:
    """Cut each log over `max_bytes`. Raises the OSError of the last log that cannot be cut."""
    failure: OSError | None = None
    for path in logs.glob("*.log"):
        try:
            CopyLog(path).bound(max_bytes)
        except OSError as error:
            failure = error
    if failure is not None:
        raise failure


def log_line(text: str) -> None:
    """Write a message to the operator into this process's log."""
    LOG.info("%s", text)
