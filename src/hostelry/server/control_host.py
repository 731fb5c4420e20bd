"""A host with control alone, of a platform with PostgreSQL: one more that may lead."""

import asyncio
import os
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.key_guard import INTERNAL_KEY_HEADER
from hostelry.server.adoption import adoption_sentence, decide_adoption
from hostelry.server.home import Credentials, Home, UpConfig, save_config
from hostelry.server.leftovers import find_services
from hostelry.server.run_file import remove_run_file, save_run_file
from hostelry.server.services import service_environment, watcher_service
from hostelry.server.start import decide_port, earlier_config, stored_credentials
from hostelry.server.started_by import service_digest
from hostelry.server.store_option import store_url_of
from hostelry.server.supervision import PATIENT_LIVENESS
from hostelry.server.supervisor import Command, ServiceSpec, Supervisor
from hostelry.server.up import (
    READY_WITHIN_S,
    Relaunch,
    Report,
    arm_watcher,
    begin,
    first_of,
    listen_for_signals,
    make_home,
    only_one,
    until_answered,
)
from hostelry.server.up_options import UpOptions

CHECK_S = 3.0
Check = Callable[[], str | None]  # why control does not answer
Ready = Callable[[], None]
COPIED = "config.json, credentials.json, kms.key and images.toml"


async def run_control(
    options: UpOptions,
    environment: Mapping[str, str],
    report: Report,
    relaunch: Relaunch | None = None,
) -> None:
    """Keep control running until SIGINT or SIGTERM, and nothing else.

    It leads or stands by. A control that a killed supervisor has left is adopted. With `relaunch`,
    a watcher starts a killed supervisor again. Raises TerminalError where it cannot start.
    """
    home = make_home(options.home)
    with (
        only_one(home, relaunch.lock if relaunch else None),
        control_plan(home, options.store) as (config, credentials),
    ):
        if relaunch is None:  # in the foreground no watcher starts it again
            home.kept.unlink(missing_ok=True)
        save_run_file(home, "up", os.getpid(), config.control_port)
        try:
            services = [control_service(home, config, credentials, environment)]
            if relaunch is not None:
                services.append(watcher_service(home, environment, relaunch.argv))
            check = control_check(config, credentials)
            ready = partial(report.ready, config, credentials)
            await keep_control(home, services, check, report, ready)
        finally:
            remove_run_file(home, "up")


@contextmanager
def control_plan(home: Home, store: str | None) -> Iterator[tuple[UpConfig, Credentials]]:
    """Decide the configuration of a joined home, and store it for control.

    Raises TerminalError where the home is of no cluster, or lacks what a leader needs.
    """
    before, credentials = earlier_config(home), stored_credentials(home)
    if before is None or credentials is None:
        raise TerminalError(f"{home.root} has joined no platform: it needs the platform's {COPIED}")
    url = store_url_of(store, before)
    if url is None:
        raise TerminalError(
            "a further control needs the platform's records in PostgreSQL: --store postgresql://..."
            " here and at `hostelry up`"
        )
    if not home.root_key.exists():
        raise TerminalError(
            f"{home.root_key} is missing: KMS keys could not be used while this control leads; copy"
            " it from the platform's first home"
        )
    config = replace(
        before,
        store_url=url,
        gateway_workers=0,
        mirror_process=False,
        console_port=0,
        controls=(),
        control_port=decide_port(before.control_port, find_services(home).get("control")),
    )
    if config != before:
        save_config(home, config)
    yield config, credentials


def control_service(
    home: Home, config: UpConfig, credentials: Credentials, environment: Mapping[str, str]
) -> ServiceSpec:
    """Control as it is started here."""
    argv = [sys.executable, "-m", "hostelry.server.control", "--home", str(home.root)]
    env = service_environment(environment, home)
    return ServiceSpec(
        name="control",
        command=lambda: Command(argv=argv, env=env),
        port=config.control_port,
        digest=service_digest("control", config, credentials),
        liveness=PATIENT_LIVENESS,
    )


async def keep_control(
    home: Home, services: Sequence[ServiceSpec], check: Check, report: Report, ready: Ready
) -> None:
    """Run control, and the watcher behind it, until a signal asks to stop or it cannot start."""
    supervisor, asked = Supervisor(home, report.say), asyncio.Event()
    found = find_services(home)
    decided = decide_adoption(
        {name: it.digest for name, it in found.items()}, {it.name: it.digest for it in services}
    )
    if sentence := adoption_sentence(decided):
        report.say(sentence)
    listen_for_signals(asked, supervisor)
    begin(supervisor, found, decided, services[:1])
    asking = asyncio.create_task(asked.wait())
    deadline = monotonic_s() + READY_WITHIN_S
    report.phase("waiting for control")
    started = asyncio.create_task(until_answered(check, "control", deadline))
    try:
        await first_of(started, asking, supervisor.failed)
        if started.done() and not asking.done():
            supervisor.now_ready()
            arm_watcher(supervisor, home, found, decided, services[1:], report)
            ready()
            await first_of(asking, supervisor.failed)
    finally:
        asking.cancel()
        started.cancel()
        if asked.is_set():
            home.kept.unlink(missing_ok=True)
            await supervisor.stop("watcher")
        report.phase("stopping control")
        await asyncio.gather(supervisor.stop("control"), supervisor.retired())


def control_check(config: UpConfig, credentials: Credentials) -> Check:
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
