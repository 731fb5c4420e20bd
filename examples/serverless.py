"""A serverless endpoint: no process while there are no requests, an environment for each at once.

    HOSTELRY_CUSTOM_CODE=trusted hostelry up --detach --pace 60
    hostelry exec -- python examples/serverless.py

Plain boto3, a scikit-learn model. The endpoint answers as many requests at once as MaxConcurrency
allows and refuses more; after the idle time-out (10 minutes; 10 seconds with `--pace 60`) it has no
environment, and the next request starts one. With ProvisionedConcurrency one is always there.
At last the endpoint is moved to an instance, while it is being called. `hostelry usage` then shows
the milliseconds, memory and bytes of its requests. Resources that an interrupted run left are
removed first.
"""

import io
import json
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError
from leftovers import remove

IMAGE = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3"
NAME, VARIANT = "serverless-linear", "AllTraffic"
ON_INSTANCE = f"{NAME}-instance"
MAX_CONCURRENCY, MEMORY_MB = 4, 1024
IDLE_S = 20.0  # a little more than the idle time-out of a platform with `--pace 60`
PATIENCE_S = 300.0
CODE = """
import json, os, time
import numpy
from sklearn.linear_model import LinearRegression

def model_fn(model_dir):
    with open(os.path.join(model_dir, "weights.json")) as file:
        weights = json.load(file)
    model = LinearRegression()
    model.coef_ = numpy.array(weights["coef"])
    model.intercept_ = weights["intercept"]
    return model

def predict_fn(data, model):
    time.sleep(0.3)  # so that requests of a burst are under way together
    return model.predict(data)
"""

sm_client = boto3.client("sagemaker")
smr_client = boto3.client(
    "sagemaker-runtime", config=Config(retries={"total_max_attempts": 1}, max_pool_connections=8)
)
s3 = boto3.client("s3")
account = boto3.client("sts").get_caller_identity()["Account"]
region = sm_client.meta.region_name
role = f"arn:aws:iam::{account}:role/HostelryExecutionRole"
bucket = f"sagemaker-{region}-{account}"


def archive() -> bytes:
    """The model's archive: y = 2 a + 3 b + 1."""
    weights = json.dumps({"coef": [2.0, 3.0], "intercept": 1.0})
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as packed:
        for name, text in {"weights.json": weights, "code/inference.py": CODE}.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            packed.addfile(member, io.BytesIO(text.encode()))
    return content.getvalue()


def deploy() -> None:
    """Create the model, the serverless endpoint, and a configuration on an instance."""
    with suppress(s3.exceptions.BucketAlreadyOwnedByYou):
        s3.create_bucket(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key=f"{NAME}.tar.gz", Body=archive())
    container = {"Image": IMAGE, "ModelDataUrl": f"s3://{bucket}/{NAME}.tar.gz"}
    sm_client.create_model(ModelName=NAME, ExecutionRoleArn=role, PrimaryContainer=container)
    serverless = {"MemorySizeInMB": MEMORY_MB, "MaxConcurrency": MAX_CONCURRENCY}
    instance = {"InstanceType": "ml.m5.large", "InitialInstanceCount": 1}
    for name, where in ((NAME, {"ServerlessConfig": serverless}), (ON_INSTANCE, instance)):
        variant: dict[str, Any] = {"VariantName": VARIANT, "ModelName": NAME, **where}
        sm_client.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
    sm_client.create_endpoint(EndpointName=NAME, EndpointConfigName=NAME)
    wait_in_service()


def wait_in_service() -> None:
    """Wait until the endpoint is in service."""
    sm_client.get_waiter("endpoint_in_service").wait(
        EndpointName=NAME, WaiterConfig={"Delay": 1, "MaxAttempts": int(PATIENCE_S)}
    )


def called() -> float:
    """Seconds that one request took; its answer is checked."""
    began = time.perf_counter()
    answer = smr_client.invoke_endpoint(
        EndpointName=NAME, ContentType="application/json", Body=b"[[1.0, 2.0]]"
    )
    (predicted,) = json.loads(answer["Body"].read())
    assert abs(predicted - 9.0) < 1e-6, predicted
    return time.perf_counter() - began


def burst(count: int) -> list[str]:
    """How each of `count` requests at once ended: "answered", or the error's code."""

    def one(_: int) -> str:
        try:
            called()
        except ClientError as error:
            return str(error.response["Error"]["Code"])
        return "answered"

    with ThreadPoolExecutor(count) as pool:
        return sorted(pool.map(one, range(count)))


def provision(count: int) -> None:
    """Keep `count` environments ready from now on."""
    change = {"MaxConcurrency": MAX_CONCURRENCY, "ProvisionedConcurrency": count}
    sm_client.update_endpoint_weights_and_capacities(
        EndpointName=NAME,
        DesiredWeightsAndCapacities=[{"VariantName": VARIANT, "ServerlessUpdateConfig": change}],
    )
    wait_in_service()


def move_to_instance() -> int:
    """Move the endpoint to an instance; how many requests were answered meanwhile."""
    sm_client.update_endpoint(EndpointName=NAME, EndpointConfigName=ON_INSTANCE)
    answered = 0
    while sm_client.describe_endpoint(EndpointName=NAME)["EndpointStatus"] == "Updating":
        called()
        answered += 1
    wait_in_service()
    return answered


def clean_up() -> None:
    """Remove everything that a run makes."""
    remove(NAME, models=[NAME])
    with suppress(ClientError):
        sm_client.delete_endpoint_config(EndpointConfigName=ON_INSTANCE)


def main() -> None:
    """Run the example."""
    clean_up()
    try:
        deploy()
        print(f"an environment is ready: {called():.2f} s (the model itself takes 0.3 s)")
        ended = burst(MAX_CONCURRENCY + 2)
        print(f"{len(ended)} requests at once, MaxConcurrency {MAX_CONCURRENCY}: {ended}")
        time.sleep(IDLE_S)
        print(f"from no environment: {called():.2f} s")
        provision(1)
        time.sleep(IDLE_S)
        print(f"one provisioned environment, idle as long: {called():.2f} s")
        print(f"moved to an instance; {move_to_instance()} requests were answered meanwhile")
        print(f"on the instance: {called():.2f} s")
    finally:
        clean_up()


if __name__ == "__main__":
    main()
