"""The node proxy of an instance on a Ray node starts again at the same place."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.agent_rig import rig

from hostelry.base.address import Address
from hostelry.base.clock import SystemClock
from hostelry.base.errors import RetryableError
from hostelry.base.json import decode
from hostelry.base.peers import PeerRole
from hostelry.base.proc import ProcessIdentity
from hostelry.base.tls import TlsFolder
from hostelry.cluster.host_files import HostFiles
from hostelry.fleet.host.processes import is_alive
from hostelry.fleet.ray import instance_proxy
from hostelry.fleet.ray.instance_proxy import InstanceProxy, end_proxy
from hostelry.fleet.ray.node_home import NodeHome
from hostelry.home.home import load_credentials
from hostelry.processes.fleets import PROXY_MODULE

pytestmark = pytest.mark.integration
HOST = "127.0.0.3"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[NodeHome]:
    with rig(tmp_path) as found:
        files = HostFiles(TlsFolder(found.home.tls), load_credentials(found.home).cluster_id)
        files.make(PeerRole.AGENT, "i-1", SystemClock().now())
        home = NodeHome(found.home.root)
        yield home
        end_proxy(home)


def proxy_of(home: NodeHome) -> InstanceProxy:
    command = [sys.executable, "-m", PROXY_MODULE, "--home", str(home.root)]
    return InstanceProxy(home, [*command, "--instance-id", "i-1"], HOST, os.environ, ["s3"])


def process(home: NodeHome) -> ProcessIdentity:
    return decode(home.proxy.read_bytes(), ProcessIdentity)


async def asked(port: int) -> bytes:
    """The answer of a link. Its node does not know a host of control."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    answer = await reader.readuntil(b"</Error>")
    writer.close()
    return answer


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGKILL, id="a dead one"),
        pytest.param(signal.SIGSTOP, id="a hung one"),
    ],
)
async def test_a_proxy_comes_back_on_its_port(
    number: signal.Signals, home: NodeHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance_proxy, "ANSWER_S", 1.0)
    monkeypatch.setattr(instance_proxy, "END_S", 0.5)
    proxy = proxy_of(home)
    await proxy.launch()
    first, address = process(home), proxy.address("i-1")
    assert address.startswith(f"https://i-1@{HOST}:")
    await proxy.launch()
    assert process(home) == first, "one that answers is left alone"
    link = proxy.link_ports["s3"]
    assert b"no host of control is known" in await asked(link)
    os.kill(first.pid, number)
    meanwhile = asyncio.create_task(asked(link))
    await proxy.launch()
    assert b"no host of control is known" in await meanwhile, "a client of a link waits"
    assert process(home) != first
    assert not is_alive(first)
    assert proxy.address("i-1") == address
    proxy.close()


async def test_a_proxy_whose_port_was_taken_gets_another(home: NodeHome) -> None:
    proxy = proxy_of(home)
    await proxy.launch()
    before = Address.parse(proxy.address("i-1"))
    end_proxy(home)
    with socket.create_server((HOST, before.port)):
        with pytest.raises(RetryableError, match="cannot be listened on"):
            await proxy.launch()
        await proxy.launch()
    assert Address.parse(proxy.address("i-1")).port != before.port
    proxy.close()
