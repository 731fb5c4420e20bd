"""Components and adapters on real agents and model servers, under traffic, through every death."""

import io
import os
import signal
import tarfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from botocore.exceptions import ClientError
from tests.integration.agent_rig import ObjectStore, object_store
from tests.integration.control_rig import (
    ControlUnderTest,
    create_config,
    create_endpoint,
    endpoint_status,
    is_running,
)

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("s3")) as store:
        yield store


@pytest.fixture
def control(tmp_path: Path, s3: ObjectStore) -> Iterator[ControlUnderTest]:
    under_test = ControlUnderTest(tmp_path, s3.url)
    try:
        under_test.start()
        yield under_test
    finally:
        under_test.stop_everything()


def put_adapter(s3: ObjectStore, key: str, file_name: str = "adapter_config.json") -> str:
    """Put an archive that the echo server accepts as an adapter, and return its URI."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        member = tarfile.TarInfo(file_name)
        member.size = 2
        archive.addfile(member, io.BytesIO(b"{}"))
    s3.client.put_object(Bucket="models", Key=key, Body=content.getvalue())
    return f"s3://models/{key}"


def create_base(sagemaker: Any, name: str, copies: int, mode: str = "ok") -> None:
    sagemaker.create_inference_component(
        InferenceComponentName=name,
        EndpointName="ep",
        VariantName="AllTraffic",
        Specification=specification(mode),
        RuntimeConfig={"CopyCount": copies},
    )


def specification(mode: str) -> dict[str, Any]:
    return {
        "Container": {"Image": "echo:1", "Environment": {"ECHO_MODE": mode}},
        "StartupParameters": {"ContainerStartupHealthCheckTimeoutInSeconds": 60},
        "ComputeResourceRequirements": {
            "MinMemoryRequiredInMb": 128,
            "NumberOfCpuCoresRequired": 0.25,
        },
    }


def create_adapter(sagemaker: Any, name: str, base: str, uri: str) -> None:
    sagemaker.create_inference_component(
        InferenceComponentName=name,
        EndpointName="ep",
        Specification={"BaseInferenceComponentName": base, "Container": {"ArtifactUrl": uri}},
    )


def status(sagemaker: Any, name: str) -> str | None:
    try:
        described = sagemaker.describe_inference_component(InferenceComponentName=name)
    except ClientError as error:
        if "Could not find" in str(error):
            return None
        raise
    found: str = described["InferenceComponentStatus"]
    assert len(described.get("FailureReason", "")) <= 1024
    return found


def until_status(control: ControlUnderTest, name: str, wanted: str | None) -> None:
    sagemaker = control.client()
    control.until(lambda: status(sagemaker, name) == wanted, f"{name} is {wanted}")


class Traffic:
    """Calls every copy of every component again and again, as the routes of the moment say."""

    def __init__(self, control: ControlUnderTest) -> None:
        self.answers: Counter[str] = Counter()
        self.adapter_ids: list[str] = []
        self._control = control
        self._routes: dict[str, Any] = {"version": "", "endpoints": []}
        self._over = threading.Event()
        self._threads = [threading.Thread(target=it) for it in (self._follow, self._call)]

    def __enter__(self) -> "Traffic":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(30)

    def copies(self, name: str) -> int:
        """How many copies the component has in the routes."""
        return sum(
            len(component["copies"])
            for route in self._routes["endpoints"]
            for component in route["components"]
            if component["name"] == name
        )

    def forget(self) -> None:
        self.answers.clear()

    def failures(self) -> dict[str, int]:
        return {what: count for what, count in self.answers.items() if what != "200"}

    def _follow(self) -> None:
        """Follow the routes as a gateway does. While control is away, the last routes apply."""
        while not self._over.is_set():
            asked = {"have": self._routes["version"]}
            url = f"{self._control.url}/internal/routes"
            try:
                answer = httpx.get(
                    url, params=asked, headers=self._control.headers, timeout=2, verify=False
                )
            except httpx.TransportError:
                self._over.wait(0.05)
                continue
            if answer.status_code == 200:
                self._routes = answer.json()

    def _call(self) -> None:
        with httpx.Client(timeout=10) as http:
            while not self._over.wait(0.02):
                for route in self._routes["endpoints"]:
                    for component in route["components"]:
                        self._call_copies(http, component)

    def _call_copies(self, http: httpx.Client, component: dict[str, Any]) -> None:
        headers = {}
        if component["adapter_id"] is not None:
            headers["X-Amzn-SageMaker-Adapter-Identifier"] = component["adapter_id"]
            self.adapter_ids.append(component["adapter_id"])
        for copy in component["copies"]:
            url = f"{copy['address']}/invocations"
            try:
                answer = str(http.post(url, content=b"{}", headers=headers).status_code)
            except httpx.TransportError as error:
                answer = type(error).__name__
            self.answers[answer] += 1


def copy_pids(control: ControlUnderTest) -> list[int]:
    (endpoint,) = control.state()["endpoints"]
    return [it["pid"] for it in endpoint["copies"] if it["pid"] is not None]


def test_a_base_and_its_adapter_serve_through_updates_and_deaths(
    control: ControlUnderTest, s3: ObjectStore
) -> None:
    sagemaker = control.client()
    create_endpoint(sagemaker, "ep")
    create_base(sagemaker, "base", 2)
    create_adapter(sagemaker, "spanish", "base", put_adapter(s3, "es-1.tar.gz"))
    control.kill()
    control.start()
    control.until(lambda: status(sagemaker, "spanish") == "InService", "the adapter serves")
    control.until(lambda: status(sagemaker, "base") == "InService", "the base serves")
    with Traffic(control) as traffic:
        control.until(lambda: traffic.copies("spanish") == 2, "both copies have the adapter")
        control.until(lambda: traffic.answers["200"] > 50, "calls are answered")

        sagemaker.update_inference_component(
            InferenceComponentName="spanish",
            Specification={
                "BaseInferenceComponentName": "base",
                "Container": {"ArtifactUrl": put_adapter(s3, "es-2.tar.gz")},
            },
        )
        control.until(lambda: len(set(traffic.adapter_ids)) == 2, "the new adapter is used")

        before = set(copy_pids(control))
        sagemaker.update_inference_component(
            InferenceComponentName="base",
            Specification={"Container": {"Environment": {"VERSION": "2"}}},
        )
        control.until(lambda: status(sagemaker, "base") == "InService", "the update is done")

        sagemaker.update_inference_component_runtime_config(
            InferenceComponentName="base", DesiredRuntimeConfig={"CopyCount": 3}
        )
        control.until(lambda: traffic.copies("spanish") == 3, "the third copy has the adapter")
        pids = copy_pids(control)
        control.kill()
        control.start()
        assert traffic.copies("base") == 3
        sagemaker.update_inference_component_runtime_config(
            InferenceComponentName="base", DesiredRuntimeConfig={"CopyCount": 2}
        )
        control.until(lambda: status(sagemaker, "base") == "InService", "it is scaled in")
        control.until(lambda: len(copy_pids(control)) == 2, "the third copy is stopped")
        assert set(copy_pids(control)) <= set(pids), "copies are adopted, not started again"
        assert not before & set(copy_pids(control)), "the update replaced every copy"
        assert traffic.failures() == {}

        victim = copy_pids(control)[0]
        os.kill(victim, signal.SIGKILL)
        control.until(lambda: traffic.copies("spanish") == 1, "the dead copy leaves the routes")
        control.until(lambda: traffic.copies("spanish") == 2, "it is back with its adapter")
        traffic.forget()
        control.until(lambda: traffic.answers["200"] > 50, "calls are answered again")
        assert traffic.failures() == {}

    left = copy_pids(control)
    for name in ("spanish", "base"):
        sagemaker.delete_inference_component(InferenceComponentName=name)
        until_status(control, name, None)
    assert not any(is_running(pid) for pid in left)


def test_failures_name_their_cause_and_can_be_deleted(
    control: ControlUnderTest, s3: ObjectStore
) -> None:
    sagemaker = control.client()
    create_endpoint(sagemaker, "ep")
    create_base(sagemaker, "good", 1)
    create_base(sagemaker, "dies", 1, mode="exit")
    create_adapter(sagemaker, "empty", "good", put_adapter(s3, "bad.tar.gz", "notes.txt"))
    create_adapter(sagemaker, "missing", "good", "s3://models/nowhere.tar.gz")
    expected = {
        "dies": "this server does not want to start",
        "empty": "adapter_config.json",
        "missing": "nowhere.tar.gz",
    }
    for name, words in expected.items():
        until_status(control, name, "Failed")
        described = sagemaker.describe_inference_component(InferenceComponentName=name)
        assert words in described["FailureReason"]
    control.until(lambda: status(sagemaker, "good") == "InService", "the base is not harmed")
    for name in (*expected, "good"):
        sagemaker.delete_inference_component(InferenceComponentName=name)
        until_status(control, name, None)
    sagemaker.delete_endpoint(EndpointName="ep")
    control.until(lambda: control.state()["endpoints"] == [], "the endpoint is gone")


def go_on_trial_and_back(control: ControlUnderTest, traffic: Traffic) -> None:
    """Update to "larger". An alarm rolls the update back on trial, while control is killed."""
    sagemaker, cloudwatch = control.client(), control.client("cloudwatch")
    cloudwatch.put_metric_alarm(
        AlarmName="errors",
        Namespace="Own",
        MetricName="Errors",
        Statistic="Sum",
        Period=10,
        EvaluationPeriods=1,
        Threshold=1.0,
        ComparisonOperator="GreaterThanThreshold",
    )
    policy = {
        "TrafficRoutingConfiguration": {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 0},
        "TerminationWaitInSeconds": 600,
    }
    sagemaker.update_endpoint(
        EndpointName="ep",
        EndpointConfigName="larger",
        DeploymentConfig={
            "BlueGreenUpdatePolicy": policy,
            "AutoRollbackConfiguration": {"Alarms": [{"AlarmName": "errors"}]},
        },
    )
    control.until(lambda: variant_status(sagemaker) == "Baking", "the new instance is on trial")
    control.kill()
    control.start()
    answered = traffic.answers["200"]
    control.until(lambda: traffic.answers["200"] > answered + 20, "calls are answered on trial")
    assert variant_status(sagemaker) == "Baking", "the trial goes on"
    assert len(control.agents()) == 2, "and the old instance is kept"
    cloudwatch.set_alarm_state(AlarmName="errors", StateValue="ALARM", StateReason="a test")
    control.until(lambda: endpoint_status(sagemaker, "ep") == "InService", "it has gone back")
    described = sagemaker.describe_endpoint(EndpointName="ep")
    assert described["EndpointConfigName"] == "ep"
    assert 'alarm "errors" went into ALARM' in described["FailureReason"]
    assert status(sagemaker, "base") == status(sagemaker, "spanish") == "InService"


def variant_status(sagemaker: Any) -> str | None:
    """VariantStatus of the endpoint's new configuration, or None without one."""
    summary = sagemaker.describe_endpoint(EndpointName="ep").get("PendingDeploymentSummary")
    if summary is None:
        return None
    found: str = summary["ProductionVariants"][0]["VariantStatus"][0]["Status"]
    return found


@pytest.mark.thorough
def test_an_endpoint_moves_its_components_to_another_instance_type_under_traffic(
    control: ControlUnderTest, s3: ObjectStore
) -> None:
    sagemaker = control.client()
    create_endpoint(sagemaker, "ep")
    create_base(sagemaker, "base", 1)
    create_adapter(sagemaker, "spanish", "base", put_adapter(s3, "es-moves.tar.gz"))
    until_status(control, "spanish", "InService")
    (before,) = control.agents()
    with Traffic(control) as traffic:
        control.until(lambda: traffic.answers["200"] > 20, "calls are answered")
        create_config(sagemaker, "larger", "ml.m5.xlarge")
        go_on_trial_and_back(control, traffic)
        assert traffic.failures() == {}
        control.until(lambda: set(control.agents()) == {before}, "the old instance serves alone")
        sagemaker.update_endpoint(EndpointName="ep", EndpointConfigName="larger")
        control.until(
            lambda: endpoint_status(sagemaker, "ep") == "InService", "the endpoint has moved"
        )
        control.until(lambda: set(control.agents()) - {before}, "another instance serves")
        control.until(lambda: before not in control.agents(), "the old instance is gone")
        assert traffic.copies("base") == traffic.copies("spanish") == 1
        traffic.answers["200"] = 0
        control.until(lambda: traffic.answers["200"] > 20, "calls are answered")
        assert traffic.failures() == {}
    (endpoint,) = control.state()["endpoints"]
    assert [it["type"] for it in endpoint["instances"]] == ["ml.m5.xlarge"]
    for name in ("base", "spanish"):
        assert status(sagemaker, name) == "InService"
