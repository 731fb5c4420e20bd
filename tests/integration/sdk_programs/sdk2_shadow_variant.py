"""A shadow variant next to production: compare the metrics of both, then move it to production.

Like AWS's notebook on shadow variants. Arguments: a folder with good.tar.gz, other.tar.gz
and rows.csv. Run under `hostelry exec`.
"""

import json
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3
from sagemaker import get_execution_role, image_uris, session
from sagemaker.s3 import S3Uploader

folder = Path(sys.argv[1])
region, role = boto3.Session().region_name, get_execution_role()
sm_session = session.Session(boto3.Session())
sm, runtime = boto3.client("sagemaker"), boto3.client("sagemaker-runtime")
cloudwatch = boto3.client("cloudwatch", region_name=region)
bucket, endpoint = sm_session.default_bucket(), "shadow-variant"
rows = (folder / "rows.csv").read_text().splitlines()
image = image_uris.retrieve("xgboost", region, "1.7-1")
NUM_REQUESTS = 200
PUBLISHED_S = 120  # metrics are published every minute
models = {}
for name, archive in (("production", "good.tar.gz"), ("shadow", "other.tar.gz")):
    url = S3Uploader.upload(
        local_path=str(folder / archive), desired_s3_uri=f"s3://{bucket}/shadow-variant"
    )
    models[name] = f"shadow-variant-{name}"
    sm.create_model(
        ModelName=models[name],
        ExecutionRoleArn=role,
        Containers=[{"Image": image, "ModelDataUrl": url}],
    )


def variant(name: str, weight: float) -> dict[str, object]:
    """A variant on one instance."""
    return {
        "VariantName": name,
        "ModelName": models[name],
        "InstanceType": "ml.m5.xlarge",
        "InitialInstanceCount": 1,
        "InitialVariantWeight": weight,
    }


def until_settled() -> None:
    """Poll the endpoint."""
    while sm.describe_endpoint(EndpointName=endpoint)["EndpointStatus"] not in (
        "InService",
        "Failed",
    ):
        time.sleep(1)


def answers(num_requests: int) -> list[float]:
    """Send `count` requests, and return the answers."""
    found = []
    for number in range(num_requests):
        answer = runtime.invoke_endpoint(
            EndpointName=endpoint, ContentType="text/csv", Body=rows[number % len(rows)]
        )
        found.append(float(answer["Body"].read()))
    return found


def metric(name: str, metric_name: str, statistic: str) -> list[float]:
    """A variant's datapoints of the last ten minutes."""
    now = datetime.now(UTC)
    found = cloudwatch.get_metric_statistics(
        Namespace="AWS/SageMaker",
        MetricName=metric_name,
        StartTime=now - timedelta(minutes=10),
        EndTime=now,
        Period=1,
        Statistics=[statistic],
        Dimensions=[
            {"Name": "EndpointName", "Value": endpoint},
            {"Name": "VariantName", "Value": name},
        ],
    )
    return [it[statistic] for it in found["Datapoints"]]


sm.create_endpoint_config(
    EndpointConfigName="shadow-variant-both",
    ProductionVariants=[variant("production", 1)],
    ShadowProductionVariants=[variant("shadow", 0.5)],
)
sm.create_endpoint(EndpointName=endpoint, EndpointConfigName="shadow-variant-both")
until_settled()
by_production = answers(NUM_REQUESTS)
deadline = time.monotonic() + PUBLISHED_S
while time.monotonic() < deadline and (
    sum(metric("production", "Invocations", "Sum")) < NUM_REQUESTS
    or sum(metric("shadow", "Invocations", "Sum")) < 0.45 * NUM_REQUESTS
):
    time.sleep(1)
seen = {
    name: {
        "invocations": sum(metric(name, "Invocations", "Sum")),
        "latency": max(metric(name, "ModelLatency", "Average"), default=0.0),
        "errors": sum(metric(name, "Invocation5XXErrors", "Sum")),
    }
    for name in models
}
sm.create_endpoint_config(
    EndpointConfigName="shadow-variant-promoted", ProductionVariants=[variant("shadow", 1.0)]
)
sm.update_endpoint(EndpointName=endpoint, EndpointConfigName="shadow-variant-promoted")
until_settled()
described = sm.describe_endpoint(EndpointName=endpoint)
by_shadow = answers(len(rows))
sm.delete_endpoint(EndpointName=endpoint)
for config in ("shadow-variant-both", "shadow-variant-promoted"):
    sm.delete_endpoint_config(EndpointConfigName=config)
for model in models.values():
    sm.delete_model(ModelName=model)
print()  # the SDK's own log may not have ended its line
print(
    json.dumps(
        {
            "by_production": by_production,
            "by_shadow": by_shadow,
            "metrics": seen,
            "variants": [it["VariantName"] for it in described["ProductionVariants"]],
            "has_shadow": "ShadowProductionVariants" in described,
        }
    )
)
