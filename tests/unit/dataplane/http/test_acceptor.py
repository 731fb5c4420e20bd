import asyncio
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.dataplane.http import acceptor
from hostelry.dataplane.http.acceptor import MAX_HOLD_BACK_S, Acceptor, NoPeers, hold_back_s
from hostelry.dataplane.shared.count_table import CountTable
from hostelry.dataplane.shared.counts import PRESENT_FOR_NS, PeerWorkers

NOW_NS = 10**12


class OnePeer(NoPeers):
    """Another worker with that many connections."""

    def __init__(self, num_connections: int) -> None:
        self._num_connections = num_connections

    def fewest_connections(self) -> int | None:
        return self._num_connections


@pytest.fixture
def listening_socket() -> Iterator[socket.socket]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(16)
        listening.setblocking(False)
        yield listening


def accepted(
    listening_socket: socket.socket, peers: NoPeers, num_clients: int, own: int = 0
) -> tuple[int, list[float]]:
    """How many clients are accepted, and for how long each was left to other workers."""

    async def scenario() -> tuple[int, list[float]]:
        loop = asyncio.get_running_loop()
        waits: list[float] = []
        call_later = loop.call_later

        def no_wait(delay: float, callback: Any, *arguments: Any) -> asyncio.TimerHandle:
            waits.append(delay)
            return call_later(0, callback, *arguments)

        loop.call_later = no_wait  # type: ignore[method-assign, assignment]
        taken: list[socket.socket] = []
        all_taken = asyncio.Event()

        def take(connection: socket.socket) -> None:
            taken.append(connection)
            if len(taken) == num_clients:
                all_taken.set()

        accepting = Acceptor(listening_socket, take, lambda: own + len(taken), peers)
        clients = [
            socket.create_connection(listening_socket.getsockname()) for _ in range(num_clients)
        ]
        await all_taken.wait()
        accepting.close()
        accepting.close()
        for each in (*taken, *clients):
            each.close()
        return len(taken), waits

    return asyncio.run(scenario())


@cases(
    "own, fewest, expected",
    case("there are no others", 7, None, 0.0),
    case("nobody has fewer", 3, 3, 0.0),
    case("the others have more", 3, 9, 0.0),
    case("far more than another", 1000, 0, MAX_HOLD_BACK_S),
)
def test_how_long_a_connection_is_left_to_others(
    own: int, fewest: int | None, expected: float
) -> None:
    assert hold_back_s(own, fewest) == expected


def test_the_more_it_has_the_longer_it_leaves_them() -> None:
    waits = [hold_back_s(own, 2) for own in range(2, 30)]
    assert waits == sorted(waits)
    assert waits[1] > 0


def test_a_worker_alone_takes_all_at_once(listening_socket: socket.socket) -> None:
    assert accepted(listening_socket, NoPeers(), 5) == (5, [])


def test_what_no_other_worker_takes_is_taken_after_a_while(listening_socket: socket.socket) -> None:
    num, waits = accepted(listening_socket, OnePeer(0), 3, own=4)
    assert num == 3
    assert waits == [hold_back_s(own, 0) for own in (4, 5, 6)]


def test_without_descriptors_it_waits_and_goes_on(
    listening_socket: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    failures = [errno.EMFILE, errno.ECONNABORTED]

    class Scarce:
        """A socket without free descriptors, until a client disconnects."""

        def __getattr__(self, name: str) -> Any:
            return getattr(listening_socket, name)

        def accept(self) -> Any:
            if failures:
                number = failures.pop(0)
                raise OSError(number, os.strerror(number))
            return listening_socket.accept()

    num, waits = accepted(Scarce(), NoPeers(), 2)  # type: ignore[arg-type]
    assert num == 2
    assert waits == [acceptor.SHORTAGE_PAUSE_S]
    assert "new connections wait for 1 s: Too many open files" in caplog.text


def test_workers_know_of_each_other_while_they_live(tmp_path: Path) -> None:
    now = [NOW_NS]
    tables = [CountTable(tmp_path / "counts", 3, 4) for _ in range(3)]
    one, two, three = (PeerWorkers(it, n, lambda: now[0]) for n, it in enumerate(tables))
    assert one.fewest_connections() is None
    two.publish(5)
    three.publish(9)
    assert (one.fewest_connections(), two.fewest_connections()) == (5, 9)
    now[0] += PRESENT_FOR_NS
    three.publish(9)
    assert one.fewest_connections() == 9, "one that says nothing any more hangs"
    two.publish(1)
    two.leave()
    assert one.fewest_connections() == 9, "one that stops takes no more"
    tables[0].clear(2)
    assert one.fewest_connections() is None, "one that died is not there"
