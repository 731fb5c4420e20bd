"""An endpoint is updated under traffic, first to a broken version, then to a good one.

    HOSTELRY_CUSTOM_CODE=trusted hostelry up --detach
    hostelry exec -- python examples/safe_update.py

Plain boto3, and AWS's scikit-learn image, whose runtime is installed when it is first needed. Each
update is a canary: half of the requests are sent to the new version first. No alarm is set up: a
verdict decides. A version that answers worse than the old one is taken back at once, and the waits
of one that does not end early. Resources that an interrupted run left are removed first.
"""

import io
import tarfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import boto3
from botocore.exceptions import ClientError
from leftovers import remove, remove_all

IMAGE = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3"
NAME = "iris-kinds"
FIRST, BROKEN, BETTER = VERSIONS = tuple(f"{NAME}-{it}" for it in ("first", "broken", "better"))
CLIENTS = 4
VERDICT = "errors=0.05 latency=2.0"  # what a new version may be worse by
POLICY = {
    "BlueGreenUpdatePolicy": {
        "TrafficRoutingConfiguration": {
            "Type": "CANARY",
            "CanarySize": {"Type": "CAPACITY_PERCENT", "Value": 50},
            "WaitIntervalInSeconds": 300,
        },
        "TerminationWaitInSeconds": 60,
    }
}
CODE = """
from sklearn.datasets import load_iris
from sklearn.{module} import {kind}
def model_fn(model_dir):
    irises = load_iris()
    return {kind}({settings}).fit(irises.data, irises.target)
def predict_fn(measures, model):
    return model.predict({argument})
"""
LOGISTIC = {"module": "linear_model", "kind": "LogisticRegression", "settings": "max_iter=500"}
FOREST = {"module": "ensemble", "kind": "RandomForestClassifier", "settings": "n_estimators=5"}
# The broken one was trained on four measures and looks at three: no test of its loading shows it.
CODES = {
    FIRST: CODE.format(**LOGISTIC, argument="measures"),
    BROKEN: CODE.format(**FOREST, argument="measures[:, :3]"),
    BETTER: CODE.format(**FOREST, argument="measures"),
}
IRISES = "5.1,3.5,1.4,0.2\n6.0,2.7,4.4,1.4\n"

sm_client, smr_client = boto3.client("sagemaker"), boto3.client("sagemaker-runtime")
s3 = boto3.client("s3")
region = sm_client.meta.region_name
account = boto3.client("sts").get_caller_identity()["Account"]
role = f"arn:aws:iam::{account}:role/HostelryExecutionRole"
bucket = f"sagemaker-{region}-{account}"


class Traffic:
    """Clients that call without pause, and how many of their calls were answered or failed."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._ended = threading.Event()
        self._pool = ThreadPoolExecutor(CLIENTS)

    def __enter__(self) -> "Traffic":
        for _ in range(CLIENTS):
            self._pool.submit(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._pool.shutdown()

    def _call(self) -> None:
        while not self._ended.is_set():
            try:
                smr_client.invoke_endpoint(EndpointName=NAME, ContentType="text/csv", Body=IRISES)
                self.counts["answered"] += 1
            except ClientError as error:
                self.counts[f"failed with {error.response['Error']['Code']}"] += 1


def configure(version: str) -> None:
    """The model of a version, from its code alone, and a configuration with two instances."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        member = tarfile.TarInfo("code/inference.py")
        member.size = len(CODES[version])
        archive.addfile(member, io.BytesIO(CODES[version].encode()))
    key = f"{NAME}/{version}.tar.gz"
    s3.put_object(Bucket=bucket, Key=key, Body=packed.getvalue())
    container = {"Image": IMAGE, "ModelDataUrl": f"s3://{bucket}/{key}"}
    sm_client.create_model(ModelName=version, ExecutionRoleArn=role, PrimaryContainer=container)
    variant = {
        "VariantName": "AllTraffic",
        "ModelName": version,
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": 2,
    }
    sm_client.create_endpoint_config(EndpointConfigName=version, ProductionVariants=[variant])


def update(version: str) -> dict[str, Any]:
    """Update the endpoint under traffic; its description once that is over."""
    print(f"\nUpdating to {version} ...", flush=True)
    with Traffic() as traffic:
        began, shown = time.perf_counter(), ""
        sm_client.update_endpoint(
            EndpointName=NAME, EndpointConfigName=version, DeploymentConfig=POLICY
        )
        while (found := sm_client.describe_endpoint(EndpointName=NAME))[
            "EndpointStatus"
        ] == "Updating":
            variants = found.get("PendingDeploymentSummary", {}).get("ProductionVariants", [])
            status = [it["Status"] for one in variants for it in one.get("VariantStatus", [])]
            if status and status[-1] != shown:
                shown = status[-1]
                print(f"  {time.perf_counter() - began:5.1f} s  {shown}", flush=True)
            time.sleep(0.5)
    print(f"  {time.perf_counter() - began:5.1f} s  {found['EndpointStatus']} with", end=" ")
    print(found["EndpointConfigName"])
    print(f"  {dict(traffic.counts)}")
    return found


def clean_up() -> None:
    """Remove all that a run makes."""
    remove(NAME, models=VERSIONS)
    remove_all("endpoint_config", VERSIONS)


def main() -> None:
    """Entry point."""
    clean_up()
    with suppress(s3.exceptions.BucketAlreadyOwnedByYou):
        s3.create_bucket(Bucket=bucket)
    try:
        for version in VERSIONS:
            configure(version)
        tags = [{"Key": "hostelry:verdict", "Value": VERDICT}]
        sm_client.create_endpoint(EndpointName=NAME, EndpointConfigName=FIRST, Tags=tags)
        waiter = sm_client.get_waiter("endpoint_in_service")
        waiter.wait(EndpointName=NAME, WaiterConfig={"Delay": 1, "MaxAttempts": 300})
        broken = update(BROKEN)
        print(f"  {broken['FailureReason']}")
        assert broken["EndpointConfigName"] == FIRST, "a broken version is taken back"
        better = update(BETTER)
        assert better["EndpointConfigName"] == BETTER, better.get("FailureReason")
    finally:
        clean_up()


if __name__ == "__main__":
    main()
