"""The resources that a call is about, by the names in its parameters. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from hostelry.audit.record import EventResource

MAX_RESOURCES = 20
# Member of a request -> the resource in its ARN, which begins as the ARNs of the service.
NAMED: Mapping[str, Mapping[str, str]] = {
    "sagemaker": {
        "EndpointName": "endpoint/{}",
        "EndpointConfigName": "endpoint-config/{}",
        "ModelName": "model/{}",
        "InferenceComponentName": "inference-component/{}",
        "TransformJobName": "transform-job/{}",
        "JobName": "inference-recommendations-job/{}",
        "Name": "inference-experiment/{}",
        "AIBenchmarkJobName": "ai-benchmark-job/{}",
        "AIRecommendationJobName": "ai-recommendation-job/{}",
        "AIWorkloadConfigName": "ai-workload-config/{}",
    },
    "iam": {
        "RoleName": "role/{}",
        "UserName": "user/{}",
        "PolicyName": "policy/{}",
        "InstanceProfileName": "instance-profile/{}",
    },
    "kms": {"KeyId": "key/{}", "AliasName": "{}"},
    "secretsmanager": {"SecretId": "secret:{}", "Name": "secret:{}"},
    "cloudwatch": {
        "AlarmName": "alarm:{}", "AlarmNames": "alarm:{}", "DashboardName": "dashboard/{}",
    },
    "application-autoscaling": {"ResourceId": "scalable-target/{}"},
    "events": {"Name": "rule/{}", "Rule": "rule/{}"},
    "scheduler": {"Name": "schedule/{}", "GroupName": "schedule-group/{}"},
    "sns": {"Name": "{}"},
    "sqs": {"QueueName": "{}", "QueueUrl": "{}"},
    "logs": {"logGroupName": "log-group:{}", "logGroupIdentifier": "log-group:{}"},
    "ecr": {"repositoryName": "repository/{}"},
}  # fmt: skip
SERVICES = {
    "sagemaker": "SageMaker",
    "iam": "IAM",
    "kms": "KMS",
    "secretsmanager": "SecretsManager",
    "cloudwatch": "CloudWatch",
    "application-autoscaling": "ApplicationAutoScaling",
    "events": "Events",
    "scheduler": "Scheduler",
    "sns": "SNS",
    "sqs": "SQS",
    "logs": "Logs",
    "ecr": "ECR",
    "sts": "STS",
    "s3": "S3",
}
WITHOUT_KIND = {"sns": "Topic", "sqs": "Queue", "s3": "Bucket"}
WITHOUT_REGION = ("iam", "sts")


def find_resources(
    service: str, params: Mapping[str, Any], account: str, region: str
) -> list[EventResource]:
    """The resources that the top members of a request name, each once."""
    arns = list(dict.fromkeys(_find_arns(service, params, account, region)))
    return build_resources(arns[:MAX_RESOURCES], account)


def build_resources(arns: Sequence[str], account: str) -> list[EventResource]:
    """The resources of some ARNs. An ARN without an account is of `account`."""
    return [_build_resource(arn, account) for arn in arns]


@lru_cache(4096)
def _build_resource(arn: str, account: str) -> EventResource:
    return EventResource(ARN=arn, accountId=_get_part(arn, 4) or account, type=get_type(arn))


def get_type(arn: str) -> str:
    """CloudTrail's type of the resource with an ARN, for example AWS::SageMaker::Endpoint."""
    service, resource = _get_part(arn, 2), arn.split(":", 5)[-1]
    kind = resource.replace(":", "/").partition("/")[0] if service not in WITHOUT_KIND else ""
    named = "".join(it[:1].upper() + it[1:] for it in kind.split("-"))
    return f"AWS::{SERVICES.get(service, service)}::{WITHOUT_KIND.get(service) or named}"


def get_name(arn: str) -> str:
    """The resource's name, which is the ARN's last part without the kind of the resource."""
    resource = arn.split(":", 5)[-1].removesuffix(":*")
    kind, _, name = resource.replace(":", "/", 1).partition("/")
    return name or kind


def _find_arns(service: str, params: Mapping[str, Any], account: str, region: str) -> Iterator[str]:
    named = NAMED.get(service, {})
    for member, value in params.items():
        form = named.get(member)
        for name in value if isinstance(value, list) else [value]:
            if not isinstance(name, str) or not name:
                continue
            if name.startswith("arn:"):
                yield name[:2048]
            elif form is not None:
                place = "" if service in WITHOUT_REGION else region
                short = name.rpartition("/")[2] if member == "QueueUrl" else name
                yield f"arn:aws:{service}:{place}:{account}:{form.format(short)}"[:2048]


def _get_part(arn: str, number: int) -> str:
    parts = arn.split(":", 5)
    return parts[number] if len(parts) > 5 else ""
