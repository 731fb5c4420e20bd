import asyncio
import errno
import os
import socket
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.base.ports import free_port
from hostelry.dataplane.shared.count_table import CountTable
from hostelry.dataplane.shared.counts import SharedCounts
from hostelry.home.home import Home, UpConfig
from hostelry.home.ports import bind
from hostelry.processes.gateway_workers import SharedListener, open_table, shared_listener


def opened(
    home: Home, config: UpConfig, adopted: Collection[int] = ()
) -> AbstractContextManager[SharedListener]:
    return shared_listener(home, config, bind(config.host, config.gateway_port), adopted)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.make()
    return made


@pytest.fixture
def config() -> UpConfig:
    return UpConfig(control_port=1, gateway_port=free_port(), gateway_workers=3)


@pytest.fixture
def listener(home: Home, config: UpConfig) -> Iterator[SharedListener]:
    with opened(home, config) as made:
        yield made


def test_each_worker_inherits_the_one_socket(
    home: Home, config: UpConfig, listener: SharedListener
) -> None:
    services = listener.list_workers(home, {})
    assert [it.name for it in services] == ["gateway-1", "gateway-2", "gateway-3"]
    commands = [it.command() for it in services]
    (descriptor,) = {fd for command in commands for fd in command.pass_fds}
    for number, command in enumerate(commands, start=1):
        given = ["--worker", str(number), "--listen-fd", str(descriptor)]
        assert list(command.argv[-4:]) == given
    with socket.create_connection(("127.0.0.1", config.gateway_port), timeout=5):
        """Connections are taken in before any worker lives."""


def test_it_is_ready_once_every_worker_has_begun(
    home: Home, config: UpConfig, listener: SharedListener
) -> None:
    table = CountTable(home.counts, config.gateway_workers)
    table.set_presence(1, 0, 77)
    assert listener.why_not_ready() == "gateway-1, gateway-3 did not start"
    table.set_presence(0, 4, 78)
    table.set_presence(2, 0, 79)
    assert listener.why_not_ready() is None


def test_what_a_worker_counted_is_cleared_when_it_ends(
    home: Home, config: UpConfig, listener: SharedListener
) -> None:
    one, two = (SharedCounts(CountTable(home.counts, config.gateway_workers), n) for n in (0, 1))
    one.reserve("c-1")
    two.reserve("c-1")
    listener.list_workers(home, {})[1].after()
    assert one.of("c-1") == 1


def test_counts_of_an_earlier_start_are_forgotten(home: Home, config: UpConfig) -> None:
    table = CountTable(home.counts, config.gateway_workers)
    SharedCounts(table, 0).reserve("c-1")
    assert table.total == 1
    with opened(home, config):
        assert CountTable(home.counts, config.gateway_workers).total == 0


def test_counts_of_adopted_workers_are_kept_and_those_of_dead_ones_forgotten(
    home: Home, config: UpConfig
) -> None:
    one, two = (SharedCounts(CountTable(home.counts, config.gateway_workers), n) for n in (0, 1))
    one.reserve("c-1")
    two.reserve("c-1")
    with opened(home, config, adopted=[2]):
        assert CountTable(home.counts, config.gateway_workers).total == 1
        assert two.of("c-1") == 1


def test_one_worker_needs_no_table(home: Home) -> None:
    config = UpConfig(control_port=1, gateway_port=free_port())
    with opened(home, config) as listener:
        assert [it.name for it in listener.list_workers(home, {})] == ["gateway-1"]
        assert listener.why_not_ready() is None
    assert not home.counts.exists()


def test_without_room_on_the_disk_each_worker_counts_alone(
    home: Home,
    config: UpConfig,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    assert open_table(home, config) is None
    assert "each gateway worker counts its own requests only" in caplog.text
    with opened(home, config) as listener:
        assert listener.why_not_ready() is None
        assert len(listener.list_workers(home, {})) == 3
        listener.list_workers(home, {})[0].after()


@cases(
    "target, status",
    case("to try again", b"SageMaker.ListModels", b"503 Service Unavailable"),
    case("and KMS not to", b"TrentService.DescribeKey", b"400 Bad Request"),
)
async def test_a_client_that_comes_before_a_worker_is_refused_at_once(
    config: UpConfig, listener: SharedListener, target: bytes, status: bytes
) -> None:
    refusing = asyncio.create_task(listener.refuse_early())
    for _ in range(2):
        reader, writer = await asyncio.open_connection(config.host, config.gateway_port)
        writer.write(b"POST / HTTP/1.1\r\nX-Amz-Target: %s\r\n\r\n{}" % target)
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 %s\r\n" % status)
        assert b"Content-Length: %d" % len(body) in head.split(b"\r\n")
        writer.close()
    refusing.cancel()
