import json
import os
import signal
import socket
import stat
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from tests.cases import case, cases
from tests.integration.drill import (
    copies_of,
    create_component,
    create_endpoint,
    wait_ready,
    write_image_rule,
)
from tests.integration.platform import CLI, Platform, until

from hostelry.base.proc import process_stat
from hostelry.home.run_file import run_path, save_run_file

pytestmark = pytest.mark.integration

SERVICES = ("gateway-1", "mirror", "jobs", "console", "control", "s3door", "objectstore")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """One running platform for the tests that do not change it."""
    with Platform(tmp_path_factory.mktemp("up") / "home") as platform:
        yield platform


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """One platform for the tests that kill and start it. The last test stops it for good."""
    platform = Platform(tmp_path_factory.mktemp("restarted") / "home")
    write_image_rule(platform.home.root)
    with platform:
        yield platform


def test_gateway_and_object_store_answer_signed_calls(shared: Platform) -> None:
    identity = shared.boto3("sts").get_caller_identity()
    assert identity["Account"] == shared.credentials.account_id
    assert shared.boto3("sagemaker").list_endpoints()["Endpoints"] == []
    assert isinstance(shared.boto3("s3").list_buckets()["Buckets"], list)


def test_the_home_and_its_keys_are_private(shared: Platform) -> None:
    assert stat.S_IMODE(shared.home.root.stat().st_mode) == 0o700
    for path in (shared.home.credentials, shared.home.objects / "identities.json"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_a_wrong_secret_is_refused_by_gateway_and_object_store(shared: Platform) -> None:
    for service, call in (("sagemaker", "list_endpoints"), ("s3", "list_buckets")):
        client = shared.boto3(service)
        client._request_signer._credentials.secret_key = "wrong"
        with pytest.raises(ClientError) as refused:
            getattr(client, call)()
        assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403


def test_up_reports_once_why_copies_have_no_user_of_their_own(shared: Platform) -> None:
    """Pytest's folders are closed to other users, and only root can change the user of a copy."""
    output = [line for line in shared.log("up").splitlines() if "copies run as" in line]
    assert len(output) == 1
    assert "hostelry's own user, not each as one of its own: " in output[0]
    assert "mends it" in output[0] or "start it as root" in output[0]


def test_status_shows_every_process(shared: Platform) -> None:
    shown = json.loads(shared.cli("status", "--json").stdout)
    assert {it["name"]: it["pid"] for it in shown["processes"]} == {
        name: shared.pid(name) for name in ("up", "watcher", *shared.gateway_workers, *SERVICES[1:])
    }
    assert shown["state"]["endpoints"] == []
    text = shared.cli("status").stdout
    assert "No endpoints." in text
    assert "not running" not in text


def test_logs_of_one_process_and_of_all(shared: Platform) -> None:
    assert "ready at" in shared.cli("logs", "up").stdout
    everything = shared.cli("logs", "-n", "3").stdout
    assert all(f"==> {name} <==" in everything for name in ("up", *SERVICES))
    refused = shared.cli("logs", "no-such-thing", code=1).stderr
    assert "no log for no-such-thing" in refused
    assert "objectstore" in refused


def test_env_lines_work_in_a_shell(shared: Platform) -> None:
    lines = shared.cli("env").stdout
    printed = subprocess.run(
        ["sh", "-c", f'{lines}\nprintf %s "$AWS_ENDPOINT_URL $AWS_SECRET_ACCESS_KEY"'],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert printed == f"http://127.0.0.1:{shared.port} {shared.credentials.secret_access_key}"


def test_a_second_up_on_the_same_home_names_the_pid_of_the_first(shared: Platform) -> None:
    for flags in ([], ["--detach"]):
        refused = shared.cli("up", "--port", "1", *flags, code=1).stderr
        assert f"pid {shared.pid('up')}" in refused
    assert shared.boto3("sts").get_caller_identity()["Account"]


@cases(
    "flag, purpose",
    case("a taken port of the gateway is named with its flag", "--port", "gateway"),
    case("so is the object store's", "--s3-port", "object store"),
)
def test_a_taken_port(tmp_path: Path, flag: str, purpose: str) -> None:
    platform = Platform(tmp_path / "home")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        refused = platform.cli("up", "--detach", *platform.port_flags(), flag, port, code=1)
    assert f"port {port} on 127.0.0.1 cannot be used for the {purpose}" in refused.stderr
    assert flag in refused.stderr
    assert platform.processes() == []


@cases(
    "flags, output, code",
    case(
        "unsigned requests are never let in from the network",
        ["--host", "0.0.0.0", "--insecure-no-auth"],
        "allowed on loopback only",
        2,
    ),
    case("a region that is none", ["--region", "Mars"], "--region Mars", 2),
    case("an account id that is none", ["--account-id", "12"], "12 digits", 2),
    case("a port that is none", ["--port", "70000"], "from 1 to 65535", 2),
    case("an address of another machine", ["--host", "203.0.113.7"], "no such address", 2),
    case("an S3 without keys", ["--s3-endpoint", "http://127.0.0.1:1"], "AWS_ACCESS_KEY_ID", 1),
)
def test_flags_that_cannot_be(tmp_path: Path, flags: list[str], output: str, code: int) -> None:
    platform = Platform(tmp_path / "home")
    refused = platform.cli("up", *platform.port_flags(), *flags, code=code)
    assert output in refused.stderr
    assert refused.stdout == ""
    assert platform.processes() == []


def test_state_and_objects_survive_down_and_up(restarted: Platform) -> None:
    platform = restarted
    platform.boto3("s3").create_bucket(Bucket="kept")
    platform.boto3("s3").put_object(Bucket="kept", Key="a/b", Body=b"still here")
    make_model(platform, "kept")
    keys = platform.credentials
    assert "Hostelry has stopped" in platform.down()
    assert platform.processes() == []
    assert list(platform.home.run.glob("*.json")) == []
    assert "not running" in platform.cli("status", code=1).stdout
    assert "No hostelry was running" in platform.down()
    platform.start()
    assert platform.credentials == keys
    got = platform.boto3("s3").get_object(Bucket="kept", Key="a/b")
    assert got["Body"].read() == b"still here"
    assert platform.boto3("sagemaker").describe_model(ModelName="kept")["ModelArn"]


def make_model(platform: Platform, name: str) -> None:
    platform.boto3("sagemaker", retries={"total_max_attempts": 1}).create_model(
        ModelName=name,
        PrimaryContainer={"Image": "djl-lmi:1", "ModelDataUrl": "s3://kept/model.tar.gz"},
        ExecutionRoleArn=platform.credentials.role_arn,
    )


def test_what_is_killed_is_restarted_and_serves_again(restarted: Platform) -> None:
    platform = restarted
    platform.boto3("s3").create_bucket(Bucket="stays")
    for name in SERVICES:
        old = platform.kill(name)
        if name == "control":
            make_model(platform, "made-while-control-was-away")
        platform.back(name, old)
        assert f"{name} was killed by SIGKILL; restarting in 0.2 s" in platform.log("up")
    buckets = until(lambda: answer(platform.boto3("s3").list_buckets), "the store is back")
    assert "stays" in [it["Name"] for it in buckets["Buckets"]]
    until(lambda: answer(platform.boto3("sts").get_caller_identity), "the door is back")


def answer(call: Callable[[], Any]) -> Any:
    """The answer of `call`. None without an answer, or if a retry is requested."""
    try:
        return call()
    except BotoCoreError:
        return None
    except ClientError as error:
        if error.response["Error"]["Code"] != "ServiceUnavailable":
            raise
        return None


def test_stale_run_files_are_recognised_and_down_kills_what_does_not_stop(tmp_path: Path) -> None:
    platform = Platform(tmp_path / "home")
    platform.home.make()
    sleeper = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        for name in ("up", *SERVICES):
            save_run_file(platform.home, name, sleeper.pid, 1)
            record = json.loads(run_path(platform.home, name).read_bytes())
            # As if the pid had belonged to a hostelry before and was given out again since, the
            # second time after a reboot at the very same tick.
            record |= (
                {"start_ticks": record["start_ticks"] - 1} if name == "up" else {"boot_id": "-"}
            )
            run_path(platform.home, name).write_text(json.dumps(record))
        with platform:
            assert platform.boto3("sts").get_caller_identity()["Account"]
            platform.kill("gateway-1", signal.SIGSTOP)
            assert "was killed" in platform.down("--timeout", "1")
            assert platform.processes() == []
        assert sleeper.poll() is None, "a stranger with a reused pid was killed"
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_platform_that_cannot_start_names_the_cause_and_leaves_nothing(tmp_path: Path) -> None:
    platform = Platform(tmp_path / "home")
    platform.home.make()
    platform.home.state.write_bytes(b"this is no database" * 1000)
    refused = platform.cli("up", "--detach", *platform.port_flags(), code=1).stderr
    assert "control exited with code" in refused
    assert "it cannot start" in refused
    assert "not a database" in refused
    assert platform.processes() == []


def test_a_home_that_is_none_and_keys_that_are_damaged(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    platform = Platform(tmp_path / "file" / "home")
    for detach in ([], ["--detach"]):
        refused = platform.cli("up", *platform.port_flags(), *detach, code=1).stderr
        assert "cannot be used: " in refused
    platform = Platform(tmp_path / "home")
    platform.home.make()
    platform.home.credentials.write_text("{")
    assert "is damaged" in platform.cli("up", *platform.port_flags(), code=1).stderr


def keys_of_copies(platform: Platform) -> set[str]:
    records = platform.home.instances.glob("*/copies/*/copy.json")
    return {json.loads(it.read_bytes())["key"] for it in records}


def state_of(platform: Platform) -> str:
    """The whole state that control reports."""
    request = urllib.request.Request(
        f"{platform.config.control_url}/internal/state",
        headers={"X-Hostelry-Key": platform.credentials.internal_key},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return str(answer.read())


def test_copies_are_shown_logged_adopted_and_swept(restarted: Platform) -> None:
    platform = restarted
    create_endpoint(platform)
    create_component(platform, "echo", copies=2)
    wait_ready(platform, "echo", copies=2)
    copies = copies_of(platform, "echo")
    shown = platform.cli("status").stdout
    assert "component echo  InService  base  2/2 ready" in shown
    assert "ml.m5.4xlarge  variant AllTraffic  running  declared 16 CPUs, 64.0 GiB" in shown
    assert "not measured on this machine" in shown
    logs = platform.cli("logs", "echo").stdout
    assert all(f"==> {copy} <==" in logs for copy in copies)
    keys = keys_of_copies(platform)
    assert len(keys) == 2
    reported = shown + logs + platform.cli("status", "--json").stdout + state_of(platform)
    reported += platform.cli("explain", "--json").stdout + platform.cli("logs").stdout
    assert not [key for key in keys if key in reported], "a copy's key is shown to nobody"

    for name in ("watcher", "up", *platform.gateway_workers, *SERVICES[1:]):
        platform.kill(name)
    assert all(process_stat(pid) for pid in copies.values()), "copies outlive all the others"
    platform.start()
    until(lambda: copies_of(platform, "echo") == copies, "the same copies are adopted")

    platform.kill("watcher")
    platform.kill("up")
    assert "ended the processes that it had left" in platform.down()
    assert platform.processes() == []


def as_from_a_terminal() -> None:
    """A shell that runs the suite in its background has SIGINT ignored, and that is inherited."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_in_the_foreground_ends_cleanly(tmp_path: Path) -> None:
    platform = Platform(tmp_path / "home")
    process = subprocess.Popen(
        [*CLI, "up", "--home", str(platform.home.root), *platform.port_flags(), "--json"],
        env=platform.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        preexec_fn=as_from_a_terminal,
    )
    try:
        assert process.stdout is not None
        with process.stdout as printed:
            ready = json.loads(printed.readline())
            assert ready["door"] == f"http://127.0.0.1:{platform.port}"
            os.killpg(process.pid, signal.SIGINT)
            assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()
    assert platform.processes() == []


def test_another_s3_serves_with_the_operators_keys(shared: Platform, tmp_path: Path) -> None:
    pair = {
        "AWS_ACCESS_KEY_ID": shared.credentials.access_key_id,
        "AWS_SECRET_ACCESS_KEY": shared.credentials.secret_access_key,
    }
    s3_url = f"http://127.0.0.1:{shared.s3_port}"
    with Platform(
        tmp_path / "home", "--s3-endpoint", s3_url, "--region", "eu-west-1", environment=pair
    ) as platform:
        assert platform.env()["AWS_ENDPOINT_URL_S3"] == s3_url
        assert platform.running("objectstore") is None
        assert platform.credentials.access_key_id == pair["AWS_ACCESS_KEY_ID"]
        arn = platform.boto3("sts").get_caller_identity()["Arn"]
        assert platform.credentials.account_id in arn
        platform.boto3("s3").list_buckets()
        assert [it["name"] for it in status(platform)] == [
            "up",
            "watcher",
            *platform.gateway_workers,
            "mirror",
            "jobs",
            "console",
            "control",
        ]


def status(platform: Platform) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(platform.cli("status", "--json").stdout)[
        "processes"
    ]
    return found


def test_on_another_address_only_gateway_and_s3_port_are_open(tmp_path: Path) -> None:
    with Platform(tmp_path / "home", "--host", "0.0.0.0") as platform:
        assert platform.env()["AWS_ENDPOINT_URL"] == f"http://127.0.0.1:{platform.port}"
        s3 = platform.boto3("s3")
        s3.create_bucket(Bucket="outside")
        s3.put_object(Bucket="outside", Key="k", Body=b"x" * 3_000_000)
        got = s3.get_object(Bucket="outside", Key="k")["Body"].read()
        assert got == b"x" * 3_000_000
        assert open_ports(platform) == {platform.port, platform.s3_port}
        proxy, store = platform.pid("s3door"), platform.pid("objectstore")
        old = platform.kill("up")
        assert s3.head_object(Bucket="outside", Key="k")["ContentLength"] == 3_000_000
        platform.back("up", old)
        until(lambda: "adopted " in platform.log("up"), "it adopts them")
        assert (platform.pid("s3door"), platform.pid("objectstore")) == (proxy, store)
        platform.back("s3door", platform.kill("s3door"))
        assert until(lambda: answer(s3.list_buckets), "the store is reached again")


def open_ports(platform: Platform) -> set[int]:
    """Ports that processes of the platform listen on, on an address other than loopback."""
    inodes = set()
    for pid in platform.processes():
        for link in Path(f"/proc/{pid}/fd").iterdir():
            target = os.readlink(link) if link.is_symlink() else ""
            inodes.add(target.removeprefix("socket:[").removesuffix("]"))
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            address, port = fields[1].split(":")
            if fields[3] == "0A" and fields[9] in inodes and not address.endswith("0100007F"):
                found.add(int(port, 16))
    return found
