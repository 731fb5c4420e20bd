"""Services that are not served: each answer names the service or the operation."""

from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

CALLS: list[tuple[str, str, dict[str, str], str]] = [
    ("lambda", "list_functions", {}, "lambda"),
    ("eks", "list_clusters", {}, "eks"),
    ("dynamodb", "list_tables", {}, "DynamoDB_20120810.ListTables"),
    ("pricing", "describe_services", {}, "AWSPriceListService.DescribeServices"),
    ("rds", "describe_db_instances", {}, "DescribeDBInstances"),
    ("ec2", "describe_vpcs", {}, "ec2:DescribeVpcs"),
    ("sagemaker", "list_training_jobs", {}, "sagemaker:ListTrainingJobs"),
]


def refusal(service: str, method: str, params: dict[str, str]) -> Any:
    """The error that answers an unserved call."""
    client = boto3.client(service, config=Config(retries={"total_max_attempts": 1}))
    try:
        return getattr(client, method)(**params)
    except ClientError as error:
        return error.response


for service, method, params, named in CALLS:
    answer = refusal(service, method, params)
    assert named in answer["Error"]["Message"], answer
    assert answer["ResponseMetadata"]["HTTPStatusCode"] in (400, 404), answer
print(f"{len(CALLS)} calls were refused by name")
