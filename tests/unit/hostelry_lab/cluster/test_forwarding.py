"""Links of the drill: held, passed and late bytes."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.cases import case, cases

from hostelry.base.ports import free_port
from hostelry_lab.cluster.forwarding import LOOPBACK, NetworkLink, NetworkLinks

HELD_S = 0.2  # for which nothing comes


@contextmanager
def linked() -> Iterator[tuple[NetworkLinks, NetworkLink, int]]:
    """A link to a server that returns its input."""
    with (
        socket.create_server((LOOPBACK, 0)) as listener,
        NetworkLinks().running() as links,
    ):
        threading.Thread(target=echo_all, args=(listener,), daemon=True).start()
        port = free_port()
        yield links, links.add(port, (LOOPBACK, listener.getsockname()[1])), port


def echo_all(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:  # the test is over
            return
        threading.Thread(target=echo, args=(connection,), daemon=True).start()


def echo(connection: socket.socket) -> None:
    with connection:
        while data := connection.recv(1000):
            connection.sendall(data)


def answer_to(connection: socket.socket, text: bytes) -> bytes | None:
    """The answer, or None without an answer."""
    connection.sendall(text)
    return received(connection, HELD_S)


def received(connection: socket.socket, within_s: float = 10.0) -> bytes | None:
    connection.settimeout(within_s)
    try:
        return connection.recv(1000)
    except TimeoutError:
        return None


def client(port: int) -> socket.socket:
    return socket.create_connection((LOOPBACK, port))


@cases(
    "containing, first, is_held",
    case("every connection", b"", b"hello", True),
    case("one whose first bytes have the name", b"name", b"the name is a", True),
    case("no other", b"name", b"hello", False),
)
def test_a_cut_holds_what_it_names_and_delivers_it_afterwards(
    containing: bytes, first: bytes, is_held: bool
) -> None:
    with linked() as (links, link, port), client(port) as old, client(port) as new:
        old.sendall(first)
        assert received(old) == first
        with links.cut(link, containing=containing):
            if is_held:
                assert answer_to(old, b"more") is None
                assert answer_to(new, first) is None
            else:
                old.sendall(b"more")
                new.sendall(first)
        assert (received(old), received(new)) == (b"more", first)


def test_an_end_is_not_seen_while_the_link_is_held() -> None:
    with linked() as (links, link, port), client(port) as connection:
        connection.sendall(b"hello")
        assert received(connection) == b"hello"
        with links.cut(link):
            connection.shutdown(socket.SHUT_WR)
            assert received(connection, HELD_S) is None
        assert received(connection) == b""


def test_each_piece_of_an_answer_is_late() -> None:
    with linked() as (links, link, port), client(port) as connection:
        with links.slowed(link, 5 * HELD_S):
            assert answer_to(connection, b"hello") is None
        assert received(connection) == b"hello"


def test_a_connection_to_a_server_that_is_not_there_ends() -> None:
    with NetworkLinks().running() as links:
        port = free_port()
        links.add(port, (LOOPBACK, free_port()))
        with client(port) as connection:
            connection.sendall(b"hello")
            assert received(connection) == b""
