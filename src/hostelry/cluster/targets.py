"""Servers behind a node proxy: their names, who may reach them, and their addresses.

role of the client's certificate   names it may reach
--------------------------------   ---------------------------------------------------------------
control                            all
gateway                            control, jobs, gateways' counts, agents, copies, certificates
agent                              the object store's S3 port, the gateway, certificates
none (it joins)                    join

Control, jobs and agents also ask for the internal key, copies for their own key.

name               its address
----------------   -----------------------------------------------------------------
of a service       as given when the proxy started
``i-...``          of the instance's agent, from its record
``c-...``          of the copy, from its record: also while its agent is restarted
``agent-c-...``    of the agent whose copy that is

Agents and copies are on loopback. Records are read again when their file has changed.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from hostelry.base.errors import TerminalError
from hostelry.base.files import Stamp, get_stamp
from hostelry.base.peers import PeerName, PeerRole
from hostelry.base.tls import CERTIFICATES, JOIN
from hostelry.fleet.records import (
    AgentRecord,
    CopyRecord,
    InstanceFolder,
    instance_folders,
    plain_name,
)

CONTROL, JOBS, GATEWAY_PEER, GATEWAY, S3 = "control", "jobs", "gateway-peer", "gateway", "s3"
INSTANCE, COPY, AGENT_OF_COPY = "i-", "c-", "agent-c-"
OF_GATEWAYS = frozenset({CONTROL, JOBS, GATEWAY_PEER, CERTIFICATES})
OF_AGENTS = frozenset({S3, GATEWAY, CERTIFICATES})


def may_reach(peer: PeerName | None, name: str) -> bool:
    """Whether `peer` (None: it has no certificate) may reach the server called `name`."""
    if peer is None:
        return name == JOIN
    if peer.role is PeerRole.CONTROL:
        return True
    if peer.role is PeerRole.GATEWAY:
        return name in OF_GATEWAYS or name.startswith((INSTANCE, COPY, AGENT_OF_COPY))
    return name in OF_AGENTS


LOOPBACK = "127.0.0.1"
MAX_CACHED = 64 * 1024
AGENT_PREFIX = AGENT_OF_COPY.removesuffix(COPY)


class _Found(msgspec.Struct, frozen=True):
    folder: InstanceFolder
    stamp: Stamp | None
    port: int


class ProxyTargets:
    """The servers of this host by name. `instances` is the folder of its instances' folders."""

    def __init__(self, services: Mapping[str, tuple[str, int]], instances: Path) -> None:
        self._services = services
        self._instances = instances
        self._copies: dict[str, _Found] = {}

    def find_address(self, name: str) -> tuple[str, int] | None:
        """Host and port. None if no running server has that name."""
        host, port = self._services.get(name) or (LOOPBACK, self._recorded_port(name))
        return (host, port) if port else None

    def _recorded_port(self, name: str) -> int | None:
        try:
            if name.startswith(INSTANCE):
                return _agent_port(InstanceFolder(self._instances / plain_name(name)).load_agent())
            if name.startswith(COPY):
                found = self._copy(name)
                return None if found is None else found.port or None
            if name.startswith(AGENT_OF_COPY):
                found = self._copy(name.removeprefix(AGENT_PREFIX))
                return None if found is None else _agent_port(found.folder.load_agent())
        except (OSError, TerminalError):  # it is being removed, or is not a folder's name
            return None
        return None

    def _copy(self, copy_id: str) -> _Found | None:
        known = self._copies.get(copy_id)
        if known is not None:
            record = known.folder.copy(copy_id)
            if (stamp := get_stamp(record.record)) == known.stamp:
                return known
            if stamp is not None:
                return self._keep(copy_id, known.folder, stamp, record.load())
            del self._copies[copy_id]
        for folder in instance_folders(self._instances):
            copy = folder.copy(copy_id)
            if (stamp := get_stamp(copy.record)) is not None:
                return self._keep(copy_id, folder, stamp, copy.load())
        return None

    def _keep(
        self, copy_id: str, folder: InstanceFolder, stamp: Stamp, record: CopyRecord | None
    ) -> _Found | None:
        """`stamp` was taken before the record was read, so that a later write is noticed."""
        if record is None:
            return None
        if len(self._copies) >= MAX_CACHED:
            self._copies.clear()
        found = self._copies[copy_id] = _Found(folder, stamp, record.port)
        return found


def _agent_port(record: AgentRecord | None) -> int | None:
    return None if record is None else record.port or None
