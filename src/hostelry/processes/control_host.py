"""A host with control alone, in a platform with PostgreSQL. Its control may lead.

Control, the process for jobs and the node proxy run there. Its home joins (`cluster.joining`), or
has copies of the first host's files.
"""

import asyncio
import os
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hostelry.base.clock import SystemClock, monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.guards import INTERNAL_KEY_HEADER
from hostelry.base.peers import PeerRole
from hostelry.base.tls import TlsFolder
from hostelry.cluster.further_control import NO_STORE, ON_FIRST_HOST
from hostelry.cluster.start import add_host_address, check_cluster, prepare_certificates
from hostelry.home.copy_user_option import open_home
from hostelry.home.fleet_option import LOCAL, check_fleet
from hostelry.home.home import Credentials, Home, UpConfig, make_home, save_config
from hostelry.home.run_file import lock_home, remove_run_file, save_run_file
from hostelry.home.store_option import choose_store_url
from hostelry.home.up_options import UpOptions
from hostelry.processes.adoption import adoption_sentence, decide_adoption
from hostelry.processes.leftovers import find_services
from hostelry.processes.services import (
    control_services,
    proxy_service,
    service_environment,
    watcher_service,
)
from hostelry.processes.start import (
    HostPlan,
    decide_port,
    load_earlier_config,
    load_earlier_credentials,
)
from hostelry.processes.supervisor import ServiceSpec, Supervisor
from hostelry.processes.up import (
    READY_WITHIN_S,
    Relaunch,
    Report,
    apply_actions,
    arm_watcher,
    listen_for_signals,
    wait_first,
    wait_for_answer,
)

CHECK_S = 3.0
STOPPED_IN_ORDER = ("jobs", "control", "proxy")


async def run_control(
    options: UpOptions,
    environment: Mapping[str, str],
    report: Report,
    relaunch: Relaunch | None = None,
) -> None:
    """Keep control and its companions running until SIGINT or SIGTERM.

    Control leads or stands by. Processes of a killed supervisor are adopted. With `relaunch`, a
    watcher starts a killed supervisor again. Raises TerminalError if control cannot start.
    """
    check_cluster(options)
    home = make_home(options.home)
    with lock_home(home, relaunch.lock if relaunch else None):
        if relaunch is None:  # in the foreground no watcher starts it again
            home.kept.unlink(missing_ok=True)
        watchers = [watcher_service(home, environment, relaunch.argv)] if relaunch else []
        plan = control_plan(home, options)
        save_run_file(home, "up", os.getpid(), plan.config.control_port)
        try:
            await keep_control(plan, environment, watchers, report)
        finally:
            remove_run_file(home, "up")


def control_plan(home: Home, options: UpOptions) -> HostPlan:
    """Decide the configuration of a joined home, and store it for its processes.

    Raises TerminalError if the home has not joined a cluster, or lacks a file that a leader needs.
    """
    before, credentials = load_earlier_config(home), load_earlier_credentials(home)
    if before is None or credentials is None or before.is_gateway_host:
        raise TerminalError(
            f"{home.root} has joined no platform as a host of control: name one with --join URL and"
            " a token of `hostelry join-token --role control` there"
        )
    url = choose_store_url(options.store, before)
    if url is None:
        raise TerminalError(NO_STORE)
    check_leads(home, before)
    found = find_services(home)
    config = add_host_address(
        replace(
            before,
            store_url=url,
            gateway_workers=0,
            mirror_process=False,
            console_port=0,
            controls=(),
            cluster_host=own_address(home, options, before),
            peer_port=0,
            control_port=decide_port(before.control_port, found.get("control")),
            jobs_port=decide_port(before.jobs_port, found.get("jobs")),
            log_format=options.log_format,
        ),
        options,
        0,
    )
    config = replace(config, peer_address="")  # counts are gateways'
    prepare_certificates(home, config, credentials, PeerRole.CONTROL, SystemClock().now())
    if config != before:
        save_config(home, config)
    if config.copy_user is not None and config.fleet == LOCAL:
        open_home(home)
    return HostPlan(home=home, config=config, credentials=credentials, found=found)


def own_address(home: Home, options: UpOptions, before: UpConfig) -> str | None:
    """The address at which other hosts reach this host, or None if they do not.

    Raises TerminalError if a host that has joined has no address.
    """
    has_certificate = TlsFolder(home.tls).identity.exists()
    address = options.cluster_host or (before.cluster_host if has_certificate else None)
    if address is None and has_certificate:
        raise TerminalError(
            "a control that has joined needs the address at which the other hosts reach it: "
            "--cluster-host ADDRESS"
        )
    return address


def check_leads(home: Home, config: UpConfig) -> None:
    """Raise TerminalError, naming the missing file, if the home's control could not lead."""
    if not home.root_key.exists():
        raise TerminalError(
            f"{home.root_key} is missing: KMS keys could not be used while this control leads; copy"
            " it from the platform's first home, or join again after that has started once more"
        )
    if config.fleet == LOCAL and not home.instances.is_symlink():
        raise TerminalError(ON_FIRST_HOST)
    paths = (config.ray_runtime_env, config.node_dir)
    runtime_env, node_dir = (None if it is None else Path(it) for it in paths)
    check_fleet(config.fleet, config.ray_address, runtime_env, node_dir)


async def keep_control(
    plan: HostPlan, environment: Mapping[str, str], watchers: Sequence[ServiceSpec], report: Report
) -> None:
    """Run the host's services until a signal asks to stop or a service cannot start."""
    home, config, credentials = plan.home, plan.config, plan.credentials
    supervisor, asked = Supervisor(home, report.say), asyncio.Event()
    env = service_environment(environment, home)
    services = control_services(plan, env)
    if config.cluster_host is not None:
        services.append(proxy_service(plan, env))
    decided = decide_adoption(
        {name: it.digest for name, it in plan.found.items()},
        {it.name: it.digest for it in [*services, *watchers]},
    )
    if sentence := adoption_sentence(decided):
        report.say(sentence)
    listen_for_signals(asked, supervisor)
    apply_actions(supervisor, plan.found, decided, services)
    asking = asyncio.create_task(asked.wait())
    deadline = monotonic_s() + READY_WITHIN_S
    report.phase("waiting for control")
    started = asyncio.create_task(
        wait_for_answer(control_check(config, credentials), "control", deadline)
    )
    try:
        await wait_first(started, asking, supervisor.failed)
        if started.done() and not asking.done():
            supervisor.now_ready()
            arm_watcher(supervisor, home, plan.found, decided, watchers, report)
            report.ready(config, credentials)
            await wait_first(asking, supervisor.failed)
    finally:
        asking.cancel()
        started.cancel()
        if asked.is_set():
            home.kept.unlink(missing_ok=True)
            await supervisor.stop("watcher")
        report.phase("stopping control")
        for name in STOPPED_IN_ORDER:
            await supervisor.stop(name)
        await supervisor.wait_retired()


def control_check(config: UpConfig, credentials: Credentials) -> Callable[[], str | None]:
    """A check that control answers, as the leader or on standby."""
    request = urllib.request.Request(f"{config.control_url}/internal/health")
    request.add_header(INTERNAL_KEY_HEADER, credentials.internal_key)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def check() -> str | None:
        try:
            with opener.open(request, timeout=CHECK_S):
                return None
        except OSError as error:
            return str(error)

    return check
