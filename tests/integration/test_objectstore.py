import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.session import Session
from tests.integration.object_effects import ProbedStore, choose_queries
from tests.integration.platform import clean_environment, client, until
from tests.selection import runs_all

from hostelry.backup.read import restore, verify
from hostelry.backup.write import back_up
from hostelry.base.ports import free_port
from hostelry.home.aws_client import NO_CONFIGURATION
from hostelry.home.home import (
    Credentials,
    Home,
    UpConfig,
    new_credentials,
    save_config,
    save_credentials,
)
from hostelry.home.run_file import save_run_file
from hostelry.processes.objectstore import INTERNAL_PORTS, SOCKETS, prepare, remove_sockets
from hostelry.processes.readiness import store_check
from hostelry.s3.passage import own_key

pytestmark = pytest.mark.integration

KEYS = new_credentials("111122223333", "us-east-1")
PART = os.urandom(5 * 1024 * 1024)


@contextmanager
def object_store(home: Home) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """The store's process and S3 port. At the end it is killed, as `up` does."""
    home.make()
    port = free_port()
    command = prepare(home, port, KEYS, clean_environment(), "http://127.0.0.1:1")
    with (home.logs / "objectstore.log").open("ab") as log:
        process = subprocess.Popen(command.argv, env=dict(command.env), stdout=log, stderr=log)
    try:
        check = store_check(f"http://127.0.0.1:{port}", KEYS)
        until(lambda: check() is None, "the object store answers a signed call")
        yield process, port
    finally:
        process.kill()
        process.wait()
        remove_sockets(home)


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with object_store(Home(tmp_path_factory.mktemp("store") / "home")) as (_, port):
        yield port


@contextmanager
def s3_client(port: int, keys: Credentials = KEYS) -> Iterator[Any]:
    made = client("s3", f"http://127.0.0.1:{port}", keys)
    try:
        yield made
    finally:
        made.close()


def error_code(call: Any, **arguments: Any) -> str:
    with pytest.raises(ClientError) as refused:
        call(**arguments)
    return str(refused.value.response["Error"]["Code"])


def test_what_was_acknowledged_survives_kill_nine_in_the_middle_of_writing(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    acknowledged: dict[str, bytes] = {}
    with object_store(home) as (process, port), s3_client(port) as s3:
        s3.create_bucket(Bucket="kept")
        upload = s3.create_multipart_upload(Bucket="kept", Key="large")["UploadId"]
        where = {"Bucket": "kept", "Key": "large", "UploadId": upload}
        parts = [
            {"PartNumber": n, "ETag": s3.upload_part(**where, PartNumber=n, Body=PART)["ETag"]}
            for n in (1, 2)
        ]
        s3.complete_multipart_upload(**where, MultipartUpload={"Parts": parts})
        acknowledged["large"] = PART * 2

        def write(name: str) -> None:
            body = name.encode() * 1000
            try:
                s3.put_object(Bucket="kept", Key=name, Body=body)
            except Exception:  # noqa: BLE001 - not acknowledged, hence nothing is promised
                return
            acknowledged[name] = body
            if len(acknowledged) == 100:
                process.send_signal(signal.SIGKILL)

        with ThreadPoolExecutor(4) as writers:
            list(writers.map(write, (f"folder/{i}" for i in range(150))))
    assert len(acknowledged) >= 100
    with object_store(home) as (_, port), s3_client(port) as s3:
        for name, body in acknowledged.items():
            assert s3.get_object(Bucket="kept", Key=name)["Body"].read() == body, name


def test_a_backup_taken_in_the_middle_of_writing_has_what_was_acknowledged(
    tmp_path: Path,
) -> None:
    home, folder, config = Home(tmp_path / "home"), tmp_path / "b", UpConfig(control_port=1)
    bodies = {f"{size}/{n}": os.urandom(size) for n in range(40) for size in (10, 200_000)}
    acknowledged: list[str] = []
    with object_store(home) as (process, port), s3_client(port) as s3:
        save_credentials(home, KEYS)
        save_config(home, config)
        save_run_file(home, "objectstore", process.pid, port)
        s3.create_bucket(Bucket="kept")

        def write(name: str) -> None:
            s3.put_object(Bucket="kept", Key=name, Body=bodies[name])
            acknowledged.append(name)
            if name.endswith("5"):  # deletions must not change the order of the others
                s3.delete_object(Bucket="kept", Key=name)

        with ThreadPoolExecutor(4) as writers:
            written = writers.map(write, bodies)
            until(lambda: len(acknowledged) > 20, "objects are written")
            before = [it for it in acknowledged if not it.endswith("5")]
            back_up(home, config, folder, lambda *_: None, 0.0, time.sleep)
            assert len(acknowledged) < len(bodies), "the backup was made in the middle"
            list(written)
    verify(folder, lambda *_: None)
    other = Home(tmp_path / "other")
    restore(folder, other.root, lambda *_: None)
    with object_store(other) as (_, port), s3_client(port) as s3:
        found = [it["Key"] for it in s3.list_objects_v2(Bucket="kept")["Contents"]]
        assert set(before) <= set(found)
        for name in found:
            assert s3.get_object(Bucket="kept", Key=name)["Body"].read() == bodies[name], name


def test_only_the_right_keys_are_let_in(port: int) -> None:
    wrong = new_credentials("111122223333", "us-east-1")
    half = new_credentials("111122223333", "us-east-1", access_key_id=KEYS.access_key_id)
    for keys, code in ((wrong, "InvalidAccessKeyId"), (half, "SignatureDoesNotMatch")):
        with s3_client(port, keys) as s3:
            assert error_code(s3.list_buckets) == code
    unsigned = Session(session_vars=NO_CONFIGURATION).create_client(
        "s3",
        region_name="us-east-1",
        endpoint_url=f"http://127.0.0.1:{port}",
        config=Config(signature_version=UNSIGNED, proxies={}),
    )
    assert error_code(unsigned.list_buckets) == "AccessDenied"
    unsigned.close()


def test_buckets_and_objects_behave_as_programs_expect(port: int) -> None:
    with s3_client(port) as s3:
        s3.create_bucket(Bucket="sagemaker-us-east-1-111122223333")
        bucket = {"Bucket": "sagemaker-us-east-1-111122223333"}
        s3.put_object(**bucket, Key="models/a/adapter.bin", Body=b"0123456789")
        assert s3.head_object(**bucket, Key="models/a/adapter.bin")["ContentLength"] == 10
        ranged = s3.get_object(**bucket, Key="models/a/adapter.bin", Range="bytes=2-4")
        assert ranged["Body"].read() == b"234"
        listed = s3.list_objects_v2(**bucket, Prefix="models/", Delimiter="/")
        assert [it["Prefix"] for it in listed["CommonPrefixes"]] == ["models/a/"]
        assert error_code(s3.get_object, **bucket, Key="none") == "NoSuchKey"
        assert error_code(s3.get_object, Bucket="no-such-bucket", Key="k") == "NoSuchBucket"
        assert error_code(s3.head_bucket, Bucket="no-such-bucket") == "404"
        assert error_code(s3.create_bucket, **bucket) == "BucketAlreadyOwnedByYou"


def test_many_buckets_do_not_run_out_of_volumes(port: int) -> None:
    with s3_client(port) as s3:
        for number in range(12):
            s3.create_bucket(Bucket=f"bucket-{number}")
            s3.put_object(Bucket=f"bucket-{number}", Key="k", Body=b"x")


def test_every_port_it_listens_on_was_chosen_and_is_on_loopback(tmp_path: Path) -> None:
    with object_store(Home(tmp_path / "home")) as (process, port):
        command_line = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode().split("\0")
        chosen = {int(it.partition("=")[2]) for it in command_line if ".port" in it}
        assert len(chosen - {0}) == len(INTERNAL_PORTS) + 1
        ports = listening(process.pid)
        assert port in {number for _, number in ports}
        assert {number for _, number in ports} <= chosen
        assert {address for address, _ in ports} == {"0100007F"}


def test_no_other_way_in_over_http(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    with object_store(home) as (process, port), s3_client(port) as s3:
        s3.create_bucket(Bucket="secret")
        s3.put_object(Bucket="secret", Key="k", Body=b"s" * 100_000)
        command_line = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode().split("\0")
        ports = {
            name.removeprefix("-"): int(value)
            for name, _, value in (it.partition("=") for it in command_line)
            if name.endswith(".port") and name != "-s3.port"
        }
        assert set(ports) == {"master.port", "volume.port", "filer.port", "admin.port"}
        for name, number in ports.items():
            for path in ("/buckets/secret/k", "/dir/status", "/1,01637037d6", "/2,01637037d6"):
                with contextlib.suppress(httpx.ConnectError):  # the admin server may be slow
                    answer = httpx.get(
                        f"http://127.0.0.1:{number}{path}", trust_env=False, verify=False
                    )
                    assert answer.status_code in (401, 404), (name, path)
        for method in ("PUT", "POST", "DELETE"):
            url = f"http://127.0.0.1:{ports['filer.port']}/buckets/secret/k"
            assert (
                httpx.request(method, url, content=b"x", trust_env=False, verify=False).status_code
                >= 400
            )
        assert s3.get_object(Bucket="secret", Key="k")["Body"].read() == b"s" * 100_000


def test_a_killed_store_leaves_no_socket_behind(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    with object_store(home):
        paths = [Path(it) for it in json.loads((home.objects / SOCKETS).read_bytes())]
        assert any(path.exists() for path in paths)
        remove_sockets(home)
        assert any(path.exists() for path in paths), "what is in use stays"
        (home.objects / SOCKETS).write_text(json.dumps([str(path) for path in paths]))
    assert not any(path.exists() for path in paths)


def listening(pid: int) -> set[tuple[str, int]]:
    """Address (hexadecimal, as the kernel prints it) and port of the TCP sockets of a process."""
    fds = Path(f"/proc/{pid}/fd")
    inodes = set()
    for fd in fds.iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            inodes.add(os.readlink(fd).removeprefix("socket:[").removesuffix("]"))
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                address, port = fields[1].split(":")
                found.add((address, int(port, 16)))
    return found


def test_permissions_cover_the_effects_of_requests(port: int, pytestconfig: pytest.Config) -> None:
    """The store ignores some parts of a query, and then does something else than they say."""
    queries = choose_queries(is_thorough=runs_all(pytestconfig))
    with contextlib.closing(ProbedStore(port, own_key(KEYS))) as store:
        effects = list(store.find_effects(queries))
    assert len({it.actions for it in effects}) >= 7
    assert [it for it in effects if not it.is_needed()] == []
