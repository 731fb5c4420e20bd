"""Three graphs over three models of scikit-learn, deployed and called through boto3.

    HOSTELRY_CUSTOM_CODE=trusted hostelry up --detach
    hostelry exec -- python examples/graph/deploy.py

Models and graphs are inference components of one endpoint. Running it again takes what is there.
"""

import contextlib
import io
import json
import os
import tarfile
import time
from pathlib import Path

import boto3
from botocore.exceptions import ClientError

HERE = Path(__file__).parent
ENDPOINT, BUCKET = "wine", "wine-models"
ROLE = os.environ.get("SAGEMAKER_ROLE", "arn:aws:iam::111122223333:role/HostelryExecutionRole")
SKLEARN = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3"
MODELS, GRAPHS = ("logistic", "bayes", "forest"), ("ensemble", "selection", "cascade")
BAROLO = [14.23, 1.71, 2.43, 15.6, 127.0, 2.8, 3.06, 0.28, 2.29, 5.64, 1.04, 3.92, 1065.0]
BARBERA = [14.13, 4.1, 2.74, 24.5, 96.0, 2.05, 0.76, 0.56, 1.35, 9.2, 0.61, 1.6, 560.0]
FIELDS = (
    "alcohol", "malic_acid", "ash", "alcalinity_of_ash", "magnesium", "total_phenols", "flavanoids",
    "nonflavanoid_phenols", "proanthocyanins", "color_intensity", "hue", "od280", "proline",
)  # fmt: skip


def main() -> None:
    deploy()
    wines = [dict(zip(FIELDS, it, strict=True)) for it in (BAROLO, BARBERA)]
    print(json.dumps({"ensemble": invoke("ensemble", {"wines": wines})}))
    for request in ({"model": "bayes", "rows": [BAROLO]}, {"rows": [BARBERA]}):
        print(json.dumps({"selection": invoke("selection", request)}))
    print(json.dumps({"cascade": invoke("cascade", {"rows": [BAROLO, BARBERA]})}))


def deploy() -> None:
    s3, sagemaker = boto3.client("s3"), boto3.client("sagemaker")
    with existing():
        s3.create_bucket(Bucket=BUCKET)
    with existing():
        sagemaker.create_endpoint_config(
            EndpointConfigName=ENDPOINT,
            ExecutionRoleArn=ROLE,
            ProductionVariants=[
                {
                    "VariantName": "AllTraffic",
                    "InstanceType": "ml.m5.4xlarge",
                    "InitialInstanceCount": 1,
                }
            ],
        )
    with existing():
        sagemaker.create_endpoint(EndpointName=ENDPOINT, EndpointConfigName=ENDPOINT)
    waiter = {"Delay": 1, "MaxAttempts": 120}
    sagemaker.get_waiter("endpoint_in_service").wait(EndpointName=ENDPOINT, WaiterConfig=waiter)
    for model in MODELS:
        archive = packed({"kind": model.encode(), **files(HERE / "wine")})
        create(model, SKLEARN, archive)
    for graph in GRAPHS:
        create(graph, "hostelry/graph", packed(files(HERE / graph)))
    for name in (*MODELS, *GRAPHS):
        wait(name)


def create(name: str, image: str, archive: bytes) -> None:
    key = f"{name}.tar.gz"
    boto3.client("s3").put_object(Bucket=BUCKET, Key=key, Body=archive)
    with existing():
        boto3.client("sagemaker").create_inference_component(
            InferenceComponentName=name,
            EndpointName=ENDPOINT,
            VariantName="AllTraffic",
            Specification={
                "Container": {"Image": image, "ArtifactUrl": f"s3://{BUCKET}/{key}"},
                "ComputeResourceRequirements": {
                    "NumberOfCpuCoresRequired": 1,
                    "MinMemoryRequiredInMb": 512,
                },
            },
            RuntimeConfig={"CopyCount": 1},
        )


def wait(component: str) -> None:
    sagemaker = boto3.client("sagemaker")
    while True:
        found = sagemaker.describe_inference_component(InferenceComponentName=component)
        status = found["InferenceComponentStatus"]
        if status == "InService":
            return
        if status == "Failed":
            raise SystemExit(f"{component}: {found['FailureReason']}")
        time.sleep(0.5)


def invoke(component: str, request: object) -> object:
    answer = boto3.client("sagemaker-runtime").invoke_endpoint(
        EndpointName=ENDPOINT,
        InferenceComponentName=component,
        ContentType="application/json",
        Body=json.dumps(request),
    )
    return json.loads(answer["Body"].read())


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def packed(contents: dict[str, bytes]) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as file:
        for name, data in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))
    return archive.getvalue()


@contextlib.contextmanager
def existing():
    """Leave what is there already as it is."""
    try:
        yield
    except ClientError as error:
        text = str(error)
        if "already exist" not in text and "BucketAlready" not in text:
            raise


if __name__ == "__main__":
    main()
