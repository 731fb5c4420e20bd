import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.home.home import Home, new_credentials
from hostelry.home.ports import is_loopback, reachable_host
from hostelry.processes import objectstore
from hostelry.processes.objectstore import (
    INTERNAL_PORTS,
    MAX_SOCKET_PATH_BYTES,
    configuration_file,
    prepare,
    remove_sockets,
    socket_folder,
    store_environment,
    store_flags,
)

KEYS = new_credentials("111122223333", "us-east-1")
PORTS = range(20001, 20001 + len(INTERNAL_PORTS))


def test_every_port_is_named_and_none_is_a_default() -> None:
    flags = store_flags(Path("/o"), 8788, PORTS)
    ports = {name: value for name, value in flags.items() if ".port" in name}
    open_ports = [value for value in ports.values() if value != 0]
    assert len(set(open_ports)) == len(open_ports) == len(INTERNAL_PORTS) + 1
    assert 8080 not in open_ports
    for kind in ("master", "volume", "filer", "s3", "admin"):
        assert f"{kind}.port" in ports
        assert f"{kind}.port.grpc" in ports


def test_nothing_is_sent_home_and_nothing_leaves_loopback() -> None:
    flags = store_flags(Path("/o"), 8788, PORTS)
    assert flags["master.telemetry"] == "false"
    assert flags["ip.bind"] == "127.0.0.1"


def test_only_our_own_keys_are_known() -> None:
    identities = json.loads(configuration_file(KEYS, "http://127.0.0.1:1"))["identities"]
    assert [it["credentials"] for it in identities] == [
        [{"accessKey": KEYS.access_key_id, "secretKey": KEYS.secret_access_key}]
    ]


def test_the_operators_environment_configures_nothing() -> None:
    inherited = {"PATH": "/bin", "AWS_ACCESS_KEY_ID": "k", "WEED_S3_PORT": "1", "S3_BUCKET": "b"}
    env = store_environment(inherited, Path("/o"), "key")
    assert env["PATH"] == "/bin"
    assert not {"AWS_ACCESS_KEY_ID", "WEED_S3_PORT", "S3_BUCKET"} & set(env)
    assert env["GOMEMLIMIT"]
    assert env["WEED_JWT_SIGNING_KEY"] == env["WEED_JWT_FILER_SIGNING_READ_KEY"] == "key"


def test_what_named_the_last_runs_ports_is_forgotten_and_data_is_kept(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.make()
    data = home.objects / "data"
    (data / "m43203").mkdir(parents=True)
    (data / "mini.options").write_text("s3.port=1")
    (data / "kept_1.dat").write_bytes(b"objects")
    argv = prepare(home, 8788, KEYS, {}, "http://127.0.0.1:1").argv
    assert sorted(path.name for path in data.iterdir()) == ["kept_1.dat"]
    assert "-s3.port=8788" in argv


@cases(
    "host, loopback, reached_at",
    case("IPv4 loopback", "127.0.0.1", True, "127.0.0.1"),
    case("IPv6 loopback", "::1", True, "::1"),
    case("its name", "localhost", True, "localhost"),
    case("every IPv4 address", "0.0.0.0", False, "127.0.0.1"),
    case("every IPv6 address", "::", False, "::1"),
    case("one address of the network", "10.0.0.7", False, "10.0.0.7"),
    case("a name is never taken for loopback", "example.com", False, "example.com"),
)
def test_hosts(host: str, loopback: bool, reached_at: str) -> None:
    assert is_loopback(host) is loopback
    assert reachable_host(host) == reached_at


def run_with_keys(folder: Path, *program: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", objectstore.KEYS_MODULE, str(folder), *program]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def test_the_store_starts_with_a_certificate_of_its_own(tmp_path: Path) -> None:
    shown = run_with_keys(tmp_path, "/usr/bin/env").stdout.splitlines()
    assert f"WEED_GRPC_CA={tmp_path / 'grpc.crt'}" in shown
    assert f"WEED_GRPC_FILER_KEY={tmp_path / 'grpc.key'}" in shown
    made = [tmp_path / "grpc.crt", tmp_path / "grpc.key"]
    assert [path.stat().st_mode & 0o077 for path in made] == [0, 0]
    first = made[0].read_bytes()
    status = run_with_keys(tmp_path, "/bin/cat", "/proc/self/status").stdout
    (ignored,) = [line for line in status.splitlines() if line.startswith("SigIgn:")]
    of_python = sum(1 << (number - 1) for number in (signal.SIGPIPE, signal.SIGXFSZ))
    assert int(ignored.split()[1], 16) & of_python == 0, "what Python ignores, the program does not"
    assert made[0].read_bytes() != first, "each start has its own"


def test_a_store_that_cannot_start_names_the_cause(tmp_path: Path) -> None:
    ended = run_with_keys(tmp_path / "missing", "/usr/bin/env")
    assert ended.returncode == 1
    assert ended.stderr.startswith("the object store cannot run: [Errno 2]")


LONG = "a-home-far-down-" * 7


def test_sockets_lie_in_the_home_where_their_names_fit(tmp_path: Path) -> None:
    assert socket_folder(Path("/home/me/.hostelry/objects")) == Path("/home/me/.hostelry/objects")


def test_a_home_with_a_long_path_has_its_sockets_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objectstore, "SHORT_FOLDERS", tmp_path)
    home = Home(tmp_path / LONG / "home")
    home.make()
    argv = prepare(home, 8788, KEYS, {}, "http://127.0.0.1:1").argv
    (path,) = [it.partition("=")[2] for it in argv if it.startswith("-s3.localSocket=")]
    folder = Path(path).parent
    assert folder.parent == tmp_path
    assert folder.stat().st_mode & 0o777 == 0o700
    assert len(folder.name) + len("/tmp//filer.sock") <= MAX_SOCKET_PATH_BYTES
    assert socket_folder(home.objects) == folder, "the same again at the next start"
    remove_sockets(home)
    assert not folder.exists()


def test_a_folder_of_another_user_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objectstore, "SHORT_FOLDERS", tmp_path)
    folder = socket_folder(Path("/") / LONG / "objects")
    folder.rmdir()
    (tmp_path / "theirs").mkdir()
    folder.symlink_to(tmp_path / "theirs")
    with pytest.raises(TerminalError, match="choose a shorter --home"):
        socket_folder(Path("/") / LONG / "objects")
