"""Asynchronous requests on a whole platform: the jobs process killed, and a large input."""

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from tests.integration.drill import ROLE
from tests.integration.echo_image import ECHO_IMAGE
from tests.integration.platform import Platform, until

from hostelry.base.clock import SystemClock, monotonic_s
from hostelry.domain.async_request import AsyncRequest
from hostelry.domain.scope import Scope

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(280)]
NUM_REQUESTS, NUM_KILLS = 200, 4
LARGE_BYTES = 100 * 1024 * 1024
MAX_GROWTH_BYTES = 64 * 1024 * 1024
NOT_PUBLISHED = frozenset({"Invocations", "InvocationsPerInstance", "OverheadLatency"})


class Queued:
    """A platform with an asynchronous endpoint of the echo server."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self.s3 = platform.boto3("s3")
        for bucket in ("in-put", "out-put"):
            self.s3.create_bucket(Bucket=bucket)
        sns = platform.boto3("sns")
        self.topic = sns.create_topic(Name="ends")["TopicArn"]
        sns.subscribe(TopicArn=self.topic, Protocol="file", Endpoint="ends.jsonl")
        self._create_endpoint()
        credentials = platform.credentials
        self.scope = Scope(credentials.account_id, credentials.region)
        self._client = httpx.Client(
            base_url=platform.config.jobs_url,
            headers={"X-Hostelry-Key": credentials.internal_key},
            trust_env=False,
        )

    def _create_endpoint(self) -> None:
        sagemaker = self.platform.boto3("sagemaker")
        sagemaker.create_model(
            ModelName="echo", ExecutionRoleArn=ROLE, PrimaryContainer={"Image": "echo:1"}
        )
        sagemaker.create_endpoint_config(
            EndpointConfigName="queued",
            ProductionVariants=[
                {
                    "VariantName": "AllTraffic",
                    "ModelName": "echo",
                    "InstanceType": "ml.m5.large",
                    "InitialInstanceCount": 1,
                }
            ],
            AsyncInferenceConfig={
                "ClientConfig": {"MaxConcurrentInvocationsPerInstance": 8},
                "OutputConfig": {
                    "S3OutputPath": "s3://out-put/results",
                    "NotificationConfig": {"SuccessTopic": self.topic},
                },
            },
        )
        sagemaker.create_endpoint(EndpointName="queued", EndpointConfigName="queued")
        sagemaker.get_waiter("endpoint_in_service").wait(
            EndpointName="queued", WaiterConfig={"Delay": 1, "MaxAttempts": 60}
        )

    def submit(self, name: str, **given: Any) -> bool:
        """Whether the request was acknowledged."""
        now = SystemClock().now()
        request = AsyncRequest(
            id=name,
            inference_id=name,
            scope=self.scope,
            endpoint_name="queued",
            output_uri=f"s3://out-put/results/{name}.out",
            failure_uri="",
            success_topic_arn=self.topic,
            accepted_at=now,
            expires_at=now + 600,
            timeout_s=60.0,
            **given,
        )
        body = msgspec.msgpack.encode(request)
        try:
            answer = self._client.post("/internal/async-requests", content=body)
        except httpx.HTTPError:
            return False
        return answer.status_code == 204

    def output(self, name: str) -> bytes | None:
        try:
            found = self.s3.get_object(Bucket="out-put", Key=f"results/{name}.out")
        except self.s3.exceptions.NoSuchKey:
            return None
        content: bytes = found["Body"].read()
        return content

    def states(self) -> dict[str, str]:
        with sqlite3.connect(f"file:{self.platform.home.jobs}?mode=ro", uri=True) as file:
            return dict(file.execute("SELECT id, state FROM async_request").fetchall())

    def close(self) -> None:
        self._client.close()


@pytest.fixture(scope="module")
def queued(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queued]:
    home = Path(tmp_path_factory.mktemp("async")) / "home"
    home.mkdir(mode=0o700)
    (home / "images.toml").write_text(ECHO_IMAGE)
    with Platform(home) as platform:
        found = Queued(platform)
        yield found
        found.close()


def test_every_acknowledged_request_has_its_output_though_jobs_is_killed(queued: Queued) -> None:
    contents = {f"r{it}": f"sleep 0.1{it:04d}".encode() for it in range(NUM_REQUESTS)}
    accepted: list[str] = []
    is_over = threading.Event()

    def submit(item: tuple[str, bytes]) -> None:
        name, content = item
        for attempt in range(1000):
            own = f"{name}-{attempt}"
            given: dict[str, Any] = {"body": content}
            if int(name[1:]) % 2:
                queued.s3.put_object(Bucket="in-put", Key=own, Body=content)
                given = {"input_uri": f"s3://in-put/{own}"}
            if queued.submit(own, **given):
                accepted.append(own)
                return
            time.sleep(0.05)

    def kill() -> None:
        for _ in range(NUM_KILLS):
            old_pid = queued.platform.kill("jobs", signal.SIGKILL)
            queued.platform.back("jobs", old_pid)
            if is_over.wait(0.7):
                return

    killing = threading.Thread(target=kill)
    with ThreadPoolExecutor(8) as pool:
        killing.start()
        list(pool.map(submit, contents.items()))
    killing.join()
    is_over.set()
    assert len(accepted) == NUM_REQUESTS

    def finished() -> bool:
        states = queued.states()
        return all(states[it] == "completed" for it in accepted)

    until(finished, "every request is completed", 120)
    wrong = [it for it in accepted if queued.output(it) != contents[it.partition("-")[0]]]
    assert not wrong
    until(
        lambda: set(queued.platform.notified("ends.jsonl")) >= set(accepted),
        "every end is notified",
    )


def rss_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_a_large_input_is_never_whole_in_the_jobs_process(queued: Queued) -> None:
    content = os.urandom(1024 * 1024) * (LARGE_BYTES // (1024 * 1024))
    queued.s3.put_object(Bucket="in-put", Key="large", Body=content)
    assert queued.submit("before", body=b"1")
    until(lambda: queued.output("before"), "a small request is done")
    pid = queued.platform.pid("jobs")
    before = most = rss_bytes(pid)
    assert queued.submit("large", input_uri="s3://in-put/large")
    deadline = monotonic_s() + 120
    while queued.states()["large"] != "completed":
        most = max(most, rss_bytes(pid))
        assert monotonic_s() < deadline, "the large request is not done"
        time.sleep(0.01)
    assert queued.output("large") == content
    assert most - before < MAX_GROWTH_BYTES


def test_outputs_wait_for_an_object_store_that_was_killed_and_no_attempt_counts(
    queued: Queued,
) -> None:
    names = [f"store{it}" for it in range(12)]
    for name in names:
        assert queued.submit(name, body=b"sleep 0.5")
    old_pid = queued.platform.kill("objectstore", signal.SIGKILL)
    queued.platform.back("objectstore", old_pid)

    def finished() -> bool:
        states = queued.states()
        return all(states[it] == "completed" for it in names)

    until(finished, "every request is completed", 90)
    assert {queued.output(it) for it in names} == {b"sleep 0.5"}
    with sqlite3.connect(f"file:{queued.platform.home.jobs}?mode=ro", uri=True) as file:
        rows = file.execute("SELECT attempt FROM async_request WHERE id LIKE 'store%'").fetchall()
    assert set(rows) == {(1,)}


def test_an_output_is_encrypted_under_the_key_of_its_endpoint(queued: Queued) -> None:
    key = queued.platform.boto3("kms").create_key()["KeyMetadata"]["KeyId"]
    assert queued.submit("sealed", body=b"1", kms_key_id=key)
    until(lambda: queued.states()["sealed"] == "completed", "the request is done")
    found = queued.s3.head_object(Bucket="out-put", Key="results/sealed.out")
    assert (found["ServerSideEncryption"], key in found["SSEKMSKeyId"]) == ("aws:kms", True)


def test_cloudwatch_has_the_metrics_of_asynchronous_endpoints_and_no_others(
    queued: Queued,
) -> None:
    cloudwatch = queued.platform.boto3("cloudwatch")

    def names() -> set[str]:
        found = cloudwatch.list_metrics(
            Namespace="AWS/SageMaker", Dimensions=[{"Name": "EndpointName", "Value": "queued"}]
        )
        return {it["MetricName"] for it in found["Metrics"]}

    assert queued.submit("seen", body=b"1")
    until(lambda: {"ApproximateBacklogSize", "ModelLatency", "TimeInBacklog"} <= names(), "metrics")
    assert names() >= {
        "ApproximateAgeOfOldestRequest",
        "ApproximateBacklogSizePerInstance",
        "HasBacklogWithoutCapacity",
        "InvocationsProcesssed",
        "Invocation4XXErrors",
        "Invocation5XXErrors",
        "TotalProcessingTime",
    }
    assert not {it for it in names() if it in NOT_PUBLISHED}


def test_a_failed_request_is_a_dead_letter_that_can_be_retried(queued: Queued) -> None:
    runtime, jobs = queued.platform.boto3("sagemaker-runtime"), queued.platform.job_command
    asked = runtime.invoke_endpoint_async(
        EndpointName="queued", InputLocation="s3://in-put/not-yet", InferenceId="late-input"
    )
    assert asked["ResponseMetadata"]["HTTPStatusCode"] == 202
    assert asked["OutputLocation"] == "s3://out-put/results/late-input.out"

    def dead_letters() -> list[dict[str, Any]]:
        listed = jobs("list", "--state", "failed", "--endpoint", "queued", "--json").stdout
        found = msgspec.json.decode(listed)["jobs"]
        return [it for it in found if it["inference_id"] == "late-input"]

    [letter] = until(dead_letters, "the request has failed")
    assert "s3://in-put/not-yet" in letter["reason"]
    assert "s3://in-put/not-yet" in jobs("show", "late-input").stdout
    line = until(lambda: data_log_line(queued, "late-input"), "its data log has the failure")
    assert "attempt 1, failed: " in line
    assert "s3://in-put/not-yet" in line
    queued.s3.put_object(Bucket="in-put", Key="not-yet", Body=b"here now")
    assert "waits again" in jobs("retry", "late-input").stdout
    until(lambda: queued.output("late-input") == b"here now", "the retried request is answered")
    assert "completed" in jobs("list").stdout
    again = jobs("retry", "late-input", code=1)
    assert "only failed ones are retried" in again.stderr
    assert "dropped" in jobs("drop", "late-input").stdout
    assert jobs("show", "late-input", code=1).stderr


def data_log_line(queued: Queued, inference_id: str) -> str | None:
    """The line about a request, next to the output of its copy, once it exists."""
    logs, group = queued.platform.boto3("logs"), "/aws/sagemaker/Endpoints/queued"
    found = logs.filter_log_events(logGroupName=group, filterPattern=f'"{inference_id}"')["events"]
    return next((it["message"] for it in found if it["logStreamName"].endswith("/data-log")), None)


def test_what_waits_for_a_deleted_endpoint_fails_with_that_reason(queued: Queued) -> None:
    sagemaker = queued.platform.boto3("sagemaker")
    sagemaker.delete_endpoint(EndpointName="queued")
    sagemaker.get_waiter("endpoint_deleted").wait(
        EndpointName="queued", WaiterConfig={"Delay": 1, "MaxAttempts": 60}
    )
    assert queued.submit("late", body=b"1")
    until(lambda: queued.states()["late"] == "failed", "the request has failed")
