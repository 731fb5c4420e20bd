"""Queued requests compared with synchronous ones, and batch jobs with their model server alone.

A real platform at its defaults has a scikit-learn model with one copy for synchronous requests and
one for queued ones. Measured in rounds, whose order alternates:

- submissions, each durable before its answer, compared with synchronous answers, over equally many
  connections, while the queue is drained by its copy
- the delay from a synchronous answer to a queued request's readable object, on an idle queue
- lines a second of a transform job with a request for each line, from the end of its first objects
  to the end of its last, compared with the saturated rate of the model's copy, called directly over
  as many connections. Both run with all cores for all processes, and with half for copies alone
- the CPU time of a line by process

``python -m benchmarks.jobs [--setting short|full]``
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as SigningCredentials
from botocore.exceptions import ClientError
from tests.integration.served_models import CODE, IMAGE, ROLE, Served, packed

from benchmarks.aims import Finding, finding_rows, ratio
from benchmarks.gateway_load import JSON, run_load
from benchmarks.live_component import wait_until_settled
from benchmarks.load import Load, Measured
from benchmarks.many_models_platform import running_platform, runtime_in
from benchmarks.platform_cpu import (
    COPIES,
    cores_as_before,
    cpu_s_by_part,
    give_copies_their_cores,
    used_s,
)
from benchmarks.record import print_table, write_result
from hostelry.base.clock import monotonic_s
from hostelry.base.guards import COPY_KEY_HEADER
from hostelry.base.runtimes import runtimes_folder
from hostelry.loadtest.requests import message

SYNC, QUEUED, MODEL, BUCKET = "sync", "queued", "linear", "jobs"
ROW = b"[[1.0, 2.0]]"
LINE = b"1.0,2.0\n"
PATIENCE_S = 300.0
LOOK_S = 0.25  # between looks at a job, since each costs CPU time that the job could use
SHARED, HALVES = "shared", "halves"
CORES = (SHARED, HALVES)
PARTS = (COPIES, "jobs", "control", "gateway", "objectstore", "s3door", "agents", "alone: copies")
Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How much is measured: rounds, seconds of each load, requests one by one, lines of a job."""

    rounds: int
    duration_s: float
    singles: int
    objects: int
    lines: int
    connections: int = 16
    at_once: int = 8


SETTINGS = {
    "short": Setting(rounds=1, duration_s=1.0, singles=10, objects=32, lines=200),
    "full": Setting(rounds=3, duration_s=4.0, singles=50, objects=64, lines=750),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.jobs", description=__doc__)
    parser.add_argument("--setting", choices=SETTINGS, default="full")
    parser.add_argument("--runtimes", type=Path, help="default: HOSTELRY_RUNTIMES_DIR, or yours")
    arguments = parser.parse_args(argv)
    setting = SETTINGS[arguments.setting]
    runtimes = (arguments.runtimes or runtimes_folder(os.environ)).absolute()
    python = runtime_in(runtimes)
    with (
        tempfile.TemporaryDirectory() as folder,
        running_platform(Path(folder), runtimes) as platform,
    ):
        served = Served(platform, Path(folder), python)
        deploy(served, Path(folder))
        measured = measure(served, setting)
    for title, rows in measured.items():
        print_table(title, rows)
    write_result("jobs", arguments.setting, 0, measured)


def deploy(served: Served, folder: Path) -> None:
    """Deploy the model in `folder` for synchronous requests, and behind a queue."""
    client = served.sagemaker
    served.s3.create_bucket(Bucket=BUCKET)
    model = (folder / "model.joblib").read_bytes()
    code = CODE.replace("predict(data)", "predict(data.reshape(-1, 2))").encode()
    archive = packed(**{"model.joblib": model, "code/inference.py": code})
    served.s3.put_object(Bucket="models", Key="rows.tar.gz", Body=archive)
    container = {"Image": IMAGE, "ModelDataUrl": "s3://models/rows.tar.gz"}
    client.create_model(ModelName=MODEL, ExecutionRoleArn=ROLE, PrimaryContainer=container)
    variant = {
        "VariantName": "AllTraffic",
        "ModelName": MODEL,
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": 1,
    }
    output = {"OutputConfig": {"S3OutputPath": f"s3://{BUCKET}/answers"}}
    for name, more in ((SYNC, {}), (QUEUED, {"AsyncInferenceConfig": output})):
        client.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant], **more)
        client.create_endpoint(EndpointName=name, EndpointConfigName=name)
        wait_until_settled(
            lambda it=name: client.describe_endpoint(EndpointName=it)["EndpointStatus"]
        )


def measure(served: Served, setting: Setting) -> dict[str, list[Row]]:
    """Measure all tables."""
    rows: dict[str, list[Row]] = {"submissions": [], "latency": [], "batch": []}
    for number in range(setting.rounds):
        print(f"round {number + 1} of {setting.rounds}", flush=True)
        is_reversed = bool(number % 2)
        rows["submissions"].append(submissions(served, setting, is_reversed))
        rows["latency"].append(latencies(served, setting, is_reversed))
        for cores in CORES:
            rows["batch"].append(batch(served, setting, f"{number}-{cores}", is_reversed))
    return {
        "Submissions and synchronous answers": rows["submissions"],
        "An idle queue": rows["latency"],
        "A transform job (CPU in ms a line)": rows["batch"],
        "Against the aims": finding_rows(findings(rows)),
    }


def findings(rows: dict[str, list[Row]]) -> list[Finding]:
    """Medians of the rounds, with their aims."""

    def median(table: str, column: str, **given: str) -> float:
        chosen = [row for row in rows[table] if given.items() <= row.items()]
        return statistics.median(row[column] for row in chosen)

    return [
        Finding(
            what="submissions/s over synchronous answers/s",
            value=median("submissions", "ratio"),
            at_least=0.5,
        ),
        Finding(what="added latency, p50 ms", value=median("latency", "added ms"), at_most=50.0),
        Finding(
            what="lines/s of a job over the server's own rate",
            value=median("batch", "ratio", cores=SHARED),
            at_least=0.95,
        ),
        Finding(
            what="the same where copies have half of the cores alone",
            value=median("batch", "ratio", cores=HALVES),
            at_least=0.95,
        ),
    ]


def in_order(is_reversed: bool, *acts: Callable[[], float]) -> list[float]:
    """The results of `acts`, which are called in this order or in the reverse one."""
    found = {act: act() for act in (reversed(acts) if is_reversed else acts)}
    return [found[act] for act in acts]


def submissions(served: Served, setting: Setting, is_reversed: bool) -> Row:
    """Submissions and answers a second. The queue is empty before and afterwards."""
    drained: list[float] = []

    def queued() -> float:
        began_s = monotonic_s()
        found = gateway_load(served, setting, f"/endpoints/{QUEUED}/async-invocations")
        until(lambda: not backlog(served), "the queue is drained")
        check_answered(served)
        drained.append(found.total / (monotonic_s() - began_s))
        return rate(found)

    def synchronous() -> float:
        return rate(gateway_load(served, setting, f"/endpoints/{SYNC}/invocations"))

    sent, answered = in_order(is_reversed, queued, synchronous)
    return {
        "submitted/s": sent,
        "synchronous/s": answered,
        "ratio": ratio(sent, answered),
        "answered from the queue/s": drained[0],
    }


def latencies(served: Served, setting: Setting, is_reversed: bool) -> Row:
    """Median latencies of single requests: of a synchronous answer, and of a queue's object."""

    def synchronous() -> float:
        return median_ms(setting.singles, lambda: invoke(served))

    def queued() -> float:
        return median_ms(setting.singles, lambda: invoke_queued(served))

    direct, later = in_order(is_reversed, synchronous, queued)
    return {"synchronous ms": direct, "queued ms": later, "added ms": later - direct}


def invoke(served: Served) -> None:
    served.runtime.invoke_endpoint(EndpointName=SYNC, ContentType=JSON, Body=ROW)["Body"].read()


def invoke_queued(served: Served) -> None:
    """Submit a request, and look for its object until it exists."""
    answer = served.runtime.invoke_endpoint_async(EndpointName=QUEUED, ContentType=JSON, Body=ROW)
    key = answer["OutputLocation"].removeprefix(f"s3://{BUCKET}/")
    until(lambda: is_there(served, key), f"{key} is there", every_s=0.001)


def is_there(served: Served, key: str) -> bool:
    """Whether the object can be read."""
    try:
        served.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
    except ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchKey":
            raise
        return False
    return True


def median_ms(count: int, act: Callable[[], None]) -> float:
    """The median time of `act`, after one uncounted call."""
    act()
    times_s = []
    for _ in range(count):
        began_s = monotonic_s()
        act()
        times_s.append(monotonic_s() - began_s)
    return statistics.median(times_s) * 1000


def batch(served: Served, setting: Setting, name: str, is_reversed: bool) -> Row:
    """Lines a second of a job, and of the model's copy alone."""
    home, cores = served.platform.home, name.rpartition("-")[2]
    used: dict[str, float] = {}

    def job() -> float:
        return job_rate(served, setting, f"lines-{name}", used)

    def alone() -> float:
        if cores == HALVES:
            give_copies_their_cores(home)
        before = cpu_s_by_part(home)
        found = copy_load(served, setting)
        copies_s = used_s(before, cpu_s_by_part(home))[COPIES]
        used["alone: copies"] = copies_s * 1000 / found.total
        return rate(found)

    with cores_as_before(home):
        found, own = in_order(is_reversed, job, alone)
    rates = {"job lines/s": found, "server alone/s": own, "ratio": ratio(found, own)}
    return {"cores": cores, **rates, **{part: used.get(part) for part in PARTS}}


def job_rate(served: Served, setting: Setting, name: str, used: dict[str, float]) -> float:
    """Lines a second of a job, from the end of its first objects to the end of its last.

    `used` gets the CPU milliseconds of a line, by the part of the platform.
    """
    home = served.platform.home
    for number in range(setting.objects):
        key, body = f"{name}/in/{number:03}.csv", LINE * setting.lines
        served.s3.put_object(Bucket=BUCKET, Key=key, Body=body)
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/{name}/in/"}
    served.sagemaker.create_transform_job(
        TransformJobName=name,
        ModelName=MODEL,
        BatchStrategy="SingleRecord",
        MaxConcurrentTransforms=setting.at_once,
        TransformInput={
            "DataSource": {"S3DataSource": source},
            "ContentType": "text/csv",
            "SplitType": "Line",
        },
        TransformOutput={"S3OutputPath": f"s3://{BUCKET}/{name}/out", "AssembleWith": "Line"},
        TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": 1},
    )
    prefix = f"{name}/out/"
    wave = setting.at_once  # number of objects under way, of which the first ones end together

    def begun() -> int:
        if name.endswith(HALVES):
            give_copies_their_cores(home)  # its instance runs by now
        return num_done(served, name, prefix, wave)

    first = until(begun, "the first objects", LOOK_S)
    began_s, before = monotonic_s(), cpu_s_by_part(home)
    after = dict(before)

    def ended() -> int:
        after.update(cpu_s_by_part(home))  # before the copy ends, which follows its job soon
        return num_done(served, name, prefix, setting.objects)

    until(ended, f"{name} has all objects", LOOK_S)
    took_s = monotonic_s() - began_s
    num_lines = (setting.objects - first) * setting.lines
    used.update({part: s * 1000 / num_lines for part, s in used_s(before, after).items()})
    waiter = served.sagemaker.get_waiter("transform_job_completed_or_stopped")
    waiter.wait(TransformJobName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 60})
    return num_lines / took_s


def num_done(served: Served, name: str, prefix: str, least: int) -> int:
    """The objects below the prefix once they are `least`, else 0. Raises if the job failed."""
    found = served.sagemaker.describe_transform_job(TransformJobName=name)
    if found["TransformJobStatus"] == "Failed":
        raise RuntimeError(f"job {name} failed: {found['FailureReason']}")
    count = num_objects(served, prefix)
    return count if count >= least else 0


def copy_load(served: Served, setting: Setting) -> Measured:
    """Send requests of a line to the copy itself, as many at once as a job sends."""
    platform = served.platform
    headers = {"X-Hostelry-Key": platform.credentials.internal_key}
    found = httpx.get(f"{platform.config.control_url}/internal/routes", headers=headers).json()
    (copy,) = [
        copy
        for endpoint in found["endpoints"]
        if endpoint["name"] == SYNC
        for variant in endpoint["variants"]
        for copy in variant["copies"]
    ]
    given = {"Host": "localhost", "Content-Type": "text/csv", COPY_KEY_HEADER: copy["key"] or ""}
    request = message("/invocations", given, LINE)
    port = int(copy["address"].rpartition(":")[2])
    return run_load(
        Load(
            port=port,
            requests=[request] * setting.at_once,
            num_connections=setting.at_once,
            duration_s=setting.duration_s,
        )
    )


def gateway_load(served: Served, setting: Setting, path: str) -> Measured:
    """Send signed requests through the gateway, from all connections."""
    platform = served.platform
    keys = platform.credentials
    signing = SigningCredentials(keys.access_key_id, keys.secret_access_key)
    url = f"http://127.0.0.1:{platform.port}{path}"
    # InvokeEndpoint reads the first, InvokeEndpointAsync the second.
    kinds = {"Content-Type": JSON, "X-Amzn-SageMaker-Content-Type": JSON}
    request = AWSRequest("POST", url, kinds, ROW)
    SigV4Auth(signing, "sagemaker", keys.region).add_auth(request)
    given = {"Host": f"127.0.0.1:{platform.port}", **dict(request.headers.items())}
    return run_load(
        Load(
            port=platform.port,
            requests=[message(path, given, ROW)] * setting.connections,
            num_connections=setting.connections,
            duration_s=setting.duration_s,
        )
    )


def rate(found: Measured) -> float:
    """Answers a second. Raises RuntimeError if requests failed."""
    if found.errors:
        raise RuntimeError(f"{found.errors} of {found.total} requests failed")
    return found.per_s


def backlog(served: Served) -> int:
    """The number of queued requests that are not answered yet."""
    return sum(queue["waiting"] + queue["running"] for queue in queued_jobs(served)["backlog"])


def check_answered(served: Served) -> None:
    """Raise RuntimeError if a queued request failed."""
    failed = queued_jobs(served, "failed")["jobs"]
    if failed:
        raise RuntimeError(f"a queued request failed: {failed[0]['reason']}")


def queued_jobs(served: Served, state: str = "waiting") -> dict[str, Any]:
    """The jobs process's report of the queue, with one request in that state."""
    platform = served.platform
    headers = {"X-Hostelry-Key": platform.credentials.internal_key}
    url = f"http://127.0.0.1:{platform.config.jobs_port}/internal/jobs?limit=1&state={state}"
    found: dict[str, Any] = httpx.get(url, headers=headers).raise_for_status().json()
    return found


def num_objects(served: Served, prefix: str) -> int:
    """The number of objects below a prefix."""
    pages = served.s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
    return sum(page["KeyCount"] for page in pages)


def until(look: Callable[[], int], what: str, every_s: float = 0.05) -> int:
    """The first result of `look` that is not zero. Raises RuntimeError after PATIENCE_S."""
    give_up_at_s = monotonic_s() + PATIENCE_S
    while not (found := look()):
        if monotonic_s() > give_up_at_s:
            raise RuntimeError(f"{what}: not within {PATIENCE_S:g} s")
        time.sleep(every_s)
    return found


if __name__ == "__main__":
    main()
