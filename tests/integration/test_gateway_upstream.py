"""Kept connections against a copy that closes them unnoticed by the gateway."""

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Iterator

import pytest
import uvloop
from tests.cases import case, cases

from hostelry.http1.reply import BrokenError
from hostelry.http1.upstream import Timeouts, UpstreamConnection, UpstreamPool

pytestmark = pytest.mark.integration
TIMEOUTS = Timeouts(total_s=20)
REQUEST = (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n", b"body")
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class FickleCopy:
    """Serves `num_answers` requests per connection, reads at most one more, and closes."""

    def __init__(self, num_answers: int, reads_another: bool) -> None:
        self.num_connections = 0
        self.num_read = 0
        self.closed = threading.Event()
        self._num_answers = num_answers
        self._reads_another = reads_another
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def stop(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection:
                self.num_connections += 1
                for _ in range(self._num_answers):
                    self._read(connection)
                    connection.sendall(ANSWER)
                if self._reads_another:
                    self._read(connection)
            self.closed.set()

    def _read(self, connection: socket.socket) -> None:
        received = b""
        while not received.endswith(b"body"):
            piece = connection.recv(65536)
            if not piece:
                return
            received += piece
        self.num_read += 1


@pytest.fixture
def closing_copy() -> Iterator[FickleCopy]:
    copy = FickleCopy(num_answers=1, reads_another=False)
    yield copy
    copy.stop()


@pytest.fixture
def dying_copy() -> Iterator[FickleCopy]:
    copy = FickleCopy(num_answers=1, reads_another=True)
    yield copy
    copy.stop()


async def ask(pool: UpstreamPool, copy: FickleCopy) -> bytes:
    reply = await pool.send(copy.address, REQUEST, TIMEOUTS)
    try:
        return await reply.body(100)
    finally:
        reply.close()


async def test_a_kept_connection_that_was_closed_costs_no_request(closing_copy: FickleCopy) -> None:
    pool = UpstreamPool()
    for _ in range(20):
        closing_copy.closed.clear()
        assert await ask(pool, closing_copy) == b"ok"
        # The loop stands still, so that only the kernel knows of the close.
        assert closing_copy.closed.wait(10)
    pool.close()
    assert closing_copy.num_connections == 20


async def test_a_request_that_the_copy_read_before_it_died_is_not_sent_again(
    dying_copy: FickleCopy,
) -> None:
    pool = UpstreamPool()
    assert await ask(pool, dying_copy) == b"ok"
    with pytest.raises(BrokenError):
        await ask(pool, dying_copy)
    pool.close()
    assert (dying_copy.num_connections, dying_copy.num_read) == (1, 2)


class CopyThatEnds:
    """Answers one request on a connection, then ends it as `end` does, with a second one there."""

    def __init__(self, end: Callable[[socket.socket, threading.Event], None]) -> None:
        self.sent, self.ended = threading.Event(), threading.Event()
        self.listening = socket.create_server(("127.0.0.1", 0))
        self._end = end
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def join(self) -> None:
        self._thread.join()
        self.listening.close()

    def _serve(self) -> None:
        connection, _ = self.listening.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(ANSWER)
            self._end(connection, self.sent)
        self.ended.set()


def at_once(connection: socket.socket, sent: threading.Event) -> None:
    connection.close()


def unread(connection: socket.socket, sent: threading.Event) -> None:
    assert sent.wait(10)


def half_read(connection: socket.socket, sent: threading.Event) -> None:
    assert sent.wait(10)
    connection.recv(20)


def read_and_reset(connection: socket.socket, sent: threading.Event) -> None:
    connection.recv(65536)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def read_and_died(connection: socket.socket, sent: threading.Event) -> None:
    connection.recv(65536)


@cases(
    "end, repeated",
    case("closed before the request: nobody read it", at_once, True),
    case("had it and closed: no proof", unread, False),
    case("read a part, which may have been enough", half_read, False),
    case("read all and reset", read_and_reset, False),
    case("read all and died", read_and_died, False),
)
@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_request_is_repeated_only_where_the_kernel_vouches_for_it(
    end: Callable[[socket.socket, threading.Event], None],
    repeated: bool,
    run: Callable[[Coroutine[None, None, None]], None],
) -> None:
    copy = CopyThatEnds(end)

    async def scenario() -> None:
        pool = UpstreamPool()
        host, port = copy.listening.getsockname()
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: UpstreamConnection(pool, f"http://{host}:{port}"), host, port
        )
        first = connection.send(REQUEST, TIMEOUTS)
        assert await first.body(100) == b"ok"
        # Held back from the event loop, so that the second request goes out without having looked.
        assert end is not at_once or copy.ended.wait(10)
        second = connection.send(REQUEST, TIMEOUTS)
        copy.sent.set()
        with pytest.raises(BrokenError):
            await second.head()
        assert connection.may_repeat is repeated
        second.close()
        pool.close()

    run(scenario())
    copy.join()
