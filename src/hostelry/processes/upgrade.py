"""`hostelry upgrade`: this version takes over the platform of an earlier one. Copies run on.

`up` is killed. All other processes outlive it, and the `up` of this version adopts or replaces each
of them (`adoption`). Old and new gateway workers overlap, so that no connection is refused. Then
each agent in turn is asked to end, and control starts its successor, which adopts the copies. The
supervisors of `hostelry gateway` and `hostelry control` are replaced alike. Among several controls
the leader comes last (`upgrade_order`), and only the leader's host replaces agents.
"""

import contextlib
import os
import signal
import time
import urllib.request
from collections.abc import Callable
from typing import TypeVar
from urllib.error import HTTPError

import msgspec

from hostelry import __version__
from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.guards import INTERNAL_KEY_HEADER
from hostelry.base.json import decode
from hostelry.base.proc import ProcessIdentity, arguments, environment_value
from hostelry.fleet.host.processes import is_alive, send
from hostelry.fleet.launch.warm_messages import extract_arguments
from hostelry.fleet.records import InstanceFolder, instance_folders
from hostelry.home.home import Home, load_config, load_credentials
from hostelry.home.run_file import RunFile, live_run_file, live_run_files
from hostelry.home.up_options import UpOptions
from hostelry.processes.background import StartupProgress, decode_options, start_detached
from hostelry.processes.upgrade_order import ControlsThatRun, has_joined, why_later

SYSTEMD_VARIABLE = "INVOCATION_ID"  # of each process that systemd starts, systemd.exec(5)
RESTARTED_WITHIN_S = 90.0
AGENT_WITHIN_S = 90.0
ASK_S = 5.0
POLL_S = 0.05
T = TypeVar("T")


class UpgradedHost(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an upgrade: names of processes, and instances whose agents were replaced.

    `leads` is whether the host's control leads, so that agents are replaced. None without a
    control.
    """

    adopted: tuple[str, ...]
    replaced: tuple[str, ...]
    agents: tuple[str, ...]
    leads: bool | None


class HealthAnswer(msgspec.Struct):
    """The answer of a gateway or control to a health request."""

    version: str = ""


def upgrade_host(home: Home, report: Callable[[str], None]) -> UpgradedHost:
    """Have this version take over the home's platform. Blocks until it is done.

    Raises TerminalError if no `up` runs, if nothing would start `up` again, or if another host
    must come first. Raises TerminalError, too, if the new `up` or a new agent does not start. The
    other processes then serve on.
    """
    old = live_run_file(home, "up")
    if old is None:
        raise TerminalError(
            f"no `up` runs on {home.root}: `hostelry up` starts this version, and adopts what runs"
        )
    if (controls := ask_controls(home)) and (why := why_later(controls, __version__)):
        raise TerminalError(why)
    before = {it.name: it.pid for it in live_run_files(home)}
    if (watcher := live_run_file(home, "watcher")) is not None:
        restart_detached(home, old, watcher, report)
    elif environment_value(old.pid, SYSTEMD_VARIABLE) is not None:
        report("waiting for systemd to start `up`")
        os.kill(old.pid, signal.SIGKILL)
        await_up(home, old.pid)
    else:
        raise TerminalError(
            f"`up` (pid {old.pid}) runs in a terminal, where nothing would start it again: "
            f"`kill -9 {old.pid}`, and start it there with the same options"
        )
    leads = await_takeover(home, report)
    folders = instance_folders(home.instances) if leads else ()
    agents = [renew_agent(folder, report) for folder in folders]
    after = {it.name: it.pid for it in live_run_files(home) if it.name not in ("up", "watcher")}
    adopted = tuple(name for name, pid in after.items() if before.get(name) == pid)
    return UpgradedHost(
        adopted=adopted,
        replaced=tuple(name for name in after if name not in adopted),
        agents=tuple(name for name in agents if name is not None),
        leads=leads,
    )


def restart_detached(
    home: Home, old: RunFile, watcher: RunFile, report: Callable[[str], None]
) -> None:
    """Start `up` of this program with the options of the running `up`. Raises TerminalError."""
    options = read_options(old)

    def show(progress: StartupProgress) -> None:
        if (text := progress.phase or progress.note) is not None:
            report(text)

    os.kill(old.pid, signal.SIGSTOP)  # so that it does not start another watcher
    os.kill(watcher.pid, signal.SIGKILL)
    os.kill(old.pid, signal.SIGKILL)
    await_end(old)
    start_detached(options, show)


def read_options(up: RunFile) -> UpOptions:
    """The options of a detached `up`. Raises TerminalError if its command line has none."""
    try:
        return decode_options(extract_arguments(arguments(up.pid))[0])
    except (IndexError, msgspec.DecodeError) as error:
        raise TerminalError(
            f"the command line of `up` (pid {up.pid}) is not ours: {error}"
        ) from None


def await_end(record: RunFile) -> None:
    """Wait until a killed process is gone. Raises TerminalError if it stays."""
    until(lambda: not record.alive, 10.0, f"`up` (pid {record.pid}) does not end")


def await_up(home: Home, old_pid: int) -> None:
    """Wait until systemd has started another `up`. Raises TerminalError if it does not."""

    def is_there() -> bool:
        found = live_run_file(home, "up")
        return found is not None and found.pid != old_pid

    until(is_there, RESTARTED_WITHIN_S, "systemd started no other `up`: systemctl status hostelry")


def await_takeover(home: Home, report: Callable[[str], None]) -> bool | None:
    """Wait until gateway and control are of this version. Returns whether the control leads.

    Returns None without a control. Raises TerminalError if they do not start.
    """
    config = load_config(home)

    def is_new(url: str) -> bool:
        found = ask(home, url, HealthAnswer)
        return found is not None and found.version == __version__

    if config.gateway_workers:
        report("waiting for the new gateway")
        url = f"{config.gateway_url}/health"
        until(lambda: is_new(url), RESTARTED_WITHIN_S, f"no gateway of {__version__} at {url}")
    if config.is_gateway_host:
        return None
    report("waiting for the new control")
    url = f"{config.control_url}/internal/health"
    until(lambda: is_new(url), RESTARTED_WITHIN_S, f"no control of {__version__} at {url}")
    found: list[ControlsThatRun] = []

    def has_come() -> bool:
        found[:] = [it for it in [ask_controls(home)] if it is not None]
        return bool(found) and has_joined(found[0], __version__)

    until(has_come, RESTARTED_WITHIN_S, "the new control neither leads nor stands by")
    return found[0].own_leads


def ask_controls(home: Home) -> ControlsThatRun | None:
    """The controls that this host's control knows, or None if it does not answer or exist."""
    try:
        config = load_config(home)
    except (OSError, msgspec.MsgspecError):
        return None
    if config.is_gateway_host:
        return None
    return ask(home, f"{config.control_url}/internal/leader", ControlsThatRun)


def ask(home: Home, url: str, type: type[T]) -> T | None:
    """The answer of one of the home's processes, or None without a valid answer."""
    request = urllib.request.Request(url)
    request.add_header(INTERNAL_KEY_HEADER, load_credentials(home).internal_key)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=ASK_S) as answer:
            return decode(answer.read(), type)
    except HTTPError as refused:  # a gateway without routes also names its version
        with refused, contextlib.suppress(OSError, msgspec.MsgspecError):
            return decode(refused.read(), type)
        return None
    except (OSError, msgspec.MsgspecError):
        return None


def renew_agent(folder: InstanceFolder, report: Callable[[str], None]) -> str | None:
    """Have the instance's agent replaced and its copies adopted. Returns the instance's name.

    Returns None without an agent. Raises TerminalError if no other agent starts.
    """
    record = folder.load_agent()
    if record is None or not is_alive(record.process):
        return None
    name = folder.root.name
    report(f"replacing the agent of {name}")
    send([record.process], signal.SIGTERM)
    until(
        lambda: is_replaced(folder, record.process),
        AGENT_WITHIN_S,
        f"instance {name} got no other agent; its copies run on. `hostelry logs control` has why",
    )
    return name


def is_replaced(folder: InstanceFolder, old: ProcessIdentity) -> bool:
    """Whether another agent listens for this instance."""
    now = folder.load_agent()
    return now is not None and now.process != old and now.port != 0 and is_alive(now.process)


def until(holds: Callable[[], bool], within_s: float, otherwise: str) -> None:
    """Wait until the condition holds. Raises TerminalError with `otherwise` if it does not."""
    deadline = monotonic_s() + within_s
    while not holds():
        if monotonic_s() > deadline:
            raise TerminalError(f"{otherwise} (waited {within_s:g} s)")
        time.sleep(POLL_S)
