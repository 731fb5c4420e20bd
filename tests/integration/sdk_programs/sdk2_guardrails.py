"""Update an endpoint in steps: to a broken version, which is rolled back, then to a good version.

Like AWS's notebooks on deployment guardrails. Arguments: CANARY, LINEAR or ROLLING, and a folder
with good.tar.gz, broken.tar.gz and rows.csv. Run under `hostelry exec`.
"""

import json
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import ClientError
from sagemaker import get_execution_role, image_uris, session
from sagemaker.s3 import S3Uploader

kind, folder = sys.argv[1], Path(sys.argv[2])
region, role = boto3.Session().region_name, get_execution_role()
sm_session = session.Session(boto3.Session())
sm, runtime = boto3.client("sagemaker"), boto3.client("sagemaker-runtime")
cloudwatch = boto3.client("cloudwatch", region_name=region)
bucket, prefix = sm_session.default_bucket(), f"guardrails/{kind.lower()}"
# The canary has the notebook's alarm, over a minute of metrics that are published each minute. At
# the platform's pace its wait is 80 s, the others' 30 s. Each is longer than its alarm's period.
PERIOD_S, WAIT_S = (60, 2400) if kind == "CANARY" else (10, 900)
METRICS = {"EnableEnhancedMetrics": True, "MetricPublishFrequencyInSeconds": PERIOD_S}
PUBLISHED_S = 120
rows = (folder / "rows.csv").read_text().splitlines()
image = image_uris.retrieve("xgboost", region, "1.7-1")
endpoint = f"guardrails-{kind.lower()}"
configs = {version: f"{endpoint}-{version}" for version in ("first", "broken", "good")}
for version, config in configs.items():
    archive = folder / ("broken.tar.gz" if version == "broken" else "good.tar.gz")
    url = S3Uploader.upload(local_path=str(archive), desired_s3_uri=f"s3://{bucket}/{prefix}")
    sm.create_model(
        ModelName=config,
        ExecutionRoleArn=role,
        Containers=[{"Image": image, "ModelDataUrl": url}],
    )
    sm.create_endpoint_config(
        EndpointConfigName=config,
        ProductionVariants=[
            {
                "VariantName": "AllTraffic",
                "ModelName": config,
                "InstanceType": "ml.m5.xlarge",
                "InitialInstanceCount": 2,
            }
        ],
        **({} if kind == "CANARY" else {"MetricsConfig": METRICS}),
    )


def until_settled(invokes: bool) -> dict[str, int]:
    """Poll until the update ends, perhaps with requests. Returns answered and failed requests."""
    seen = {"answered": 0, "failed": 0}
    while sm.describe_endpoint(EndpointName=endpoint)["EndpointStatus"] not in (
        "InService",
        "Failed",
    ):
        for row in rows if invokes else ():
            try:
                answer = runtime.invoke_endpoint(
                    EndpointName=endpoint, ContentType="text/csv", Body=row
                )
                answer["Body"].read()
                seen["answered"] += 1
            except ClientError:
                seen["failed"] += 1
            time.sleep(0.1)
        time.sleep(1)
    return seen


def alarm_on(name: str, metric: str, threshold: float) -> None:
    """Create an alarm on the mean of a metric of all requests over a period."""
    cloudwatch.put_metric_alarm(
        AlarmName=name,
        AlarmDescription="takes an update back",
        ActionsEnabled=False,
        Namespace="AWS/SageMaker",
        MetricName=metric,
        Statistic="Average",
        Dimensions=[
            {"Name": "EndpointName", "Value": endpoint},
            {"Name": "VariantName", "Value": "AllTraffic"},
        ],
        Period=PERIOD_S,
        EvaluationPeriods=1,
        Threshold=threshold,
        ComparisonOperator="GreaterThanOrEqualToThreshold",
        TreatMissingData="notBreaching",
    )


def invocations(config: str | None) -> float:
    """The metric's sum over the last hour, for all requests or for one configuration."""
    dimensions = [
        {"Name": "EndpointName", "Value": endpoint},
        {"Name": "VariantName", "Value": "AllTraffic"},
    ]
    if config is not None:
        dimensions.append({"Name": "EndpointConfigName", "Value": config})
    now = datetime.now(UTC)
    found = cloudwatch.get_metric_statistics(
        Namespace="AWS/SageMaker",
        MetricName="Invocations",
        StartTime=now - timedelta(minutes=60),
        EndTime=now,
        Period=60,
        Statistics=["Sum"],
        Dimensions=dimensions,
    )
    return float(sum(it["Sum"] for it in found["Datapoints"]))


def all_invocations() -> dict[str, float]:
    """`invocations` in all and by configuration, once each is above 0 or the time is over."""
    deadline = time.monotonic() + PUBLISHED_S
    while True:
        found = {it: invocations(configs.get(it)) for it in ("", *configs)}
        if min(found.values()) > 0 or time.monotonic() > deadline:
            return found
        time.sleep(1)


def deployment(wait_s: int) -> dict[str, Any]:
    """A DeploymentConfig with steps or batches, with a wait after each."""
    size: dict[str, Any] = {"Type": "CAPACITY_PERCENT", "Value": 50}
    if kind == "ROLLING":
        return {
            "RollingUpdatePolicy": {
                "MaximumBatchSize": size,
                "WaitIntervalInSeconds": wait_s,
                "MaximumExecutionTimeoutInSeconds": 7200,
            }
        }
    routing = {
        "CANARY": {"CanarySize": {"Type": "INSTANCE_COUNT", "Value": 1}},
        "LINEAR": {"LinearStepSize": size},
    }
    return {
        "BlueGreenUpdatePolicy": {
            "TrafficRoutingConfiguration": {
                "Type": kind,
                **routing[kind],
                "WaitIntervalInSeconds": wait_s,
            },
            "TerminationWaitInSeconds": 120,
            "MaximumExecutionTimeoutInSeconds": 7200,
        }
    }


def shown() -> dict[str, Any]:
    """The parts of DescribeEndpoint's answer after an update that the test compares."""
    found = sm.describe_endpoint(EndpointName=endpoint)
    return {
        "status": found["EndpointStatus"],
        "config": found["EndpointConfigName"],
        "reason": found.get("FailureReason"),
    }


sm.create_endpoint(EndpointName=endpoint, EndpointConfigName=configs["first"])
until_settled(invokes=False)
first = runtime.invoke_endpoint(
    EndpointName=endpoint, ContentType="text/csv", Body="\n".join(rows[:3])
)
predicted = [float(it) for it in first["Body"].read().decode().split()]
alarms = [f"{endpoint}-errors", f"{endpoint}-latency"]
alarm_on(alarms[0], "Invocation5XXErrors", 0.1)
alarm_on(alarms[1], "ModelLatency", 10_000_000)
cloudwatch.describe_alarms(AlarmNames=alarms)
rollback = {"AutoRollbackConfiguration": {"Alarms": [{"AlarmName": it} for it in alarms]}}
sm.update_endpoint(
    EndpointName=endpoint,
    EndpointConfigName=configs["broken"],
    DeploymentConfig={**deployment(WAIT_S), **rollback},
)
during_broken = until_settled(invokes=True)
after_broken = shown()
while cloudwatch.describe_alarms(AlarmNames=alarms[:1])["MetricAlarms"][0]["StateValue"] != "OK":
    time.sleep(2)  # an alarm still in ALARM would roll the next update back at once
again: dict[str, Any] = {"RetainDeploymentConfig": True}
if kind == "CANARY":
    again = {"DeploymentConfig": {**deployment(300), **rollback}}  # shorter waits, without an alarm
sm.update_endpoint(EndpointName=endpoint, EndpointConfigName=configs["good"], **again)
during_good = until_settled(invokes=True)
after_good = shown()
counted = all_invocations()
sm.delete_endpoint(EndpointName=endpoint)
for config in configs.values():
    sm.delete_endpoint_config(EndpointConfigName=config)
    sm.delete_model(ModelName=config)
cloudwatch.delete_alarms(AlarmNames=alarms)
print()  # in case the SDK's log has not ended its line
print(
    json.dumps(
        {
            "predicted": predicted,
            "during_broken": during_broken,
            "after_broken": after_broken,
            "during_good": during_good,
            "after_good": after_good,
            "invocations": counted,
        }
    )
)
