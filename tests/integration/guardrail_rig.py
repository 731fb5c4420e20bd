"""An echo endpoint that is updated under constant traffic."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError, HTTPClientError
from tests.integration.platform import Platform, until

from hostelry.base.clock import SystemClock

ROLE = "arn:aws:iam::111122223333:role/HostelryExecutionRole"
NUM_THREADS, PAUSE_S = 4, 0.04  # some 90 requests per second, far below the machine's limit
ROUTED_S = 1.0  # until all gateways have new routes


class Endpoint:
    """An endpoint of the echo server. Each configuration is a version of it."""

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

    def configure(self, version: str, mode: str = "ok", num_containers: int = 1) -> None:
        """Create a configuration. A container in a pipeline echoes the answer before it."""
        config = self.config(version)
        environment = {"ECHO_VERSION": version, "ECHO_MODE": mode}
        container = {"Image": "echo:1", "Environment": environment}
        others = [{"Image": "echo:1"}] * (num_containers - 1)
        self.client.create_model(
            ModelName=config, ExecutionRoleArn=ROLE, Containers=[container, *others]
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
        """Create an alarm on server errors of one configuration. Returns its name."""
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
        """Have the comparison of both fleets decide later updates."""
        arn = self.described()["EndpointArn"]
        self.client.add_tags(
            ResourceArn=arn, Tags=[{"Key": "hostelry:verdict", "Value": allowance}]
        )

    def update(
        self, version: str, traffic: dict[str, Any], alarm: str | None, bake_s: int = 0
    ) -> None:
        """Begin an update with the SDK's form of DeploymentConfig."""
        policy = {
            "TrafficRoutingConfiguration": traffic,
            "TerminationWaitInSeconds": bake_s,
            "MaximumExecutionTimeoutInSeconds": 600,
        }
        self.begin(version, {"BlueGreenUpdatePolicy": policy}, alarm)

    def roll(self, version: str, wait_s: int, alarm: str, **more: Any) -> None:
        """Begin a rolling update, one instance at a time."""
        one = {"Type": "INSTANCE_COUNT", "Value": 1}
        policy = {"MaximumBatchSize": one, "WaitIntervalInSeconds": wait_s, **more}
        self.begin(version, {"RollingUpdatePolicy": policy}, alarm)

    def begin(self, version: str, policy: dict[str, Any], alarm: str | None) -> None:
        """Begin an update. If `alarm` is given, it guards the update."""
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
        """VariantStatus of the new configuration. Empty without one."""
        try:
            summary = self.described().get("PendingDeploymentSummary")
        except (ClientError, HTTPClientError):
            return {}  # the test is killing control
        found: dict[str, Any] = {}
        return found if summary is None else summary["ProductionVariants"][0]["VariantStatus"][0]

    def at_step(self, number: int, of: int, within_s: float = 30.0) -> None:
        """Wait until the update is at this step."""
        text = f"step {number} of {of}: "
        until(
            lambda: self.variant_status().get("StatusMessage", "").startswith(text), text, within_s
        )

    def bakes(self, number: int, of: int, within_s: float = 40.0) -> None:
        """Wait until this batch of a rolling update bakes, with one instance above the fleet."""
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
        """Kill control, and return once it answers again."""
        self.platform.back("control", self.platform.kill("control"))

        def answers() -> bool:
            try:
                return bool(self.described())
            except (ClientError, HTTPClientError):
                return False

        until(answers, "control answers", 60)

    def step_began(self) -> float:
        """The start of the present step."""
        return float(self.variant_status()["StartTime"].timestamp())

    def in_service(self) -> dict[str, Any]:
        """Wait with boto3's own waiter until the endpoint is in service."""
        waiter = self.client.get_waiter("endpoint_in_service")
        waiter.wait(EndpointName=self.name, WaiterConfig={"Delay": 1, "MaxAttempts": 120})
        return self.described()

    def new_copies(self) -> list[dict[str, Any]]:
        """The copies on the newest instances, from `hostelry status`."""
        state = json.loads(self.platform.cli("status", "--json").stdout)["state"]
        (found,) = [it for it in state["endpoints"] if it["name"] == self.name]
        newest = {it["id"] for it in found["instances"][-self.instances :]}
        return [it for it in found["copies"] if it["instance"] in newest]


class Traffic:
    """Constant requests from several threads. Records the time and version, or error, of answers.

    For an endpoint with components, `target` names the component.
    """

    def __init__(
        self, platform: Platform, endpoint: str, *, pause_s: float = PAUSE_S, **target: str
    ) -> None:
        self._pause_s = pause_s
        self._target = {"EndpointName": endpoint, **target}
        self._runtime = platform.boto3(
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
        """The answers between two times."""
        return Counter(what for at, what in tuple(self._answers) if since <= at < until_at)

    def failed(self, since: float = 0.0) -> list[str]:
        return [it for it in self.seen(since).elements() if not it.startswith("v")]

    def _call(self) -> None:
        while not self._over.is_set():
            began = SystemClock().now()
            try:
                answer = self._runtime.invoke_endpoint(Body=b"version", **self._target)
                what = answer["Body"].read().decode()
            except (ClientError, HTTPClientError) as error:
                what = f"failed: {error}"
            self._answers.append((began, what))
            time.sleep(self._pause_s)


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
