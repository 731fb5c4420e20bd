"""Asynchronous requests and a transform job while the home really has no byte left.

Needs the right to mount a small filesystem. Without it, `tests/unit/jobs` still simulates these
faults.
"""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from tests.integration.drill import ROLE
from tests.integration.echo_image import ECHO_IMAGE
from tests.integration.platform import Platform, processes_naming, until

from hostelry_lab.disk_drill import full

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(280)]
NUM_REQUESTS = 40
LAST = f"{NUM_REQUESTS - 1:03}"
NUM_OBJECTS, NUM_LINES = 12, 20
DISK = "the disk is full"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = ["mount", "-t", "tmpfs", "-o", "size=300m", "tmpfs", str(tmp_path)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no filesystem can be mounted here: {done.stderr.strip()}")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


class Work:
    """An asynchronous endpoint and a transform job of the echo server."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self.s3 = platform.boto3("s3")
        self.sagemaker = platform.boto3("sagemaker")
        self.runtime = platform.boto3("sagemaker-runtime", retries={"max_attempts": 1})
        self.s3.create_bucket(Bucket="work")
        self.topic = platform.boto3("sns").create_topic(Name="ends")["TopicArn"]
        platform.boto3("sns").subscribe(TopicArn=self.topic, Protocol="file", Endpoint="ends.jsonl")
        self._create_endpoint()
        for number in range(NUM_OBJECTS):
            self.s3.put_object(Bucket="work", Key=f"in/{number:02}", Body=lines(number))

    def _create_endpoint(self) -> None:
        self.sagemaker.create_model(
            ModelName="echo", ExecutionRoleArn=ROLE, PrimaryContainer={"Image": "echo:1"}
        )
        variant = {
            "VariantName": "AllTraffic",
            "ModelName": "echo",
            "InstanceType": "ml.m5.large",
            "InitialInstanceCount": 1,
        }
        output = {
            "S3OutputPath": "s3://work/answers",
            "NotificationConfig": {"SuccessTopic": self.topic},
        }
        self.sagemaker.create_endpoint_config(
            EndpointConfigName="queued",
            ProductionVariants=[variant],
            AsyncInferenceConfig={"OutputConfig": output},
        )
        self.sagemaker.create_endpoint(EndpointName="queued", EndpointConfigName="queued")
        self.sagemaker.get_waiter("endpoint_in_service").wait(
            EndpointName="queued", WaiterConfig={"Delay": 1, "MaxAttempts": 60}
        )

    def submit(self, name: str) -> None:
        self.runtime.invoke_endpoint_async(
            EndpointName="queued", InferenceId=name, Body=body_of(name)
        )

    def refusal(self) -> tuple[int, str]:
        """Status and message of a request that is not kept."""
        try:
            self.submit("999")
        except ClientError as error:
            return error.response["ResponseMetadata"]["HTTPStatusCode"], str(error)
        return 202, ""

    def start_job(self) -> None:
        source = {"S3DataType": "S3Prefix", "S3Uri": "s3://work/in/"}
        self.sagemaker.create_transform_job(
            TransformJobName="lines",
            ModelName="echo",
            BatchStrategy="SingleRecord",
            MaxConcurrentTransforms=2,
            TransformInput={"DataSource": {"S3DataSource": source}, "SplitType": "Line"},
            TransformOutput={"S3OutputPath": "s3://work/out", "AssembleWith": "Line"},
            TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": 1},
        )

    def keys(self, prefix: str) -> list[str]:
        """Keys of objects. Empty while the object store starts again."""
        try:
            listed = self.s3.list_objects_v2(Bucket="work", Prefix=prefix)
        except (BotoCoreError, ClientError):
            return []
        return [it["Key"] for it in listed.get("Contents", ())]

    def content(self, key: str) -> bytes:
        found: bytes = self.s3.get_object(Bucket="work", Key=key)["Body"].read()
        return found

    def job(self) -> str:
        found = self.sagemaker.describe_transform_job(TransformJobName="lines")
        status: str = found["TransformJobStatus"]
        return status


def jobs_other_than(platform: Platform, pid: int) -> list[int]:
    """Live jobs processes. A full disk may have no room for the file with the pid."""
    return [it for it in processes_naming(str(platform.home.run / "jobs")) if it != pid]


def body_of(name: str) -> bytes:
    """A request of half a second. The last request still runs when the disk is full."""
    return f"sleep {8.0 if name == LAST else 0.5}{name}".encode()


def lines(number: int) -> bytes:
    return b"".join(f"sleep 0.05{number:02}{it:02}\n".encode() for it in range(NUM_LINES))


@pytest.mark.thorough
def test_jobs_wait_for_a_full_disk_and_lose_or_double_nothing(small_disk: Path) -> None:
    home = small_disk / "home"
    home.mkdir(mode=0o700)
    (home / "images.toml").write_text(ECHO_IMAGE)
    with Platform(home) as platform:
        platform.may_log_tracebacks = True  # of writes that the disk refuses
        work = Work(platform)
        work.start_job()
        until(lambda: work.keys("out/"), "the first objects of the job", 60)
        accepted = [f"{number:03}" for number in range(NUM_REQUESTS)]
        for name in accepted:
            work.submit(name)
        with full(home):
            status, message = until(
                lambda: found if (found := work.refusal())[0] != 202 else None, "a refusal"
            )
            assert (status, DISK in message) == (503, True), message
            until(lambda: DISK in platform.cli("status", code=None).stdout, "status has the cause")
            assert DISK in platform.job_command("list").stdout
            assert DISK in platform.job_command("show", LAST).stdout
            killed = platform.kill("jobs", signal.SIGKILL)
            until(lambda: jobs_other_than(platform, killed), "jobs restarted")
            status, message = until(
                lambda: found if DISK in (found := work.refusal())[1] else None,
                "the cause, of the next process",
            )
            assert status == 503
            assert len(work.keys("out/")) < NUM_OBJECTS
            assert work.job() == "InProgress"
        until(lambda: len(work.keys("answers/")) >= NUM_REQUESTS, "every request is answered", 90)
        until(lambda: work.job() != "InProgress", "the job ends", 90)
        assert work.job() == "Completed"
        for name in accepted:
            assert work.content(f"answers/{name}.out") == body_of(name)
        for number in range(NUM_OBJECTS):
            assert work.content(f"out/{number:02}.out") == lines(number)
        until(
            lambda: set(platform.notified("ends.jsonl")) >= set(accepted), "every end is notified"
        )
        assert sorted(platform.notified("ends.jsonl")) == accepted
        until(lambda: DISK not in platform.cli("status").stdout, "status has no cause any more")
