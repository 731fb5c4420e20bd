"""A batch job for each object that arrives below a prefix.

    python examples/echo_server.py --image-rule >> ~/.hostelry/images.toml
    hostelry up --detach
    hostelry exec -- python examples/arrivals.py

Plain boto3. The bucket sends its events to EventBridge, and a rule creates a transform job for each
object below ``arrivals/in/``, with the object's own key in the job's request and in its answers'.
Resources that an interrupted run left are removed first.
"""

import json
import time
from contextlib import suppress
from typing import Any

import boto3
from leftovers import remove_all

FULL_ACCESS = "arn:aws:iam::aws:policy/AmazonSageMakerFullAccess"
NAME = "arrivals"
sm_client, events, s3, iam = (
    boto3.client(service) for service in ("sagemaker", "events", "s3", "iam")
)
region = sm_client.meta.region_name
account = boto3.client("sts").get_caller_identity()["Account"]
bucket = f"sagemaker-{region}-{account}"


def clean_up() -> None:
    """Remove the rule, its role and the model, where they are there."""
    with suppress(events.exceptions.ResourceNotFoundException):
        events.remove_targets(Rule=NAME, Ids=["job"])
    events.delete_rule(Name=NAME)
    with suppress(iam.exceptions.NoSuchEntityException):
        iam.detach_role_policy(RoleName=NAME, PolicyArn=FULL_ACCESS)
        iam.delete_role(RoleName=NAME)
    remove_all("model", [NAME])


def role_of_events() -> str:
    """A role in which EventBridge creates jobs."""
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": "events.amazonaws.com"},
        "Action": "sts:AssumeRole",
    }
    trust = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    made = iam.create_role(RoleName=NAME, AssumeRolePolicyDocument=trust)
    iam.attach_role_policy(RoleName=NAME, PolicyArn=FULL_ACCESS)
    return str(made["Role"]["Arn"])


def start_jobs_by_arrivals() -> None:
    """A rule that starts a job for each object that arrives."""
    s3.put_bucket_notification_configuration(
        Bucket=bucket, NotificationConfiguration={"EventBridgeConfiguration": {}}
    )
    pattern = {
        "source": ["aws.s3"],
        "detail-type": ["Object Created"],
        "detail": {"bucket": {"name": [bucket]}, "object": {"key": [{"prefix": f"{NAME}/in/"}]}},
    }
    events.put_rule(Name=NAME, EventPattern=json.dumps(pattern))
    source = {"S3DataType": "S3Prefix", "S3Uri": "s3://<bucket>/<key>"}
    job: dict[str, Any] = {
        "TransformJobName": f"{NAME}-<id>",
        "ModelName": NAME,
        "TransformInput": {
            "DataSource": {"S3DataSource": source},
            "ContentType": "application/jsonlines",
            "SplitType": "Line",
        },
        "TransformOutput": {"S3OutputPath": f"s3://<bucket>/{NAME}/out", "AssembleWith": "Line"},
        "BatchStrategy": "SingleRecord",
        "TransformResources": {"InstanceType": "ml.m5.large", "InstanceCount": 1},
    }
    transformer = {
        "InputPathsMap": {
            "id": "$.id",
            "bucket": "$.detail.bucket.name",
            "key": "$.detail.object.key",
        },
        "InputTemplate": json.dumps(job),
    }
    target = {
        "Id": "job",
        "Arn": "arn:aws:scheduler:::aws-sdk:sagemaker:createTransformJob",
        "RoleArn": role_of_events(),
        "InputTransformer": transformer,
    }
    events.put_targets(Rule=NAME, Targets=[target])


def jobs() -> list[str]:
    """The names of this example's jobs."""
    listed = sm_client.list_transform_jobs(NameContains=f"{NAME}-", MaxResults=100)
    return [it["TransformJobName"] for it in listed["TransformJobSummaries"]]


def main() -> None:
    """Put two objects, and show the answers of the jobs that they started."""
    clean_up()
    with suppress(s3.exceptions.BucketAlreadyOwnedByYou):
        s3.create_bucket(Bucket=bucket)
    sm_client.create_model(
        ModelName=NAME,
        ExecutionRoleArn=f"arn:aws:iam::{account}:role/HostelryExecutionRole",
        PrimaryContainer={"Image": f"{account}.dkr.ecr.{region}.amazonaws.com/shared-fleet-echo:1"},
    )
    start_jobs_by_arrivals()
    before, run = set(jobs()), time.strftime("%H%M%S")
    for name in ("one", "two"):
        body = f'{{"from": "{name}"}}\n{{"again": "{name}"}}\n'.encode()
        s3.put_object(Bucket=bucket, Key=f"{NAME}/in/{run}-{name}.jsonl", Body=body)
    while len(started := set(jobs()) - before) < 2:
        time.sleep(0.5)
    for job in started:
        sm_client.get_waiter("transform_job_completed_or_stopped").wait(
            TransformJobName=job, WaiterConfig={"Delay": 1, "MaxAttempts": 300}
        )
    for name in ("one", "two"):
        key = f"{NAME}/out/{run}-{name}.jsonl.out"
        answer = s3.get_object(Bucket=bucket, Key=key)["Body"].read().decode()
        print(f"{key}:\n{answer}")
    clean_up()


if __name__ == "__main__":
    main()
