"""Memory of a gateway worker: sessions, adapter locations and calls, shared with its peers."""

import logging
import socket
from collections.abc import Callable
from pathlib import Path

import msgspec

from hostelry.base.clock import monotonic_ns, monotonic_s
from hostelry.dataplane.balancing.adapter_places import AdapterPlaces
from hostelry.dataplane.balancing.sessions import SessionDict, Sessions, SessionTable
from hostelry.dataplane.capture.spool import Spool
from hostelry.dataplane.http.exchange import Exchange
from hostelry.dataplane.shared.count_table import CountTable
from hostelry.dataplane.shared.map import SharedMap
from hostelry.dataplane.shared.mapped_file import LockedError
from hostelry.dataplane.shared.quota_table import QuotaTable
from hostelry.dataplane.shared.session_exchange import SharedSessions
from hostelry.dataplane.shared.tenant_tags import (
    NO_TAGS,
    NUM_DESTINATIONS,
    SharedTags,
    TenantTags,
)
from hostelry.dataplane.tracing.call_ring import CallRing, CallSink
from hostelry.gateway.handlers.traces import GatewayWorkers
from hostelry.gateway.quota_gate import QuotaGate
from hostelry.home.home import Home, UpConfig
from hostelry.home.quota_files import get_quota_files
from hostelry.http1.upstream import Upstream
from hostelry.principals.source import PrincipalSource

LOG = logging.getLogger(__name__)
NUM_PLACES = 65536  # adapters on copies, in 4 MB


class GatewayMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Sessions, the copies that adapters are on, captured requests on disk, and noted calls.

    Without `spool` nothing is captured. `mirror` connects to the mirror process. Without it the
    worker mirrors requests itself. Without `workers` this is the only one. `is_draining`: a load
    balancer should send nothing more to this gateway. `to_control` sends requests to control.
    `quotas` holds calls to their quotas. `tags` has the tenants of other workers. Without
    `principals` only the first account's root has keys. `note_invocation` gets each invocation that
    is over, with its request id.
    """

    sessions: Sessions
    places: AdapterPlaces
    calls: CallRing
    quotas: QuotaGate
    tags: TenantTags = NO_TAGS
    spool: Spool | None = None
    mirror: Callable[[], socket.socket] | None = None
    workers: GatewayWorkers | None = None
    is_draining: Callable[[], bool] = lambda: False
    to_control: Callable[[Upstream], Upstream] = lambda pool: pool
    principals: PrincipalSource | None = None
    note_invocation: Callable[[Exchange, str], None] | None = None


def open_own_memory(now: Callable[[], float]) -> GatewayMemory:
    """Memory of this process alone, lost at its end. `now` is seconds since the epoch."""
    return GatewayMemory(
        sessions=Sessions(SessionDict(now), now),
        places=AdapterPlaces(now),
        calls=CallRing(now, monotonic_ns),
        quotas=QuotaGate(lambda: QuotaTable(None, None, (0, 1), monotonic_s), now, monotonic_ns),
    )


def open_shared_memory(
    home: Home,
    config: UpConfig,
    worker: int,
    now: Callable[[], float],
    sink: CallSink | None = None,
    exchanged: Callable[[SessionTable], SharedSessions] | None = None,
    get_num_hosts: Callable[[], int] = lambda: 1,
) -> GatewayMemory:
    """Memory of all workers, in which sessions outlive a worker. The rest is this process's.

    `worker` is the number of this worker, from 1. `get_num_hosts` counts the hosts with gateways.
    `sink` also gets each noted call. `exchanged` is the table shared with other hosts.
    """
    num_workers = config.gateway_workers
    sessions: SessionTable = _open(home.sessions, now) or SessionDict(now)
    fetch = None
    if exchanged is not None:
        sessions = shared = exchanged(sessions)
        fetch = shared.fetch
    board = _open(home.adapter_places, now, NUM_PLACES) if num_workers > 1 else None

    files = get_quota_files(home)

    def open_quotas() -> QuotaTable:
        return QuotaTable(
            files.windows,
            files.days,
            (worker - 1, num_workers),
            monotonic_s,
            get_num_hosts,
        )

    return GatewayMemory(
        sessions=Sessions(sessions, now, fetch),
        places=AdapterPlaces(now, board, num_workers=num_workers),
        calls=CallRing(now, monotonic_ns, sink=sink),
        quotas=QuotaGate(open_quotas, now, monotonic_ns),
        tags=open_tags(files.tenants, worker, num_workers),
    )


def open_tags(path: Path, worker: int, num_workers: int) -> TenantTags:
    """The tenants that the workers share. A single worker shares none."""
    if num_workers == 1:
        return NO_TAGS
    try:
        table = CountTable(path, num_workers, NUM_DESTINATIONS)
    except (OSError, LockedError) as error:
        LOG.warning("%s cannot be opened (%s): each gateway worker knows its tenants", path, error)
        return NO_TAGS
    return SharedTags(table, worker - 1, monotonic_s)


def _open(path: Path, now: Callable[[], float], capacity: int = 16384) -> SharedMap | None:
    try:
        return SharedMap(path, now, capacity)
    except (OSError, LockedError) as error:
        LOG.warning("%s cannot be opened (%s): each gateway worker has its own memory", path, error)
        return None
