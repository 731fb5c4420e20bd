"""`hostelry upgrade`: this version takes over what an earlier one runs; no copy is restarted.

`up` is killed, which everything else outlives, and the `up` of this version adopts or replaces
each process (`adoption`): gateway workers beside their successors, so that no connection is
refused. Then each agent in turn is asked to end; control starts its successor, which adopts its
copies. The supervisors of `hostelry gateway` and `hostelry control` are replaced alike. Of several
controls the leader comes last (`upgrade_order`), and its host alone replaces agents.
"""

import contextlib
import os
import signal
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradedHost:
    """What became of a host's processes; agents are named by their instances.

    `leads` is whether the host's control leads, and so has its agents replaced; None where there is
    no control.
    """

    adopted: tuple[str, ...]
    replaced: tuple[str, ...]
    agents: tuple[str, ...]
    leads: bool | None


class HealthAnswer(msgspec.Struct):
    """What a gateway or control answers to who asks for its health."""

    version: str = ""


def upgrade_host(home: Home, report: Callable[[str], None]) -> UpgradedHost:
    """Have this version take over the home's platform; blocks until it has.

    Raises TerminalError where none runs, nothing would start `up` again, or another host comes
    first, and where the new `up` or a new agent does not come: all else serves on then.
    """
    old = live_run_file(home, "up")
    if old is None:
        raise TerminalError(
            f"no `up` runs on {home.root}: `hostelry up` starts this version, and adopts what runs"
        )
    if (controls := asked_controls(home)) and (why := why_later(controls, __version__)):
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
    """Start `up` by this program with the options of the one that runs; raises TerminalError."""
    options = options_of(old)

    def show(progress: StartupProgress) -> None:
        if (text := progress.phase or progress.note) is not None:
            report(text)

    os.kill(old.pid, signal.SIGSTOP)  # it would start another watcher
    os.kill(watcher.pid, signal.SIGKILL)
    os.kill(old.pid, signal.SIGKILL)
    await_end(old)
    start_detached(options, show)


def options_of(up: RunFile) -> UpOptions:
    """The options of a detached `up`; raises TerminalError where its command line has none."""
    try:
        return decode_options(arguments(up.pid)[3])
    except (IndexError, msgspec.DecodeError) as error:
        raise TerminalError(
            f"the command line of `up` (pid {up.pid}) is not ours: {error}"
        ) from None


def await_end(record: RunFile) -> None:
    """Wait until a killed process is gone; raises TerminalError."""
    until(lambda: not record.alive, 10.0, f"`up` (pid {record.pid}) does not end")


def await_up(home: Home, old_pid: int) -> None:
    """Wait until systemd has started another `up`; raises TerminalError."""

    def is_there() -> bool:
        found = live_run_file(home, "up")
        return found is not None and found.pid != old_pid

    until(is_there, RESTARTED_WITHIN_S, "systemd started no other `up`: systemctl status hostelry")


def await_takeover(home: Home, report: Callable[[str], None]) -> bool | None:
    """Wait until gateway and control are of this version; whether the control leads, if there is.

    Raises TerminalError where they do not come.
    """
    config = load_config(home)

    def is_new(url: str) -> bool:
        found = asked(home, url, HealthAnswer)
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
        found[:] = [it for it in [asked_controls(home)] if it is not None]
        return bool(found) and has_joined(found[0], __version__)

    until(has_come, RESTARTED_WITHIN_S, "the new control neither leads nor stands by")
    return found[0].own_leads


def asked_controls(home: Home) -> ControlsThatRun | None:
    """The controls, as the one of this host knows them; None: it does not answer, or is none."""
    try:
        config = load_config(home)
    except (OSError, msgspec.MsgspecError):
        return None
    if config.is_gateway_host:
        return None
    return asked(home, f"{config.control_url}/internal/leader", ControlsThatRun)


def asked(home: Home, url: str, type: type[T]) -> T | None:
    """The answer of one of the home's processes; None where there is none."""
    request = urllib.request.Request(url)
    request.add_header(INTERNAL_KEY_HEADER, load_credentials(home).internal_key)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=ASK_S) as answer:
            return decode(answer.read(), type)
    except HTTPError as refused:  # of a gateway without routes, with its version
        with refused, contextlib.suppress(OSError, msgspec.MsgspecError):
            return decode(refused.read(), type)
        return None
    except (OSError, msgspec.MsgspecError):
        return None


def renew_agent(folder: InstanceFolder, report: Callable[[str], None]) -> str | None:
    """Have the instance's agent replaced, and its copies adopted; None where it has no agent.

    Raises TerminalError where no other comes.
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
    """Wait until the condition holds; raises TerminalError with `otherwise` when it does not."""
    deadline = monotonic_s() + within_s
    while not holds():
        if monotonic_s() > deadline:
            raise TerminalError(f"{otherwise} (waited {within_s:g} s)")
        time.sleep(POLL_S)
