"""The AWS managed policies that examples of model hosting attach.

The documents follow AWS's documentation of each policy. The rights within a service are as wide as
AWS's or wider.
"""

import json
from collections.abc import Mapping
from functools import cache

from hostelry.domain.role import ManagedPolicy, PolicyVersion

SINCE = 1_511_913_600.0  # 2017-11-29, when SageMaker began
READ_ECR = (
    "ecr:GetAuthorizationToken", "ecr:BatchCheckLayerAvailability", "ecr:GetDownloadUrlForLayer",
    "ecr:GetRepositoryPolicy", "ecr:DescribeRepositories", "ecr:ListImages", "ecr:DescribeImages",
    "ecr:BatchGetImage", "ecr:ListTagsForResource", "ecr:DescribeImageScanFindings",
)  # fmt: skip
PASS_TO_SAGEMAKER: dict[str, object] = {
    "Effect": "Allow",
    "Action": "iam:PassRole",
    "Resource": "arn:aws:iam::*:role/*",
    "Condition": {"StringEquals": {"iam:PassedToService": ["sagemaker.amazonaws.com"]}},
}
SAGEMAKER = (
    "sagemaker:*", "application-autoscaling:DeleteScalingPolicy",
    "application-autoscaling:DeleteScheduledAction",
    "application-autoscaling:DeregisterScalableTarget",
    "application-autoscaling:DescribeScalableTargets",
    "application-autoscaling:DescribeScalingActivities",
    "application-autoscaling:DescribeScalingPolicies",
    "application-autoscaling:DescribeScheduledActions", "application-autoscaling:PutScalingPolicy",
    "application-autoscaling:PutScheduledAction", "application-autoscaling:RegisterScalableTarget",
    "cloudwatch:DeleteAlarms", "cloudwatch:DescribeAlarms", "cloudwatch:GetMetricData",
    "cloudwatch:GetMetricStatistics", "cloudwatch:ListMetrics", "cloudwatch:PutMetricAlarm",
    "cloudwatch:PutMetricData", "ec2:CreateNetworkInterface",
    "ec2:CreateNetworkInterfacePermission", "ec2:CreateVpcEndpoint", "ec2:DeleteNetworkInterface",
    "ec2:DeleteNetworkInterfacePermission", "ec2:DescribeDhcpOptions",
    "ec2:DescribeNetworkInterfaces", "ec2:DescribeRouteTables", "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets", "ec2:DescribeVpcEndpoints", "ec2:DescribeVpcs", *READ_ECR,
    "ecr:CreateRepository", "ecr:StartImageScan", "iam:GetRole", "iam:ListRoles",
    "kms:DescribeKey", "kms:ListAliases", "lambda:ListFunctions", "logs:CreateLogDelivery",
    "logs:CreateLogGroup", "logs:CreateLogStream", "logs:DeleteLogDelivery", "logs:Describe*",
    "logs:GetLogDelivery", "logs:GetLogEvents", "logs:ListLogDeliveries", "logs:PutLogEvents",
    "logs:PutResourcePolicy", "logs:UpdateLogDelivery", "s3:CreateBucket", "s3:GetBucketLocation",
    "s3:ListAllMyBuckets", "s3:ListBucket", "s3:GetBucketCors", "s3:PutBucketCors",
    "secretsmanager:ListSecrets", "sns:ListTopics", "tag:GetResources",
)  # fmt: skip
OBJECTS = ("s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload")
NAMED_OBJECTS = [f"arn:aws:s3:::*{it}*" for it in ("SageMaker", "Sagemaker", "sagemaker")]
AUTOSCALING = (
    "application-autoscaling:*", "cloudwatch:DeleteAlarms", "cloudwatch:DescribeAlarms",
    "cloudwatch:PutMetricAlarm", "sagemaker:DescribeEndpoint", "sagemaker:DescribeEndpointConfig",
    "sagemaker:DescribeInferenceComponent", "sagemaker:UpdateEndpointWeightsAndCapacities",
    "sagemaker:UpdateInferenceComponentRuntimeConfig",
)  # fmt: skip


def allow(*actions: str, resource: object = "*") -> dict[str, object]:
    """A statement that allows actions."""
    return {"Effect": "Allow", "Action": list(actions), "Resource": resource}


STATEMENTS: Mapping[str, tuple[dict[str, object], ...]] = {
    "AdministratorAccess": (allow("*"),),
    "AmazonSageMakerFullAccess": (
        allow(*SAGEMAKER),
        allow(*OBJECTS, resource=NAMED_OBJECTS),
        allow("sns:Subscribe", "sns:CreateTopic", "sns:Publish", resource="arn:aws:sns:*:*:*"),
        PASS_TO_SAGEMAKER,
    ),
    "AmazonSageMakerReadOnly": (
        allow(
            "sagemaker:Describe*",
            "sagemaker:List*",
            "sagemaker:GetSearchSuggestions",
            "sagemaker:Search",
            "sagemaker:BatchGetMetrics",
            "cloudwatch:DescribeAlarms",
            "application-autoscaling:Describe*",
        ),
    ),
    "AmazonS3FullAccess": (allow("s3:*", "s3-object-lambda:*"),),
    "AmazonS3ReadOnlyAccess": (allow("s3:Get*", "s3:List*", "s3:Describe*"),),
    "CloudWatchFullAccess": (
        allow("autoscaling:Describe*", "cloudwatch:*", "logs:*", "sns:*", "iam:GetRole"),
    ),
    "CloudWatchFullAccessV2": (
        allow("application-autoscaling:DescribeScalingPolicies", "cloudwatch:*", "logs:*"),
    ),
    "CloudWatchReadOnlyAccess": (
        allow("cloudwatch:Get*", "cloudwatch:List*", "cloudwatch:Describe*", "logs:Get*"),
    ),
    "CloudWatchLogsFullAccess": (allow("logs:*"),),
    "AmazonEC2ContainerRegistryFullAccess": (allow("ecr:*", "cloudtrail:LookupEvents"),),
    "AmazonEC2ContainerRegistryPowerUser": (
        allow(
            *READ_ECR,
            "ecr:InitiateLayerUpload",
            "ecr:UploadLayerPart",
            "ecr:CompleteLayerUpload",
            "ecr:PutImage",
        ),
    ),
    "AmazonEC2ContainerRegistryReadOnly": (allow(*READ_ECR),),
    "AmazonEC2ReadOnlyAccess": (allow("ec2:Describe*", "ec2:Get*"),),
    "AmazonSNSFullAccess": (allow("sns:*"),),
    "AmazonSNSReadOnlyAccess": (allow("sns:GetTopicAttributes", "sns:List*"),),
    "AmazonSQSFullAccess": (allow("sqs:*"),),
    "SecretsManagerReadWrite": (allow("secretsmanager:*", "kms:DescribeKey", "kms:ListAliases"),),
    "IAMFullAccess": (allow("iam:*"),),
    "IAMReadOnlyAccess": (allow("iam:Get*", "iam:List*", "iam:Simulate*"),),
    "AutoScalingFullAccess": (allow(*AUTOSCALING, "autoscaling:*"),),
}


@cache
def aws_policies() -> Mapping[str, ManagedPolicy]:
    """AWS's own policies that are known here, by ARN."""
    policies = [aws_policy(name, number) for number, name in enumerate(STATEMENTS, start=1)]
    return {it.arn: it for it in policies}


def aws_policy(name: str, number: int) -> ManagedPolicy:
    """The policy of that name."""
    document = json.dumps({"Version": "2012-10-17", "Statement": STATEMENTS[name]})
    return ManagedPolicy(
        account="aws",
        name=name,
        id=f"ANPAHOSTELRYAWS{number:06d}",
        created_at=SINCE,
        updated_at=SINCE,
        versions=(PolicyVersion(id="v1", document=document, created_at=SINCE),),
    )
