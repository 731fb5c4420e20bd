"""Time from zero copies to a first token for one waiting request, for a hundred, and in a crash.

The benchmark starts a platform with the built-in LLM server. Each case begins at zero copies. The
instance runs already, except in the last case. The client is plain boto3, streaming, without
retries. Errors are counted, not expected.

``python -m benchmarks.from_zero [--setting short|full] [--smoke] [--model FOLDER]``
"""

import argparse
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.models import model_folder
from benchmarks.record import print_table, write_result
from hostelry.loadtest.tally import percentile

SEED = 20261122
ROLE = "arn:aws:iam::111122223333:role/HostelryExecutionRole"
PACE = "120"  # shortens the idle time after which an instance is released, which no figure contains
PROMPT = {"inputs": "Cats are", "parameters": {"max_new_tokens": 8}}
WITHIN_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How often each case is played, and how many requests "at once" are."""

    repeats: int
    at_once: int


SETTINGS = {
    "smoke": Setting(repeats=1, at_once=10),
    "short": Setting(repeats=5, at_once=100),
    "full": Setting(repeats=20, at_once=100),
}


@dataclass(slots=True, kw_only=True)
class Case:
    """The measurements of one case over all of its repeats, in seconds."""

    name: str
    first_token_s: list[float] = field(default_factory=list)  # of each request
    first_of_all_s: list[float] = field(default_factory=list)  # of each repeat
    decided_s: list[float] = field(default_factory=list)  # from the request to the decision
    errors: list[str] = field(default_factory=list)


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.from_zero", description=__doc__)
    parser.add_argument("--setting", choices=("short", "full"), default="short")
    parser.add_argument("--smoke", action="store_true", help="a tiny model and few counts")
    parser.add_argument("--model", type=Path, help="a model folder; default the demo model")
    arguments = parser.parse_args(argv)
    name = "smoke" if arguments.smoke else arguments.setting
    with tempfile.TemporaryDirectory() as scratch:
        model = model_folder(arguments.model, Path(scratch), tiny=arguments.smoke)
        cases = measure(model, Path(scratch), SETTINGS[name])
    rows = [row(case) for case in cases]
    print_table("From zero copies, seconds", rows)
    for case in cases:
        for error in case.errors[:3]:
            print(f"{case.name}: {error}")
    write_result("from_zero", name, SEED, {"cases": rows})


def row(case: Case) -> dict[str, Any]:
    """The result row of a case."""
    tokens = sorted(case.first_token_s)
    return {
        "case": case.name,
        "requests": len(case.first_token_s) + len(case.errors),
        "errors": len(case.errors),
        "decided p50": percentile(sorted(case.decided_s), 0.5) if case.decided_s else None,
        "decided max": max(case.decided_s, default=None),
        "first answer p50": percentile(sorted(case.first_of_all_s), 0.5),
        "first token p50": percentile(tokens, 0.5),
        "first token p99": percentile(tokens, 0.99),
    }


def measure(model: Path, scratch: Path, setting: Setting) -> list[Case]:
    """Every case on one platform."""
    one, many = Case(name="one request"), Case(name=f"{setting.at_once} at once")
    crash, bare = Case(name="the starting copy killed"), Case(name="no instance either")
    with running_platform(model, scratch / "home") as platform:
        fleet, empty = Fleet(platform, "warm"), Fleet(platform, "empty", goes_empty=True)
        fleet.create()
        empty.create()
        for _ in range(setting.repeats):
            for case, count, act in (
                (one, 1, None),
                (many, setting.at_once, None),
                (crash, 1, fleet.kill_what_starts),
            ):
                fleet.to_zero()
                play(fleet, case, count, act)
            empty.to_zero()
            play(empty, bare, 1)
    return [one, many, crash, bare]


def play(fleet: "Fleet", case: Case, count: int, act: Callable[[], None] | None = None) -> None:
    """Send `count` requests at once from zero copies, and run `act` at the same time."""
    began_at, began_s = time.time(), time.monotonic()
    waits: list[float] = []

    def ask() -> None:
        try:
            waits.append(fleet.first_token_at() - began_s)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is an error of the request
            case.errors.append(repr(error))

    threads = [threading.Thread(target=ask) for _ in range(count)]
    if act is not None:
        threads.append(threading.Thread(target=act))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    case.first_token_s += waits
    case.first_of_all_s += [min(waits)] if waits else []
    decided_at = fleet.decided_after(began_at)
    case.decided_s += [] if decided_at is None else [decided_at - began_at]


class Fleet:
    """One endpoint of one instance, and one component of the same name that may go to zero.

    With `goes_empty` the instance goes too.
    """

    def __init__(self, platform: Any, name: str, *, goes_empty: bool = False) -> None:
        self.name = name
        self.sagemaker = platform.boto3("sagemaker")
        self._platform = platform
        self._goes_empty = goes_empty
        self.scaling = platform.boto3("application-autoscaling")
        self._runtime = platform.boto3(
            "sagemaker-runtime",
            retries={"total_max_attempts": 1},
            read_timeout=WITHIN_S,
            max_pool_connections=256,
        )

    def create(self) -> None:
        """Create the endpoint, its component and the scalable target that lets requests wake it."""
        bounds = {"Status": "ENABLED", "MinInstanceCount": 0, "MaxInstanceCount": 1}
        self.sagemaker.create_endpoint_config(
            EndpointConfigName=self.name,
            ExecutionRoleArn=ROLE,
            ProductionVariants=[
                {
                    "VariantName": "AllTraffic",
                    "InstanceType": "ml.g5.xlarge",
                    "InitialInstanceCount": 1,
                    "RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
                    **({"ManagedInstanceScaling": bounds} if self._goes_empty else {}),
                }
            ],
        )
        self.sagemaker.create_endpoint(EndpointName=self.name, EndpointConfigName=self.name)
        self.sagemaker.create_inference_component(
            InferenceComponentName=self.name,
            EndpointName=self.name,
            VariantName="AllTraffic",
            Specification={
                "Container": {
                    "Image": "djl-inference:0.27.0",
                    "Environment": {"OPTION_MODEL_ID": "s3://models/llm/"},
                },
                "ComputeResourceRequirements": {"MinMemoryRequiredInMb": 1024},
            },
            RuntimeConfig={"CopyCount": 1},
        )
        self._until(lambda: self.component()["InferenceComponentStatus"] == "InService")
        self.first_token_at()
        self.scaling.register_scalable_target(
            ServiceNamespace="sagemaker",
            ResourceId=f"inference-component/{self.name}",
            ScalableDimension="sagemaker:inference-component:DesiredCopyCount",
            MinCapacity=0,
            MaxCapacity=1,
        )

    def to_zero(self, *, with_instance: bool = False) -> None:
        """Scale to zero. Return once the last copy has ended, and its instance if that goes too.

        `with_instance`: do not wait for the instance, which most likely still runs.
        """
        self._until(lambda: self.component()["InferenceComponentStatus"] == "InService")
        self.sagemaker.update_inference_component_runtime_config(
            InferenceComponentName=self.name, DesiredRuntimeConfig={"CopyCount": 0}
        )
        self._until(lambda: self.component()["InferenceComponentStatus"] == "InService")
        self._until(lambda: not list(self._copy_records()))
        if self._goes_empty and not with_instance:
            self._until(lambda: not self.num_instances())
        time.sleep(0.2)  # the ended processes no longer use the CPUs

    def num_instances(self) -> int:
        """How many instances there are."""
        found = self.sagemaker.describe_endpoint(EndpointName=self.name)
        return int(found["ProductionVariants"][0]["CurrentInstanceCount"])

    def first_token_at(self) -> float:
        """Read one streamed invocation to its end. Returns when its first part came (monotonic)."""
        answer = self._runtime.invoke_endpoint_with_response_stream(
            EndpointName=self.name,
            InferenceComponentName=self.name,
            ContentType="application/json",
            Body=msgspec.json.encode(PROMPT),
        )
        first_at: float | None = None
        for event in answer["Body"]:
            if event.get("PayloadPart") and first_at is None:
                first_at = time.monotonic()
        if first_at is None:
            raise RuntimeError("the answer ended without a part")
        return first_at

    def kill_what_starts(self) -> None:
        """Kill -9 the next copy's process, as soon as it exists and before it is ready."""

        def killed() -> bool:
            for path in self._copy_records():
                pid = (_member(path, "process") or {}).get("pid")
                if pid:
                    os.kill(pid, signal.SIGKILL)
                    return True
            return False

        self._until(killed, 0.002)

    def decided_after(self, at: float) -> float | None:
        """When the first act of scaling after `at` was decided."""
        found = self.scaling.describe_scaling_activities(
            ServiceNamespace="sagemaker", ResourceId=f"inference-component/{self.name}"
        )["ScalingActivities"]
        times = [it["StartTime"].timestamp() for it in found]
        return min((it for it in times if it >= at), default=None)

    def component(self) -> Any:
        """The component as DescribeInferenceComponent shows it."""
        return self.sagemaker.describe_inference_component(InferenceComponentName=self.name)

    def _copy_records(self) -> Iterator[Path]:
        for instance in self._platform.home.instances.iterdir():
            if _member(instance / "instance.json", "endpoint_name") == self.name:
                yield from instance.glob("copies/*/copy.json")

    def _until(self, check: Callable[[], Any], pause_s: float = 0.05) -> None:
        deadline_s = time.monotonic() + WITHIN_S
        while not check():
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"{self.component()} after {WITHIN_S:g} s")
            time.sleep(pause_s)


def _member(path: Path, name: str) -> Any:
    """A member of a JSON file that another process may be about to replace or remove."""
    try:
        return msgspec.json.decode(path.read_bytes()).get(name)
    except (OSError, msgspec.DecodeError):
        return None


@contextmanager
def running_platform(model: Path, home: Path, *flags: str) -> Iterator[Any]:
    """A platform with the model in its bucket, stopped afterwards."""
    from tests.integration.platform import Platform  # not installed with the package alone

    with Platform(home, "--pace", PACE, *flags) as platform:
        s3 = platform.boto3("s3", s3={"addressing_style": "path"})
        s3.create_bucket(Bucket="models")
        for file in model.iterdir():
            with file.open("rb") as body:
                s3.put_object(Bucket="models", Key=f"llm/{file.name}", Body=body)
        yield platform


if __name__ == "__main__":
    main()
