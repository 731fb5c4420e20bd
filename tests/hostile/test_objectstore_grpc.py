"""Another local user at the object store's gRPC ports, which could read and change every object."""

import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cases import case, cases
from tests.integration.platform import clean_environment, until

from hostelry.base.clock import SystemClock
from hostelry.base.ports import free_port
from hostelry.home.home import Home, new_credentials
from hostelry.processes.objectstore import prepare, remove_sockets, weed_binary
from hostelry.processes.objectstore_keys import CERTIFICATE, KEY, grpc_environment
from hostelry.processes.readiness import store_check

pytestmark = pytest.mark.integration
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
SETTINGS = 4  # the type of the first frame that an HTTP/2 server sends. Source: RFC 9113


class Store:
    """A running store, its folder and its flags."""

    def __init__(self, home: Home, argv: tuple[str, ...]) -> None:
        self.home = home
        self.flags = dict(it[1:].split("=", 1) for it in argv if "=" in it)
        self.grpc_ports = {
            name.split(".")[0]: int(port)
            for name, port in self.flags.items()
            if name.endswith(".port.grpc")
        }


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    home, keys = (
        Home(tmp_path_factory.mktemp("grpc") / "home"),
        new_credentials("1" * 12, "us-east-1"),
    )
    home.make()
    port = free_port()
    command = prepare(home, port, keys, clean_environment(), "http://127.0.0.1:1")
    with (home.logs / "objectstore.log").open("ab") as log:
        process = subprocess.Popen(command.argv, env=dict(command.env), stdout=log, stderr=log)
    try:
        check = store_check(f"http://127.0.0.1:{port}", keys)
        until(lambda: check() is None, "the object store answers a signed call")
        yield Store(home, command.argv)
    finally:
        process.kill()
        process.wait()
        remove_sockets(home)


def answered(port: int, certificate: Path | None, *, with_tls: bool = True) -> bool:
    """Whether a gRPC server speaks to a client with that certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    if certificate is not None:
        context.load_cert_chain(certificate / CERTIFICATE, certificate / KEY)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as plain:
            connection = context.wrap_socket(plain) if with_tls else plain
            with connection:
                connection.sendall(PREFACE)
                frame = connection.recv(9)
    except OSError:  # an alert, or the end of the connection
        return False
    return len(frame) == 9 and frame[3] == SETTINGS


@pytest.mark.parametrize("part", ["master", "volume", "filer", "s3", "admin"])
def test_no_part_speaks_to_who_has_not_the_stores_own_certificate(
    store: Store, tmp_path: Path, part: str
) -> None:
    grpc_environment(tmp_path, SystemClock().now())
    port = store.grpc_ports[part]
    until(lambda: answered(port, store.home.objects), f"{part} speaks to its owner")
    assert not answered(port, None, with_tls=False), "a client without TLS"
    assert not answered(port, None), "a client without a certificate"
    assert not answered(port, tmp_path), "a client that made a certificate of its own"


@cases(
    "is_owner, is_let_in",
    case("a stranger sees nothing in SeaweedFS's own shell", False, False),
    case("who can read the key sees the cluster", True, True),
)
def test_seaweedfs_own_shell(store: Store, tmp_path: Path, is_owner: bool, is_let_in: bool) -> None:
    flags = store.flags
    argv = [
        str(weed_binary()),
        "shell",
        f"-master=127.0.0.1:{flags['master.port']}.{flags['master.port.grpc']}",
        f"-filer=127.0.0.1:{flags['filer.port']}.{flags['filer.port.grpc']}",
    ]
    environment = {**clean_environment(), "HOME": str(tmp_path)}
    if is_owner:
        where = store.home.objects
        environment["WEED_GRPC_CA"] = str(where / CERTIFICATE)
        environment["WEED_GRPC_CLIENT_CERT"] = str(where / CERTIFICATE)
        environment["WEED_GRPC_CLIENT_KEY"] = str(where / KEY)
    asked = b"cluster.ps\nexit\n"
    try:
        shell = subprocess.run(
            argv,
            input=asked,
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            timeout=8,
            check=False,
        )
        printed = shell.stdout
    except subprocess.TimeoutExpired as silent:
        printed = silent.stdout or b""
    assert (b"s3 servers 1" in printed) is is_let_in


def test_the_key_is_private(store: Store) -> None:
    assert (store.home.objects / KEY).stat().st_mode & 0o077 == 0
    assert (store.home.objects / CERTIFICATE).stat().st_mode & 0o077 == 0
