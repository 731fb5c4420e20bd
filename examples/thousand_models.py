"""A thousand scikit-learn models, one for each customer, behind one endpoint on one instance.

    HOSTELRY_CUSTOM_CODE=trusted hostelry up --detach
    hostelry exec -- python examples/thousand_models.py

Uploads the models, and calls them for a minute: few are asked for often, most seldom, and which
ones these are drifts. Models are loaded when they are asked for and leave the memory for others, by
no rule of the caller's. Then one of the models gets an endpoint of its own, and a table compares
what both ways cost. Resources that an interrupted run left are removed first.
"""

import argparse
import io
import json
import random
import tarfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from statistics import quantiles
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError
from leftovers import remove

IMAGE = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3"
MANY, ALONE, VARIANT = "thousand-models", "one-of-a-thousand", "AllTraffic"
INSTANCE_TYPE, INSTANCE_GB = "ml.t2.medium", 4.0
HOSTS, REQUESTS = "/aws/sagemaker/Endpoints", "AWS/SageMaker"
NUM_FEATURES = 8
DRIFT_S, DRIFT_SHARE = 10.0, 0.1  # every 10 s a tenth of the models trade places
CALLERS = 6
PATIENCE_S = 600.0
CODE = """
import json, os
import numpy
from sklearn.linear_model import LinearRegression

def model_fn(model_dir):
    with open(os.path.join(model_dir, "weights.json")) as file:
        weights = json.load(file)
    model = LinearRegression()
    model.coef_ = numpy.array(weights["coef"])
    model.intercept_ = weights["intercept"]
    return model
"""

sm_client = boto3.client("sagemaker")
smr_client = boto3.client(
    "sagemaker-runtime", config=Config(max_pool_connections=CALLERS, retries={"max_attempts": 4})
)
s3 = boto3.client("s3", config=Config(max_pool_connections=CALLERS))
cloudwatch = boto3.client("cloudwatch")
account = boto3.client("sts").get_caller_identity()["Account"]
region = sm_client.meta.region_name
role = f"arn:aws:iam::{account}:role/HostelryExecutionRole"
bucket = f"sagemaker-{region}-{account}"


def key_of(number: int) -> str:
    """The TargetModel of a customer."""
    return f"customer-{number:04}.tar.gz"


def weights_of(number: int) -> tuple[list[float], float]:
    """The coefficients and the intercept of a customer's model."""
    draw = random.Random(number)
    return [round(draw.uniform(-1, 1), 6) for _ in range(NUM_FEATURES)], float(number)


def archive_of(number: int) -> bytes:
    """The archive of a customer's model."""
    coef, intercept = weights_of(number)
    members = {
        "weights.json": json.dumps({"coef": coef, "intercept": intercept}),
        "code/inference.py": CODE,
    }
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, text in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return content.getvalue()


def upload(num_models: int) -> None:
    """Put every model into the bucket: that is their deployment."""
    with suppress(s3.exceptions.BucketAlreadyOwnedByYou):
        s3.create_bucket(Bucket=bucket)

    def put(number: int) -> None:
        s3.put_object(Bucket=bucket, Key=f"{MANY}/{key_of(number)}", Body=archive_of(number))

    with ThreadPoolExecutor(CALLERS) as pool:
        list(pool.map(put, range(num_models)))


def deploy(name: str, container: Mapping[str, Any]) -> None:
    """Create the model and its endpoint, and wait until it serves."""
    sm_client.create_model(
        ModelName=name,
        ExecutionRoleArn=role,
        PrimaryContainer={
            "Image": IMAGE,
            "Environment": {"SAGEMAKER_MODEL_SERVER_WORKERS": "1"},
            **container,
        },
    )
    variant = {
        "VariantName": VARIANT,
        "ModelName": name,
        "InstanceType": INSTANCE_TYPE,
        "InitialInstanceCount": 1,
    }
    sm_client.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
    sm_client.create_endpoint(EndpointName=name, EndpointConfigName=name)
    wait_for(f"{name} is InService", lambda: status_of(name) == "InService")


def status_of(name: str) -> str:
    """The endpoint's status; exits where it is Failed."""
    shown = sm_client.describe_endpoint(EndpointName=name)
    if shown["EndpointStatus"] == "Failed":
        raise SystemExit(f"{name}: {shown['FailureReason']}")
    status: str = shown["EndpointStatus"]
    return status


def wait_for(what: str, holds: Callable[[], bool]) -> None:
    """Wait until `holds` is true; exits after PATIENCE_S."""
    deadline = time.perf_counter() + PATIENCE_S
    while not holds():
        if time.perf_counter() > deadline:
            raise SystemExit(f"{what}: not within {PATIENCE_S:g} s")
        time.sleep(1.0)


class Popularity:
    """Zipf's law over the models, of which some trade places from time to time."""

    def __init__(self, num_models: int) -> None:
        self._draw = random.Random(1)
        self._order = list(range(num_models))
        self._draw.shuffle(self._order)
        self._weights = [1.0 / (rank + 1) for rank in range(num_models)]
        self._drifts_at = time.perf_counter() + DRIFT_S
        self._lock = threading.Lock()

    def next(self) -> int:
        """The model of the next request."""
        with self._lock:
            if time.perf_counter() >= self._drifts_at:
                self._drifts_at += DRIFT_S
                self._drift()
            (number,) = self._draw.choices(self._order, self._weights)
            return number

    def _drift(self) -> None:
        places = self._draw.sample(range(len(self._order)), int(len(self._order) * DRIFT_SHARE))
        models = [self._order[place] for place in places]
        self._draw.shuffle(models)
        for place, model in zip(places, models, strict=True):
            self._order[place] = model


def call(name: str, number: int, target: str | None) -> float:
    """One request to a customer's model, its answer checked; the milliseconds that it took."""
    row = [float(it) for it in range(NUM_FEATURES)]
    coef, intercept = weights_of(number)
    more = {} if target is None else {"TargetModel": target}
    began = time.perf_counter()
    answer = smr_client.invoke_endpoint(
        EndpointName=name, ContentType="application/json", Body=json.dumps([row]), **more
    )
    (found,) = json.loads(answer["Body"].read())
    took_ms = (time.perf_counter() - began) * 1000
    expected = sum(a * b for a, b in zip(coef, row, strict=True)) + intercept
    if abs(found - expected) > 1e-6:
        raise SystemExit(f"model {number} answered {found}; it must be {expected}")
    return took_ms


def load(num_models: int, seconds: float) -> tuple[list[float], int]:
    """Call models for a while; the milliseconds of each answer, and the number of errors."""
    popularity, ends_at = Popularity(num_models), time.perf_counter() + seconds
    took_ms: list[float] = []
    errors: list[str] = []

    def caller() -> None:
        while time.perf_counter() < ends_at:
            number = popularity.next()
            try:
                took_ms.append(call(MANY, number, key_of(number)))
            except ClientError as error:
                errors.append(str(error))

    threads = [threading.Thread(target=caller) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in sorted(set(errors))[:3]:
        print(f"  an error: {error}")
    return took_ms, len(errors)


def values_of(namespace: str, metric: str, endpoint: str, statistic: str) -> list[float]:
    """The values of a metric of an endpoint's variant in the last minutes, the newest one last."""
    now = datetime.now(UTC)  # noqa: TID251 - the caller's own clock
    found = cloudwatch.get_metric_statistics(
        Namespace=namespace,
        MetricName=metric,
        Dimensions=[
            {"Name": "EndpointName", "Value": endpoint},
            {"Name": "VariantName", "Value": VARIANT},
        ],
        StartTime=now - timedelta(minutes=10),
        EndTime=now + timedelta(minutes=1),
        Period=60,
        Statistics=[statistic],
    )["Datapoints"]
    return [float(it[statistic]) for it in sorted(found, key=lambda it: it["Timestamp"])]


def memory_gb(endpoint: str) -> float:
    """The memory that an endpoint's copy takes, by CloudWatch, which measures once a minute."""

    def measured() -> list[float]:
        return values_of(HOSTS, "MemoryUtilization", endpoint, "Maximum")

    wait_for(f"the memory of {endpoint} is measured", lambda: any(measured()))
    return measured()[-1] / 100 * INSTANCE_GB


def row(name: str, one: str, each: str) -> str:
    """A line of the table."""
    return f"{name:<34}{one:>22}{each:>22}"


def table(num_models: int, took_ms: list[float], errors: int, alone_ms: list[float]) -> None:
    """Print what both ways cost."""
    print("Waiting for CloudWatch's minute ...", flush=True)
    alone_gb, many_gb = memory_gb(ALONE), memory_gb(MANY)
    loaded = values_of(HOSTS, "LoadedModelCount", MANY, "Maximum")[-1]
    hits = sum(values_of(REQUESTS, "ModelCacheHit", MANY, "Sum"))
    lookups = sum(values_of(REQUESTS, "ModelCacheHit", MANY, "SampleCount"))
    cuts = quantiles(took_ms, n=100)
    print()
    print(row("", "one endpoint", "an endpoint each"))
    print(row("endpoints, models", f"1, {num_models}", f"{num_models}, {num_models}"))
    print(row(f"instances ({INSTANCE_TYPE})", "1", str(num_models)))
    print(row("memory, GB", f"{many_gb:.1f}", f"{alone_gb * num_models:.0f}"))
    print(row("models in memory", f"{loaded:.0f}", str(num_models)))
    print(row("found in memory", f"{100 * hits / max(1.0, lookups):.1f} %", "100 %"))
    median_ms = quantiles(alone_ms, n=2)[0]
    print(row("answer, median", f"{cuts[49]:.0f} ms", f"{median_ms:.0f} ms"))
    print(row("answer, 95th and 99th percentile", f"{cuts[94]:.0f}, {cuts[98]:.0f} ms", "-"))
    print(row("requests, errors", f"{len(took_ms)}, {errors}", "-"))


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--models", type=int, default=1000, help="customers (default 1000)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of load (default 60)")
    given = parser.parse_args()
    if given.models < 2 or given.seconds <= 0:
        parser.error("--models must be at least 2, and --seconds above 0")
    for name in (MANY, ALONE):
        remove(name, models=[name])
    print(f"Uploading {given.models} models ...", flush=True)
    upload(given.models)
    print("Creating the endpoint ...", flush=True)
    deploy(MANY, {"Mode": "MultiModel", "ModelDataUrl": f"s3://{bucket}/{MANY}/"})
    print(f"Calling models for {given.seconds:g} s ...", flush=True)
    took_ms, errors = load(given.models, given.seconds)
    print("Creating an endpoint for one of them ...", flush=True)
    deploy(ALONE, {"ModelDataUrl": f"s3://{bucket}/{MANY}/{key_of(0)}"})
    alone_ms = [call(ALONE, 0, None) for _ in range(20)]
    table(given.models, took_ms, errors, alone_ms)
    for name in (MANY, ALONE):
        remove(name, models=[name])


if __name__ == "__main__":
    main()
