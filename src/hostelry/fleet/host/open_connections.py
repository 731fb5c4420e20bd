"""Which TCP connections to a copy are still open: requests under way, once idle ones have gone.

A client's end of each is looked at, so that a container's own network makes no difference. It leads
to this machine's loopback, where every copy is reached: a caller on another machine may well have a
port of its own with a copy's number, and so may a server elsewhere.
Source: proc(5), /proc/net/tcp: addresses in hexadecimal of words in the machine's own byte order,
state 01 is ESTABLISHED, the tenth field is the socket's inode.
"""

import os
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

PROC = Path("/proc")
ESTABLISHED = "01"
NUM_FIELDS = 10


def _words(address: bytes) -> str:
    """An address as the kernel prints it."""
    words = [address[at : at + 4] for at in range(0, len(address), 4)]
    return "".join(f"{int.from_bytes(it, sys.byteorder):08X}" for it in words)


LOOPBACK = bytes([127, 0, 0, 1])
COPIES_AT = frozenset({_words(LOOPBACK), _words(bytes(10) + b"\xff\xff" + LOOPBACK)})


def open_connections(ports: Collection[int]) -> Mapping[int, int]:
    """How many connections others than this process hold to each of `ports` on this machine."""
    lines: list[str] = []
    for name in ("tcp", "tcp6"):
        try:
            lines += (PROC / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue  # a machine without IPv6 has no such table
    return count_connections(lines, ports, own_sockets())


def count_connections(
    lines: Iterable[str], ports: Collection[int], own: Collection[int]
) -> Mapping[int, int]:
    """Established connections to loopback by their port, without those of the sockets `own`."""
    found: Counter[int] = Counter(dict.fromkeys(ports, 0))
    for line in lines:
        fields = line.split()
        if len(fields) < NUM_FIELDS or fields[3] != ESTABLISHED:
            continue
        address, _, number = fields[2].rpartition(":")
        port = int(number, 16)
        if address in COPIES_AT and port in found and int(fields[9]) not in own:
            found[port] += 1
    return found


def own_sockets() -> set[int]:
    """The inodes of this process's own sockets: its pings are nobody's requests."""
    found: set[int] = set()
    for descriptor in os.listdir(PROC / "self" / "fd"):
        try:
            target = os.readlink(PROC / "self" / "fd" / descriptor)
        except OSError:
            continue  # closed meanwhile
        if target.startswith("socket:["):
            found.add(int(target[len("socket:[") : -1]))
    return found
