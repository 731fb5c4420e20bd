"""An ensemble on Triton: preprocessing and a model as one call, with JSON and with binary tensors.

    HOSTELRY_CUSTOM_CODE=trusted hostelry up --detach
    hostelry exec -- python examples/triton/deploy.py

Plain boto3, and AWS's Triton image, whose runtime is installed when it is first needed. A logistic
regression is fitted here; its numbers go into the archive beside the code of both steps. Resources
that an interrupted run left are removed first.
"""

import io
import json
import struct
import sys
import tarfile
from contextlib import suppress
from pathlib import Path

import boto3
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from leftovers import remove

MODELS = Path(__file__).parent / "models"
NAME = "triton-clusters"
IMAGE = "785573368785.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:24.09-py3"
BINARY = "application/vnd.sagemaker-triton.binary+json;json-header-size="
ROWS = [[1.0, 200.0], [3.0, 600.0], [2.1, 410.0]]

sm_client, smr_client = boto3.client("sagemaker"), boto3.client("sagemaker-runtime")
s3 = boto3.client("s3")
region = sm_client.meta.region_name
account = boto3.client("sts").get_caller_identity()["Account"]
role = f"arn:aws:iam::{account}:role/HostelryExecutionRole"
bucket = f"sagemaker-{region}-{account}"


def fitted() -> dict[str, dict[str, np.ndarray]]:
    """What each step has learned from two clusters of points."""
    random = np.random.default_rng(7)
    first = random.normal([1.0, 200.0], [0.4, 60.0], (200, 2))
    second = random.normal([3.0, 600.0], [0.4, 60.0], (200, 2))
    rows, labels = np.concatenate([first, second]), np.repeat([0.0, 1.0], 200)
    mean, deviation = rows.mean(axis=0), rows.std(axis=0)
    scaled = (rows - mean) / deviation
    weights, bias = np.zeros(2), 0.0
    for _ in range(500):
        error = 1 / (1 + np.exp(-(scaled @ weights + bias))) - labels
        weights -= 0.5 * scaled.T @ error / len(rows)
        bias -= 0.5 * error.mean()
    return {
        "scale": {"mean": mean, "deviation": deviation},
        "classify": {"weights": weights, "bias": np.array(bias)},
    }


def archive() -> bytes:
    """model.tar.gz: a folder for each model, and in it one for each version."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as packed:
        for file in sorted(MODELS.rglob("*.*")):
            packed.add(file, str(file.relative_to(MODELS)))
        for name, arrays in fitted().items():
            data = io.BytesIO()
            np.savez(data, **arrays)
            member = tarfile.TarInfo(f"{name}/1/fitted.npz")
            member.size = len(data.getvalue())
            packed.addfile(member, io.BytesIO(data.getvalue()))
        version = tarfile.TarInfo("clusters/1")
        version.type, version.mode = tarfile.DIRTYPE, 0o755
        packed.addfile(version)
    return content.getvalue()


def deploy() -> None:
    key = "triton/clusters.tar.gz"
    s3.put_object(Bucket=bucket, Key=key, Body=archive())
    sm_client.create_model(
        ModelName=NAME,
        ExecutionRoleArn=role,
        PrimaryContainer={
            "Image": IMAGE,
            "ModelDataUrl": f"s3://{bucket}/{key}",
            "Environment": {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "clusters"},
        },
    )
    variant = {
        "VariantName": "AllTraffic",
        "ModelName": NAME,
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": 1,
    }
    sm_client.create_endpoint_config(EndpointConfigName=NAME, ProductionVariants=[variant])
    sm_client.create_endpoint(EndpointName=NAME, EndpointConfigName=NAME)
    waiter = sm_client.get_waiter("endpoint_in_service")
    waiter.wait(EndpointName=NAME, WaiterConfig={"Delay": 1, "MaxAttempts": 300})


def as_json(rows: list[list[float]]) -> list[float]:
    """The probabilities, by a request and an answer in JSON."""
    data = [value for row in rows for value in row]
    tensor = {"name": "measures", "shape": [len(rows), 2], "datatype": "FP32", "data": data}
    answer = smr_client.invoke_endpoint(
        EndpointName=NAME, ContentType="application/json", Body=json.dumps({"inputs": [tensor]})
    )
    (output,) = json.loads(answer["Body"].read())["outputs"]
    found: list[float] = output["data"]
    return found


def as_binary(rows: list[list[float]]) -> list[float]:
    """The same by tensors as bytes, which take no time to be written and read as text."""
    values = [value for row in rows for value in row]
    data = struct.pack(f"<{len(values)}f", *values)
    head = json.dumps(
        {
            "inputs": [
                {
                    "name": "measures",
                    "shape": [len(rows), 2],
                    "datatype": "FP32",
                    "parameters": {"binary_data_size": len(data)},
                }
            ],
            "outputs": [{"name": "probability", "parameters": {"binary_data": True}}],
        }
    ).encode()
    answer = smr_client.invoke_endpoint(
        EndpointName=NAME, ContentType=f"{BINARY}{len(head)}", Body=head + data
    )
    size = int(answer["ContentType"].removeprefix(BINARY))
    tensor = answer["Body"].read()[size:]
    return list(struct.unpack(f"<{len(tensor) // 4}f", tensor))


def main() -> None:
    remove(NAME, models=[NAME])
    with suppress(s3.exceptions.BucketAlreadyOwnedByYou):
        s3.create_bucket(Bucket=bucket)
    try:
        deploy()
        print(json.dumps({"json": [round(it, 4) for it in as_json(ROWS)]}))
        print(json.dumps({"binary": [round(it, 4) for it in as_binary(ROWS)]}))
    finally:
        remove(NAME, models=[NAME])


if __name__ == "__main__":
    main()
