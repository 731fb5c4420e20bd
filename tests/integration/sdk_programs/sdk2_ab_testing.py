"""Compare two production variants: weights, requests to a named variant, a move of all traffic.

Like AWS's notebook on A/B testing. Arguments: a folder with good.tar.gz, other.tar.gz and
rows.csv. Run under `hostelry exec`.
"""

import json
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3
from sagemaker import get_execution_role, session
from sagemaker.image_uris import retrieve
from sagemaker.s3 import S3Uploader
from sagemaker.session import production_variant

folder = Path(sys.argv[1])
region, role = boto3.Session().region_name, get_execution_role()
sm_session = session.Session(boto3.Session())
sm, runtime = boto3.client("sagemaker"), boto3.client("sagemaker-runtime")
cloudwatch = boto3.client("cloudwatch")
bucket, endpoint = sm_session.default_bucket(), "ab-testing"
rows = (folder / "rows.csv").read_text().splitlines()
image = retrieve("xgboost", region, "1.7-1")
NUM_REQUESTS = 200 + 2 * len(rows) + 400 + 100
PUBLISHED_S = 120  # metrics are published every minute
variants = []
for number, archive in enumerate(("good.tar.gz", "other.tar.gz"), 1):
    url = S3Uploader.upload(
        local_path=str(folder / archive), desired_s3_uri=f"s3://{bucket}/ab-testing"
    )
    model = f"ab-testing-{number}"
    sm_session.create_model(
        name=model, role=role, container_defs={"Image": image, "ModelDataUrl": url}
    )
    variants.append(
        production_variant(
            model_name=model,
            instance_type="ml.c5.4xlarge",
            initial_instance_count=1,
            variant_name=f"Variant{number}",
            initial_weight=1,
        )
    )
names = [it["VariantName"] for it in variants]
sm_session.endpoint_from_production_variants(name=endpoint, production_variants=variants)


def requests(num_requests: int) -> dict[str, int]:
    """Send requests, and count by InvokedProductionVariant how many each variant answered."""
    seen = dict.fromkeys(names, 0)
    for number in range(num_requests):
        answer = runtime.invoke_endpoint(
            EndpointName=endpoint, ContentType="text/csv", Body=rows[number % len(rows)]
        )
        answer["Body"].read()
        seen[answer["InvokedProductionVariant"]] += 1
    return seen


def weights() -> dict[str, float]:
    """CurrentWeight of each variant."""
    found = sm.describe_endpoint(EndpointName=endpoint)["ProductionVariants"]
    return {it["VariantName"]: it["CurrentWeight"] for it in found}


def reweighted(*desired: float) -> dict[str, float]:
    """Change the weights, and return DescribeEndpoint's weights afterwards."""
    sm.update_endpoint_weights_and_capacities(
        EndpointName=endpoint,
        DesiredWeightsAndCapacities=[
            {"DesiredWeight": weight, "VariantName": name}
            for weight, name in zip(desired, names, strict=True)
        ],
    )
    while sm.describe_endpoint(EndpointName=endpoint)["EndpointStatus"] != "InService":
        time.sleep(1)
    time.sleep(1)
    return weights()


def predictions(variant: str) -> list[float]:
    """A variant's predictions for the rows, with one request per row."""
    found = []
    for row in rows:
        answer = runtime.invoke_endpoint(
            EndpointName=endpoint, ContentType="text/csv", Body=row, TargetVariant=variant
        )
        found.append(float(answer["Body"].read()))
    return found


def invocations(variant: str) -> float:
    """The sum of the metric over the last hour."""
    now = datetime.now(UTC)
    found = cloudwatch.get_metric_statistics(
        Namespace="AWS/SageMaker",
        MetricName="Invocations",
        StartTime=now - timedelta(minutes=60),
        EndTime=now + timedelta(minutes=1),
        Period=60,
        Statistics=["Sum"],
        Dimensions=[
            {"Name": "EndpointName", "Value": endpoint},
            {"Name": "VariantName", "Value": variant},
        ],
    )
    return float(sum(it["Sum"] for it in found["Datapoints"]))


even = requests(200)
predicted = {name: predictions(name) for name in names}
before = weights()
weighted = reweighted(25, 75)
shared = requests(400)
moved = reweighted(0, 1)
alone = requests(100)
counted = {name: invocations(name) for name in names}
deadline = time.monotonic() + PUBLISHED_S
while sum(counted.values()) < NUM_REQUESTS and time.monotonic() < deadline:
    time.sleep(1)
    counted = {name: invocations(name) for name in names}
sm_session.delete_endpoint(endpoint)
sm_session.delete_endpoint_config(endpoint)
for variant in variants:
    sm_session.delete_model(variant["ModelName"])
print()  # in case the SDK's log has not ended its line
print(
    json.dumps(
        {
            "even": even,
            "predicted": predicted,
            "weights": [before, weighted, moved],
            "shared": shared,
            "alone": alone,
            "invocations": counted,
        }
    )
)
