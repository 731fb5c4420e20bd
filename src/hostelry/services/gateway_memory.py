"""Memory of a gateway worker: sessions, adapter locations and calls, shared with its peers."""

import logging
import socket
from collections.abc import Callable
from pathlib import Path

import msgspec

from hostelry.base.clock import monotonic_ns
from hostelry.dataplane.balancing.adapter_places import AdapterPlaces
from hostelry.dataplane.balancing.sessions import SessionDict, Sessions, SessionTable
from hostelry.dataplane.capture.spool import Spool
from hostelry.dataplane.http.exchange import Exchange
from hostelry.dataplane.shared.map import SharedMap
from hostelry.dataplane.shared.mapped_file import LockedError
from hostelry.dataplane.shared.session_exchange import SharedSessions
from hostelry.dataplane.tracing.call_ring import CallRing, CallSink
from hostelry.gateway.handlers.traces import GatewayWorkers
from hostelry.home.home import Home, UpConfig
from hostelry.http1.upstream import Upstream
from hostelry.principals.source import PrincipalSource

LOG = logging.getLogger(__name__)
NUM_PLACES = 65536  # adapters on copies, in 4 MB


class GatewayMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Sessions, the copies that adapters are on, captured requests on disk, and noted calls.

    Without `spool` nothing is captured. `mirror` connects to the mirror process. Without it the
    worker mirrors requests itself. Without `workers` this is the only one. `is_draining`: a load
    balancer should send nothing more to this gateway. `to_control` sends requests to control.
    Without `principals` only the first account's root has keys. `note_invocation` gets each
    invocation that is over, with its request id.
    """

    sessions: Sessions
    places: AdapterPlaces
    calls: CallRing
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
    )


def open_shared_memory(
    home: Home,
    config: UpConfig,
    now: Callable[[], float],
    sink: CallSink | None = None,
    exchanged: Callable[[SessionTable], SharedSessions] | None = None,
) -> GatewayMemory:
    """Memory of all workers, in which sessions outlive a worker. The rest is this process's.

    `sink` also gets each noted call. `exchanged` is the table shared with other hosts.
    """
    num_workers = config.gateway_workers
    sessions: SessionTable = _open(home.sessions, now) or SessionDict(now)
    fetch = None
    if exchanged is not None:
        sessions = shared = exchanged(sessions)
        fetch = shared.fetch
    board = _open(home.adapter_places, now, NUM_PLACES) if num_workers > 1 else None
    return GatewayMemory(
        sessions=Sessions(sessions, now, fetch),
        places=AdapterPlaces(now, board, num_workers=num_workers),
        calls=CallRing(now, monotonic_ns, sink=sink),
    )


def _open(path: Path, now: Callable[[], float], capacity: int = 16384) -> SharedMap | None:
    try:
        return SharedMap(path, now, capacity)
    except (OSError, LockedError) as error:
        LOG.warning("%s cannot be opened (%s): each gateway worker has its own memory", path, error)
        return None
