"""The process that speaks to Ray: ``python -m hostelry.services.ray_driver --home DIR``.

Control starts it with --fleet ray, and writes calls to it, one JSON object per line. It ends with
control. Actors and their instances keep running. See docs/cluster.md.
"""

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from hostelry.base.clock import SystemClock
from hostelry.base.errors import HostelryError, RetryableError, TerminalError
from hostelry.base.json import decode
from hostelry.base.logging import configure_logging
from hostelry.base.peers import PeerRole
from hostelry.base.tls import TlsFolder
from hostelry.cluster.host_files import HostFiles
from hostelry.cluster.known_controls import list_known_controls
from hostelry.cluster.start import LOOPBACK
from hostelry.cluster.targets import GATEWAY, S3
from hostelry.domain.copy import Instance
from hostelry.fleet.ray.driver import RayDriver, connect
from hostelry.fleet.ray.messages import Call, DriverAnswer, Failure, NodeOrder
from hostelry.home.fleet_option import read_runtime_env
from hostelry.home.home import (
    STORED_NAMES,
    Credentials,
    Home,
    UpConfig,
    load_config,
    load_credentials,
    log_format,
)
from hostelry.processes.fleets import AGENT_MODULE, PROXY_MODULE, cluster_id

LOG = logging.getLogger(__name__)
MAX_LINE_BYTES = 64 * 1024 * 1024
PORTS = {"http": 80, "https": 443}


def build_order(
    home: Home, config: UpConfig, credentials: Credentials, instance: Instance
) -> NodeOrder:
    """What the instance's actor is sent: the files that its agent reads, as they are now."""
    agents = credentials.for_agent(has_own_s3=config.has_own_s3)
    stored = {home.credentials.name: msgspec.json.encode(agents)}
    if home.images.exists():
        stored[home.images.name] = home.images.read_bytes()
    controls = msgspec.json.encode([config.control_address, *list_known_controls(home, config)])
    stored = stored | {home.known_controls.name: controls} if config.cluster_host else stored
    written = build_node_config(decode(home.config.read_bytes(), dict), config)
    plain = written | {"copy_user": None}
    return NodeOrder(
        instance=instance,
        cluster_id=cluster_id(credentials),
        agent_module=AGENT_MODULE,
        internal_key=credentials.agents_key,
        files=stored | {home.config.name: msgspec.json.encode(plain)},
        root_files={home.config.name: msgspec.json.encode(written)} if config.copy_user else {},
        node_dir=config.node_dir,
        reachable=objects_behind(config),
        proxy_module=PROXY_MODULE,
        tls_files=build_tls_files(home, config, credentials, instance.id, SystemClock().now()),
        links=node_links(config),
    )


def build_node_config(stored: dict[str, Any], config: UpConfig) -> dict[str, Any]:
    """The content of a node's config.json, from control's `config`, which is `stored` there.

    A node is not one of control's hosts: its proxy renews an instance's certificate at one of
    those, and leads from the node's loopback to gateway and object store, whose ports the actor
    writes.
    """
    host = config.host if config.cluster_host is None else LOOPBACK
    absent = dict.fromkeys(("store_url", "cluster_host", "https_cert", "https_key", "https_ca"))
    return stored | absent | {"host": host}


def node_links(config: UpConfig) -> dict[str, str]:
    """The servers of this host that nodes reach by links, with the stored names of their ports."""
    if config.cluster_host is None:
        return {}
    fields = {GATEWAY: "gateway_port"} | ({S3: "s3_port"} if config.has_own_s3 else {})
    return {name: STORED_NAMES.get(field, field) for name, field in fields.items()}


def objects_behind(config: UpConfig) -> tuple[str, int]:
    """The host and port that a node connects to for the object store."""
    if config.has_own_s3 and config.cluster_host is not None:
        return config.cluster_host, config.cluster_port
    url = urlsplit(config.s3_url)
    return url.hostname or "", url.port or PORTS[url.scheme]


def build_tls_files(
    home: Home, config: UpConfig, credentials: Credentials, instance_id: str, now: float
) -> dict[str, bytes]:
    """The files of a new certificate for the instance. Empty if this is the only host.

    Raises TerminalError if this host has no authority.
    """
    if config.cluster_host is None:
        return {}
    authority = HostFiles(TlsFolder(home.tls), credentials.cluster_id).authority()
    if authority is None:
        raise TerminalError(
            f"{home.tls} has no authority, which an instance's certificate is to be from: on a "
            "host of control it is made by `up --cluster-host`, or comes by joining"
        )
    return authority.settle(now).files(PeerRole.AGENT, instance_id, now)


async def serve(
    driver: RayDriver, reader: asyncio.StreamReader, say: Callable[[DriverAnswer], None]
) -> None:
    """DriverAnswer calls, many at a time, until the pipe ends."""
    calls: set[asyncio.Task[None]] = set()

    async def answer(call: Call) -> None:
        try:
            say(await carry_out(driver, call))
        except HostelryError as error:
            say(DriverAnswer(number=call.number, failure=Failure.of(error)))
        except Exception as error:
            LOG.exception("call %s failed", call.name)
            text = f"Ray: {type(error).__name__}: {error}"
            say(DriverAnswer(number=call.number, failure=Failure("retryable", text)))

    while line := await reader.readline():
        task = asyncio.create_task(answer(decode(line, Call)))
        calls.add(task)
        task.add_done_callback(calls.discard)


async def carry_out(driver: RayDriver, call: Call) -> DriverAnswer:
    """Carry out a call and return the answer. Raises the fleet's errors."""
    match call.name:
        case "launch" if call.instance is not None:
            return DriverAnswer(number=call.number, running=(await driver.launch(call.instance),))
        case "terminate":
            await driver.terminate(call.instance_id)
        case "list":
            return DriverAnswer(number=call.number, running=tuple(await driver.list()))
        case "end_all":
            await driver.end_all()
        case _:
            raise RetryableError(f"call {call.name} without an instance")
    return DriverAnswer(number=call.number)


async def run(home: Home, asked: int, answers: int) -> None:
    """Connect to Ray and serve. A failure to connect is the one answer."""
    config, credentials = load_config(home), load_credentials(home)

    def say(answer: DriverAnswer) -> None:
        os.write(answers, msgspec.json.encode(answer) + b"\n")

    try:
        environment = None
        if config.ray_runtime_env is not None:
            environment = read_runtime_env(Path(config.ray_runtime_env))
        ray = connect(config.ray_address, cluster_id(credentials))
    except HostelryError as error:
        say(DriverAnswer(number=0, failure=Failure.of(error)))
        sys.exit(str(error))
    driver = RayDriver(
        ray,
        lambda instance: build_order(home, config, credentials, instance),
        environment,
        lambda instance_id: say(DriverAnswer(number=0, lost=(instance_id,))),
    )
    reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(asked, "rb", buffering=0)
    )
    await serve(driver, reader, say)


def main() -> None:
    """Parse the arguments and run, until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, required=True, help="the home folder")
    home = Home(parser.parse_args().home)
    configure_logging("ray", log_format=log_format(home))
    asked, answers = os.dup(0), os.dup(1)  # Ray prints on standard output
    os.dup2(2, 1)
    asyncio.run(run(home, asked, answers))
    sys.stderr.flush()
    os._exit(0)  # Ray's own end takes seconds, and control waits for none of it


if __name__ == "__main__":
    main()
