"""From zero environments to an answer: a scikit-learn model and an LLM, with the agent and without.

The benchmark starts a platform with two serverless endpoints. Each case begins without an
environment, and with or without the instance's agent. The client is plain boto3 without retries, so
that no error is hidden. --pace shortens idle time-outs, and no other measured time depends on them.
The page cache is warm.

With --containers a small server is measured too, as a program and in an image, which shows the time
that a container's start adds.

``python -m benchmarks.serverless [--setting short|full] [--smoke] [--model FOLDER] [--containers]``
"""

import argparse
import io
import json
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.models import model_folder
from benchmarks.record import print_table, write_result
from hostelry.base.guards import INTERNAL_KEY_HEADER
from hostelry.loadtest.tally import percentile

SEED = 20261124
ROLE = "arn:aws:iam::111122223333:role/HostelryExecutionRole"
PACE, IDLE_S = 600.0, 1200.0  # 2 s without a request, and 5 s until the instance ends
SKLEARN = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3"
LLM = "763104351884.dkr.ecr.us-east-1.amazonaws.com/djl-inference:0.33.0-cpu-full"
PROMPT = {"inputs": "Cats are", "parameters": {"max_new_tokens": 8}}
RUNTIME, ASKED_RUNTIME = "sklearn-1.2", "sklearn:1.2"
WITHIN_S = 180.0
CODE = b"""import joblib, os
def model_fn(folder):
    return joblib.load(os.path.join(folder, "model.joblib"))
"""
PROGRAM = "serverless-echo:1"
ECHO = """import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.answer(b"{}")
    def do_POST(self):
        self.answer(self.rfile.read(int(self.headers["Content-Length"])))
    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
host = "0.0.0.0" if "container" in os.environ else "127.0.0.1"  # podman sets it
ThreadingHTTPServer((host, int(os.environ["SAGEMAKER_BIND_TO_PORT"])), Echo).serve_forever()
"""
RULE = """
[[image]]
pattern = "{image}"
command = {command}
[image.probe]
content_type = "application/json"
body = '{{}}'
"""
TRAIN = """
import sys, joblib, numpy
from sklearn.ensemble import RandomForestRegressor
rows = numpy.random.default_rng(0).normal(size=(500, 8))
joblib.dump(RandomForestRegressor(50, random_state=0).fit(rows, rows.sum(1)), sys.argv[1])
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How often each case is played, and how many requests "at once" are."""

    repeats: int
    at_once: int


SETTINGS = {
    "smoke": Setting(repeats=1, at_once=2),
    "short": Setting(repeats=3, at_once=4),
    "full": Setting(repeats=20, at_once=8),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A model and a request for it."""

    name: str
    image: str
    environment: dict[str, str]
    body: bytes
    content_type: str
    memory_mb: int


@dataclass(slots=True, kw_only=True)
class Case:
    """The measurements of one case over all of its repeats, in seconds."""

    name: str
    first_s: list[float] = field(default_factory=list)  # of each repeat
    all_s: list[float] = field(default_factory=list)  # of each request
    setup_s: list[float] = field(default_factory=list)  # of the environments, until proven
    errors: list[str] = field(default_factory=list)


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serverless", description=__doc__)
    parser.add_argument("--setting", choices=("short", "full"), default="short")
    parser.add_argument("--smoke", action="store_true", help="a tiny model and few counts")
    parser.add_argument("--model", type=Path, help="a model folder; default the demo model")
    parser.add_argument("--containers", action="store_true", help="a small server, in an image too")
    arguments = parser.parse_args(argv)
    name = "smoke" if arguments.smoke else arguments.setting
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        model = model_folder(arguments.model, Path(scratch), tiny=arguments.smoke)
        served = [of_sklearn(), of_llm()]
        if arguments.containers:
            served += echoes(Path(scratch))
        platform = stack.enter_context(running_platform(model, Path(scratch)))
        cases = [it for one in served for it in measure(platform, one, SETTINGS[name])]
    rows = [row(case) for case in cases]
    print_table("From zero environments, seconds", rows)
    for case in cases:
        for error in case.errors[:3]:
            print(f"{case.name}: {error}")
    write_result("serverless", name, SEED, {"cases": rows})


def echoes(scratch: Path) -> list[Served]:
    """The small server, as a program and in an image."""
    from tests.integration.python_image import image_of

    program = scratch / "echo.py"
    program.write_text(ECHO)
    home = scratch / "home"
    home.mkdir()
    command = json.dumps([sys.executable, str(program)])
    (home / "images.toml").write_text(RULE.format(image=PROGRAM, command=command))
    images = {"program": PROGRAM, "container": image_of(scratch, program)}
    return [
        Served(
            name=name,
            image=image,
            environment={},
            body=b"{}",
            content_type="application/json",
            memory_mb=1024,
        )
        for name, image in images.items()
    ]


def of_sklearn() -> Served:
    """The random forest of scikit-learn, and a request for it."""
    return Served(
        name="scikit-learn",
        image=SKLEARN,
        environment={},
        body=b"1,2,3,4,5,6,7,8\n8,7,6,5,4,3,2,1\n",
        content_type="text/csv",
        memory_mb=1024,
    )


def of_llm() -> Served:
    """The LLM, and a request for it."""
    return Served(
        name="LLM",
        image=LLM,
        environment={},
        body=json.dumps(PROMPT).encode(),
        content_type="application/json",
        memory_mb=4096,
    )


def row(case: Case) -> dict[str, Any]:
    """The result row of a case."""
    first, every = sorted(case.first_s), sorted(case.all_s)
    return {
        "case": case.name,
        "requests": len(every) + len(case.errors),
        "errors": len(case.errors),
        "first answer p50": percentile(first, 0.5) if first else None,
        "first answer max": max(first, default=None),
        "answers p99": percentile(every, 0.99) if every else None,
        "model setup p50": percentile(sorted(case.setup_s), 0.5) if case.setup_s else None,
    }


def measure(platform: Any, served: Served, setting: Setting) -> list[Case]:
    """Every case of one endpoint."""
    one = Case(name=f"{served.name}, agent up")
    many = Case(name=f"{served.name}, {setting.at_once} at once")
    bare = Case(name=f"{served.name}, no agent")
    endpoint = Endpoint(platform, served)
    endpoint.create(setting.at_once)
    for _ in range(setting.repeats):
        for case, count in ((one, 1), (many, setting.at_once)):
            endpoint.to_zero()
            play(endpoint, case, count)
        endpoint.to_zero(with_instance=True)
        play(endpoint, bare, 1)
    endpoint.delete()
    return [one, many, bare]


def play(endpoint: "Endpoint", case: Case, count: int) -> None:
    """Send `count` requests at once, from zero."""
    began_s = time.monotonic()
    waits: list[float] = []

    def ask() -> None:
        try:
            endpoint.ask()
            waits.append(time.monotonic() - began_s)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is an error of the request
            case.errors.append(repr(error))

    threads = [threading.Thread(target=ask) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    case.all_s += waits
    case.first_s += [min(waits)] if waits else []
    case.setup_s += endpoint.setup_s()


class Endpoint:
    """A serverless endpoint of one model."""

    def __init__(self, platform: Any, served: Served) -> None:
        self._platform = platform
        self._served = served
        self._name = served.name.replace(" ", "-")
        self._sagemaker = platform.boto3("sagemaker")
        self._runtime = platform.boto3(
            "sagemaker-runtime", retries={"total_max_attempts": 1}, read_timeout=WITHIN_S
        )

    def create(self, concurrency: int) -> None:
        """Create the endpoint, and wait until it is InService and has answered once."""
        served, name = self._served, self._name
        archive = "llm" if served.image == LLM else "forest"
        self._sagemaker.create_model(
            ModelName=name,
            ExecutionRoleArn=ROLE,
            PrimaryContainer={
                "Image": served.image,
                "ModelDataUrl": f"s3://models/{archive}.tar.gz",
                "Environment": served.environment,
            },
        )
        config = {"MemorySizeInMB": served.memory_mb, "MaxConcurrency": concurrency}
        self._sagemaker.create_endpoint_config(
            EndpointConfigName=name,
            ProductionVariants=[
                {"VariantName": "main", "ModelName": name, "ServerlessConfig": config}
            ],
        )
        self._sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
        self._until(lambda: self._described()["EndpointStatus"] != "Creating")
        if self._described()["EndpointStatus"] != "InService":
            raise RuntimeError(self._described().get("FailureReason"))
        self.ask()

    def delete(self) -> None:
        """Delete the endpoint."""
        self._sagemaker.delete_endpoint(EndpointName=self._name)

    def ask(self) -> None:
        """Send one invocation, and read its answer to the end."""
        self._runtime.invoke_endpoint(
            EndpointName=self._name,
            ContentType=self._served.content_type,
            Body=self._served.body,
        )["Body"].read()

    def to_zero(self, *, with_instance: bool = False) -> None:
        """Wait until no environment is left, and with `with_instance` no agent either."""
        self._until(lambda: not self._state()["copies"])
        if with_instance:
            self._until(lambda: not self._state()["instances"])
        time.sleep(0.2)  # the ended processes no longer use the CPUs

    def setup_s(self) -> list[float]:
        """Seconds from launch until proven, of the present environments."""
        return [it["start_s"] for it in self._state()["copies"] if it["start_s"] is not None]

    def _state(self) -> Any:
        request = urllib.request.Request(
            f"{self._platform.config.control_url}/internal/state",
            headers={INTERNAL_KEY_HEADER: self._platform.credentials.internal_key},
        )
        with urllib.request.urlopen(request) as answer:
            shown = json.load(answer)
        return next(it for it in shown["endpoints"] if it["name"] == self._name)

    def _described(self) -> Any:
        return self._sagemaker.describe_endpoint(EndpointName=self._name)

    def _until(self, check: Callable[[], Any], pause_s: float = 0.05) -> None:
        deadline_s = time.monotonic() + WITHIN_S
        while not check():
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"{self._described()} after {WITHIN_S:g} s")
            time.sleep(pause_s)


def running_platform(model: Path, scratch: Path) -> Any:
    """A platform with both models in its bucket."""
    from tests.integration.framework_rig import runtimes_with
    from tests.integration.platform import Platform  # not installed with the package alone

    from hostelry.base.runtimes import VARIABLE, runtime_python

    runtimes = runtimes_with(ASKED_RUNTIME)
    forest = scratch / "model.joblib"
    python = runtime_python(runtimes, RUNTIME)
    subprocess.run([python, "-c", TRAIN, str(forest)], check=True)

    class WithModels(Platform):
        def __enter__(self) -> Platform:
            started = super().__enter__()
            s3 = started.boto3("s3", s3={"addressing_style": "path"})
            s3.create_bucket(Bucket="models")
            files = {it.name: it.read_bytes() for it in model.iterdir() if it.is_file()}
            s3.put_object(Bucket="models", Key="llm.tar.gz", Body=pack_archive(files))
            content = {"model.joblib": forest.read_bytes(), "code/inference.py": CODE}
            s3.put_object(Bucket="models", Key="forest.tar.gz", Body=pack_archive(content))
            return started

    flags = ("--pace", f"{PACE:g}", "--serverless-idle-s", f"{IDLE_S:g}")
    environment = {VARIABLE: str(runtimes), "HOSTELRY_CUSTOM_CODE": "trusted"}
    return WithModels(scratch / "home", *flags, environment=environment)


def pack_archive(files: dict[str, bytes]) -> bytes:
    """A model.tar.gz."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz", compresslevel=1) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return content.getvalue()


if __name__ == "__main__":
    main()
