"""Updates of model endpoints in steps and in batches under constant traffic: good and broken."""

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, HTTPClientError
from tests.integration.echo_image import ECHO_IMAGE
from tests.integration.platform import Platform, until
from tests.integration.virtual_environments import virtual_environment

from hostelry.base.clock import SystemClock

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
ROLE = "arn:aws:iam::111122223333:role/HostelryExecutionRole"
NUM_THREADS, PAUSE_S = 4, 0.01
ROUTED_S = 1.0  # within which gateways have new routes


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    home = Path(tmp_path_factory.mktemp("guardrails")) / "home"
    home.mkdir(mode=0o700)
    (home / "images.toml").write_text(ECHO_IMAGE)
    with Platform(home, "--gateway-workers", "2") as found:
        yield found


class Endpoint:
    """An endpoint of the echo server, whose configurations are versions of it."""

    def __init__(
        self, platform: Platform, name: str, instances: int, **of_config: dict[str, Any]
    ) -> None:
        self.platform, self.name, self.instances = platform, name, instances
        self._of_config = of_config
        self.client = platform.boto3("sagemaker")
        self.cloudwatch = platform.boto3("cloudwatch")
        self.configure("v1")
        self.client.create_endpoint(EndpointName=name, EndpointConfigName=self.config("v1"))
        self.in_service()

    def config(self, version: str) -> str:
        return f"{self.name}-{version}"

    def configure(self, version: str, mode: str = "ok") -> None:
        config = self.config(version)
        environment = {"ECHO_VERSION": version, "ECHO_MODE": mode}
        container = {"Image": "echo:1", "Environment": environment}
        self.client.create_model(
            ModelName=config, ExecutionRoleArn=ROLE, PrimaryContainer=container
        )
        variant = {
            "VariantName": "AllTraffic",
            "ModelName": config,
            "InstanceType": "ml.m5.large",
            "InitialInstanceCount": self.instances,
        }
        self.client.create_endpoint_config(
            EndpointConfigName=config,
            ProductionVariants=[variant],
            MetricsConfig={"EnableEnhancedMetrics": True, "MetricPublishFrequencyInSeconds": 10},
            **self._of_config,
        )

    def watch_errors_of(self, version: str) -> str:
        """An alarm on server errors of one configuration; its name."""
        alarm = f"{self.name}-errors"
        names = {
            "EndpointName": self.name,
            "VariantName": "AllTraffic",
            "EndpointConfigName": self.config(version),
        }
        self.cloudwatch.put_metric_alarm(
            AlarmName=alarm,
            Namespace="AWS/SageMaker",
            MetricName="Invocation5XXErrors",
            Dimensions=[{"Name": name, "Value": value} for name, value in names.items()],
            Statistic="Sum",
            Period=10,
            EvaluationPeriods=1,
            Threshold=0.0,
            ComparisonOperator="GreaterThanThreshold",
            TreatMissingData="notBreaching",
        )
        return alarm

    def decide_by_verdict(self, allowance: str) -> None:
        """Updates from now on are decided by the comparison of both fleets."""
        arn = self.described()["EndpointArn"]
        self.client.add_tags(
            ResourceArn=arn, Tags=[{"Key": "hostelry:verdict", "Value": allowance}]
        )

    def update(
        self, version: str, traffic: dict[str, Any], alarm: str | None, bake_s: int = 0
    ) -> None:
        """Begin an update, in the SDK's form of a DeploymentConfig."""
        policy = {
            "TrafficRoutingConfiguration": traffic,
            "TerminationWaitInSeconds": bake_s,
            "MaximumExecutionTimeoutInSeconds": 600,
        }
        self.begin(version, {"BlueGreenUpdatePolicy": policy}, alarm)

    def roll(self, version: str, wait_s: int, alarm: str, **more: Any) -> None:
        """Begin a rolling update, one instance after the other."""
        one = {"Type": "INSTANCE_COUNT", "Value": 1}
        policy = {"MaximumBatchSize": one, "WaitIntervalInSeconds": wait_s, **more}
        self.begin(version, {"RollingUpdatePolicy": policy}, alarm)

    def begin(self, version: str, policy: dict[str, Any], alarm: str | None) -> None:
        """Begin an update that the alarm guards, where one is given."""
        alarms = {"AutoRollbackConfiguration": {"Alarms": [{"AlarmName": alarm}]}}
        self.client.update_endpoint(
            EndpointName=self.name,
            EndpointConfigName=self.config(version),
            DeploymentConfig={**policy, **(alarms if alarm is not None else {})},
        )

    def described(self) -> dict[str, Any]:
        found: dict[str, Any] = self.platform.looker().describe_endpoint(EndpointName=self.name)
        return found

    def variant_status(self) -> dict[str, Any]:
        """VariantStatus of the new configuration; empty where there is none."""
        try:
            summary = self.described().get("PendingDeploymentSummary")
        except (ClientError, HTTPClientError):
            return {}  # control is being killed
        found: dict[str, Any] = {}
        return found if summary is None else summary["ProductionVariants"][0]["VariantStatus"][0]

    def at_step(self, number: int, of: int, within_s: float = 30.0) -> None:
        """Wait until the update is at that step."""
        text = f"step {number} of {of}: "
        until(
            lambda: self.variant_status().get("StatusMessage", "").startswith(text), text, within_s
        )

    def bakes(self, number: int, of: int, within_s: float = 40.0) -> None:
        """Wait until that batch of a rolling update bakes, one instance more than the fleet."""
        text = f"batch {number} of {of}: "

        def is_baking() -> bool:
            found = self.variant_status()
            is_batch = found.get("StatusMessage", "").startswith(text)
            return is_batch and found["Status"] in ("ActivatingTraffic", "Baking")

        until(is_baking, text, within_s)
        shown = self.described()
        sides = (shown, shown["PendingDeploymentSummary"])
        counts = [it["ProductionVariants"][0]["CurrentInstanceCount"] for it in sides]
        assert counts == [self.instances - number + 1, number]

    def kill_control(self) -> None:
        """Control is killed; returns once it answers again."""
        self.platform.back("control", self.platform.kill("control"))

        def answers() -> bool:
            try:
                return bool(self.described())
            except (ClientError, HTTPClientError):
                return False

        until(answers, "control answers", 60)

    def step_began(self) -> float:
        """When the present step began."""
        return float(self.variant_status()["StartTime"].timestamp())

    def in_service(self) -> dict[str, Any]:
        """What boto3's own waiter waits for."""
        waiter = self.client.get_waiter("endpoint_in_service")
        waiter.wait(EndpointName=self.name, WaiterConfig={"Delay": 1, "MaxAttempts": 120})
        return self.described()

    def new_copies(self) -> list[dict[str, Any]]:
        """The copies of the newest instances, as `hostelry status` has them."""
        state = json.loads(self.platform.cli("status", "--json").stdout)["state"]
        (found,) = [it for it in state["endpoints"] if it["name"] == self.name]
        newest = {it["id"] for it in found["instances"][-self.instances :]}
        return [it for it in found["copies"] if it["instance"] in newest]


class Traffic:
    """Constant requests from several threads; each answer's instant, and its version or error."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._name = endpoint.name
        self._runtime = endpoint.platform.boto3(
            "sagemaker-runtime", retries={"total_max_attempts": 1}, max_pool_connections=NUM_THREADS
        )
        self._answers: list[tuple[float, str]] = []
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._call) for _ in range(NUM_THREADS)]

    def __enter__(self) -> "Traffic":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(30)

    def seen(self, since: float = 0.0, until_at: float = float("inf")) -> Counter[str]:
        """The answers between two instants."""
        return Counter(what for at, what in tuple(self._answers) if since <= at < until_at)

    def failed(self, since: float = 0.0) -> list[str]:
        return [it for it in self.seen(since).elements() if not it.startswith("v")]

    def _call(self) -> None:
        while not self._over.is_set():
            began = SystemClock().now()
            try:
                answer = self._runtime.invoke_endpoint(EndpointName=self._name, Body=b"version")
                what = answer["Body"].read().decode()
            except (ClientError, HTTPClientError) as error:
                what = f"failed: {error}"
            self._answers.append((began, what))
            time.sleep(PAUSE_S)


def share(answers: Counter[str], version: str = "v2") -> float:
    return answers[version] / max(1, answers.total())


def measured(traffic: Traffic, wait_s: float) -> Counter[str]:
    """The answers of a step that has just begun."""
    since = SystemClock().now() + ROUTED_S
    time.sleep(wait_s)
    return traffic.seen(since)


def linear(count: int, wait_s: int) -> dict[str, Any]:
    size = {"Type": "INSTANCE_COUNT", "Value": count}
    return {"Type": "LINEAR", "LinearStepSize": size, "WaitIntervalInSeconds": wait_s}


def canary(percent: int, wait_s: int) -> dict[str, Any]:
    size = {"Type": "CAPACITY_PERCENT", "Value": percent}
    return {"Type": "CANARY", "CanarySize": size, "WaitIntervalInSeconds": wait_s}


def report(print_: Callable[[str], None], what: str, answers: Counter[str]) -> None:
    print_(f"{what}: {share(answers):.3f} of {answers.total()} requests on the new version")


def test_a_linear_update_moves_the_traffic_in_steps_though_control_is_killed(
    platform: Platform,
) -> None:
    endpoint = Endpoint(platform, "steps", 3)
    endpoint.configure("v2")
    alarm = endpoint.watch_errors_of("v2")
    with Traffic(endpoint) as traffic:
        endpoint.update("v2", linear(1, 8), alarm, bake_s=3)
        endpoint.at_step(1, 3)
        answers = measured(traffic, 4.0)
        report(print, "step 1 of 3", answers)
        assert share(answers) == pytest.approx(1 / 3, abs=0.03)
        since = SystemClock().now()
        platform.back("control", platform.kill("control"))
        endpoint.at_step(2, 3)
        after_the_kill = traffic.seen(since, endpoint.step_began() - 1.0)
        report(print, "step 1, control killed", after_the_kill)
        assert share(after_the_kill) == pytest.approx(1 / 3, abs=0.05)
        status = platform.cli("status").stdout
        answers = measured(traffic, 3.0)
        report(print, "step 2 of 3", answers)
        assert share(answers) == pytest.approx(2 / 3, abs=0.03)
        assert "steps-v1 -> steps-v2" in status
        assert "update: step 2 of 3: 67 % of traffic; baking " in status
        assert f"alarms watched: {alarm}" in status
        endpoint.at_step(3, 3)
        answers = measured(traffic, 2.0)
        assert set(answers) == {"v2"}
        described = endpoint.in_service()
        time.sleep(1.0)
        assert traffic.failed() == []
    assert described["EndpointConfigName"] == "steps-v2"
    assert "FailureReason" not in described
    assert "PendingDeploymentSummary" not in described
    print(f"{traffic.seen().total()} requests, none failed")


def test_a_broken_canary_is_taken_back_by_the_alarm_on_its_own_errors(platform: Platform) -> None:
    endpoint = Endpoint(platform, "broken", 1)
    endpoint.configure("v2", mode="fail")
    alarm = endpoint.watch_errors_of("v2")
    with Traffic(endpoint) as traffic:
        endpoint.update("v2", canary(10, 300), alarm)
        endpoint.at_step(1, 2)
        began = SystemClock().now()
        until(lambda: traffic.failed(), "a request fails", 10)
        described = until(
            lambda: (found := endpoint.described())["EndpointStatus"] == "InService" and found,
            "rolled back",
            60,
        )
        took_s = SystemClock().now() - began
        during = traffic.seen(began, began + took_s)
        failed = len([it for it in during.elements() if it != "v1"])
        print(
            f"rolled back {took_s:.1f} s after the canary began; {failed} of {during.total()}"
            f" requests failed, {failed / during.total():.3f}"
        )
        assert failed / during.total() <= 0.12
        assert all("500" in it for it in traffic.failed()), traffic.failed()[:3]
        since = SystemClock().now() + ROUTED_S
        time.sleep(ROUTED_S + 2.0)
        assert traffic.failed(since) == [], "at once all traffic is back"
        assert set(traffic.seen(since)) == {"v1"}
    assert described["EndpointConfigName"] == "broken-v1"
    assert f'"{alarm}" went into ALARM' in described["FailureReason"]
    assert described["LastDeploymentConfig"]["BlueGreenUpdatePolicy"][
        "TrafficRoutingConfiguration"
    ] == canary(10, 300)


def test_a_verdict_takes_back_a_broken_canary_and_lets_a_good_one_go_on(
    platform: Platform,
) -> None:
    endpoint = Endpoint(platform, "decided", 1)
    endpoint.configure("v2", mode="fail")
    endpoint.configure("v3")
    endpoint.decide_by_verdict("errors=0.05 latency=4.0")
    with Traffic(endpoint) as traffic:
        endpoint.update("v2", canary(10, 500), None)
        endpoint.at_step(1, 2)
        began = endpoint.step_began()
        described = endpoint.in_service()
        print(f"taken back within {SystemClock().now() - began:.1f} s of the step's begin")
        print(described["FailureReason"])
        assert described["EndpointConfigName"] == "decided-v1"
        assert "variant AllTraffic is worse than the old one: errors " in described["FailureReason"]
        failed = len(traffic.failed())
        print(f"{failed} of {traffic.seen(began).total()} requests failed")
        endpoint.update("v3", canary(25, 500), None, bake_s=90)
        endpoint.at_step(1, 2)
        began = endpoint.step_began()
        assert "; verdict: undecided after " in endpoint.variant_status()["StatusMessage"]
        assert "; verdict: undecided after " in platform.cli("status").stdout
        endpoint.at_step(2, 2, within_s=120.0)
        print(f"all traffic {endpoint.step_began() - began:.1f} s after the first step began")
        described = endpoint.in_service()
        print(f"complete {SystemClock().now() - began:.1f} s after it")
        assert len(traffic.failed()) == failed, "of the good version none"
    assert described["EndpointConfigName"] == "decided-v3"
    assert "FailureReason" not in described


def test_a_good_canary_gets_its_share_and_then_all(platform: Platform) -> None:
    endpoint = Endpoint(platform, "canary", 1)
    endpoint.configure("v2")
    alarm = endpoint.watch_errors_of("v2")
    with Traffic(endpoint) as traffic:
        endpoint.update("v2", canary(10, 10), alarm, bake_s=2)
        endpoint.at_step(1, 2)
        answers = measured(traffic, 7.0)
        report(print, "canary of 10 %", answers)
        assert share(answers) == pytest.approx(0.1, abs=0.015)
        endpoint.at_step(2, 2)
        endpoint.in_service()
        time.sleep(1.0)
        assert traffic.failed() == []
    assert endpoint.described()["EndpointConfigName"] == "canary-v2"
    counted = {it: invocations(endpoint, it) for it in (None, "v1", "v2")}
    print(f"Invocations: {counted}")
    assert 0 < counted["v2"] < counted[None]
    assert counted["v1"] + counted["v2"] == pytest.approx(counted[None], rel=0.02)


def invocations(endpoint: Endpoint, version: str | None) -> float:
    """The sum of the metric, of both versions or of one alone."""
    now = SystemClock().now()
    names = {"EndpointName": endpoint.name, "VariantName": "AllTraffic"}
    if version is not None:
        names["EndpointConfigName"] = endpoint.config(version)
    found = endpoint.cloudwatch.get_metric_statistics(
        Namespace="AWS/SageMaker",
        MetricName="Invocations",
        Dimensions=[{"Name": name, "Value": value} for name, value in names.items()],
        StartTime=now - 600,
        EndTime=now + 60,
        Period=60,
        Statistics=["Sum"],
    )
    return float(sum(it["Sum"] for it in found["Datapoints"]))


def test_a_rolling_update_replaces_a_fleet_and_comes_back_though_control_is_killed(
    platform: Platform,
) -> None:
    endpoint = Endpoint(platform, "rolling", 3)
    endpoint.configure("v2")
    endpoint.configure("v3")
    alarm = endpoint.watch_errors_of("v2")
    with Traffic(endpoint) as traffic:
        endpoint.roll("v2", 10, alarm)
        endpoint.bakes(1, 3)
        answers = measured(traffic, 3.0)
        report(print, "batch 1 of 3", answers)
        assert share(answers) == pytest.approx(1 / 3, abs=0.05)
        endpoint.kill_control()
        endpoint.bakes(2, 3)
        answers = measured(traffic, 3.0)
        report(print, "batch 2 of 3", answers)
        assert share(answers) == pytest.approx(2 / 3, abs=0.05)
        described = endpoint.in_service()
        assert (described["EndpointConfigName"], traffic.failed()) == ("rolling-v2", [])
        until(lambda: "VariantStatus" not in endpoint.described()["ProductionVariants"][0], "gone")

        one = {"Type": "INSTANCE_COUNT", "Value": 1}
        endpoint.roll("v3", 12, alarm, RollbackMaximumBatchSize=one)
        endpoint.bakes(1, 3)
        endpoint.kill_control()
        endpoint.bakes(2, 3)
        began = SystemClock().now()
        endpoint.cloudwatch.set_alarm_state(
            AlarmName=alarm, StateValue="ALARM", StateReason="a person saw it"
        )
        until(lambda: endpoint.variant_status().get("Status") == "Updating", "it goes back", 10)
        endpoint.kill_control()
        described = endpoint.in_service()
        print(f"an old instance back {SystemClock().now() - began:.1f} s after the alarm")
        since = SystemClock().now() + ROUTED_S
        time.sleep(ROUTED_S + 1.0)
        assert set(traffic.seen(since)) == {"v2"}
        assert traffic.failed() == []
    assert described["EndpointConfigName"] == "rolling-v2"
    assert f'"{alarm}" went into ALARM' in described["FailureReason"]
    print(f"{traffic.seen().total()} requests, none failed")


def test_a_broken_batch_is_taken_back_by_the_alarm_on_its_own_errors(platform: Platform) -> None:
    endpoint = Endpoint(platform, "broken-batch", 3)
    endpoint.configure("v2", mode="fail")
    alarm = endpoint.watch_errors_of("v2")
    with Traffic(endpoint) as traffic:
        endpoint.roll("v2", 300, alarm)
        endpoint.bakes(1, 3)
        began = SystemClock().now()
        described = endpoint.in_service()
        took_s = SystemClock().now() - began
        during = traffic.seen(began, began + took_s)
        failed = len([it for it in during.elements() if it != "v1"])
        print(f"rolled back {took_s:.1f} s later; {failed} of {during.total()} requests failed")
        assert 0 < failed / during.total() <= 1 / 3 + 0.05
        assert all("500" in it for it in traffic.failed()), traffic.failed()[:3]
        since = SystemClock().now() + ROUTED_S
        time.sleep(ROUTED_S + 1.0)
        assert set(traffic.seen(since)) == {"v1"}, "at once all traffic is back"
    assert described["EndpointConfigName"] == "broken-batch-v1"
    assert f'"{alarm}" went into ALARM' in described["FailureReason"]


def test_a_new_copy_that_is_killed_takes_the_traffic_back(platform: Platform) -> None:
    endpoint = Endpoint(platform, "killed", 2)
    endpoint.configure("v2")
    alarm = endpoint.watch_errors_of("v2")
    with Traffic(endpoint) as traffic:
        endpoint.update("v2", linear(1, 60), alarm)
        endpoint.at_step(1, 2)
        time.sleep(ROUTED_S)
        pid = endpoint.new_copies()[0]["pid"]
        began = SystemClock().now()
        os.kill(pid, signal.SIGKILL)
        described = endpoint.in_service()
        took_s = SystemClock().now() - began
        time.sleep(ROUTED_S + 1.0)
        failed = traffic.failed()
        print(f"rolled back {took_s:.1f} s after the kill; {len(failed)} requests failed")
        assert len(failed) <= NUM_THREADS, failed
        assert set(traffic.seen(SystemClock().now() - 1.0)) == {"v1"}
    assert described["EndpointConfigName"] == "killed-v1"
    assert "no longer serves on all new instances: " in described["FailureReason"]


def test_requests_of_a_queue_are_split_too(platform: Platform) -> None:
    s3 = platform.boto3("s3", max_pool_connections=NUM_THREADS)
    s3.create_bucket(Bucket="queue")
    s3.put_object(Bucket="queue", Key="in", Body=b"version")
    queued = {
        "ClientConfig": {"MaxConcurrentInvocationsPerInstance": 2},
        "OutputConfig": {"S3OutputPath": "s3://queue/out"},
    }
    endpoint = Endpoint(platform, "queued", 1, AsyncInferenceConfig=queued)
    endpoint.configure("v2")
    alarm = endpoint.watch_errors_of("v2")
    endpoint.update("v2", canary(25, 300), alarm)
    endpoint.at_step(1, 2)
    time.sleep(ROUTED_S)
    runtime = platform.boto3("sagemaker-runtime", max_pool_connections=NUM_THREADS)

    def submit(_: int) -> str:
        answer = runtime.invoke_endpoint_async(
            EndpointName="queued", InputLocation="s3://queue/in", ContentType="text/plain"
        )
        return str(answer["OutputLocation"]).removeprefix("s3://queue/")

    with ThreadPoolExecutor(NUM_THREADS) as pool:
        keys = list(pool.map(submit, range(100)))

        def num_outputs() -> bool:
            found = s3.list_objects_v2(Bucket="queue", Prefix="out").get("Contents", [])
            return len(found) == len(keys)

        until(num_outputs, "every request has its output", 40)
        bodies = pool.map(lambda it: s3.get_object(Bucket="queue", Key=it)["Body"].read(), keys)
        answers = Counter(it.decode() for it in bodies)
    report(print, "a queue's canary of 25 %", answers)
    assert share(answers) == pytest.approx(0.25, abs=0.03)
    assert answers.total() == answers["v1"] + answers["v2"]
    endpoint.client.delete_endpoint(EndpointName="queued")


@pytest.mark.slow
def test_the_sdks_own_classes_begin_an_update_in_steps_and_read_its_progress(
    platform: Platform,
) -> None:
    python = virtual_environment("sdk3-core", "sagemaker-core==2.27.0") / "python"
    program = Path(__file__).parent / "sdk_programs" / "v3" / "guardrails.py"
    text = platform.exec([str(python), str(program)]).stdout
    found = json.loads(text.splitlines()[-1])
    assert (found["status"], found["config"], found["size"]) == ("InService", "sdk-v2", 25)
    assert found["seen"] == ["Creating", "ActivatingTraffic", "Baking"]
