import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.cluster_rig import NOW, identity

from hostelry.base import tls
from hostelry.base.certificates import LEAF_S, Pair, check_pair, read_facts, split
from hostelry.base.clock import ManualClock
from hostelry.base.errors import RetryableError, TerminalError
from hostelry.base.peers import PeerName, PeerRole
from hostelry.base.tls import TlsFolder
from hostelry.cluster import keeper
from hostelry.cluster.authority import SIGNS_AFTER_S
from hostelry.cluster.host_files import HostFiles, OperatorFiles, find_operator_files, safe_name
from hostelry.cluster.http_front import FrontRequest
from hostelry.cluster.keeper import CertificateDesk, CertificateKeeper

DAY = 86400.0
GATEWAY = PeerName("one", PeerRole.GATEWAY, "g")


class Hosts:
    """A host of control, and a gateway's that asks it."""

    def __init__(self, root: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = clock
        self.control = HostFiles(TlsFolder(root / "control"), "one")
        self.control.make(PeerRole.CONTROL, "first", NOW)
        self.gateway = HostFiles(TlsFolder(root / "gateway"), "one")
        authority = self.control.authority()
        assert authority is not None
        self.gateway.issue_own(authority, PeerRole.GATEWAY, "g", NOW)
        self.desk = CertificateDesk(self.control, clock)
        self.keeps_control = CertificateKeeper(self.control, clock)
        self.keeps_gateway = CertificateKeeper(
            self.gateway, clock, controls=lambda: ["https://control@h:1"]
        )
        self.answers = True

        async def answer(request: httpx.Request) -> httpx.Response:
            if not self.answers:
                raise httpx.ConnectError("no route")
            asked = FrontRequest("POST", "/", request.content, GATEWAY, "h")
            status, body = await self.desk.answer(asked)
            return httpx.Response(status, content=body)

        def client(_: str) -> httpx.AsyncClient:
            transport = httpx.MockTransport(answer)
            return httpx.AsyncClient(transport=transport, base_url="http://h")

        monkeypatch.setattr(keeper, "peer_client", client)

    def look(self) -> None:
        """Both keepers look once."""
        self.keeps_control.settle(self.clock.now())
        asyncio.run(self.keeps_gateway.ask(self.clock.now()))

    def check(self) -> None:
        """Each host's certificate is accepted by the other now."""
        for mine, other in ((self.control, self.gateway), (self.gateway, self.control)):
            pem = mine.folder.identity.read_bytes()
            check_pair(Pair(pem, pem), other.folder.trusted.read_bytes(), self.clock.now())


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    yield Hosts(tmp_path, ManualClock(NOW), monkeypatch)
    tls._Process.tls = None


def test_certificates_are_renewed_at_two_thirds_and_never_end(hosts: Hosts) -> None:
    first = hosts.gateway.folder.identity.read_bytes()
    hosts.clock.advance(LEAF_S * 0.66)
    hosts.look()
    assert hosts.gateway.folder.identity.read_bytes() == first
    hosts.clock.advance(LEAF_S * 0.01)
    hosts.look()
    second = hosts.gateway.folder.identity.read_bytes()
    assert second != first
    assert read_facts(second).uris == (GATEWAY.uri,)
    for _ in range(80):
        hosts.clock.advance(DAY)
        hosts.look()
        hosts.check()


def test_while_the_authority_is_rotated_all_hosts_accept_each_other(hosts: Hosts) -> None:
    before = hosts.control.authority()
    assert before is not None
    hosts.control.save_authority(before.rotate(NOW))
    for _ in range(10):  # before and after the new one signs
        hosts.look()
        hosts.check()
        hosts.clock.advance(SIGNS_AFTER_S / 5)
    after = hosts.control.authority()
    assert after is not None
    assert after.current != before.current
    for files in (hosts.control, hosts.gateway):
        pem = files.folder.identity.read_bytes()
        assert after.has_signed(pem)
        assert not before.has_signed(pem)
    hosts.clock.advance(LEAF_S + DAY)  # the old one is trusted no more
    hosts.keeps_control.settle(hosts.clock.now())
    assert split(hosts.control.folder.trusted.read_bytes()) == [after.current.certificate.encode()]


def test_a_second_rotation_waits_for_the_first(hosts: Hosts) -> None:
    authority = hosts.control.authority()
    assert authority is not None
    with pytest.raises(TerminalError, match="signs in 30 minutes"):
        authority.rotate(NOW).rotate(NOW)


def test_without_an_answer_what_is_there_is_kept(hosts: Hosts) -> None:
    kept = hosts.gateway.folder.identity.read_bytes()
    hosts.answers = False
    hosts.clock.advance(LEAF_S * 0.7)
    with pytest.raises(RetryableError, match="no route"):
        asyncio.run(hosts.keeps_gateway.ask(hosts.clock.now()))
    assert hosts.gateway.folder.identity.read_bytes() == kept


def test_the_authority_is_given_to_controls_alone(hosts: Hosts) -> None:
    for role in PeerRole:
        peer = PeerName("one", role, "x")
        asked = FrontRequest("POST", "/", b"{}", peer, "h")
        status, body = asyncio.run(hosts.desk.answer(asked))
        assert status == 200
        assert (b"PRIVATE KEY" in body) is (role is PeerRole.CONTROL)
    for wrong in (b"", b'{"request": "x"}', b'{"request": 1}'):
        asked = FrontRequest("POST", "/", wrong, GATEWAY, "h")
        assert asyncio.run(hosts.desk.answer(asked))[0] == 400


def test_an_operators_files_are_taken_and_a_wrong_one_is_not(tmp_path: Path) -> None:
    given = identity(tmp_path / "given")
    files = HostFiles(TlsFolder(tmp_path / "home"), "one")
    operator = OperatorFiles(given.trusted, given.identity, given.identity)
    assert files.take(operator, NOW).uri == "spiffe://one/control/first"
    kept = files.folder.identity.read_bytes()
    other = identity(tmp_path / "other")
    mixed = OperatorFiles(given.trusted, given.identity, other.identity)
    with pytest.raises(TerminalError, match=r"given/identity.pem with .*not of one pair"):
        files.take(mixed, NOW)
    with pytest.raises(TerminalError, match="cannot be read: No such file"):
        files.take(OperatorFiles(given.trusted, tmp_path / "none", given.identity), NOW)
    assert files.folder.identity.read_bytes() == kept


def test_an_operator_names_all_three_files_or_none() -> None:
    assert find_operator_files(None, None, None) is None
    with pytest.raises(TerminalError, match="--tls-ca, --tls-key: name all three"):
        find_operator_files(None, "cert.pem", None)


def test_a_damaged_authority_is_refused_not_replaced(hosts: Hosts) -> None:
    hosts.control.folder.authority.write_bytes(b"{")
    with pytest.raises(TerminalError, match=r"authority.json is damaged"):
        hosts.control.make(PeerRole.CONTROL, "first", NOW)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("my host", "my-host"),
        ("fd00::2", "fd00--2"),
        ("", "host"),
        ("-x", "x"),
        ("a" * 99, "a" * 63),
    ],
)
def test_a_hosts_name_fits_a_certificate(text: str, name: str) -> None:
    assert safe_name(text) == name
