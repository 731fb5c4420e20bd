"""Observes a running platform: its processes by identity, its state and its routes.

Signals go only to processes that the home's own files name, by pid and start.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from signal import SIGCONT, SIGSTOP
from typing import Any, TypeVar

import httpx

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.json import decode
from hostelry.base.proc import ProcessIdentity, boot_id
from hostelry.domain.routes import RouteSnapshot
from hostelry.fleet.host.processes import is_alive, send
from hostelry.fleet.records import (
    CopyFolder,
    CopyRecord,
    InstanceFolder,
    instance_folders,
)
from hostelry.home.home import Credentials, Home, UpConfig
from hostelry.home.run_file import RunFile, live_run_files
from hostelry_lab.threads import running_threads

T = TypeVar("T")
POLL_S = 0.02
ROUTES_POLL_S = 0.05
CALL_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformObserver:
    """Reader of one running platform's files and internal API."""

    home: Home
    config: UpConfig
    credentials: Credentials

    def internal(self, path: str, read_timeout_s: float = CALL_S) -> bytes | None:
        """Control's answer to an internal GET, or None while it does not answer."""
        try:
            answer = httpx.get(
                f"{self.config.control_url}/internal/{path}",
                headers={"X-Hostelry-Key": self.credentials.internal_key},
                timeout=read_timeout_s,
                trust_env=False,
                verify=False,  # plain HTTP on loopback. Reading certificates takes 30 ms of CPU
            )
            answer.raise_for_status()
        except httpx.HTTPError:
            return None
        return answer.content

    def state(self) -> dict[str, Any] | None:
        """The platform's state as control reports it, or None while control does not answer."""
        content = self.internal("state")
        return None if content is None else decode(content, dict[str, Any])

    def known_state(self) -> dict[str, Any]:
        """The answer of `state`. Raises TerminalError if control does not answer."""
        state = self.state()
        if state is None:
            raise TerminalError("control does not answer; drills need a healthy platform")
        return state

    def services(self, name: str) -> list[RunFile]:
        """The live processes of a service: every worker of `gateway`, at most one of the others."""
        found = live_run_files(self.home)
        return [it for it in found if it.name == name or it.name.startswith(f"{name}-")]

    def agents(self) -> dict[str, ProcessIdentity]:
        """Instance id -> its live agent."""
        found = {it.root.name: it.load_agent() for it in instance_folders(self.home.instances)}
        return {
            name: record.process
            for name, record in found.items()
            if record is not None and is_alive(record.process)
        }

    def copy_folder(self, copy: Mapping[str, Any]) -> CopyFolder:
        """The folder of a copy that `state` shows."""
        return InstanceFolder(self.home.instances / copy["instance"]).copy(copy["id"])

    def copy_record(self, copy: Mapping[str, Any]) -> CopyRecord | None:
        """The agent's record of a copy that `state` shows."""
        return self.copy_folder(copy).load()


def identity_of(record: RunFile) -> ProcessIdentity:
    """The process of a run file, by pid, start and boot."""
    return ProcessIdentity(pid=record.pid, start_ticks=record.start_ticks, boot_id=boot_id())


@contextmanager
def stop_processes(processes: Iterable[ProcessIdentity]) -> Iterator[None]:
    """Stop the processes (SIGSTOP) for the block. Afterwards the living ones continue."""
    victims = tuple(processes)
    try:
        send(victims, SIGSTOP)
        yield
    finally:
        send(victims, SIGCONT)


def copies_in(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every copy that `state` shows."""
    return [copy for endpoint in state["endpoints"] for copy in endpoint["copies"]]


def ready_pids(state: Mapping[str, Any]) -> dict[str, int]:
    """Copy id -> pid of each copy that is ready."""
    return {it["id"]: it["pid"] for it in copies_in(state) if it["phase"] == "ready" and it["pid"]}


def records_in(state: Mapping[str, Any]) -> frozenset[str]:
    """Records that must outlive every fault, each as a few words."""
    words = []
    for endpoint in state["endpoints"]:
        name = endpoint["name"]
        words += [f"endpoint {name}"]
        words += [
            f"component {name}/{component['name']} with {component['desired_copies']} copies"
            for component in endpoint["components"]
        ]
        words += [f"instance {it['id']}" for it in endpoint["instances"]]
        words += [f"copy {it['id']}" for it in endpoint["copies"]]
    return frozenset(words)


def wait_for(check: Callable[[], T | None], within_s: float, pause_s: float = POLL_S) -> T | None:
    """The first result of `check` that is not None, or None after `within_s`."""
    deadline = monotonic_s() + within_s
    while (value := check()) is None and monotonic_s() < deadline:
        threading.Event().wait(pause_s)
    return value


class RouteWatch:
    """Log of the copies in the routes that control publishes."""

    def __init__(self, platform: PlatformObserver) -> None:
        self._platform = platform
        self._stopping = threading.Event()
        self._seen: list[tuple[float, Mapping[str, str]]] = []

    @contextmanager
    def watching(self) -> Iterator["RouteWatch"]:
        """Watch while the block runs."""
        with running_threads(self._stopping, self._run):
            yield self

    def left_at(self, copy_id: str, since: float) -> float | None:
        """The instant at which the copy's process was first out of the routes after `since`."""
        return left_at(list(self._seen), copy_id, since)

    def _run(self) -> None:
        while not self._stopping.wait(ROUTES_POLL_S):
            asked_at = monotonic_s()
            content = self._platform.internal("routes")
            if content is not None:
                snapshot = decode(content, RouteSnapshot)
                self._seen.append((asked_at, copy_addresses(snapshot)))


def left_at(
    seen: Sequence[tuple[float, Mapping[str, str]]], copy_id: str, since: float
) -> float | None:
    """The instant at which the copy was first seen without the address it had before `since`.

    A copy that restarts at once may never be seen without a route, but with another one.
    """
    before = [addresses for at, addresses in seen if at < since]
    had = before[-1].get(copy_id) if before else None
    later = ((at, addresses.get(copy_id)) for at, addresses in seen if at >= since)
    return next((at for at, now in later if now is None or (had and now != had)), None)


def copy_addresses(snapshot: RouteSnapshot) -> Mapping[str, str]:
    """Copy id -> address, of every copy in the routes."""
    found: dict[str, str] = {}
    for endpoint in snapshot.endpoints:
        for copies in (it.copies for it in endpoint.variants):
            found |= {copy.id: copy.address for copy in copies}
        for copies in (it.copies for it in endpoint.components):
            found |= {copy.id: copy.address for copy in copies}
    return found
