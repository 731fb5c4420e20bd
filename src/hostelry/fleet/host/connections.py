"""TCP connections to copies, and the copies that listen on a port.

A connection is counted at its client's end, so that a container's own network makes no difference.
It must lead to this machine's loopback, where every copy is reached: a client on another machine
may use a port with a copy's number, and so may a server elsewhere.
"""

import os
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from hostelry.base.proc import ESTABLISHED, LISTENING, TcpSocket, socket_inodes, tcp_sockets
from hostelry.fleet.host.processes import ProcessTable


def _as_printed(address: bytes) -> str:
    """An address as the kernel prints it: words in the machine's own byte order."""
    words = [address[at : at + 4] for at in range(0, len(address), 4)]
    return "".join(f"{int.from_bytes(it, sys.byteorder):08X}" for it in words)


LOOPBACK = bytes([127, 0, 0, 1])
COPIES_AT = frozenset({_as_printed(LOOPBACK), _as_printed(bytes(10) + b"\xff\xff" + LOOPBACK)})


def open_connections(ports: Collection[int]) -> Mapping[int, int]:
    """Connections that other processes hold to each of `ports` on this machine.

    This process's own are its pings. Raises OSError when the kernel's tables cannot be read.
    """
    return count_connections(tcp_sockets(), ports, socket_inodes(os.getpid()))


def count_connections(
    sockets: Iterable[TcpSocket], ports: Collection[int], own: Collection[int]
) -> Mapping[int, int]:
    """Established connections to loopback by their port, without those of the inodes `own`."""
    found: Counter[int] = Counter(dict.fromkeys(ports, 0))
    for tcp in sockets:
        to_copy = tcp.state == ESTABLISHED and tcp.remote in COPIES_AT and tcp.remote_port in found
        if to_copy and tcp.inode not in own:
            found[tcp.remote_port] += 1
    return found


def belongs_to_another(port: int, folder: Path, table: ProcessTable) -> bool:
    """Whether copies listen on `port` and the one in `folder` is not among them.

    A copy's port is free when it is chosen and is listened on seconds later; meanwhile another copy
    may have got the same one. A listener that is no copy at all may be a copy's helper, such as a
    container engine's proxy.
    """
    try:
        listening = (it for it in tcp_sockets() if it.state == LISTENING)
        inodes = {it.inode for it in listening if it.local_port == port}
        own = table.by_marker.get(str(folder), ())
        if any(inodes & socket_inodes(row.pid) for row in own):
            return False  # without a look at the files of all other copies
        return any(inodes & socket_inodes(row.pid) for row in table if row.marker)
    except OSError:
        return False
