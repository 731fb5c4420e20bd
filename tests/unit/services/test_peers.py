"""Two hosts with gateways and a control, without processes: their knowledge of each other."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from starlette.applications import Starlette
from tests.cases import case, cases

from hostelry.base.clock import ManualClock
from hostelry.cluster.gateway_hosts import KNOWN_S, SHOWN_S, GatewayHostRoutes, KnownHosts
from hostelry.dataplane.balancing.sessions import SessionDict
from hostelry.dataplane.fake import FakeReplyConnection
from hostelry.dataplane.shared.counts import SharedCounts
from hostelry.dataplane.shared.session_exchange import CLOSED, SessionEntry, SharedSessions
from hostelry.home.home import Home, UpConfig
from hostelry.http1.reply import ConnectError, Reply
from hostelry.http1.upstream import Timeouts
from hostelry.processes.gateway_workers import open_table
from hostelry.routing.copy_choice import GatewayShare
from hostelry.services import peers as peers_module
from hostelry.services.peers import PeerExchange, SharedColumn

KEY = "internal"
SESSION = b"s" * 16


class Network:
    """The processes of all hosts by address. Those that are down refuse connections."""

    def __init__(self) -> None:
        self.apps: dict[str, Any] = {}
        self.down: set[str] = set()

    async def send(
        self,
        address: str,
        parts: tuple[bytes, bytes],
        timeouts: Timeouts,
        whole_below_bytes: int | None = None,
    ) -> Reply:
        if address in self.down:
            raise ConnectError("refused")
        line, *fields = parts[0].decode("latin-1").strip().split("\r\n")
        method, path, _ = line.split(" ")
        headers = dict(field.split(": ", 1) for field in fields)
        transport = httpx.ASGITransport(app=self.apps[address])
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            answer = await client.request(method, path, content=parts[1], headers=headers)
        reply = Reply(FakeReplyConnection())
        reply.set_head(answer.status_code, {})
        reply.add_chunk(answer.content)
        reply.end(reusable=True)
        return reply


class Host:
    """One host: its peers process, one gateway worker's counts, and the sessions of its workers."""

    def __init__(self, folder: Path, network: Network, clock: ManualClock, number: int) -> None:
        self.config = UpConfig(control_port=9, peer_port=number, host_id=f"h-{number}")
        self.home = Home(folder / f"h-{number}")
        self.home.make()
        self.table = SessionDict(clock.now)
        column = SharedColumn(self.home, self.config)
        self.exchange = PeerExchange(self.config, KEY, network, column, self.table)
        network.apps[self.config.peers_url] = self.exchange.app()
        self.sessions = SharedSessions(self.table, network, self.config.peers_url, KEY, clock.now)
        self.counts = self.worker()

    def worker(self) -> SharedCounts:
        table = open_table(self.home, self.config)
        assert table is not None
        return SharedCounts(table, 0)


class Hosts:
    """Two hosts, on a clock that stands for all clocks."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock, self.network = ManualClock(), Network()
        monkeypatch.setattr(peers_module, "monotonic_s", self.clock.now)
        self.control = GatewayHostRoutes(self.clock.now)
        self.network.apps["http://127.0.0.1:9"] = Starlette(routes=list(self.control.routes()))
        self.one, self.two = (Host(folder, self.network, self.clock, it) for it in (1, 2))

    async def pass_s(self, seconds: float) -> None:
        """Let time pass, and each process work."""
        for _ in range(round(seconds / 0.5)):
            self.clock.advance(0.5)
            for host in (self.one, self.two):
                if host.config.peers_url not in self.network.down:
                    await host.exchange.report()
                    await host.exchange.exchange()
            await settle()


async def settle() -> None:
    """Let tasks that were started end."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others)


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hosts:
    return Hosts(tmp_path, monkeypatch)


async def test_each_host_balances_by_the_requests_of_both_until_one_is_gone(hosts: Hosts) -> None:
    one, two = hosts.one.counts, hosts.two.counts
    one.reserve("c-a")
    end = two.reserve("c-a")
    two.reserve("c-b")
    await hosts.pass_s(2.0)
    assert [(it.of("c-a"), it.of("c-b")) for it in (one, two)] == [(2, 1), (2, 1)]
    assert (one.share, two.share) == (GatewayShare(0, 2), GatewayShare(1, 2))
    end()
    await hosts.pass_s(0.5)
    assert one.of("c-a") == 1
    hosts.network.down.add(hosts.two.config.peers_url)
    await hosts.pass_s(3.0)
    assert (one.of("c-a"), one.of("c-b")) == (1, 0), "counts of a dead host expire"
    await hosts.pass_s(2 * KNOWN_S + 1.0)
    assert one.share is None
    hosts.network.down.clear()
    await hosts.pass_s(3.0)
    assert (one.of("c-b"), two.of("c-a"), two.share) == (1, 1, GatewayShare(1, 2))


async def test_a_gateway_that_starts_with_an_empty_table_sees_other_hosts_again(
    hosts: Hosts,
) -> None:
    hosts.one.counts.reserve("c-a")
    await hosts.pass_s(2.0)
    hosts.two.home.counts.unlink()
    again = hosts.two.worker()
    assert again.of("c-a") == 0
    await hosts.pass_s(1.0)
    assert (again.of("c-a"), again.share) == (1, GatewayShare(1, 2))


async def test_without_control_the_hosts_stay_as_they_are(hosts: Hosts) -> None:
    await hosts.pass_s(2.0)
    hosts.network.down.add("http://127.0.0.1:9")
    hosts.one.counts.reserve("c-a")
    await hosts.pass_s(KNOWN_S * 2)
    assert (hosts.two.counts.of("c-a"), hosts.two.counts.share) == (1, GatewayShare(1, 2))


async def test_a_session_is_known_on_all_hosts_and_closed_on_all(hosts: Hosts) -> None:
    await hosts.pass_s(1.0)
    expires_at = hosts.clock.now() + 100.0
    hosts.one.sessions.put(SESSION, 42, expires_at)
    await settle()
    assert hosts.two.sessions.get(SESSION) == (42, expires_at)
    hosts.two.sessions.remove(SESSION)
    await settle()
    assert hosts.one.sessions.get(SESSION) is None


async def test_a_session_whose_news_was_lost_is_asked_for(hosts: Hosts) -> None:
    await hosts.pass_s(1.0)
    hosts.one.table.put(SESSION, 42, hosts.clock.now() + 100.0)
    await hosts.two.sessions.fetch(SESSION)
    assert hosts.two.sessions.get(SESSION) is not None
    await hosts.two.sessions.fetch(b"x" * 16)
    assert hosts.two.sessions.get(b"x" * 16) is None
    hosts.network.down.add(hosts.two.config.peers_url)
    await hosts.two.sessions.fetch(b"y" * 16)


@cases(
    "path, body, status",
    case("no counts", "/internal/peer/counts", b"?", 400),
    case("no session", "/internal/peer/sessions/change", b"?", 400),
    case("no session of a worker", "/internal/sessions/change", b"?", 400),
    case("no key of a session", "/internal/peer/sessions/find", b"?", 404),
    case("no key, asked by a worker", "/internal/sessions/find", b"?", 404),
)
async def test_bad_bodies(hosts: Hosts, path: str, body: bytes, status: int) -> None:
    app = hosts.network.apps[hosts.one.config.peers_url]
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app), base_url="http://localhost"
    ) as client:
        given = {"X-Hostelry-Key": KEY}
        assert (await client.post(path, content=body, headers=given)).status_code == status
        assert (await client.post(path, content=body)).status_code == 403


async def test_controls_list_has_each_host_until_it_was_silent_for_some_seconds() -> None:
    clock = ManualClock()
    control = GatewayHostRoutes(clock.now)
    app = Starlette(routes=list(control.routes()))
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app), base_url="http://c"
    ) as client:

        async def report(host_id: str) -> list[str]:
            body = msgspec.json.encode({"host_id": host_id, "address": f"http://{host_id}:1"})
            answer = await client.post("/internal/gateway-hosts", content=body)
            return [it["host_id"] for it in answer.json()["hosts"]]

        assert await report("h-1") == ["h-1"]
        assert await report("h-2") == ["h-1", "h-2"]
        assert control.live() is None, "a third one may not have reported itself yet"
        clock.advance(KNOWN_S + 1.0)
        assert await report("h-2") == ["h-2"]
        assert set(control.live() or ()) == {"h-2"}
        shown = [(it["host_id"], it["version"], it["seen_ago_s"]) for it in control.shown()]
        assert shown == [("h-1", "", KNOWN_S + 1.0), ("h-2", "", 0.0)]
        clock.advance(SHOWN_S)
        assert [it["host_id"] for it in control.shown()] == ["h-2"]
        bad = await client.post("/internal/gateway-hosts", content=b"{}")
        assert bad.status_code == 400


def test_hosts_above_the_limit_are_not_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hostelry.cluster.gateway_hosts.MAX_HOSTS", 1)
    from hostelry.cluster.gateway_hosts import GatewayHost

    clock = ManualClock()
    known = KnownHosts(clock.now)
    known.add((GatewayHost(host_id="a", address="x"), GatewayHost(host_id="b", address="y")))
    assert known.hosts() == {"a": "x"}
    clock.advance(KNOWN_S + 1.0)
    known.add((GatewayHost(host_id="b", address="y"),))  # in place of one that is silent
    assert known.hosts() == {"b": "y"}


def test_the_mark_of_a_session_entry_closes_it() -> None:
    table = SessionDict(ManualClock().now)
    SessionEntry(SESSION, 7, 2e9).keep(table)
    SessionEntry(SESSION, CLOSED, 0.0).keep(table)
    assert table.get(SESSION) is None
