"""Permissions that calls need: actions on resources, by family."""

from collections.abc import Mapping
from typing import Any

from tests.cases import case, cases
from tests.unit.api.authorization.needed_rig import (
    ACCOUNT,
    ALIAS,
    KEY,
    ROLE,
    SECRET,
    SM,
    TAG,
    TARGET,
    USER,
    find,
)

CLOUDWATCH = f"arn:aws:cloudwatch:us-west-2:{ACCOUNT}:"
LOGS = f"arn:aws:logs:us-west-2:{ACCOUNT}:"
SCHEDULER = f"arn:aws:scheduler:us-west-2:{ACCOUNT}:"
EVENTS = f"arn:aws:events:us-west-2:{ACCOUNT}:"
SQS = f"arn:aws:sqs:us-west-2:{ACCOUNT}:"
SCALED = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": "endpoint/E/variant/v",
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
}


@cases(
    "call, params, expected",
    case(
        "a model needs its name in lower case, and its role passed",
        "sagemaker:CreateModel",
        {"ModelName": "My-Model", "ExecutionRoleArn": ROLE},
        [("sagemaker:CreateModel", SM + "model/my-model"), ("iam:PassRole", ROLE)],
    ),
    case(
        "tags of a new resource need AddTags on it",
        "sagemaker:CreateModel",
        {"ModelName": "m", "Tags": TAG},
        [("sagemaker:CreateModel", SM + "model/m"), ("sagemaker:AddTags", SM + "model/m")],
    ),
    case(
        "an endpoint needs its configuration as well",
        "sagemaker:CreateEndpoint",
        {"EndpointName": "e", "EndpointConfigName": "c"},
        [
            ("sagemaker:CreateEndpoint", SM + "endpoint/e"),
            ("sagemaker:CreateEndpoint", SM + "endpoint-config/c"),
        ],
    ),
    case(
        "a component needs its endpoint as well",
        "sagemaker:CreateInferenceComponent",
        {"InferenceComponentName": "c", "EndpointName": "e"},
        [
            ("sagemaker:CreateInferenceComponent", SM + "inference-component/c"),
            ("sagemaker:CreateInferenceComponent", SM + "endpoint/e"),
        ],
    ),
    case(
        "a list needs all resources",
        "sagemaker:ListEndpoints",
        {"NameContains": "e"},
        [("sagemaker:ListEndpoints", "*")],
    ),
    case(
        "the case of a tagged ARN does not matter, as for the operation",
        "sagemaker:AddTags",
        {"ResourceArn": SM + "endpoint/ChAt", "Tags": TAG},
        [("sagemaker:AddTags", SM + "endpoint/chat")],
    ),
    case(
        "a scalable target needs the permission to change the capacity oneself",
        "application-autoscaling:RegisterScalableTarget",
        {**SCALED, "Tags": {"a": "b"}},
        [
            (
                "application-autoscaling:RegisterScalableTarget",
                f"arn:aws:application-autoscaling:us-west-2:{ACCOUNT}:scalable-target/*",
            ),
            (
                "application-autoscaling:TagResource",
                f"arn:aws:application-autoscaling:us-west-2:{ACCOUNT}:scalable-target/*",
            ),
            ("sagemaker:UpdateEndpointWeightsAndCapacities", SM + "endpoint/e"),
        ],
    ),
    case(
        "a registered target is found by its resource and dimension",
        "application-autoscaling:DeregisterScalableTarget",
        {**SCALED, "ResourceId": "endpoint/e/variant/v"},
        [("application-autoscaling:DeregisterScalableTarget", TARGET)],
    ),
    case(
        "alarms that are named one by one are needed one by one",
        "cloudwatch:DeleteAlarms",
        {"AlarmNames": ["a", "b:c"]},
        [
            ("cloudwatch:DeleteAlarms", CLOUDWATCH + "alarm:a"),
            ("cloudwatch:DeleteAlarms", CLOUDWATCH + "alarm:b:c"),
        ],
    ),
    case(
        "a description without names is about every alarm",
        "cloudwatch:DescribeAlarms",
        {"AlarmNames": []},
        [("cloudwatch:DescribeAlarms", CLOUDWATCH + "alarm:*")],
    ),
    case(
        "a log group in a policy ends with :* as in AWS's guide",
        "logs:FilterLogEvents",
        {"logGroupIdentifier": LOGS + "log-group:g:*"},
        [("logs:FilterLogEvents", LOGS + "log-group:g:log-stream:")],
    ),
    case(
        "tags of a log group are on the group itself",
        "logs:CreateLogGroup",
        {"logGroupName": "/g", "tags": {"a": "b"}},
        [
            ("logs:CreateLogGroup", LOGS + "log-group:/g:log-stream:"),
            ("logs:TagResource", LOGS + "log-group:/g"),
        ],
    ),
    case(
        "events go to a stream",
        "logs:PutLogEvents",
        {"logGroupName": "g", "logStreamName": "s"},
        [("logs:PutLogEvents", LOGS + "log-group:g:log-stream:s")],
    ),
    case(
        "an alias stands for its key", "kms:Encrypt", {"KeyId": "alias/data"},
        [("kms:Encrypt", KEY)],
    ),
    case(
        "an alias's ARN stands for its key", "kms:DescribeKey", {"KeyId": ALIAS},
        [("kms:DescribeKey", KEY)],
    ),
    case(
        "an unknown alias is not a key",
        "kms:DescribeKey",
        {"KeyId": "alias/none"},
        [("kms:DescribeKey", f"arn:aws:kms:us-west-2:{ACCOUNT}:alias/none")],
    ),
    case(
        "an alias moves between two keys",
        "kms:UpdateAlias",
        {"AliasName": "alias/data", "TargetKeyId": "5678"},
        [
            ("kms:UpdateAlias", ALIAS),
            ("kms:UpdateAlias", KEY),
            ("kms:UpdateAlias", f"arn:aws:kms:us-west-2:{ACCOUNT}:key/5678"),
        ],
    ),
    case(
        "a ciphertext names its key",
        "kms:Decrypt",
        {"CiphertextBlob": b"\x01" + bytes(15) + b"\x07" + b"sealed"},
        [
            (
                "kms:Decrypt",
                f"arn:aws:kms:us-west-2:{ACCOUNT}:key/00000000-0000-0000-0000-000000000007",
            )
        ],
    ),
    case(
        "bytes that are not a ciphertext name no key",
        "kms:Decrypt",
        {"CiphertextBlob": b"x"},
        [("kms:Decrypt", "*")],
    ),
    case(
        "ReEncrypt is two actions",
        "kms:ReEncrypt",
        {"CiphertextBlob": b"", "SourceKeyId": KEY, "DestinationKeyId": "alias/data"},
        [("kms:ReEncryptFrom", KEY), ("kms:ReEncryptTo", KEY)],
    ),
    case(
        "a key with a policy needs the permission to put it",
        "kms:CreateKey",
        {"Policy": "{}"},
        [
            ("kms:CreateKey", "*"),
            ("kms:PutKeyPolicy", f"arn:aws:kms:us-west-2:{ACCOUNT}:key/*"),
        ],
    ),
    case(
        "the value of a secret under a customer's key needs the key",
        "secretsmanager:GetSecretValue",
        {"SecretId": "token"},
        [("secretsmanager:GetSecretValue", SECRET), ("kms:Decrypt", KEY)],
    ),
    case(
        "a new secret's suffix is any six characters",
        "secretsmanager:CreateSecret",
        {"Name": "n"},
        [
            (
                "secretsmanager:CreateSecret",
                f"arn:aws:secretsmanager:us-west-2:{ACCOUNT}:secret:n-??????",
            )
        ],
    ),
    case(
        "a role is found with its path", "iam:GetRole", {"RoleName": "Runner"},
        [("iam:GetRole", ROLE)],
    ),
    case(
        "a new role has the path of the request",
        "iam:CreateRole",
        {"RoleName": "r", "Path": "/team/", "Tags": TAG},
        [
            ("iam:CreateRole", f"arn:aws:iam::{ACCOUNT}:role/team/r"),
            ("iam:TagRole", f"arn:aws:iam::{ACCOUNT}:role/team/r"),
        ],
    ),
    case(
        "a user without a name is the caller", "iam:CreateAccessKey", {},
        [("iam:CreateAccessKey", USER)],
    ),
    case(
        "the credentials of all users are not the caller's",
        "iam:ListServiceSpecificCredentials",
        {"AllUsers": True},
        [("iam:ListServiceSpecificCredentials", f"arn:aws:iam::{ACCOUNT}:user/*")],
    ),
    case(
        "a user's old and new name are needed",
        "iam:UpdateUser",
        {"UserName": "Ann", "NewUserName": "eve"},
        [("iam:UpdateUser", USER), ("iam:UpdateUser", f"arn:aws:iam::{ACCOUNT}:user/people/eve")],
    ),
    case(
        "an instance profile passes its role to machines",
        "iam:AddRoleToInstanceProfile",
        {"InstanceProfileName": "p", "RoleName": "runner"},
        [
            ("iam:AddRoleToInstanceProfile", f"arn:aws:iam::{ACCOUNT}:instance-profile/p"),
            ("iam:PassRole", ROLE),
        ],
    ),
    case(
        "a service-linked role has the service's name",
        "iam:CreateServiceLinkedRole",
        {"AWSServiceName": "sagemaker.amazonaws.com"},
        [
            (
                "iam:CreateServiceLinkedRole",
                f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/sagemaker.amazonaws.com/"
                "AWSServiceRoleForSageMaker",
            )
        ],
    ),
    case("the caller's identity needs nothing", "sts:GetCallerIdentity", {}, []),
    case(
        "tags and a source of a session are actions",
        "sts:AssumeRole",
        {"RoleArn": ROLE, "RoleSessionName": "s", "Tags": TAG, "SourceIdentity": "ann"},
        [("sts:AssumeRole", ROLE), ("sts:TagSession", ROLE), ("sts:SetSourceIdentity", ROLE)],
    ),
    case(
        "a batch needs the action on one message",
        "sqs:SendMessageBatch",
        {"QueueUrl": f"http://127.0.0.1:8787/{ACCOUNT}/jobs"},
        [("sqs:SendMessage", SQS + "jobs")],
    ),
    case(
        "a rule of the default bus has no bus in its ARN, whatever names the bus",
        "events:PutRule",
        {
            "Name": "r",
            "EventBusName": EVENTS + "event-bus/default",
            "RoleArn": ROLE,
        },
        [
            ("events:PutRule", EVENTS + "rule/r"),
            ("iam:PassRole", ROLE),
        ],
    ),
    case(
        "each entry needs its bus",
        "events:PutEvents",
        {"Entries": [{"Source": "a"}, {"Source": "a", "EventBusName": "b"}]},
        [
            ("events:PutEvents", EVENTS + "event-bus/default"),
            ("events:PutEvents", EVENTS + "event-bus/b"),
        ],
    ),
    case(
        "targets pass their roles",
        "events:PutTargets",
        {"Rule": "r", "Targets": [{"Id": "1", "Arn": "arn:t", "RoleArn": ROLE}]},
        [
            ("events:PutTargets", EVENTS + "rule/r"),
            ("iam:PassRole", ROLE),
        ],
    ),
    case(
        "a schedule is in a group, and passes its role",
        "scheduler:CreateSchedule",
        {"Name": "s", "Target": {"RoleArn": ROLE}},
        [
            ("scheduler:CreateSchedule", SCHEDULER + "schedule/default/s"),
            ("iam:PassRole", ROLE),
        ],
    ),
    case(
        "repositories are in the registry of the request",
        "ecr:DescribeRepositories",
        {"registryId": "999999999999", "repositoryNames": ["r"]},
        [("ecr:DescribeRepositories", "arn:aws:ecr:us-west-2:999999999999:repository/r")],
    ),
    case(
        "an operation without a row needs its action on everything",
        "sagemaker:CreateUnknown",
        {"Name": "x"},
        [("sagemaker:CreateUnknown", "*")],
    ),
)  # fmt: skip
def test_needs(call: str, params: Mapping[str, Any], expected: list[tuple[str, str]]) -> None:
    assert [(it.action, it.resource) for it in find(call, params)] == expected
