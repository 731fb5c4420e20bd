"""The node proxy's process: ``python -m hostelry.services.node_proxy --home DIR``.

It has one TLS listener per host, through which the cluster's other hosts reach its servers
(`cluster/`). It also keeps this host's certificates. It may be killed at any moment: its
connections break, and the next process accepts others.

With --instance-id it serves an instance on a fleet's node. The home there has certificates of role
agent, and may have any port. --port-file names where the port is written. Each --link is a socket
that listens there for a server of control's host (`cluster/host_link.py`).
"""

import argparse
import asyncio
import logging
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import uvloop

from hostelry.base import tls
from hostelry.base.clock import SystemClock
from hostelry.base.concurrency import stop_event
from hostelry.base.errors import TerminalError
from hostelry.base.files import write_whole
from hostelry.base.logging import configure_logging
from hostelry.base.tls import CERTIFICATES, JOIN, TlsFolder
from hostelry.cluster.host_files import HostFiles, find_operator_files
from hostelry.cluster.host_link import HostLink
from hostelry.cluster.http_front import JoinDesk, http_front
from hostelry.cluster.keeper import CertificateDesk, CertificateKeeper
from hostelry.cluster.known_controls import list_known_controls
from hostelry.cluster.proxy import Front, NodeProxy, open_listener
from hostelry.cluster.start import service_addresses
from hostelry.cluster.targets import ProxyTargets
from hostelry.home.heartbeat import answer_heartbeats
from hostelry.home.home import (
    Credentials,
    Home,
    UpConfig,
    load_config,
    load_credentials,
    log_format,
)
from hostelry.services.worker_parts import raise_file_limit, wait_for_end

LOG = logging.getLogger("hostelry.services.node_proxy")  # it runs as __main__
NAME = "proxy"
DRAIN_S = 10.0  # for requests in flight, once it is to end


async def serve(
    home: Home,
    host: str,
    port: int,
    port_file: Path | None,
    links: Mapping[str, socket.socket] | None,
    listener: socket.socket | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT. Raises TerminalError if it cannot.

    `links` are listening sockets by the names of the servers that they lead to. None: this is not a
    node, but a host of the platform. `listener` is the predecessor's listening socket.
    """
    config, credentials = load_config(home), load_credentials(home)
    clock, files = SystemClock(), HostFiles(TlsFolder(home.tls), credentials.cluster_id)
    tls.use(home.tls)
    tls.in_use().server()  # its absence ends the start, not each connection
    keeper = CertificateKeeper(
        files,
        clock,
        find_operator_files(config.tls_ca, config.tls_cert, config.tls_key),
        lambda: list_known_controls(home, config),
    )
    names = service_addresses(config) if links is None else {}
    fronts = build_fronts(config, credentials, files) if links is None else {}
    proxy = NodeProxy(tls.in_use(), ProxyTargets(names, home.instances).find_address, fronts)
    listener = listener or open_listener(host, port)
    listener.setblocking(False)
    if port_file is not None:
        write_whole(port_file, str(listener.getsockname()[1]).encode(), durable=False)
    loop, stopping = asyncio.get_running_loop(), stop_event()
    tasks = {
        "accepting peers": loop.create_task(proxy.serve(listener)),
        "keeping certificates": loop.create_task(keeper.run()),
    }
    for name, linked in (links or {}).items():
        link = HostLink(name, tls.in_use(), lambda: list_known_controls(home, config))
        tasks[f"forwarding to {name}"] = loop.create_task(link.serve(linked))
    heartbeats = loop.create_task(answer_heartbeats(listener))
    cause = await wait_for_end(tasks, stopping)
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)
    listener.close()
    await proxy.drain(DRAIN_S)
    await proxy.close()
    heartbeats.cancel()
    if cause is not None:
        raise TerminalError(cause)


def build_fronts(config: UpConfig, credentials: Credentials, files: HostFiles) -> dict[str, Front]:
    """The fronts that a host with the authority answers itself."""
    desk = CertificateDesk(files, SystemClock())
    joins = JoinDesk(files.folder, config.control_url, credentials.internal_key)
    if not files.folder.authority.exists():
        return {}
    return {CERTIFICATES: http_front(desk.answer), JOIN: http_front(joins.answer)}


def open_inherited(given: list[str]) -> dict[str, socket.socket]:
    """The sockets whose descriptors are given as ``NAME=DESCRIPTOR``."""
    pairs = (it.partition("=") for it in given)
    return {name: socket.socket(fileno=int(number)) for name, _, number in pairs}


def main() -> None:
    """Parse the arguments and run. Exit with code 1 and a line on standard error if it cannot."""
    parser = argparse.ArgumentParser(prog="python -m hostelry.services.node_proxy")
    parser.add_argument("--home", type=Path, required=True, help="the home folder")
    parser.add_argument("--instance-id", help="serve an instance of a fleet's node alone")
    parser.add_argument("--host", help="address to listen on, instead of the home's")
    parser.add_argument("--port", type=int, help="port; 0: any")
    parser.add_argument("--port-file", type=Path, help="where the port is written")
    parser.add_argument("--listener", type=int, help="descriptor of the predecessor's socket")
    parser.add_argument("--link", action="append", default=[], help="NAME=DESCRIPTOR, of a node")
    given = parser.parse_args()
    home = Home(given.home)
    name = NAME if given.instance_id is None else f"{NAME}-{given.instance_id}"
    configure_logging(name, log_format=log_format(home))
    raise_file_limit()
    try:
        config = load_config(home)
        host = given.host or config.cluster_host
        if host is None:
            sys.exit("the node proxy needs --host, or a home with a cluster host")
        port = config.cluster_port if given.port is None else given.port
        links = None if given.instance_id is None else open_inherited(given.link)
        listener = None if given.listener is None else socket.socket(fileno=given.listener)
        uvloop.run(serve(home, host, port, given.port_file, links, listener))
    except (TerminalError, OSError) as error:
        sys.exit(f"the node proxy cannot run: {error}")


if __name__ == "__main__":
    os.umask(0o077)
    main()
