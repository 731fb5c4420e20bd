"""Find the cause of a failed endpoint in its log group, and write to the program's log group."""

import re
import time
from collections.abc import Callable
from typing import Any

import boto3

sagemaker: Any = boto3.client("sagemaker")
logs: Any = boto3.client("logs")
sts: Any = boto3.client("sts")
NAME = "logs-of-a-failure"
GROUP = f"/aws/sagemaker/Endpoints/{NAME}"
account = sts.get_caller_identity()["Account"]
role = f"arn:aws:iam::{account}:role/HostelryExecutionRole"


def until(check: Callable[[], Any], what: str) -> Any:
    """Wait a minute or so for a true value of `check`."""
    for _ in range(300):
        if value := check():
            return value
        time.sleep(0.2)
    raise SystemExit(what)


def search(**params: Any) -> list[str]:
    """The messages in the endpoint's group. Empty before the group exists, as AWS's SDK expects."""
    try:
        pages = logs.get_paginator("filter_log_events").paginate(logGroupName=GROUP, **params)
        return [event["message"] for page in pages for event in page["events"]]
    except logs.exceptions.ResourceNotFoundException as error:
        if "The specified log group does not exist." not in str(error):
            raise
        return []


# The server of this model exits at its start. The reason names a stream, which has the cause.
assert search() == []
sagemaker.create_model(
    ModelName=NAME,
    ExecutionRoleArn=role,
    PrimaryContainer={"Image": "echo:1", "Environment": {"ECHO_MODE": "exit"}},
)
variant = {
    "VariantName": "AllTraffic",
    "ModelName": NAME,
    "InstanceType": "ml.m5.xlarge",
    "InitialInstanceCount": 1,
}
sagemaker.create_endpoint_config(EndpointConfigName=NAME, ProductionVariants=[variant])
sagemaker.create_endpoint(EndpointName=NAME, EndpointConfigName=NAME)


def failure() -> Any:
    """The endpoint's failure reason."""
    return sagemaker.describe_endpoint(EndpointName=NAME).get("FailureReason")


reason = until(failure, "the endpoint does not fail")
named = re.search(r"See the log stream (\S+) of group (\S+)\.", reason)
assert named, reason
stream, group = named.groups()
assert group == GROUP, reason
until(lambda: search(filterPattern="failed"), "no line says that the copy failed")
newest = logs.describe_log_streams(
    logGroupName=GROUP, orderBy="LastEventTime", descending=True, limit=10
)["logStreams"]
assert stream in [it["logStreamName"] for it in newest], (stream, newest)
assert stream.startswith("AllTraffic/i-"), stream
page = logs.get_log_events(logGroupName=GROUP, logStreamName=stream, startFromHead=True)
lines = [event["message"] for event in page["events"]]
assert any("starting" in line for line in lines), lines

# The lines survive the endpoint.
sagemaker.delete_endpoint(EndpointName=NAME)
sagemaker.delete_endpoint_config(EndpointConfigName=NAME)
sagemaker.delete_model(ModelName=NAME)
kept = search(logStreamNamePrefix="AllTraffic/")
assert len(kept) >= len(lines), (kept, lines)

# A group that the program creates.
own = "/my-app/inference"
logs.create_log_group(logGroupName=own, tags={"project": "demo"})
logs.put_retention_policy(logGroupName=own, retentionInDays=7)
logs.create_log_stream(logGroupName=own, logStreamName="run-1")
described = logs.describe_log_groups(logGroupNamePrefix="/my-app/")["logGroups"]
now_ms = described[0]["creationTime"]
texts = ['{"level": "info", "ms": 12}', '{"level": "error", "ms": 250}']
logs.put_log_events(
    logGroupName=own,
    logStreamName="run-1",
    logEvents=[{"timestamp": now_ms + at, "message": text} for at, text in enumerate(texts)],
)
slow = logs.filter_log_events(logGroupName=own, filterPattern='{ $.level = "err*" && $.ms > 100 }')
assert [it["message"] for it in slow["events"]] == texts[1:], slow
assert [it["retentionInDays"] for it in described] == [7], described
tags = logs.list_tags_for_resource(resourceArn=described[0]["logGroupArn"])["tags"]
assert tags == {"project": "demo"}, tags
first = logs.get_log_events(logGroupName=own, logStreamName="run-1", startFromHead=True)
again = logs.get_log_events(
    logGroupName=own, logStreamName="run-1", nextToken=first["nextForwardToken"]
)
assert again["nextForwardToken"] == first["nextForwardToken"], again
try:
    logs.start_query(logGroupName=own, startTime=0, endTime=1, queryString="fields @message")
except logs.exceptions.ClientError as error:
    if "logs:StartQuery" not in str(error):
        raise
for name in (own, GROUP):
    logs.delete_log_group(logGroupName=name)
print(f"{len(kept)} lines of {stream} outlived the endpoint")
