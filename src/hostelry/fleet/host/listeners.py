"""Who listens on a port of this machine, so that one copy is never taken for another.

A copy's port is free when it is chosen and is listened on seconds later; meanwhile another copy may
have got the same one. Linux only: reads /proc.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from hostelry.fleet.host.processes import PROC, ProcessRow

LISTENING = "0A"  # TCP_LISTEN in the kernel's state column


def belongs_to_another(port: int, folder: Path, table: Iterable[ProcessRow]) -> bool:
    """Whether copies listen on `port` and the one in `folder` is not among them.

    A listener that is no copy at all may be a copy's helper, such as a container engine's proxy.
    """
    inodes = listening_inodes(port)
    holders = {row.marker for row in table if row.marker and inodes & _sockets_of(row.pid)}
    return bool(holders) and str(folder) not in holders


def listening_inodes(port: int) -> set[str]:
    """The socket inodes that listen on `port`. Source: proc(5), /proc/net/tcp."""
    found = set()
    for name in ("tcp", "tcp6"):
        try:
            lines = (PROC / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in (line.split() for line in lines):
            if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(fields[9])
    return found


def _sockets_of(pid: int) -> set[str]:
    """The inodes of the process's open sockets; empty when it may not be read."""
    folder = PROC / str(pid) / "fd"
    try:
        links = [os.readlink(folder / name) for name in os.listdir(folder)]
    except OSError:
        return set()
    return {link[len("socket:[") : -1] for link in links if link.startswith("socket:[")}
