"""Transform jobs on a real control process and real agents. The test replaces the runner."""

from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest
from botocore.exceptions import WaiterError
from tests.integration.control_rig import ROLE, ControlUnderTest

from hostelry.domain.scope import Scope
from hostelry.domain.transform_job import (
    TransformEnd,
    TransformJob,
    TransformJobStatus,
    TransformProgress,
    TransformProgressReport,
    TransformSnapshot,
)

pytestmark = pytest.mark.integration
SCOPE = Scope("111122223333", "us-west-2")
GROUP = "/aws/sagemaker/TransformJobs"


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlUnderTest]:
    under_test = ControlUnderTest(tmp_path_factory.mktemp("control"), "http://127.0.0.1:1")
    try:
        under_test.start()
        yield under_test
    finally:
        under_test.stop_everything()


class Runner:
    """Requests and reports to control as from the process that runs jobs."""

    def __init__(self, control: ControlUnderTest) -> None:
        self._url = f"{control.url}/internal"
        self._headers = control.headers

    def jobs(self) -> dict[str, TransformJob]:
        """The jobs to be run."""
        answer = httpx.get(f"{self._url}/transform-jobs", headers=self._headers, timeout=30)
        snapshot = msgspec.json.decode(answer.content, type=TransformSnapshot)
        return {it.name: it for it in snapshot.jobs}

    def copies(self, name: str) -> list[dict[str, Any]]:
        """The copies that serve a job."""
        answer = httpx.get(f"{self._url}/routes", headers=self._headers, timeout=30)
        by_name = {it["name"]: it for it in answer.json()["endpoints"]}
        (variant,) = by_name[f"transform-job/{name}"]["variants"]
        copies: list[dict[str, Any]] = variant["copies"]
        return copies

    def report(self, path: str, body: Any) -> int:
        """Send a report, and return the status of the answer."""
        answer = httpx.post(
            f"{self._url}/transform-jobs/{path}",
            headers=self._headers,
            content=msgspec.json.encode(body),
            timeout=30,
        )
        return answer.status_code


def create(sagemaker: Any, name: str, instances: int = 1, mode: str = "ok") -> None:
    sagemaker.create_model(
        ModelName=name,
        ExecutionRoleArn=ROLE,
        PrimaryContainer={"Image": "echo:1", "Environment": {"ECHO_MODE": mode}},
    )
    sagemaker.create_transform_job(
        TransformJobName=name,
        ModelName=name,
        TransformInput={
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://in/rows"}}
        },
        TransformOutput={"S3OutputPath": "s3://out/answers"},
        TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": instances},
    )


def described(sagemaker: Any, name: str) -> dict[str, Any]:
    found: dict[str, Any] = sagemaker.describe_transform_job(TransformJobName=name)
    return found


def waited(sagemaker: Any, name: str) -> None:
    waiter = sagemaker.get_waiter("transform_job_completed_or_stopped")
    waiter.wait(TransformJobName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 60})


def ends(control: ControlUnderTest, runner: Runner, name: str) -> None:
    """Nothing of the job is left but its record."""
    control.until(lambda: not control.state()["transform_jobs"][0]["endpoint"], f"{name} is gone")
    control.until(lambda: not control.agents(), "its instances are gone")
    control.until(lambda: name not in runner.jobs(), "the runner has it no more")


def num_streams(control: ControlUnderTest, prefix: str) -> int:
    """The number of log streams. 0 before the first line makes their group."""
    logs = control.client("logs")
    groups = logs.describe_log_groups(logGroupNamePrefix=GROUP)["logGroups"]
    named = {"logGroupName": GROUP, "logStreamNamePrefix": prefix}
    return len(logs.describe_log_streams(**named)["logStreams"]) if groups else 0


def test_a_job_outlives_control_and_takes_its_instances_away(control: ControlUnderTest) -> None:
    sagemaker, runner = control.client(), Runner(control)
    create(sagemaker, "nightly", instances=2)
    control.until(lambda: "nightly" in runner.jobs(), "the runner knows the job")
    control.until(lambda: runner.jobs()["nightly"].started_at, "its instances serve")
    agents, copies = control.agents(), runner.copies("nightly")
    assert (len(agents), len(copies)) == (2, 2)
    keyed = {"X-Hostelry-Copy-Key": copies[0]["key"]} if copies[0]["key"] else {}
    answer = httpx.post(f"{copies[0]['address']}/invocations", content=b"1,2", headers=keyed)
    assert answer.status_code == 200
    assert sagemaker.list_endpoints()["Endpoints"] == []

    control.kill()
    control.start()
    assert control.agents() == agents, "control adopts what it finds"
    progress = TransformProgress(objects=1, objects_total=2, records=9)
    report = TransformProgressReport(scope=SCOPE, name="nightly", progress=progress)
    assert runner.report("progress", report) == 204
    (shown,) = control.state()["transform_jobs"]
    assert (shown["progress"]["records"], len(shown["endpoint"]["copies"])) == (9, 2)
    assert control.state()["endpoints"] == []

    end = TransformEnd(scope=SCOPE, name="nightly", status=TransformJobStatus.COMPLETED)
    assert runner.report("finish", end) == 204
    control.kill()
    control.start()
    assert runner.report("finish", end) == 204, "the runner may not know that it was heard"
    waited(sagemaker, "nightly")
    ends(control, runner, "nightly")
    found = described(sagemaker, "nightly")
    assert found["TransformStartTime"] <= found["TransformEndTime"]
    control.until(lambda: num_streams(control, "nightly/i-") == 2, "each copy has its log")


def test_a_model_server_that_cannot_start_fails_the_job(control: ControlUnderTest) -> None:
    sagemaker, runner = control.client(), Runner(control)
    create(sagemaker, "broken", mode="exit")
    with pytest.raises(WaiterError, match="Failed"):
        waited(sagemaker, "broken")
    assert GROUP in described(sagemaker, "broken")["FailureReason"]
    ends(control, runner, "broken")


def test_a_job_is_stopped_before_its_instances_serve(control: ControlUnderTest) -> None:
    sagemaker, runner = control.client(), Runner(control)
    create(sagemaker, "early", mode="never")
    control.until(control.agents, "an instance comes up")
    sagemaker.stop_transform_job(TransformJobName="early")
    waited(sagemaker, "early")
    assert described(sagemaker, "early")["TransformJobStatus"] == "Stopped"
    ends(control, runner, "early")
