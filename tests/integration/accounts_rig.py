"""Accounts, users and clients of theirs, and one of everything in an account."""

import json
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from tests.integration.batch_rig import IMAGE
from tests.integration.platform import Platform, client_session

NAME = "same"
Json = dict[str, Any]
ALLOW_ALL = json.dumps(
    {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
)


class Tenant:
    """An account, or a user of one, with clients. Its marker is in all that it makes."""

    def __init__(self, platform: Platform, account: str, key: str, secret: str) -> None:
        self.platform = platform
        self.account = account
        self.marker = f"marker-{account}"
        self._keys = (key, secret)
        self._session = client_session()

    def client(self, service: str) -> Any:
        """A client of a service."""
        env = self.platform.env()
        url = env["AWS_ENDPOINT_URL_S3"] if service == "s3" else env["AWS_ENDPOINT_URL"]
        return self._session.create_client(
            service,
            region_name=env["AWS_REGION"],
            endpoint_url=url,
            aws_access_key_id=self._keys[0],
            aws_secret_access_key=self._keys[1],
            config=Config(
                retries={"total_max_attempts": 1}, proxies={}, s3={"addressing_style": "path"}
            ),
        )

    @property
    def bucket(self) -> str:
        """The account's bucket. Only buckets have names that accounts share."""
        return f"models-{self.account}"

    def refused(self, service: str, operation: str, **params: Any) -> str:
        """The code of the error that answers a call."""
        with pytest.raises(ClientError) as caught:
            getattr(self.client(service), operation)(**params)
        return str(caught.value.response["Error"]["Code"])


def make_account(platform: Platform, name: str) -> Tenant:
    """A new account, as its root."""
    made = platform.accounts("accounts", "create", name)
    return Tenant(platform, made["account"], made["key"], made["secret"])


def make_user(tenant: Tenant, name: str, *statements: Json) -> Tenant:
    """A new user of an account, whose policy has the statements."""
    iam = tenant.client("iam")
    iam.create_user(UserName=name)
    if statements:
        document = {"Version": "2012-10-17", "Statement": list(statements)}
        iam.put_user_policy(UserName=name, PolicyName="own", PolicyDocument=json.dumps(document))
    key = iam.create_access_key(UserName=name)["AccessKey"]
    return Tenant(tenant.platform, tenant.account, key["AccessKeyId"], key["SecretAccessKey"])


def fill(tenant: Tenant, model: bytes) -> None:
    """Make one of everything in an account, with the same names as in any other account."""
    role = f"arn:aws:iam::{tenant.account}:role/HostelryExecutionRole"
    tags = [{"Key": "owner", "Value": tenant.marker}]
    s3 = tenant.client("s3")
    s3.create_bucket(Bucket=tenant.bucket)
    s3.put_object(Bucket=tenant.bucket, Key="model.tar.gz", Body=model)
    sagemaker = tenant.client("sagemaker")
    sagemaker.create_model(
        ModelName=NAME,
        ExecutionRoleArn=role,
        Tags=tags,
        PrimaryContainer={
            "Image": IMAGE,
            "ModelDataUrl": f"s3://{tenant.bucket}/model.tar.gz",
            "Environment": {"OPTION_POOL_BYTES": str(64 << 20), "MARKER": tenant.marker},
        },
    )
    variant = {
        "VariantName": "AllTraffic",
        "InstanceType": "ml.m5.4xlarge",
        "InitialInstanceCount": 1,
        "RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
    }
    sagemaker.create_endpoint_config(
        EndpointConfigName=NAME, ExecutionRoleArn=role, ProductionVariants=[variant], Tags=tags
    )
    sagemaker.create_endpoint(EndpointName=NAME, EndpointConfigName=NAME, Tags=tags)
    sagemaker.create_inference_component(
        InferenceComponentName=NAME,
        EndpointName=NAME,
        VariantName="AllTraffic",
        Tags=tags,
        Specification={
            "ModelName": NAME,
            "ComputeResourceRequirements": {
                "MinMemoryRequiredInMb": 512,
                "NumberOfCpuCoresRequired": 1,
            },
        },
        RuntimeConfig={"CopyCount": 1},
    )
    fill_services(tenant)


def fill_services(tenant: Tenant) -> None:
    """Make a role, a policy, a user, a secret, a key, a queue and a topic."""
    tags = [{"Key": "owner", "Value": tenant.marker}]
    iam = tenant.client("iam")
    iam.create_role(
        RoleName=NAME,
        AssumeRolePolicyDocument=json.dumps(
            {
                "Version": "2012-10-17",
                "Statement": [
                    {
                        "Effect": "Allow",
                        "Principal": {"AWS": tenant.account},
                        "Action": "sts:AssumeRole",
                    }
                ],
            }
        ),
        Description=tenant.marker,
    )
    iam.put_role_policy(RoleName=NAME, PolicyName=NAME, PolicyDocument=ALLOW_ALL)
    iam.create_policy(PolicyName=NAME, PolicyDocument=ALLOW_ALL, Description=tenant.marker)
    iam.create_user(UserName=NAME, Tags=tags)
    iam.create_instance_profile(InstanceProfileName=NAME, Tags=tags)
    tenant.client("secretsmanager").create_secret(Name=NAME, SecretString=tenant.marker)
    kms = tenant.client("kms")
    key = kms.create_key(Description=tenant.marker)["KeyMetadata"]["KeyId"]
    kms.create_alias(AliasName=f"alias/{NAME}", TargetKeyId=key)
    queue = tenant.client("sqs").create_queue(QueueName=NAME)["QueueUrl"]
    tenant.client("sqs").send_message(QueueUrl=queue, MessageBody=tenant.marker)
    tenant.client("sns").create_topic(Name=NAME, Attributes={"DisplayName": tenant.marker})
    fill_monitoring(tenant)


def fill_monitoring(tenant: Tenant) -> None:
    """Make logs, metrics, an alarm, a dashboard, a rule and a repository."""
    logs = tenant.client("logs")
    logs.create_log_group(logGroupName=NAME)
    logs.create_log_stream(logGroupName=NAME, logStreamName=NAME)
    cloudwatch = tenant.client("cloudwatch")
    cloudwatch.put_metric_data(
        Namespace=tenant.marker, MetricData=[{"MetricName": NAME, "Value": 1.0}]
    )
    cloudwatch.put_metric_alarm(
        AlarmName=NAME,
        AlarmDescription=tenant.marker,
        Namespace=tenant.marker,
        MetricName=NAME,
        Statistic="Sum",
        Period=60,
        EvaluationPeriods=1,
        Threshold=1.0,
        ComparisonOperator="GreaterThanThreshold",
    )
    cloudwatch.put_dashboard(
        DashboardName=NAME, DashboardBody=json.dumps({"widgets": [], "start": tenant.marker})
    )
    tenant.client("events").put_rule(
        Name=NAME, Description=tenant.marker, EventPattern='{"source":["aws.sagemaker"]}'
    )
    tenant.client("ecr").create_repository(repositoryName=NAME)
