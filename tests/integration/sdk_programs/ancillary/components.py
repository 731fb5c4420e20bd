"""A pass-through model with an adapter: create, scale with rollout settings, delete.

The image contains its model, so the model's data is an empty prefix, given as a web address.
"""

import io
import json
import tarfile
import time
from typing import Any

import boto3

session = boto3.session.Session()
region = session.region_name
account = session.client("sts").get_caller_identity()["Account"]
sm, s3 = session.client("sagemaker"), session.client("s3")
runtime = session.client("sagemaker-runtime")
role = f"arn:aws:iam::{account}:role/HostelryExecutionRole"
bucket, name, adapter = f"components-{account}", "pass-through", "pass-through-es"


def wait_for(component: str, status: str = "InService") -> Any:
    while (seen := sm.describe_inference_component(InferenceComponentName=component))[
        "InferenceComponentStatus"
    ] != status:
        assert seen["InferenceComponentStatus"] != "Failed", seen["FailureReason"]
        time.sleep(0.5)
    return seen


def wait_until_gone(component: str) -> None:
    while True:
        try:
            sm.describe_inference_component(InferenceComponentName=component)
        except sm.exceptions.ClientError as error:
            if "Could not find" in error.response["Error"]["Message"]:
                return
            raise
        time.sleep(0.5)


s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": region})
packed = io.BytesIO()
with tarfile.open(fileobj=packed, mode="w:gz") as archive:
    for file in ("adapter_config.json", "adapter_model.safetensors"):
        member = tarfile.TarInfo(file)
        member.size = 2
        archive.addfile(member, io.BytesIO(b"{}"))
s3.put_object(Bucket=bucket, Key="adapters/es.tar.gz", Body=packed.getvalue())

source = {
    "S3Uri": f"https://{bucket}.s3.{region}.amazonaws.com/code/",
    "S3DataType": "S3Prefix",
    "CompressionType": "None",
}
container = {"Image": "echo:1", "ModelDataSource": {"S3DataSource": source}}
sm.create_model(ModelName=name, ExecutionRoleArn=role, PrimaryContainer=container)
assert sm.describe_model(ModelName=name)["PrimaryContainer"]["ModelDataSource"] == {
    "S3DataSource": source
}
sm.create_endpoint_config(
    EndpointConfigName=name,
    ExecutionRoleArn=role,
    ProductionVariants=[
        {"VariantName": "AllTraffic", "InstanceType": "ml.m5.xlarge", "InitialInstanceCount": 1}
    ],
)
sm.create_endpoint(EndpointName=name, EndpointConfigName=name)
sm.get_waiter("endpoint_in_service").wait(EndpointName=name, WaiterConfig={"Delay": 1})

needs = {"MinMemoryRequiredInMb": 256, "NumberOfCpuCoresRequired": 1}
sm.create_inference_component(
    InferenceComponentName=name,
    EndpointName=name,
    VariantName="AllTraffic",
    Specification={"ModelName": name, "ComputeResourceRequirements": needs},
    RuntimeConfig={"CopyCount": 1},
)
wait_for(name)
sm.create_inference_component(
    InferenceComponentName=adapter,
    EndpointName=name,
    Specification={
        "BaseInferenceComponentName": name,
        "Container": {
            "ArtifactUrl": f"https://s3.{region}.amazonaws.com/{bucket}/adapters/es.tar.gz"
        },
    },
)
shown = wait_for(adapter)
assert shown["VariantName"] == "AllTraffic"
assert shown["Specification"]["ComputeResourceRequirements"] == needs

rollout = {
    "RollingUpdatePolicy": {
        "MaximumBatchSize": {"Type": "CAPACITY_PERCENT", "Value": 50},
        "WaitIntervalInSeconds": 60,
        "MaximumExecutionTimeoutInSeconds": 1800,
    }
}
sm.update_inference_component(
    InferenceComponentName=name, RuntimeConfig={"CopyCount": 2}, DeploymentConfig=rollout
)
shown = wait_for(name)
assert shown["RuntimeConfig"]["CurrentCopyCount"] == 2
assert shown["LastDeploymentConfig"] == rollout

body = json.dumps({"inputs": "hola"}).encode()
for component in (name, adapter):
    answer = runtime.invoke_endpoint(
        EndpointName=name,
        InferenceComponentName=component,
        ContentType="application/json",
        Body=body,
    )
    assert answer["Body"].read() == body

refusal = ""
try:
    sm.delete_inference_component(InferenceComponentName=name)
except sm.exceptions.ClientError as error:
    refusal = error.response["Error"]["Message"]
assert "is a base inference component" in refusal, "a base goes after its adapters"
for component in (adapter, name):
    sm.delete_inference_component(InferenceComponentName=component)
    wait_until_gone(component)
sm.delete_endpoint(EndpointName=name)
sm.get_waiter("endpoint_deleted").wait(EndpointName=name, WaiterConfig={"Delay": 1})
sm.delete_endpoint_config(EndpointConfigName=name)
sm.delete_model(ModelName=name)
s3.delete_object(Bucket=bucket, Key="adapters/es.tar.gz")
s3.delete_bucket(Bucket=bucket)
print(f"{name} served with its adapter from an empty prefix, on 2 copies")
