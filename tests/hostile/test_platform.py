"""Attacks on a whole platform, over the connections of its clients.

No process of it ends: each test finds the pids of the one before.
"""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from http.client import HTTPConnection
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from tests.cases import case, cases
from tests.hostile.process_memory import forget_peak, peak_bytes
from tests.integration.platform import Platform, client_session

from hostelry.base.clock import SystemClock

pytestmark = pytest.mark.integration
MIB = 1024 * 1024
ONCE = {"total_max_attempts": 1}
BUCKET = "watched"
TO_BUS: dict[str, Any] = {"EventBridgeConfiguration": {}}
NO_TARGETS = b"<NotificationConfiguration/>"
NUM_SIMULATIONS = 40
NUM_BODIES = 20
BODY = bytes(20 * 1000 * 1000)  # less than max_body_bytes


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with Platform(tmp_path_factory.mktemp("hostile") / "home") as started:
        yield started


@pytest.fixture
def platform(running: Platform) -> Iterator[Platform]:
    """The platform, whose processes are the same after the test."""
    names = ("control", "jobs", "s3door", *running.gateway_workers)
    before = {it: running.pid(it) for it in names}
    yield running
    assert {it: running.pid(it) for it in names} == before


@pytest.fixture(scope="module")
def s3(running: Platform) -> Any:
    """A client of a bucket with notifications."""
    made = running.boto3("s3")
    made.create_bucket(Bucket=BUCKET)
    made.put_bucket_notification_configuration(Bucket=BUCKET, NotificationConfiguration=TO_BUS)
    return made


@cases(
    "method, body",
    case("a signature of zeros reads nothing", "GET", None),
    case("a signature of zeros removes nothing", "PUT", NO_TARGETS),
)
def test_an_access_key_without_its_secret_has_no_notifications(
    platform: Platform, s3: Any, method: str, body: bytes | None
) -> None:
    """The head has the visible part of a key in a presigned URL, and no hash of the body."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    keys = platform.credentials
    scope = f"{keys.access_key_id}/{stamp[:8]}/{keys.region}/s3/aws4_request"
    shown = f"Credential={scope}, SignedHeaders=host;x-amz-date, Signature={'0' * 64}"
    headers = {"Authorization": f"AWS4-HMAC-SHA256 {shown}", "X-Amz-Date": stamp}
    status, answer = asked(platform.s3_port, method, f"/{BUCKET}?notification", body, headers)
    assert (status, b"<Code>InvalidRequest</Code>" in answer) == (400, True)
    assert b"EventBridge" not in answer
    left = s3.get_bucket_notification_configuration(Bucket=BUCKET)
    assert {name: left[name] for name in TO_BUS} == TO_BUS


def asked(
    port: int, method: str, path: str, body: bytes | None, headers: dict[str, str]
) -> tuple[int, bytes]:
    """Status and body of the answer to an HTTP request."""
    with closing(HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_log_lines_of_brackets_that_never_close_are_filtered_within_seconds(
    platform: Platform,
) -> None:
    """30 KB each: by their length squared they would hold control for minutes."""
    logs = platform.boto3("logs", read_timeout=10, retries=ONCE)
    stream = {"logGroupName": "hostile", "logStreamName": "brackets"}
    logs.create_log_group(logGroupName="hostile")
    logs.create_log_stream(**stream)
    now_ms = int(SystemClock().now() * 1000)
    lines = ["[ " * 15_000] * 30 + ["two fields"]
    logs.put_log_events(
        **stream, logEvents=[{"timestamp": now_ms, "message": line} for line in lines]
    )
    found = logs.filter_log_events(logGroupName="hostile", filterPattern="[a, b]")
    assert [it["message"] for it in found["events"]] == ["two fields"]


def test_simulations_of_one_caller_leave_control_to_another(platform: Platform) -> None:
    """The other caller is a role. Its call is answered before the simulations end."""
    statement = {"Effect": "Allow", "Action": "*", "Resource": f"arn:aws:s3:::*{'a' * 1000}b"}
    document = json.dumps({"Version": "2012-10-17", "Statement": statement})
    costly = {
        "PolicyInputList": [document] * 10,
        "ActionNames": [f"s3:Get{number}" for number in range(100)],
        "ResourceArns": ["arn:aws:s3:::" + "a" * 2000],
    }
    iam = platform.boto3("iam", max_pool_connections=NUM_SIMULATIONS, retries=ONCE)
    began, answered = threading.Event(), threading.Event()

    def simulate() -> set[int]:
        """The numbers of results of one call after the other, until the other is answered."""
        found: set[int] = set()
        while not found or not answered.is_set():
            found.add(len(iam.simulate_custom_policy(**costly)["EvaluationResults"]))
            began.set()
        return found

    with (
        closing(client_of_role(platform)) as other,
        ThreadPoolExecutor(NUM_SIMULATIONS) as threads,
    ):
        flood = [threads.submit(simulate) for _ in range(NUM_SIMULATIONS)]
        try:
            assert began.wait(60)
            with pytest.raises(ClientError, match="Could not find endpoint"):
                other.describe_endpoint(EndpointName="nowhere")
        finally:
            answered.set()
        assert [it.result() for it in flood] == [{100}] * NUM_SIMULATIONS


def client_of_role(platform: Platform) -> Any:
    """A sagemaker client with temporary keys of the platform's role, which AssumeRole gave."""
    own = platform.credentials
    role = f"arn:aws:iam::{own.account_id}:role/{own.role_name}"
    keys = platform.boto3("sts").assume_role(RoleArn=role, RoleSessionName="other")["Credentials"]
    return client_session().create_client(
        "sagemaker",
        region_name=own.region,
        endpoint_url=platform.config.client_url,
        aws_access_key_id=keys["AccessKeyId"],
        aws_secret_access_key=keys["SecretAccessKey"],
        aws_session_token=keys["SessionToken"],
        config=Config(read_timeout=20, retries=ONCE, proxies={}),
    )


def test_bodies_of_unsigned_confirmations_take_no_memory(platform: Platform) -> None:
    """The one call that needs no signature, with 20 bodies of 20 MB at a time."""
    own = platform.credentials
    topic = f"arn:aws:sns:{own.region}:{own.account_id}:t"
    target = f"/?Action=ConfirmSubscription&TopicArn={topic}&Token={'0' * 128}"
    head = f"GET {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(BODY)}\r\n\r\n".encode()

    def answer(_: int) -> bytes:
        received = b""
        address = ("127.0.0.1", platform.port)
        with socket.create_connection(address, timeout=30) as connection, suppress(OSError):
            connection.sendall(head)
            received = connection.recv(65536)  # before any of the body is sent
            connection.sendall(BODY)
        return received

    workers = [platform.pid(it) for it in platform.gateway_workers]
    for pid in workers:
        forget_peak(pid)
    before = [peak_bytes(pid) for pid in workers]
    with ThreadPoolExecutor(NUM_BODIES) as threads:
        answers = list(threads.map(answer, range(NUM_BODIES)))
    grown = [peak_bytes(pid) - was for pid, was in zip(workers, before, strict=True)]
    assert {it.partition(b"\r\n")[0] for it in answers} == {b"HTTP/1.1 400 Bad Request"}
    assert max(grown) < 20 * MIB, grown


def schedules_of_a_page_of_32_bits(platform: Platform) -> int:
    scheduler = platform.boto3("scheduler")
    return status_of_refusal(scheduler.list_schedules, MaxResults=2**31)


def files_of_a_page_of_28_digits(platform: Platform) -> int:
    headers = {"Authorization": f"Bearer {platform.credentials.openai_api_key}"}
    return asked(platform.port, "GET", f"/v1/files?limit={'9' * 28}", None, headers)[0]


def a_queue_of_sources_that_are_a_number(platform: Platform) -> int:
    allowed = json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": 5})
    given = {"QueueName": "hostile", "Attributes": {"RedriveAllowPolicy": allowed}}
    return status_of_refusal(platform.boto3("sqs").create_queue, **given)


def status_of_refusal(call: Callable[..., Any], **params: Any) -> int:
    with pytest.raises(ClientError) as refused:
        call(**params)
    return int(refused.value.response["ResponseMetadata"]["HTTPStatusCode"])


@cases(
    "ask",
    case("a page of 32 bits has no schedules", schedules_of_a_page_of_32_bits),
    case("a page of 28 digits has no files", files_of_a_page_of_28_digits),
    case("a queue's sources are not a number", a_queue_of_sources_that_are_a_number),
)
def test_a_number_in_the_wrong_place_is_refused(
    platform: Platform, ask: Callable[[Platform], int]
) -> None:
    assert ask(platform) == 400
