"""A schedule deletes a model at its time, and then deletes itself."""

import json
import time
from datetime import UTC, datetime, timedelta

import boto3

iam, sm, scheduler = (boto3.client(name) for name in ("iam", "sagemaker", "scheduler"))
principal = {"Service": "scheduler.amazonaws.com"}
statement = {"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole"}
trust = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
role = iam.create_role(RoleName="schedules", AssumeRolePolicyDocument=trust)["Role"]["Arn"]
allow = {"Effect": "Allow", "Action": "sagemaker:DeleteModel", "Resource": "*"}
document = json.dumps({"Version": "2012-10-17", "Statement": [allow]})
iam.put_role_policy(RoleName="schedules", PolicyName="delete", PolicyDocument=document)
sm.create_model(
    ModelName="scheduled-model",
    ExecutionRoleArn=iam.get_role(RoleName="HostelryExecutionRole")["Role"]["Arn"],
    PrimaryContainer={"Image": "image", "ModelDataUrl": "s3://bucket/model.tar.gz"},
)
at = (datetime.now(UTC) + timedelta(seconds=2)).strftime("%Y-%m-%dT%H:%M:%S")
scheduler.create_schedule(
    Name="clean-up",
    ScheduleExpression=f"at({at})",
    FlexibleTimeWindow={"Mode": "OFF"},
    ActionAfterCompletion="DELETE",
    Target={
        "Arn": "arn:aws:scheduler:::aws-sdk:sagemaker:deleteModel",
        "RoleArn": role,
        "Input": json.dumps({"ModelName": "scheduled-model"}),
    },
)
assert scheduler.get_schedule(Name="clean-up")["State"] == "ENABLED"
ends_at = time.monotonic() + 60
while scheduler.list_schedules()["Schedules"]:
    assert time.monotonic() < ends_at, "the schedule has not fired"
    time.sleep(0.2)
assert not sm.list_models(NameContains="scheduled-model")["Models"]
iam.delete_role_policy(RoleName="schedules", PolicyName="delete")
iam.delete_role(RoleName="schedules")
print("the schedule called DeleteModel and went")
