"""Hosts that vanished silently are found by the kernel's data about their connections."""

import socket
import struct

import pytest

from hostelry.http1.silent_hosts import SilentHosts, is_silent, tcp_info


def info(resent: int, unacked: int, last_ack_ms: int) -> bytes:
    data = bytearray(104)
    data[2] = resent
    struct.pack_into("I", data, 24, unacked)
    struct.pack_into("I", data, 56, last_ack_ms)
    return bytes(data)


@pytest.mark.parametrize(
    ("known", "silent"),
    [
        pytest.param(info(0, 0, 60_000), False, id="an answer is awaited: the keep-alive's part"),
        pytest.param(info(0, 1, 60_000), False, id="the first bytes after a long silence"),
        pytest.param(info(2, 1, 1_000), False, id="a loss on the way"),
        pytest.param(info(6, 0, 60_000), False, id="a program that reads nothing"),
        pytest.param(info(5, 3, 8_000), True, id="nothing is acknowledged"),
        pytest.param(b"", False, id="a closed connection"),
        pytest.param(b"\x01" * 50, False, id="an older kernel's answer"),
    ],
)
def test_a_silent_host_is_no_slow_one(known: bytes, silent: bool) -> None:
    assert is_silent(known) is silent


async def test_a_living_connection_is_kept_alive_by_the_kernel_and_known() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connected = socket.create_connection(server.getsockname())
        with connected, server.accept()[0]:
            hosts = SilentHosts()
            hosts.watch("c", connected, lambda: pytest.fail("it lives"))
            assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            connected.sendall(b"x")
            assert len(tcp_info(connected)) >= 60
            assert not is_silent(tcp_info(connected))
            hosts.forget("c")
            hosts.close()
        assert tcp_info(connected) == b"", "it is closed"
