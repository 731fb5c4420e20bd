"""A platform on several hosts, all of them on this machine, which the drill starts and ends.

first     `hostelry up` with --cluster-host: a gateway, a control, the fleet's agents and copies
second    `hostelry control`: a control alone
gateways  a joined `hostelry gateway`, in a separate network namespace if one can be made

The database and the object store are reached through `NetworkLinks`, and so are all connections
between the host of gateways and the others.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from signal import SIGKILL
from typing import Any
from urllib.parse import SplitResult, urlsplit, urlunsplit

from hostelry.base.errors import TerminalError
from hostelry.base.json import decode
from hostelry.base.peers import PeerRole
from hostelry.base.ports import free_ports
from hostelry.base.proc import PROC, ProcessIdentity, processes
from hostelry.cluster.joining import join
from hostelry.fleet.host.processes import identify, send
from hostelry.home.home import (
    Credentials,
    Home,
    load_config,
    new_credentials,
    save_config,
    save_credentials,
)
from hostelry.home.run_file import live_run_file, live_run_files
from hostelry.home.up_options import DEFAULT_ACCOUNT, DEFAULT_REGION
from hostelry.processes import objectstore
from hostelry_lab.cluster.forwarding import LOOPBACK, NetworkLink, NetworkLinks
from hostelry_lab.cluster.namespace import NetworkNamespace, cannot, own_namespace
from hostelry_lab.cluster.own_postgres import OwnPostgres
from hostelry_lab.observer import PlatformObserver, identity_of, wait_for

FIRST, SECOND, GATEWAYS = "first", "second", "gateways"
CLI = (sys.executable, "-m", "hostelry.cli.main")
# The drill's hosts must not use the caller's platform or AWS account.
FOREIGN = ("AWS_", "HOSTELRY_", "OPENAI_", "SAGEMAKER_", "PG")
COMMAND_S = 120.0
CONTROLS_S = 60.0
END_S = 20.0
DRAIN_S = 2.0
COPIED = ("credentials.json", "kms.key", "images.toml")
POSTGRES_PORT = 5432


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """The links of the cluster. Each is a forwarder of the drill.

    `proxy` and `second` lead from the host of gateways to the first host's node proxy and to the
    second control, and `back` leads from the first host to the node proxy of the host of gateways.
    They are `None` if that host shares the machine's network.
    """

    first_store: NetworkLink
    second_store: NetworkLink
    objects: NetworkLink
    proxy: NetworkLink | None = None
    second: NetworkLink | None = None
    back: NetworkLink | None = None


class SmallCluster:
    """The running cluster, made by `small_cluster`. `postgres` is `None` for a given database."""

    def __init__(
        self,
        root: Path,
        links: NetworkLinks,
        credentials: Credentials,
        store: str,
        postgres: OwnPostgres | None,
    ) -> None:
        self.homes = {it: Home(root / it) for it in (FIRST, SECOND, GATEWAYS)}
        self.links = links
        self.store = store
        self.postgres = postgres
        self.namespace: NetworkNamespace | None = None
        self.without_namespace: str | None = None
        self.between: Between
        self._root = root
        self._credentials = credentials
        self._second: subprocess.Popen[bytes] | None = None
        names = ("port", "cluster", "first_store", "second_store", "objects", "objects_itself")
        more = ("second", "gateways", "gateways_cluster")
        self._ports = dict(zip((*names, *more), free_ports(9), strict=True))

    def observer(self, host: str) -> PlatformObserver:
        """Reader of one host's files, with that host's configuration."""
        home = self.homes[host]
        return PlatformObserver(home=home, config=load_config(home), credentials=self._credentials)

    def process(self, host: str, name: str) -> ProcessIdentity:
        """A live process of a host. Raises TerminalError if it does not run."""
        record = live_run_file(self.homes[host], name)
        if record is None:
            raise TerminalError(f"{name} of the {host} host does not run")
        return identity_of(record)

    def control_pid(self, host: str) -> int | None:
        """The pid of a host's control, or None while it does not run."""
        record = live_run_file(self.homes[host], "control")
        return None if record is None else record.pid

    def knows_both(self) -> bool:
        """Whether the first host's control runs, and knows of a leader and two controls."""
        content = self.observer(FIRST).internal("leader")
        found = {} if content is None else decode(content, dict[str, Any])
        return bool(found.get("leader")) and len(found["controls"]) == 2

    @property
    def second_address(self) -> str:
        """The address by which others know the second control."""
        return f"http://{LOOPBACK}:{self._ports['second']}"

    def begin(self, parts: ExitStack, say: Callable[[str], None]) -> None:
        """Start everything. `parts` gets the functions that end it."""
        say("starting the database, the object store and the first host")
        self._begin_store(parts)
        parts.callback(self._end, FIRST)
        self._command(
            "up", FIRST, "--detach", "--port", self._port("port"), "--gateway-workers", "1",
            "--no-console", "--no-mirror-process", "--store", self._store_by("first_store"),
            "--s3-endpoint", f"http://{LOOPBACK}:{self._ports['objects']}",
            "--cluster-host", LOOPBACK, "--cluster-port", self._port("cluster"),
        )  # fmt: skip
        say("starting the second control and the host of gateways")
        self._begin_second(parts)
        self._begin_network(parts)
        self._join()
        parts.callback(self._end, GATEWAYS)
        self.start_gateways()

    def start_gateways(self) -> None:
        """Start the host of gateways, which has joined."""
        self._command(
            "gateway", GATEWAYS, "--detach", "--port", self._port("gateways"),
            "--gateway-workers", "1", "--no-mirror-process", "--drain-s", f"{DRAIN_S:g}",
            "--cluster-host", LOOPBACK, "--cluster-port", self._port("gateways_cluster"),
        )  # fmt: skip

    def stop_gateways(self) -> None:
        """End the host of gateways gracefully, as its operator does."""
        self._command("down", GATEWAYS)

    def gateway_processes(self) -> list[ProcessIdentity]:
        """Every process of the host of gateways, the supervisor that restarts the others first."""
        found = sorted(live_run_files(self.homes[GATEWAYS]), key=lambda it: it.name != "watcher")
        return [identity_of(it) for it in found]

    def _begin_store(self, parts: ExitStack) -> None:
        target = target_of(self.store)
        first = self.links.add(self._ports["first_store"], target)
        second = self.links.add(self._ports["second_store"], target)
        home = Home(self._root / "objects")
        home.make()
        save_credentials(self.homes[FIRST], self._credentials)
        started = objectstore.prepare(
            home,
            self._ports["objects_itself"],
            self._credentials,
            clean_environment(),
            f"http://{LOOPBACK}:{self._ports['port']}",
        )
        parts.callback(objectstore.remove_sockets, home)
        process = self._spawn(started.argv, dict(started.env), "objects")
        parts.callback(end, process)
        objects = self.links.add(self._ports["objects"], (LOOPBACK, self._ports["objects_itself"]))
        self.between = Between(first_store=first, second_store=second, objects=objects)

    def _begin_second(self, parts: ExitStack) -> None:
        first, second = self.homes[FIRST], self.homes[SECOND]
        for name in COPIED:
            if (first.root / name).exists():
                shutil.copy2(first.root / name, second.root / name)
        config = replace(
            load_config(first),
            cluster_host=None,  # loopback is enough, since it is on the same machine
            cluster_port=0,
            peer_port=0,
            peer_address="",
            host_id="",
            control_port=self._ports["second"],
            store_url=self._store_by("second_store"),
        )
        save_config(second, config)
        second.instances.rmdir()
        second.instances.symlink_to(first.instances)  # one machine: both see its local fleet
        parts.callback(self._end, SECOND)
        argv = (*CLI, "control", "--home", str(second.root))
        self._second = self._spawn(argv, clean_environment(), SECOND)
        if wait_for(lambda: True if self.knows_both() else None, CONTROLS_S) is None:
            raise TerminalError(f"the second control does not come up:\n{self.log(SECOND)}")

    def _begin_network(self, parts: ExitStack) -> None:
        self.without_namespace = cannot()
        if self.without_namespace is not None:
            return
        self.namespace = inside = parts.enter_context(own_namespace())
        ports, links = self._ports, self.links

        def there(port: str) -> NetworkLink:
            return links.add(ports[port], (LOOPBACK, ports[port]), listen_in=inside.make)

        def here(port: str) -> NetworkLink:
            return links.add(ports[port], (LOOPBACK, ports[port]), connect_in=inside.make)

        here("gateways")  # for clients, which no scenario cuts off
        self.between = replace(
            self.between,
            proxy=there("cluster"),
            second=there("second"),
            back=here("gateways_cluster"),
        )

    def _join(self) -> None:
        printed = self._command("join-token", FIRST, "--role", "gateway", "--json")
        token = str(decode(printed.encode(), dict[str, Any])["token"])
        url = f"https://{LOOPBACK}:{self._ports['cluster']}"
        join(url, token, self.homes[GATEWAYS], PeerRole.GATEWAY, "drill-gateways")

    def _end(self, host: str) -> None:
        """End a host and all processes that it started, whatever state it is in."""
        home = self.homes[host]
        if home.config.exists():
            with contextlib.suppress(TerminalError):
                self._command("down", host, "--timeout", f"{END_S:g}")
        send([identity_of(it) for it in live_run_files(home)], SIGKILL)
        if host == SECOND and self._second is not None:
            end(self._second)

    def _command(self, command: str, host: str, *arguments: str) -> str:
        inside = self.namespace.prefix if host == GATEWAYS and self.namespace is not None else ()
        argv = [*inside, *CLI, command, "--home", str(self.homes[host].root), *arguments]
        return run_command(argv, clean_environment(), f"`hostelry {command}` on the {host} host")

    def _spawn(
        self, argv: Sequence[str], environment: dict[str, str], name: str
    ) -> subprocess.Popen[bytes]:
        with (self._root / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                argv, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def log(self, name: str) -> str:
        """The end of the output of a process that the drill started."""
        return (self._root / f"{name}.log").read_text(errors="replace")[-800:]

    def _port(self, name: str) -> str:
        return str(self._ports[name])

    def _store_by(self, link: str) -> str:
        return through(self.store, self._ports[link])


@contextmanager
def small_cluster(store: str | None, say: Callable[[str], None]) -> Iterator[SmallCluster]:
    """A running cluster for the block, on the database at `store`, or on a new one.

    Everything is ended when the block ends, however it ends. Raises TerminalError with the reason
    if the cluster cannot be started.
    """
    with ExitStack() as parts:
        root = Path(tempfile.mkdtemp(prefix="hostelry-drill-"))
        parts.callback(shutil.rmtree, root, ignore_errors=True)
        parts.callback(end_all, str(root).encode())
        postgres = None
        if store is None:
            postgres = parts.enter_context(OwnPostgres().running())
            store = postgres.url
        links = parts.enter_context(NetworkLinks().running())
        credentials = new_credentials(DEFAULT_ACCOUNT, DEFAULT_REGION)
        cluster = SmallCluster(root, links, credentials, store, postgres)
        for host in (FIRST, SECOND):
            cluster.homes[host].make()
        cluster.begin(parts, say)
        yield cluster


def run_command(argv: Sequence[str], environment: Mapping[str, str], what: str) -> str:
    """The output of a command. Raises TerminalError with its error output if it hangs or fails."""
    try:
        done = subprocess.run(
            argv, env=environment, capture_output=True, text=True, check=False,
            stdin=subprocess.DEVNULL, timeout=COMMAND_S, start_new_session=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise TerminalError(f"{what} hangs") from error
    if done.returncode != 0:
        raise TerminalError(f"{what} fails: {done.stderr.strip()[-800:]}")
    return done.stdout


def clean_environment() -> dict[str, str]:
    """This process's environment without anything that points at a platform or an account."""
    return {name: it for name, it in os.environ.items() if not name.startswith(FOREIGN)}


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that the drill started, unless it has ended, and wait for its end."""
    if process.poll() is None:
        process.kill()
    process.wait()


def end_all(root: bytes) -> None:
    """Kill every process that names the cluster's folder, also one that was starting.

    No other process knows the folder's name, which is random.
    """
    found = [it.pid for it in processes() if it.pid != os.getpid() and names(it.pid, root)]
    send([it for it in map(identify, found) if it is not None], SIGKILL)


def names(pid: int, text: bytes) -> bool:
    """Whether a process's command line or environment contains `text`. False once it is gone."""
    for name in ("cmdline", "environ"):
        with contextlib.suppress(OSError):
            if text in (PROC / str(pid) / name).read_bytes():
                return True
    return False


def target_of(url: str) -> tuple[str, int]:
    """Host and port of a store's URL. Raises TerminalError if it does not name a single server."""
    parts = urlsplit(url)
    try:
        if parts.scheme in ("postgresql", "postgres") and parts.hostname:
            return parts.hostname, parts.port or POSTGRES_PORT
    except ValueError:
        pass
    raise TerminalError("--store: the drill needs postgresql://USER@HOST:PORT/DATABASE of one host")


def through(url: str, port: int) -> str:
    """The URL with a port of loopback in place of its server."""
    parts = urlsplit(url)
    user = parts.netloc.rpartition("@")[0]
    place = f"{user}@{LOOPBACK}:{port}" if user else f"{LOOPBACK}:{port}"
    return urlunsplit(SplitResult(parts.scheme, place, parts.path, parts.query, parts.fragment))
