"""A queue in front of a model that has no instance while there is nothing to do, and a batch job.

    python examples/echo_server.py --image-rule >> ~/.hostelry/images.toml
    hostelry up --detach --pace 60
    hostelry exec -- python examples/async_and_batch.py

Plain boto3. An asynchronous endpoint of a small server (`examples/echo_server.py`) is set to no
instance. Requests are accepted all the same, with inputs inline and in S3. An alarm on
HasBacklogWithoutCapacity brings up the first instance, the answers come to S3 and a message about
each to a topic, which a queue subscribes to; then target tracking on
ApproximateBacklogSizePerInstance takes the instance away again. `--pace 60` makes the 15 minutes
without load, after which AWS scales in, a minute. At last a transform job sends each line of some
objects to the same model, on an instance that ends with the job. Resources that an interrupted run
left are removed first.
"""

import argparse
import json
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import boto3
from leftovers import deregister, remove

IMAGE = "{account}.dkr.ecr.{region}.amazonaws.com/shared-fleet-echo:1"
NAME, VARIANT, ALARM = "queued-echo", "AllTraffic", "queued-echo-backlog"
RESOURCE_ID = f"endpoint/{NAME}/variant/{VARIANT}"
TARGET: dict[str, Any] = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": RESOURCE_ID,
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
}
OF_QUEUE: dict[str, Any] = {
    "Namespace": "AWS/SageMaker",
    "Dimensions": [{"Name": "EndpointName", "Value": NAME}],
    "Statistic": "Average",
}
PATIENCE_S = 300.0

sm_client, smr_client = boto3.client("sagemaker"), boto3.client("sagemaker-runtime")
s3, sns, sqs = (boto3.client(service) for service in ("s3", "sns", "sqs"))
scaling, cloudwatch = boto3.client("application-autoscaling"), boto3.client("cloudwatch")
region = sm_client.meta.region_name
account = boto3.client("sts").get_caller_identity()["Account"]
role = f"arn:aws:iam::{account}:role/HostelryExecutionRole"
bucket = f"sagemaker-{region}-{account}"


def subscribed() -> tuple[str, str]:
    """A topic, and the URL of a queue that gets its messages."""
    topic = sns.create_topic(Name=NAME)["TopicArn"]
    url = sqs.create_queue(QueueName=NAME)["QueueUrl"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=topic.replace(":sns:", ":sqs:"))
    return topic, url


def deploy(topic: str) -> None:
    """Create the asynchronous endpoint, and wait until it is in service."""
    sm_client.create_model(
        ModelName=NAME,
        ExecutionRoleArn=role,
        PrimaryContainer={"Image": IMAGE.format(account=account, region=region)},
    )
    variant = {
        "VariantName": VARIANT,
        "ModelName": NAME,
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": 1,
    }
    sm_client.create_endpoint_config(
        EndpointConfigName=NAME,
        ProductionVariants=[variant],
        AsyncInferenceConfig={
            "ClientConfig": {"MaxConcurrentInvocationsPerInstance": 4},
            "OutputConfig": {
                "S3OutputPath": f"s3://{bucket}/{NAME}/answers",
                "S3FailurePath": f"s3://{bucket}/{NAME}/failures",
                "NotificationConfig": {"SuccessTopic": topic, "ErrorTopic": topic},
            },
        },
    )
    sm_client.create_endpoint(EndpointName=NAME, EndpointConfigName=NAME)
    sm_client.get_waiter("endpoint_in_service").wait(
        EndpointName=NAME, WaiterConfig={"Delay": 1, "MaxAttempts": int(PATIENCE_S)}
    )


def scale_from_zero() -> None:
    """Register the variant, with a policy for its backlog and one for its first instance."""
    scaling.register_scalable_target(**TARGET, MinCapacity=0, MaxCapacity=2)
    scaling.put_scaling_policy(
        **TARGET,
        PolicyName="Backlog",
        PolicyType="TargetTrackingScaling",
        TargetTrackingScalingPolicyConfiguration={
            "TargetValue": 5.0,
            "CustomizedMetricSpecification": {
                **OF_QUEUE,
                "MetricName": "ApproximateBacklogSizePerInstance",
            },
            "ScaleInCooldown": 600,
            "ScaleOutCooldown": 300,
        },
    )
    first = scaling.put_scaling_policy(
        **TARGET,
        PolicyName="HasBacklogWithoutCapacity",
        PolicyType="StepScaling",
        StepScalingPolicyConfiguration={
            "AdjustmentType": "ChangeInCapacity",
            "MetricAggregationType": "Average",
            "Cooldown": 300,
            "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}],
        },
    )
    cloudwatch.put_metric_alarm(
        AlarmName=ALARM,
        MetricName="HasBacklogWithoutCapacity",
        **OF_QUEUE,
        Period=10,
        EvaluationPeriods=1,
        DatapointsToAlarm=1,
        Threshold=1,
        ComparisonOperator="GreaterThanOrEqualToThreshold",
        TreatMissingData="missing",
        AlarmActions=[first["PolicyARN"]],
    )


def submit(count: int) -> list[str]:
    """Send requests, every other one with its input in S3; the keys of the answers to come."""
    keys = []
    for number in range(count):
        text = json.dumps({"question": number})
        given: dict[str, Any] = {"Body": text.encode()}
        if number % 2:
            key = f"{NAME}/questions/{number}.json"
            s3.put_object(Bucket=bucket, Key=key, Body=text.encode())
            given = {"InputLocation": f"s3://{bucket}/{key}"}
        answer = smr_client.invoke_endpoint_async(
            EndpointName=NAME, ContentType="application/json", Accept="application/json", **given
        )
        keys.append(answer["OutputLocation"].removeprefix(f"s3://{bucket}/"))
    return keys


def transform(num_objects: int, num_lines: int) -> None:
    """Have a batch job answer every line of some objects, and check the answers and their order."""
    wanted = {}
    for number in range(num_objects):
        asked = [f"{number}.{line}" for line in range(num_lines)]
        body = "\n".join(json.dumps({"question": it}) for it in asked)
        s3.put_object(Bucket=bucket, Key=f"{NAME}/batch/{number}.jsonl", Body=body.encode())
        wanted[f"{NAME}/batch-answers/{number}.jsonl.out"] = asked
    job = f"{NAME}-{secrets.token_hex(4)}"
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{bucket}/{NAME}/batch/"}
    sm_client.create_transform_job(
        TransformJobName=job,
        ModelName=NAME,
        BatchStrategy="SingleRecord",
        TransformInput={
            "DataSource": {"S3DataSource": source},
            "ContentType": "application/json",
            "SplitType": "Line",
        },
        TransformOutput={
            "S3OutputPath": f"s3://{bucket}/{NAME}/batch-answers",
            "AssembleWith": "Line",
        },
        TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": 1},
    )
    sm_client.get_waiter("transform_job_completed_or_stopped").wait(
        TransformJobName=job, WaiterConfig={"Delay": 1, "MaxAttempts": int(PATIENCE_S)}
    )
    for key, asked in wanted.items():
        lines = s3.get_object(Bucket=bucket, Key=key)["Body"].read().decode().splitlines()
        answered = [json.loads(json.loads(line)["sent"])["question"] for line in lines]
        assert answered == asked, (key, answered)
    print(f"{num_objects * num_lines} lines are answered, in order, in {num_objects} objects")


def num_instances() -> int:
    """The instances that serve."""
    (shown,) = sm_client.describe_endpoint(EndpointName=NAME)["ProductionVariants"]
    count: int = shown["CurrentInstanceCount"]
    return count


def num_ends(url: str, seen: set[str]) -> int:
    """The requests about whose end a message has come; `seen` collects them."""
    answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
    for message in answer.get("Messages", []):
        notified = json.loads(json.loads(message["Body"])["Message"])
        if notified["eventName"] == "InferenceResult":
            seen.add(notified["inferenceId"])
    return len(seen)


def wait_for(what: str, holds: Callable[[], bool]) -> None:
    """Wait until `holds` is true, and say how long it took; exits after PATIENCE_S."""
    began = time.perf_counter()
    while not holds():
        if time.perf_counter() > began + PATIENCE_S:
            raise SystemExit(f"{what}: not within {PATIENCE_S:g} s")
        time.sleep(0.5)
    print(f"{what}, after {time.perf_counter() - began:.1f} s")


def clean_up() -> None:
    """Remove everything that a run makes."""
    deregister(RESOURCE_ID, "variant:DesiredInstanceCount")
    cloudwatch.delete_alarms(AlarmNames=[ALARM])
    remove(NAME, models=[NAME])
    sns.delete_topic(TopicArn=f"arn:aws:sns:{region}:{account}:{NAME}")
    with suppress(sqs.exceptions.QueueDoesNotExist):
        sqs.delete_queue(QueueUrl=sqs.get_queue_url(QueueName=NAME)["QueueUrl"])


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=20)
    count = parser.parse_args().requests
    clean_up()
    with suppress(s3.exceptions.BucketAlreadyOwnedByYou):
        s3.create_bucket(Bucket=bucket)
    topic, url = subscribed()
    try:
        deploy(topic)
        sm_client.update_endpoint_weights_and_capacities(
            EndpointName=NAME,
            DesiredWeightsAndCapacities=[{"VariantName": VARIANT, "DesiredInstanceCount": 0}],
        )
        wait_for("the endpoint has no instance", lambda: num_instances() == 0)
        sm_client.get_waiter("endpoint_in_service").wait(
            EndpointName=NAME, WaiterConfig={"Delay": 1, "MaxAttempts": int(PATIENCE_S)}
        )
        keys = submit(count)
        print(f"{count} requests were accepted")
        scale_from_zero()
        wait_for("the backlog brought up an instance", lambda: num_instances() > 0)
        seen: set[str] = set()
        wait_for("every request has ended", lambda: num_ends(url, seen) == count)
        answers = [json.load(s3.get_object(Bucket=bucket, Key=key)["Body"]) for key in keys]
        asked = [json.loads(answer["sent"])["question"] for answer in answers]
        assert asked == list(range(count)), asked
        print(f"{count} answers are in s3://{bucket}/{NAME}/answers")
        wait_for("the drained queue has no instance", lambda: num_instances() == 0)
        transform(num_objects=3, num_lines=count)
    finally:
        clean_up()


if __name__ == "__main__":
    main()
