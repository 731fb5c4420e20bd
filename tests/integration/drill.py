"""Fixtures of drills: an endpoint with two copies, traffic to it, and the outcome."""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError, WaiterError
from tests.integration.platform import Platform, until

from hostelry.fleet.rules.images import DRILL_COMMAND

ENDPOINT, COMPONENT = "drill", "echo"
ROLE = "arn:aws:iam::111122223333:role/HostelryExecutionRole"
NO_RETRIES = {"total_max_attempts": 1}
OK = "ok"
# With this time, each thread nearly always has a call in a copy. Faster answers would use all CPUs.
ANSWER_S = 0.1
PROBE = json.dumps({"wait_s": ANSWER_S})


def write_image_rule(home: Path) -> None:
    """Map the image ``drill`` to the model server that drills starve and crash."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "images.toml").write_text(
        f"""
[[image]]
pattern = "drill"
command = {json.dumps(DRILL_COMMAND)}
[image.probe]
content_type = "application/json"
body = {json.dumps(PROBE)}
"""
    )


def create_endpoint(platform: Platform, instance_type: str = "ml.m5.4xlarge") -> None:
    """Create a component endpoint with one instance, and wait until it is in service."""
    sagemaker = platform.boto3("sagemaker")
    sagemaker.create_endpoint_config(
        EndpointConfigName=ENDPOINT,
        ExecutionRoleArn=ROLE,
        ProductionVariants=[
            {
                "VariantName": "AllTraffic",
                "InstanceType": instance_type,
                "InitialInstanceCount": 1,
                "RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
            }
        ],
    )
    sagemaker.create_endpoint(EndpointName=ENDPOINT, EndpointConfigName=ENDPOINT)
    waiter = sagemaker.get_waiter("endpoint_in_service")
    try:
        waiter.wait(EndpointName=ENDPOINT, WaiterConfig={"Delay": 1, "MaxAttempts": 60})
    except WaiterError as error:
        raise AssertionError(error.last_response.get("FailureReason", error)) from error


def create_component(
    platform: Platform,
    name: str,
    copies: int,
    artifact_uri: str | None = None,
    environment: dict[str, str] | None = None,
) -> None:
    """Create a component. Returns when the platform has acknowledged it."""
    container: dict[str, Any] = {"Image": "drill", "Environment": environment or {}}
    container |= {"ArtifactUrl": artifact_uri} if artifact_uri else {}
    platform.boto3("sagemaker").create_inference_component(
        InferenceComponentName=name,
        EndpointName=ENDPOINT,
        VariantName="AllTraffic",
        Specification={
            "Container": container,
            "ComputeResourceRequirements": {
                "MinMemoryRequiredInMb": 128,
                "NumberOfCpuCoresRequired": 0.25,
            },
        },
        RuntimeConfig={"CopyCount": copies},
    )


def described(platform: Platform, name: str) -> dict[str, Any] | None:
    """DescribeInferenceComponent. None if it is missing, or the platform does not answer."""
    try:
        shown: dict[str, Any] = platform.looker().describe_inference_component(
            InferenceComponentName=name
        )
    except (BotoCoreError, ClientError):
        return None
    return shown


def wait_ready(platform: Platform, name: str, copies: int, within_s: float = 40.0) -> None:
    """Wait until the component is InService with `copies` copies."""

    def ready() -> bool:
        shown = described(platform, name)
        return (
            shown is not None
            and shown["InferenceComponentStatus"] == "InService"
            and shown["RuntimeConfig"]["CurrentCopyCount"] == copies
        )

    try:
        until(ready, f"{name} InService with {copies} copies", within_s)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{story(platform)}") from None


def story(platform: Platform) -> str:
    """The platform's report about itself, for the message of a failed drill."""
    agents = sorted(platform.home.instances.glob("*/agent.log"))
    tails = [("control", platform.log("control"))]
    tails += [(path.parent.name, path.read_text(errors="replace")) for path in agents]
    logs = "\n".join(f"--- {name}\n{text[-3000:]}" for name, text in tails)
    return platform.cli("status").stdout + logs


def copies_of(platform: Platform, name: str) -> dict[str, int]:
    """Copy id -> pid of the component's ready copies, from `hostelry status`."""
    state = json.loads(platform.cli("status", "--json").stdout)["state"]
    return {
        copy["id"]: copy["pid"]
        for endpoint in state["endpoints"]
        for copy in endpoint["copies"]
        if copy["owner"] == f"component/{name}" and copy["phase"] == "ready"
    }


class Traffic:
    """Threads that invoke without retries, and count the outcomes."""

    def __init__(self, platform: Platform, component: str = COMPONENT) -> None:
        self._runtime = platform.boto3("sagemaker-runtime", retries=NO_RETRIES, read_timeout=20)
        self._component = component
        self._stop = threading.Event()
        self.outcomes: Counter[str] = Counter()
        self._lock = threading.Lock()

    def once(self, body: dict[str, Any] | None = None) -> str:
        """Invoke once. Returns OK, or the code or class of the error."""
        try:
            answer = self._runtime.invoke_endpoint(
                EndpointName=ENDPOINT,
                InferenceComponentName=self._component,
                ContentType="application/json",
                Body=json.dumps(body or {"wait_s": ANSWER_S}),
            )
            json.loads(answer["Body"].read())
        except ClientError as error:
            return str(error.response["Error"]["Code"])
        except BotoCoreError as error:
            return type(error).__name__
        return OK

    def stream(self, chunks: int, chunk_wait_s: float) -> tuple[int, str]:
        """Stream once. Returns the lines, and OK or the code or class of the error."""
        lines = 0
        try:
            answer = self._runtime.invoke_endpoint_with_response_stream(
                EndpointName=ENDPOINT,
                InferenceComponentName=self._component,
                ContentType="application/json",
                Body=json.dumps({"chunks": chunks, "chunk_wait_s": chunk_wait_s}),
            )
            with closing(answer["Body"]) as events:
                for event in events:
                    lines += event["PayloadPart"]["Bytes"].count(b"\n")
        except ClientError as error:  # EventStreamError is a subclass
            return lines, str(error.response["Error"]["Code"])
        except BotoCoreError as error:
            return lines, type(error).__name__
        return lines, OK

    def _run(self) -> None:
        while not self._stop.is_set():
            outcome = self.once()
            with self._lock:
                self.outcomes[outcome] += 1

    @contextmanager
    def flowing(self, threads: int = 4) -> Iterator["Traffic"]:
        """Traffic from `threads` threads during the block, after a first success."""
        workers = [threading.Thread(target=self._run) for _ in range(threads)]
        for worker in workers:
            worker.start()
        try:
            until(lambda: self.outcomes[OK] >= threads, "the first answers")
            yield self
        finally:
            self._stop.set()
            for worker in workers:
                worker.join()

    def goes_on(self, more: int = 20, within_s: float = 20.0) -> None:
        """Wait until `more` further invocations have succeeded."""
        goal = self.outcomes[OK] + more
        until(lambda: self.outcomes[OK] >= goal, "invocations succeed again", within_s)

    @property
    def errors(self) -> set[str]:
        """The kinds of errors so far."""
        return {outcome for outcome in self.outcomes if outcome != OK}
