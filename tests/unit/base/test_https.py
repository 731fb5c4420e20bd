"""TLS for clients: the connections that use it, and the certificates that clients get."""

import asyncio
import os
import socket
from pathlib import Path
from typing import cast

import pytest
from tests.https_rig import HostAuthority

from hostelry.base.errors import TerminalError
from hostelry.base.https import ServerCertificate, choose_context, is_local, server_context


@pytest.mark.parametrize(
    ("peer", "own", "local"),
    [
        pytest.param("127.0.0.1", "127.0.0.1", True, id="loopback"),
        pytest.param("127.3.0.1", "127.0.0.1", True, id="another address of loopback"),
        pytest.param("::1", "::1", True, id="loopback of IPv6"),
        pytest.param("::ffff:127.0.0.1", "::ffff:127.0.0.1", True, id="loopback as IPv6"),
        pytest.param("10.0.0.2", "10.0.0.2", True, id="from the address that it is made to"),
        pytest.param("fe80::1%eth0", "fe80::1%eth0", True, id="from that of a link"),
        pytest.param("10.0.0.9", "10.0.0.2", False, id="another host"),
        pytest.param("::ffff:10.0.0.9", "::ffff:10.0.0.2", False, id="another host, as IPv6"),
        pytest.param("fe80::2%eth0", "fe80::1%eth0", False, id="another host on the link"),
    ],
)
def test_a_peer_is_of_this_machine(peer: str, own: str, local: bool) -> None:
    assert is_local(peer, own) is local


class RemoteSocket:
    """A connection of another host, of which nothing was read."""

    def getpeername(self) -> tuple[str, int]:
        return "10.0.0.9", 40_000

    def getsockname(self) -> tuple[str, int]:
        return "10.0.0.2", 8787


@pytest.mark.parametrize(
    ("first", "is_tls"),
    [
        pytest.param(b"\x16\x03\x01", True, id="a handshake"),
        pytest.param(b"GET / HTTP/1.1\r\n", False, id="a request"),
        pytest.param(None, False, id="a client that ends"),
    ],
)
async def test_this_machines_own_programs_choose(
    tmp_path: Path, first: bytes | None, is_tls: bool
) -> None:
    held = ServerCertificate(*HostAuthority(tmp_path).pair("host", "localhost"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        accepted, _ = listening.accept()
        with accepted:
            accepted.setblocking(False)
            if first is None:
                client.close()
            else:
                client.sendall(first)
            assert (await choose_context(accepted, held) is not None) is is_tls
            assert accepted.recv(100) == (first or b""), "nothing was taken from the server"
        client.close()


def test_other_hosts_have_no_choice(tmp_path: Path) -> None:
    held = ServerCertificate(*HostAuthority(tmp_path).pair("host", "localhost"))
    remote = cast(socket.socket, RemoteSocket())
    assert asyncio.run(choose_context(remote, held)) is held.context()


def test_changed_files_are_read_again_and_bad_ones_left(tmp_path: Path) -> None:
    now_s = 0.0
    authority = HostAuthority(tmp_path)
    certificate, key = authority.pair("host", "localhost")
    held = ServerCertificate(certificate, key, lambda: now_s)
    first = held.context()
    for path, new in zip((certificate, key), authority.pair("new", "localhost"), strict=True):
        os.replace(new, path)
    assert held.context() is first, "files are looked at once a second"
    now_s = 2.0
    second = held.context()
    assert second is not first
    key.write_text("no key")
    now_s = 4.0
    assert held.context() is second


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        pytest.param("missing", "host.pem cannot be read", id="a file that is not there"),
        pytest.param("other", "no certificate with its key", id="the key of another one"),
        pytest.param("password", "the key without a password", id="an encrypted key"),
        pytest.param("empty", "no certificate with its key", id="an empty file"),
    ],
)
def test_files_that_do_not_fit_are_named(tmp_path: Path, fault: str, text: str) -> None:
    authority = HostAuthority(tmp_path)
    secret = b"secret" if fault == "password" else None
    certificate, key = authority.pair("host", "localhost", password=secret)
    if fault == "missing":
        certificate.unlink()
    elif fault == "other":
        key = authority.pair("other", "localhost")[1]
    elif fault == "empty":
        certificate.write_text("")
    with pytest.raises(TerminalError, match=text):
        server_context(certificate, key)
