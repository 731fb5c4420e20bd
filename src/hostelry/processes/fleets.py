"""The platform's fleet, for control and for the commands that end it."""

import asyncio
import contextlib
import hashlib
import logging
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from hostelry.base.errors import HostelryError
from hostelry.base.guards import INTERNAL_KEY_HEADER
from hostelry.base.peers import LeaderEpoch
from hostelry.domain.shape import Shape
from hostelry.fleet.rules.devices import find_real_devices
from hostelry.home.fleet_option import RAY
from hostelry.home.home import Credentials, Home, UpConfig, load_config, load_credentials

if TYPE_CHECKING:
    from hostelry.fleet.protocol import Agent, Fleet
    from hostelry.fleet.ray.fleet import RayFleet

LOG = logging.getLogger("hostelry.up")
HEALTH = "/internal/health"
ASK_S = 3.0
AGENT_MODULE = "hostelry.services.agent"
PROXY_MODULE = "hostelry.services.node_proxy"
END_ALL_S = 60.0


def build_fleet(
    home: Home, config: UpConfig, credentials: Credentials, epoch: LeaderEpoch | None
) -> "tuple[Fleet, Callable[[str], Agent]]":
    """Build the platform's fleet, and the function that connects to an agent. Starts nothing.

    `epoch` is the leader's epoch for calls to agents, or None for a single control.
    """
    if config.fleet == RAY:
        ray = build_ray_fleet(home, credentials, epoch)
        return ray, ray.connect
    # Imported late: `up` and `down` end the fleet without a client of its agents.
    from hostelry.fleet.local.client import HttpAgent
    from hostelry.fleet.local.fleet import AgentStart, LocalFleet
    from hostelry.processes.agent_forks import lent_forks

    command = [sys.executable, "-m", AGENT_MODULE, "--home", str(home.root)]
    devices = find_real_devices(os.environ, os.listdir("/dev"))
    key = credentials.internal_key
    start = AgentStart(forks=lent_forks(AGENT_MODULE, home.root))
    local = LocalFleet(home.instances, command, key, devices=devices, epoch=epoch, start=start)
    return local, partial(HttpAgent, internal_key=key, epoch=epoch)


def get_machine() -> Shape:
    """The resources of this machine that instances may use."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Shape(
        cpus=len(os.sched_getaffinity(0)),
        memory_bytes=memory_bytes,
        accelerators=len(find_real_devices(os.environ, os.listdir("/dev"))),
    )


def build_ray_fleet(
    home: Home, credentials: Credentials, epoch: LeaderEpoch | None = None
) -> "RayFleet":
    """Build the fleet of a platform on Ray. It starts nothing before its first call."""
    from hostelry.fleet.ray.fleet import RayFleet

    command = [sys.executable, "-m", "hostelry.services.ray_driver", "--home", str(home.root)]
    return RayFleet(command, credentials.agents_key, epoch)


def key_shown_to_agents(config: UpConfig, credentials: Credentials) -> str:
    """The key of calls to agents. Agents on other nodes must not see the internal key."""
    return credentials.agents_key if config.fleet == RAY else credentials.internal_key


def cluster_id(credentials: Credentials) -> str:
    """The name of one platform on a Ray cluster, a digest of its key."""
    return "hostelry-" + hashlib.sha256(credentials.internal_key.encode()).hexdigest()[:12]


def stop_fleet(home: Home) -> str | None:
    """End every agent and copy of the platform. Returns why some may run on, or None. Blocks.

    Ends nothing if this host is not the platform's first, or if another control runs on.
    """
    # Imported late: `up` imports this module at its start, and ends the fleet at its end.
    from hostelry.fleet.local.fleet import stop_everything

    try:
        config, credentials = load_config(home), load_credentials(home)
    except FileNotFoundError:
        stop_everything(home.instances)
        return None
    if config.is_gateway_host or config.is_control_host:
        return None
    if (other := find_other_control(home, config, credentials)) is not None:
        LOG.info("instances are left to the control at %s", other)
        return None
    stop_everything(home.instances)
    try:
        if config.fleet == RAY:
            asyncio.run(_end_all(build_ray_fleet(home, credentials)))
    except (HostelryError, TimeoutError) as error:
        return f"instances on the Ray cluster may run on: {error or 'it does not answer'}"
    return None


def find_other_control(home: Home, config: UpConfig, credentials: Credentials) -> str | None:
    """The address of another home's control that answers and so keeps the fleet. Blocks."""
    if config.store_url is None:
        return None
    # Imported late: the driver of the database is an extra.
    import httpx

    from hostelry.base import tls
    from hostelry.base.peer_http import peer_get
    from hostelry.home.platform_store import platform_database
    from hostelry.store.leaders import read_leadership

    tls.use(home.tls)
    key = {INTERNAL_KEY_HEADER: credentials.internal_key}
    try:
        database = platform_database(home, config)
        try:
            known = {it.address for it in read_leadership(database).controls}
        finally:
            database.close()
        for address in sorted(known - {config.control_address}):
            with contextlib.suppress(httpx.HTTPError):
                if peer_get(address, HEALTH, headers=key, timeout=ASK_S).status_code == 200:
                    return address
    except (HostelryError, ValueError) as error:
        LOG.warning("whether another control runs is not known: %s", error)
    return None


async def _end_all(fleet: "RayFleet") -> None:
    try:
        async with asyncio.timeout(END_ALL_S):
            await fleet.end_all()
    finally:
        fleet.close()
