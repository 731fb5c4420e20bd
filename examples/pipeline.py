"""Two models behind one call, a pipeline, and the same two on one endpoint, each called by name.

    HOSTELRY_CUSTOM_CODE=trusted hostelry up --detach
    hostelry exec -- python examples/pipeline.py

Plain boto3, and AWS's scikit-learn image, whose runtime is installed when it is first needed. One
container scales the measures of irises, the other names the kind that scaled measures belong to. As
a pipeline the endpoint takes measures and answers with kinds: each container gets the answer of the
one before. With InferenceExecutionConfig.Mode Direct requests name the container. Resources that an
interrupted run left are removed first.
"""

import io
import tarfile
from contextlib import suppress
from typing import Any

import boto3
from leftovers import remove

IMAGE = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3"
NAMES = {"Serial": "iris-pipeline", "Direct": "iris-direct"}
SCALE = """
from sklearn.datasets import load_iris
from sklearn.preprocessing import StandardScaler
def model_fn(model_dir):
    return StandardScaler().fit(load_iris().data)
def predict_fn(measures, model):
    return model.transform(measures)
"""
NAME = """
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
def model_fn(model_dir):
    irises = load_iris()
    return LogisticRegression().fit(StandardScaler().fit_transform(irises.data), irises.target)
def predict_fn(scaled, model):
    return model.predict(scaled)
"""
IRISES = "5.1,3.5,1.4,0.2\n6.0,2.7,4.4,1.4\n6.5,3.0,5.8,2.2\n"

sm_client, smr_client = boto3.client("sagemaker"), boto3.client("sagemaker-runtime")
s3 = boto3.client("s3")
region = sm_client.meta.region_name
account = boto3.client("sts").get_caller_identity()["Account"]
role = f"arn:aws:iam::{account}:role/HostelryExecutionRole"
bucket = f"sagemaker-{region}-{account}"


def container(name: str, code: str) -> dict[str, Any]:
    """A container of the image with this code, whose archive is put to S3."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        member = tarfile.TarInfo("code/inference.py")
        member.size = len(code)
        archive.addfile(member, io.BytesIO(code.encode()))
    key = f"iris/{name}.tar.gz"
    s3.put_object(Bucket=bucket, Key=key, Body=packed.getvalue())
    return {"Image": IMAGE, "ModelDataUrl": f"s3://{bucket}/{key}", "ContainerHostname": name}


def deploy(mode: str) -> str:
    """An endpoint of both containers; its name, once it is created."""
    name = NAMES[mode]
    sm_client.create_model(
        ModelName=name,
        ExecutionRoleArn=role,
        Containers=[container("scale", SCALE), container("name", NAME)],
        InferenceExecutionConfig={"Mode": mode},
    )
    variant = {
        "VariantName": "AllTraffic",
        "ModelName": name,
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": 1,
    }
    sm_client.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
    sm_client.create_endpoint(EndpointName=name, EndpointConfigName=name)
    return name


def asked(endpoint: str, body: str, **given: str) -> str:
    """The answer, as CSV."""
    answer = smr_client.invoke_endpoint(
        EndpointName=endpoint, ContentType="text/csv", Accept="text/csv", Body=body, **given
    )
    text: str = answer["Body"].read().decode()
    return text.strip()


def main() -> None:
    """Entry point."""
    for name in NAMES.values():
        remove(name, models=[name])
    with suppress(s3.exceptions.BucketAlreadyOwnedByYou):
        s3.create_bucket(Bucket=bucket)
    try:
        pipeline, direct = deploy("Serial"), deploy("Direct")
        for name in (pipeline, direct):
            waiter = sm_client.get_waiter("endpoint_in_service")
            waiter.wait(EndpointName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 300})
        kinds = asked(pipeline, IRISES)
        print(f"the pipeline: {kinds.split()}")
        scaled = asked(direct, IRISES, TargetContainerHostname="scale")
        print(f"scaled by the first container alone: {scaled.splitlines()[0]}")
        again = asked(direct, scaled, TargetContainerHostname="name")
        assert again == kinds, f"{again} of both by hand, {kinds} of the pipeline"
        print("both, called one after the other by name, say the same")
    finally:
        for name in NAMES.values():
            remove(name, models=[name])


if __name__ == "__main__":
    main()
