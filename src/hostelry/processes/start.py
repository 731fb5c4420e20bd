"""Plan of a start of `up`: keys, ports, configuration, and the processes that still run."""

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import msgspec

from hostelry.base.clock import SystemClock
from hostelry.base.errors import HostelryError, TerminalError
from hostelry.base.peers import PeerRole
from hostelry.base.ports import free_port, reserve_port
from hostelry.cluster.start import add_host_address, prepare_certificates
from hostelry.home.copy_user_option import decide_copy_user, open_home
from hostelry.home.cut_off_copy import refuse_marked
from hostelry.home.heartbeat import line_path, take_listener
from hostelry.home.home import (
    Credentials,
    Home,
    UpConfig,
    load_config,
    load_credentials,
    save_config,
    save_credentials,
)
from hostelry.home.https_option import add_https
from hostelry.home.port_choice import ChosenPorts, choose_ports, port_requests
from hostelry.home.ports import is_free
from hostelry.home.run_file import RunFile, get_service_kind, service_path
from hostelry.home.settings import resolve_localhost
from hostelry.home.store_option import choose_store_url, involves_server
from hostelry.home.up_options import (
    UpOptions,
    decide_config,
    decide_credentials,
)
from hostelry.processes.leftovers import end_services, find_services

LISTENER_TIMEOUT_S = 5.0


class HostPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Decisions of a start, and the live processes of an earlier one by name."""

    home: Home
    config: UpConfig
    credentials: Credentials
    found: Mapping[str, RunFile]


class StartPlan(HostPlan, frozen=True, kw_only=True):
    """Decisions of a start of `up`, with a gateway."""

    ports: ChosenPorts


@contextmanager
def start_plan(
    home: Home, options: UpOptions, environment: Mapping[str, str], say: Callable[[str], None]
) -> Iterator[StartPlan]:
    """Decide keys, ports and the user of copies, and store them for the other processes.

    The ports are reserved for the block.
    """
    stored = load_earlier_credentials(home)
    credentials = decide_credentials(options, stored, environment)
    user, note = decide_copy_user(options.copy_user, home)
    if note is not None:
        say(note)
    found = find_services(home)
    inherited = inherit_listener(home, found)
    if inherited is None:
        # A worker that does not pass its socket would keep the port from its successors.
        end_services(home, ["gateway"], at_once=True)
        found = {name: it for name, it in found.items() if get_service_kind(name) != "gateway"}
    control, own_s3 = found.get("control"), found.get("s3door") or found.get("objectstore")
    before = load_earlier_config(home)
    gateway, s3 = port_requests(options.port, options.s3_port, before)
    with choose_ports(
        resolve_localhost(options.host),
        gateway,
        s3 if options.embedded_store else None,
        inherited=inherited,
        own_s3=before.s3_port if before and own_s3 else None,
    ) as ports:
        control_port = decide_port(before.control_port if before else None, control)
        jobs_port = decide_port(before.jobs_port if before else None, found.get("jobs"))
        console_port = 0
        if options.console:
            before_port = before.console_port if before else None
            console_port = decide_port(before_port, found.get("console"))
        num_cpus = len(os.sched_getaffinity(0))
        config = decide_config(
            options,
            ports,
            (control_port, jobs_port, console_port),
            num_cpus,
            user,
            choose_store_url(options.store, before),
        )
        check_start_store(home, config, before, credentials, found, say)
        if options.cluster_host is not None:
            peer_port = decide_port(before.peer_port if before else None, found.get("peers"))
            known = replace(config, host_id=before.host_id) if before else config
            config = add_host_address(known, options, peer_port)
        config = replace(add_https(home, config, options), copy_user_problem=note)
        prepare_certificates(home, config, credentials, PeerRole.CONTROL, SystemClock().now())
        if credentials != stored:
            save_credentials(home, credentials)
        if config != before:
            save_config(home, config)
        if user is not None:
            open_home(home)
        yield StartPlan(
            home=home,
            config=config,
            credentials=credentials,
            ports=ports,
            found=found,
        )


def check_start_store(
    home: Home,
    config: UpConfig,
    before: UpConfig | None,
    credentials: Credentials,
    found: Mapping[str, RunFile],
    say: Callable[[str], None],
) -> None:
    """Raise TerminalError if the store cannot be used.

    If processes run on this store already, they need a supervisor. Then `say` gets the error.
    """
    if config.store_url is None:
        refuse_marked(home)
    if not involves_server(config, before):
        return
    # Imported late: a database's code is slow to load, and `up` does not need it.
    from hostelry.home.platform_store import check_store

    try:
        check_store(home, config, before, credentials)
    except HostelryError as error:
        if found and before is not None and before.store_url == config.store_url:
            say(str(error))
            return
        raise TerminalError(str(error)) from error


def inherit_listener(
    home: Home, found: Mapping[str, RunFile], kind: str = "gateway"
) -> socket.socket | None:
    """The listening socket of the gateway or node proxy, from a live process that passes it on."""
    for name in found:
        if get_service_kind(name) == kind:
            listener = take_listener(line_path(service_path(home, name)), LISTENER_TIMEOUT_S)
            if listener is not None:
                return listener
    return None


def decide_port(earlier: int | None, living: RunFile | None) -> int:
    """A service's port on loopback: its live process's, else the earlier port, else a free port."""
    if living is not None and living.port:
        return living.port
    if earlier and is_free("127.0.0.1", earlier):
        reserve_port(earlier)  # fails if the parent process has reserved the port for this one
        return earlier
    return free_port()


def load_earlier_config(home: Home) -> UpConfig | None:
    """The configuration of the last `up`, or None if it cannot be read."""
    try:
        return load_config(home)
    except (OSError, msgspec.DecodeError):
        return None


def load_earlier_credentials(home: Home) -> Credentials | None:
    """The keys of earlier starts, or None at the first start. TerminalError if unreadable."""
    try:
        return load_credentials(home)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise TerminalError(
            f"{home.credentials} is damaged ({error}): restore it, or remove it to get new keys"
        ) from None
