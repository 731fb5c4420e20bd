"""Connections to a copy, counted in the kernel's table."""

import os
import socket
from collections.abc import Mapping

from tests.cases import case, cases

from hostelry.base.proc import parse_tcp, socket_inodes
from hostelry.fleet.host.usage import count_connections, open_connections

ROW = "{n}: {there}:{local:04X} {there}:{to:04X} {state} 0:0 00:0 0 0 0 {inode} 1 0"
LOOPBACK, OUTSIDE = "0100007F", "0200000A"  # as proc(5) has them on a little-endian machine
MAPPED = "0000000000000000FFFF0000" + LOOPBACK  # ::ffff:127.0.0.1


def row(
    to: int,
    *,
    local: int = 40_000,
    state: str = "01",
    inode: int = 7,
    there: str = LOOPBACK,
) -> str:
    return ROW.format(n=0, local=local, to=to, state=state, inode=inode, there=there)


@cases(
    "lines, own, expected",
    case("an empty table has none", [], set(), {8080: 0}),
    case("clients' ends are counted", [row(8080), row(8080)], set(), {8080: 2}),
    case("the copy's own end is not", [row(40_000, local=8080)], set(), {8080: 0}),
    case("nor what this process holds", [row(8080, inode=9)], {9}, {8080: 0}),
    case(
        "nor what is not established any more or yet",
        [row(8080, state=it) for it in ("02", "06", "08", "0A")],
        set(),
        {8080: 0},
    ),
    case("nor what leads elsewhere", [row(9090)], set(), {8080: 0}),
    case(
        "nor a caller on another machine whose own port has the copy's number",
        [row(8080, local=443, there=OUTSIDE)],
        set(),
        {8080: 0},
    ),
    case("nor one that comes by IPv6", [row(8080, there="0" * 24 + "02000000")], set(), {8080: 0}),
    case("IPv4 by an IPv6 socket is", [row(8080, there=MAPPED)], set(), {8080: 1}),
    case("a torn line is no connection", ["", "0: torn"], set(), {8080: 0}),
)
def test_connections_are_counted_by_port(
    lines: list[str], own: set[int], expected: Mapping[int, int]
) -> None:
    sockets = parse_tcp("\n".join(["  sl  local_address", *lines]))
    assert count_connections(sockets, expected, own) == expected


def test_own_connections_are_left_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            assert open_connections([port]) == {port: 0}
            assert client.fileno() >= 0
            assert socket_inodes(os.getpid())
