"""Free loopback ports, outside the system's range for outgoing connections.

A port that was chosen here is reserved by this process, under a name that one process of the
machine can hold: no other process chooses it before it is listened on.
"""

import atexit
import random
import socket
from contextlib import ExitStack
from pathlib import Path

OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST = 20_000  # Ray's workers take ports from 10,002 to 19,999, reserved or not
HIGHEST = 65_535
FEWEST = 4_096  # fewer to choose from, and two programs would often choose the same
TRIES = 64
MAX_RESERVED = 128  # each costs a descriptor. The earliest is given up first
_reserved: dict[int, socket.socket] = {}


def free_port(host: str = "127.0.0.1") -> int:
    """A port that no process listens on now, chosen as `free_ports` chooses."""
    return free_ports(1, host)[0]


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """`count` different ports that no process listens on now.

    Outside the range of outgoing connections if that leaves enough, because a connection might take
    the port before the caller listens on it.
    """
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            _bind(each, host)
        return [int(each.getsockname()[1]) for each in sockets]


def free_range(count: int, host: str = "127.0.0.1") -> range:
    """`count` ports in a row that no process listens on now, chosen as `free_ports` chooses.

    Raises OSError if it finds none.
    """
    own = own_range(OUTGOING) or range(LOWEST, HIGHEST + 1)
    firsts = own[: max(0, len(own) - count + 1)]
    for _ in range(TRIES if firsts else 0):
        first = random.choice(firsts)
        found = range(first, first + count)
        with ExitStack() as stack:
            try:
                for port in found:
                    stack.enter_context(socket.socket()).bind((host, port))
            except OSError:
                continue
        if all(reserve_port(port) for port in found):
            return found
    raise OSError(f"no {count} free ports in a row between {own[0]} and {own[-1]}")


def _bind(free: socket.socket, host: str) -> None:
    """Bind to a free port, drawn at random: programs that ask at once seldom draw the same."""
    own = own_range(OUTGOING)
    for _ in range(TRIES if own else 0):
        port = random.choice(own)
        if not reserve_port(port):
            continue
        try:
            free.bind((host, port))
        except OSError:
            continue
        return
    free.bind((host, 0))


def reserve_port(port: int) -> bool:
    """Reserve the port for this process until it ends. False if a process has reserved it.

    A port that this process has reserved counts too: it may have given it away, to be listened on
    later.
    """
    if port in _reserved:
        return False
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f"\0hostelry-port-{port}")
    except OSError:
        name.close()
        return False
    _reserved[port] = name
    while len(_reserved) > MAX_RESERVED:
        _reserved.pop(next(iter(_reserved))).close()
    return True


@atexit.register
def give_ports_up() -> None:
    """Give up all that this process has reserved."""
    while _reserved:
        _reserved.popitem()[1].close()


def own_range(outgoing: Path) -> range:
    """Return the ports below the range of outgoing connections. Empty if too few or unknown."""
    try:
        first = int(outgoing.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return range(0)
    return range(LOWEST, first) if first - LOWEST >= FEWEST else range(0)
