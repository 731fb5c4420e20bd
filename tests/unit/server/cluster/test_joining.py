import asyncio
import contextlib
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import msgspec
import pytest
import uvloop
from starlette.applications import Starlette
from tests.cluster_rig import NOW

from hostelry.base.certificates import Pair, check_pair
from hostelry.base.clock import ManualClock
from hostelry.base.errors import HostelryError, RetryableError, TerminalError
from hostelry.base.peer_name import PeerName, PeerRole
from hostelry.base.tls import JOIN, ClusterTls, TlsFolder
from hostelry.domain.scope import Scope
from hostelry.server import joining
from hostelry.server.cluster import join_desk
from hostelry.server.cluster.authority import Authority
from hostelry.server.cluster.host_files import HostFiles
from hostelry.server.cluster.http_front import http_front
from hostelry.server.cluster.join_desk import JoinDesk
from hostelry.server.cluster.join_routes import PROOF_HEADER, JoinRoutes, proof_of
from hostelry.server.cluster.join_token import seconds_of
from hostelry.server.cluster.proxy import NodeProxy, proxy_listener
from hostelry.server.home import (
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

    def token(self, role: str = "gateway", expires_s: float = 60.0) -> str:
        """A token, as `hostelry join-token` gets one."""
        body = msgspec.json.encode({"role": role, "expires_s": expires_s})
        authority = self.files.authority()
        assert authority is not None
        answer = self.ask("/internal/join-tokens", body, {PROOF_HEADER: proof_of(authority, body)})
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
    store = SqlStore(SqliteFile(home.state))
    routes = JoinRoutes(
        home=home,
        store=store,
        owner=Scope("111122223333", "us-east-1"),
        clock=clock,
        address="https://control@127.0.0.1:7443",
    )
    app = Starlette(routes=list(routes.routes()))

    def in_process(_: str) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://c")

    monkeypatch.setattr(join_desk, "peer_client", in_process)
    with serving(files.folder) as port:
        yield Platform(home, files, clock, app, f"https://127.0.0.1:{port}")
    store.close()


@contextlib.contextmanager
def serving(folder: TlsFolder) -> Iterator[int]:
    """A node proxy in a thread, where only joining is answered; its port."""
    listener = proxy_listener("127.0.0.1", 0)
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


def join(platform: Platform, home: Home, token: str, role: PeerRole = PeerRole.GATEWAY) -> PeerName:
    return joining.join(platform.url, token, home, role, "second host")


@pytest.mark.parametrize("role", list(PeerRole), ids=lambda it: it.value)
def test_a_host_that_joins_gets_what_its_role_needs(
    platform: Platform, tmp_path: Path, role: PeerRole
) -> None:
    home = Home(tmp_path / "second")
    assert join(platform, home, platform.token(role.value), role) == PeerName(
        "one", role, "second-host"
    )
    assert load_credentials(home) == CREDENTIALS
    folder, is_control = TlsFolder(home.tls), role is PeerRole.CONTROL
    assert load_config(home).controls == (() if is_control else ("https://control@127.0.0.1:7443",))
    assert load_config(home).cluster_host is None
    # The keys of keys, and what opens the state of all, are control's alone.
    assert (b"postgresql" in home.config.read_bytes()) is is_control
    assert home.root_key.exists() is is_control
    assert folder.authority.exists() is is_control
    pem = folder.identity.read_bytes()
    assert check_pair(Pair(pem, pem), folder.trusted.read_bytes(), NOW).role is role
    files = [it for it in home.root.rglob("*") if it.is_file()]
    assert {stat.S_IMODE(it.stat().st_mode) for it in files} == {0o600}
    assert not [it for it in files if "joining" in str(it)]


def test_a_token_is_good_for_one_host_once(platform: Platform, tmp_path: Path) -> None:
    token, home = platform.token(), Home(tmp_path / "second")
    join(platform, home, token)
    with pytest.raises(TerminalError, match="used by another host"):
        join(platform, Home(tmp_path / "third"), token)
    with pytest.raises(TerminalError, match="has a platform already"):
        join(platform, home, token)


@pytest.mark.parametrize(
    "fails_at", ["credentials.json", "tls/identity.pem", "tls/ca.pem", "config.json"]
)
def test_a_host_that_dies_as_it_joins_joins_again_by_the_same_token(
    platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: str
) -> None:
    token, home = platform.token(), Home(tmp_path / "second")
    replace = Path.replace

    def die(path: Path, target: Path) -> Path:
        if Path(target) == home.root / fails_at:
            raise KeyboardInterrupt  # as a kill: nothing that follows is carried out
        return replace(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", die)
        with pytest.raises(KeyboardInterrupt):
            join(platform, home, token)
    assert not home.config.exists()
    join(platform, home, token)
    assert load_config(home).controls


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param(
            lambda token: token[:-1] + ("A" if token[-1] != "A" else "B"),
            "unknown",
            id="a wrong secret",
        ),
        pytest.param(
            lambda token: "h1." + "0" * 64 + token[67:],
            "another fingerprint",
            id="of another cluster",
        ),
        pytest.param(lambda token: token[:-1], "the token is none", id="cut off"),
        pytest.param(lambda _: "", "the token is none", id="empty"),
    ],
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
    forged = {PROOF_HEADER: proof_of(other, body)}
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
        seconds_of(text)
    assert seconds_of("15m") == 900.0
