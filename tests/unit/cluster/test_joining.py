import asyncio
import contextlib
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import uvloop
from starlette.applications import Starlette
from tests.cases import case, cases
from tests.cluster_rig import NOW, identity

from hostelry.base.certificates import Pair, check_pair
from hostelry.base.clock import ManualClock
from hostelry.base.errors import HostelryError, RetryableError, TerminalError
from hostelry.base.peers import PeerName, PeerRole
from hostelry.base.tls import JOIN, ClusterTls, TlsFolder
from hostelry.cluster import http_front as join_desk
from hostelry.cluster import joining
from hostelry.cluster.authority import Authority
from hostelry.cluster.host_files import HostFiles
from hostelry.cluster.http_front import JoinDesk, http_front
from hostelry.cluster.join_routes import PROOF_HEADER, JoinRoutes, build_proof, get_s3_url
from hostelry.cluster.join_token import parse_seconds
from hostelry.cluster.proxy import NodeProxy, open_listener
from hostelry.domain.scope import Scope
from hostelry.home.home import (
    Home,
    UpConfig,
    load_config,
    load_credentials,
    new_credentials,
    save_config,
    save_credentials,
)
from hostelry.store.sql import SqlStore
from hostelry.store.sqlite import SqliteFile

CREDENTIALS = new_credentials("111122223333", "us-east-1")


@dataclass
class Platform:
    """A first host: control's routes behind a node proxy, on a clock that tests move."""

    home: Home
    files: HostFiles
    clock: ManualClock
    app: Starlette
    url: str
    live: set[str]

    def token(self, role: str = "gateway", expires_s: float = 60.0) -> str:
        """A token, as `hostelry join-token` gets one."""
        body = msgspec.json.encode({"role": role, "expires_s": expires_s})
        authority = self.files.authority()
        assert authority is not None
        answer = self.ask(
            "/internal/join-tokens", body, {PROOF_HEADER: build_proof(authority, body)}
        )
        return str(answer.json()["token"])

    def ask(self, path: str, body: bytes, headers: dict[str, str] | None = None) -> httpx.Response:
        """The answer of control's routes."""

        async def call() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://c") as http:
                return await http.post(path, content=body, headers=headers)

        return asyncio.run(call())


@pytest.fixture
def platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Platform]:
    home, clock = Home(tmp_path / "first"), ManualClock(NOW)
    home.make()
    save_credentials(home, CREDENTIALS)
    config = UpConfig(control_port=1, cluster_host="127.0.0.1", cluster_port=7443)
    save_config(home, config)
    home.root_key.write_bytes(b"root")
    stored = msgspec.json.decode(home.config.read_bytes())
    home.config.write_bytes(msgspec.json.encode(stored | {"store_url": "postgresql://u:pw@h/d"}))
    files = HostFiles(TlsFolder(home.tls), "one")
    files.make(PeerRole.CONTROL, "first", NOW)
    store, live = SqlStore(SqliteFile(home.state)), set[str]()
    routes = JoinRoutes(
        home=home,
        store=store,
        owner=Scope("111122223333", "us-east-1"),
        clock=clock,
        address="https://control@127.0.0.1:7443",
        live=lambda: live,
    )
    app = Starlette(routes=list(routes.routes()))

    def in_process(_: str) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://c")

    monkeypatch.setattr(join_desk, "peer_client", in_process)
    with serving(files.folder) as port:
        yield Platform(home, files, clock, app, f"https://127.0.0.1:{port}", live)
    store.close()


@contextlib.contextmanager
def serving(folder: TlsFolder) -> Iterator[int]:
    """The port of a node proxy in a thread, which answers joins only."""
    listener = open_listener("127.0.0.1", 0)
    started: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
    begun = threading.Event()

    async def serve() -> None:
        stop = asyncio.Event()
        started.append((asyncio.get_running_loop(), stop))
        front = http_front(JoinDesk(folder, "http://c", "key").answer)
        proxy = NodeProxy(ClusterTls(folder), lambda _: None, {JOIN: front})
        task = asyncio.create_task(proxy.serve(listener))
        begun.set()
        await stop.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await proxy.close()

    thread = threading.Thread(target=lambda: uvloop.run(serve()))
    thread.start()
    begun.wait()
    yield int(listener.getsockname()[1])
    loop, stop = started[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join()
    listener.close()


def altered(token: str) -> str:
    """A token with another secret."""
    return token[:-1] + ("A" if token[-1] != "A" else "B")


def join(
    platform: Platform,
    home: Home,
    token: str,
    role: PeerRole = PeerRole.GATEWAY,
    name: str | None = "second-host",
) -> PeerName:
    return joining.join(platform.url, token, home, role, name)


@pytest.mark.parametrize("role", list(PeerRole), ids=lambda it: it.value)
def test_a_host_that_joins_gets_what_its_role_needs(
    platform: Platform, tmp_path: Path, role: PeerRole
) -> None:
    home = Home(tmp_path / "second")
    assert join(platform, home, platform.token(role.value), role) == PeerName(
        "one", role, "second-host"
    )
    keys = load_credentials(home)
    if role is PeerRole.AGENT:
        everything = b"".join(it.read_bytes() for it in home.root.rglob("*") if it.is_file())
        for secret in (
            CREDENTIALS.internal_key, CREDENTIALS.secret_access_key, CREDENTIALS.openai_api_key,
        ):  # fmt: skip
            assert secret.encode() not in everything
        assert (keys.agents_key, keys.cluster_id) == (
            CREDENTIALS.agents_key,
            CREDENTIALS.cluster_id,
        )
    else:
        assert keys == CREDENTIALS
    folder, is_control = TlsFolder(home.tls), role is PeerRole.CONTROL
    assert load_config(home).controls == (() if is_control else ("https://control@127.0.0.1:7443",))
    assert load_config(home).cluster_host is None
    assert load_config(home).client_s3_url == "http://127.0.0.1:8788"
    # The keys of keys, and what opens the state of all, are control's alone.
    assert (b"postgresql" in home.config.read_bytes()) is is_control
    assert home.root_key.exists() is is_control
    assert home.known_controls.exists() is is_control
    # A control of the same machine has the local fleet's instances, too.
    assert home.instances.is_symlink() is is_control
    assert load_config(home).is_control_host is is_control
    assert load_config(home).host_name == "second-host"
    assert len(load_config(home).host_id) == 16
    assert folder.authority.exists() is is_control
    pem = folder.identity.read_bytes()
    assert check_pair(Pair(pem, pem), folder.trusted.read_bytes(), NOW).role is role
    files = [it for it in home.root.rglob("*") if it.is_file()]
    assert {stat.S_IMODE(it.stat().st_mode) for it in files} == {0o600}
    assert not [it for it in files if "joining" in str(it)]


@cases(
    "own, url",
    case("on loopback: of one machine", {}, "http://127.0.0.1:8788"),
    case("on an address", {"host": "10.0.0.2"}, "http://10.0.0.2:8788"),
    case("on all: on control's address", {"host": "::"}, "http://[fd00::7]:8788"),
    case(
        "for clients by HTTPS",
        {"https_cert": "/c", "https_host": "models.example"},
        "https://models.example:8788",
    ),
    case("an operator's own is no host's", {"s3_endpoint": "https://s3"}, ""),
)
def test_gateways_of_other_hosts_name_the_embedded_store(own: dict[str, Any], url: str) -> None:
    assert get_s3_url(UpConfig(control_port=1, **own), "https://control@[fd00::7]:7443") == url


def test_a_token_is_good_for_one_host_once(platform: Platform, tmp_path: Path) -> None:
    token, home = platform.token(), Home(tmp_path / "second")
    join(platform, home, token)
    with pytest.raises(TerminalError, match="used by another host"):
        join(platform, Home(tmp_path / "third"), token)
    assert not joining.must_join(token, home, PeerRole.GATEWAY), "a unit names --join each time"
    with pytest.raises(TerminalError, match="has a platform already"):
        joining.must_join(token, platform.home, PeerRole.GATEWAY)


def test_a_host_joins_again_by_a_new_token_and_is_the_same_host(
    platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, home = platform.token(), Home(tmp_path / "second")
    join(platform, home, first)
    own = replace(load_config(home), control_port=4711, cluster_host="10.0.0.9", cluster_port=7000)
    save_config(home, own)
    platform.home.images.write_text("# newer")
    platform.live.add(own.host_id)
    with monkeypatch.context() as later:
        later.setattr(joining, "SystemClock", lambda: ManualClock(NOW + 31 * 86400.0))
        assert joining.must_join(first, home, PeerRole.GATEWAY), "its certificate has ended"
    second = platform.token()
    assert joining.must_join(second, home, PeerRole.GATEWAY)
    before = TlsFolder(home.tls).identity.read_bytes()
    for wrong in (altered(second), first):  # a refusal leaves the host as it was
        with pytest.raises(TerminalError, match=r"unknown|used by another host"):
            join(platform, home, wrong)
        assert TlsFolder(home.tls).identity.read_bytes() == before
        assert not joining.must_join(first, home, PeerRole.GATEWAY)
    assert join(platform, home, second, name=None).name == "second-host"
    assert load_config(home) == own
    assert home.images.read_text() == "# newer"
    assert TlsFolder(home.tls).identity.read_bytes() != before
    assert not joining.must_join(second, home, PeerRole.GATEWAY)


def test_a_home_of_another_role_or_cluster_does_not_join(
    platform: Platform, tmp_path: Path
) -> None:
    home = Home(tmp_path / "second")
    join(platform, home, platform.token())
    with pytest.raises(TerminalError, match="has joined as a host of role gateway; join as one"):
        joining.must_join(platform.token("control"), home, PeerRole.CONTROL)
    identity(home.tls, PeerRole.GATEWAY, cluster="two")
    with pytest.raises(TerminalError, match="is of the cluster two, and the token of one;"):
        join(platform, home, platform.token())


@pytest.mark.parametrize("fails_at", ["credentials.json", "tls/identity.pem", "config.json"])
def test_a_host_that_dies_as_it_joins_again_is_whole_and_tries_again(
    platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: str
) -> None:
    home, replaced = Home(tmp_path / "second"), Path.replace
    join(platform, home, platform.token())
    config, token = load_config(home), platform.token()

    def die(path: Path, target: Path) -> Path:
        if Path(target) == home.root / fails_at:
            raise KeyboardInterrupt
        return replaced(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", die)
        with pytest.raises(KeyboardInterrupt):
            join(platform, home, token)
    assert load_config(home) == config
    assert HostFiles(TlsFolder(home.tls), "one").own(NOW), "it serves on"
    assert joining.must_join(token, home, PeerRole.GATEWAY)
    join(platform, home, token)
    assert load_config(home).host_id == config.host_id
    assert not joining.must_join(token, home, PeerRole.GATEWAY)


def test_the_name_of_a_host_that_runs_is_no_other_hosts(platform: Platform, tmp_path: Path) -> None:
    first, second = Home(tmp_path / "first-one"), Home(tmp_path / "second")
    join(platform, first, platform.token())
    with pytest.raises(TerminalError, match=r"second-host has just joined: .* --host-name NAME"):
        join(platform, second, platform.token())
    platform.live.add(load_config(first).host_id)
    platform.clock.advance(600)
    with pytest.raises(TerminalError, match="second-host runs: give this one another name"):
        join(platform, second, platform.token())
    with pytest.raises(TerminalError, match="--host-name a b: expected 1 to 63"):
        join(platform, second, platform.token(), name="a b")
    assert join(platform, second, platform.token(), name="third").name == "third"
    platform.live.clear()
    again = Home(tmp_path / "again")
    assert join(platform, again, platform.token()).name == "second-host", "its host is gone"


def test_a_control_that_could_not_lead_uses_no_token(
    platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, home = platform.token("control"), Home(tmp_path / "second")
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(joining, "machine", lambda: "another machine")
        with pytest.raises(TerminalError, match="processes of the first host"):
            join(platform, home, token, PeerRole.CONTROL)
    platform.home.root_key.unlink()
    with pytest.raises(TerminalError, match=r"kms.key is missing on the leader's host"):
        join(platform, home, token, PeerRole.CONTROL)
    platform.home.root_key.write_bytes(b"root")
    assert not home.config.exists()
    join(platform, home, token, PeerRole.CONTROL)
    assert home.instances.resolve() == platform.home.instances.resolve()


@pytest.mark.parametrize(
    "fails_at", ["credentials.json", "tls/identity.pem", "tls/ca.pem", "config.json"]
)
def test_a_host_that_dies_as_it_joins_joins_again_by_the_same_token(
    platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: str
) -> None:
    token, home = platform.token(), Home(tmp_path / "second")
    replaced = Path.replace

    def die(path: Path, target: Path) -> Path:
        if Path(target) == home.root / fails_at:
            raise KeyboardInterrupt  # as a kill: nothing that follows is carried out
        return replaced(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", die)
        with pytest.raises(KeyboardInterrupt):
            join(platform, home, token)
    assert not home.config.exists()
    join(platform, home, token)
    assert load_config(home).controls


@cases(
    "change, reason",
    case(
        "a wrong secret", lambda token: token[:-1] + ("A" if token[-1] != "A" else "B"), "unknown"
    ),
    case("of another cluster", lambda token: "h1." + "0" * 64 + token[67:], "another fingerprint"),
    case("cut off", lambda token: token[:-1], "invalid token"),
    case("empty", lambda _: "", "invalid token"),
)
def test_a_token_that_is_not_good_is_refused(
    platform: Platform, tmp_path: Path, change: Callable[[str], str], reason: str
) -> None:
    home = Home(tmp_path / "second")
    with pytest.raises(TerminalError, match=reason):
        join(platform, home, change(platform.token()))
    assert not home.config.exists()


def test_a_token_ends_and_is_for_one_role(platform: Platform, tmp_path: Path) -> None:
    token, home = platform.token(expires_s=60.0), Home(tmp_path / "second")
    with pytest.raises(TerminalError, match="for a host of role gateway"):
        join(platform, home, token, PeerRole.CONTROL)
    platform.clock.advance(61)
    with pytest.raises(TerminalError, match="has expired 1 s ago"):
        join(platform, home, token)


def test_tokens_are_printed_for_who_can_read_the_authoritys_key(platform: Platform) -> None:
    body = msgspec.json.encode({"role": "control", "expires_s": 60.0})
    other = Authority.make("one", NOW)
    assert platform.ask("/internal/join-tokens", body).status_code == 403
    forged = {PROOF_HEADER: build_proof(other, body)}
    assert platform.ask("/internal/join-tokens", body, forged).status_code == 403


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"token": 1}', b'{"token":"h1","role":"king"}']
)
def test_a_malformed_request_is_refused(platform: Platform, body: bytes) -> None:
    assert platform.ask("/internal/join", body).status_code == 400


def test_attempts_are_bounded(platform: Platform, tmp_path: Path) -> None:
    token, refusals = platform.token(), set[str]()
    wrong = altered(token)
    for _ in range(join_desk.MAX_EACH + 1):
        with pytest.raises(HostelryError) as refused:
            join(platform, Home(tmp_path / "second"), wrong)
        refusals.add(str(refused.value).rpartition(": ")[2])
    assert "too many attempts; wait a minute" in refusals


def test_who_does_not_answer_and_what_is_no_address(tmp_path: Path, platform: Platform) -> None:
    token, home = platform.token(), Home(tmp_path / "second")
    with pytest.raises(RetryableError, match="does not let this host join"):
        joining.join("https://127.0.0.1:1", token, home, PeerRole.GATEWAY)
    for url in ("http://127.0.0.1:7443", "127.0.0.1", "https://h", "https://h:99999"):
        with pytest.raises(TerminalError, match="expected https://HOST:PORT"):
            joining.join(url, token, home, PeerRole.GATEWAY)


@pytest.mark.parametrize("text", ["", "15", "1s", "8d", "1.5h", "-1m", "15 m"])
def test_times_that_are_none(text: str) -> None:
    with pytest.raises(TerminalError, match="--expires"):
        parse_seconds(text)
    assert parse_seconds("15m") == 900.0
