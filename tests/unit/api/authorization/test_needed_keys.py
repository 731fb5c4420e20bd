"""The context keys of what calls need, and hostile or missing values."""

from collections.abc import Mapping
from typing import Any

from tests.cases import case, cases
from tests.unit.api.authorization.needed_rig import (
    ACCOUNT,
    ALIAS,
    HERE,
    KEY,
    ROLE,
    SM,
    TAG,
    find,
    find_key,
)

from hostelry.api.authorization.finding import ROWS, find_needed
from hostelry.permissions.authorization import Grants, authorize
from hostelry.permissions.document import DocumentKind, parse_statements
from hostelry.permissions.evaluation import AccessRequest, Policy

VARIANTS = {
    "EndpointConfigName": "c",
    "ProductionVariants": [
        {"InstanceType": "ml.a", "ModelName": "M", "InstancePools": [{"InstanceType": "ml.b"}]},
        {"ModelName": "m", "ServerlessConfig": {"MemorySizeInMB": 2048, "MaxConcurrency": 5}},
    ],
    "ShadowProductionVariants": [{"InstanceType": "ml.c", "ModelName": "n"}],
    "KmsKeyId": "alias/data",
}


@cases(
    "call, params, key, expected",
    case(
        "every instance type of the variants, their pools and shadows",
        "sagemaker:CreateEndpointConfig", VARIANTS, "sagemaker:instancetypes",
        ["ml.a", "ml.c", "ml.b"],
    ),
    case(
        "the models of the variants", "sagemaker:CreateEndpointConfig", VARIANTS,
        "sagemaker:modelarn", [SM + "model/m", SM + "model/m", SM + "model/n"],
    ),
    case(
        "a key by its ARN", "sagemaker:CreateEndpointConfig", VARIANTS, "sagemaker:volumekmskey",
        [KEY],
    ),
    case(
        "the memory of a serverless variant", "sagemaker:CreateEndpointConfig", VARIANTS,
        "sagemaker:serverlessmemorysize", ["2048"],
    ),
    case(
        "the concurrency of a serverless variant", "sagemaker:CreateEndpointConfig", VARIANTS,
        "sagemaker:serverlessmaxconcurrency", ["5"],
    ),
    case(
        "no isolation is asked for", "sagemaker:CreateModel", {"ModelName": "m"},
        "sagemaker:networkisolation", ["false"],
    ),
    case(
        "isolation is asked for", "sagemaker:CreateModel",
        {"ModelName": "m", "EnableNetworkIsolation": True}, "sagemaker:networkisolation", ["true"],
    ),
    case(
        "subnets", "sagemaker:CreateModel",
        {"ModelName": "m", "VpcConfig": {"Subnets": ["s", "t"]}},
        "sagemaker:vpcsubnets", ["s", "t"],
    ),
    case(
        "no subnets are no key", "sagemaker:CreateModel", {"ModelName": "m"},
        "sagemaker:vpcsubnets", None,
    ),
    case(
        "the tags of an existing resource", "sagemaker:DeleteEndpoint", {"EndpointName": "Chat"},
        "aws:resourcetag/team", ["a"],
    ),
    case(
        "the service's own key of tags", "sagemaker:DeleteEndpoint", {"EndpointName": "chat"},
        "sagemaker:resourcetag/team", ["a"],
    ),
    case(
        "a new resource has no tags yet", "sagemaker:CreateEndpoint",
        {"EndpointName": "chat", "EndpointConfigName": "c"}, "aws:resourcetag/team", None,
    ),
    case(
        "the tags of a request", "sagemaker:CreateModel", {"ModelName": "m", "Tags": TAG},
        "aws:requesttag/env", ["dev"],
    ),
    case(
        "the keys of tags to remove", "sagemaker:DeleteTags",
        {"ResourceArn": SM + "endpoint/chat", "TagKeys": ["Team"]}, "aws:tagkeys", ["Team"],
    ),
    case(
        "the boundary of a role that exists", "iam:DeleteRole", {"RoleName": "runner"},
        "iam:permissionsboundary", ["arn:b"],
    ),
    case(
        "the boundary of a role to be made", "iam:CreateRole",
        {"RoleName": "r", "PermissionsBoundary": "arn:c"}, "iam:permissionsboundary", ["arn:c"],
    ),
    case(
        "an attached policy", "iam:AttachRolePolicy", {"RoleName": "r", "PolicyArn": "arn:p"},
        "iam:policyarn", ["arn:p"],
    ),
    case(
        "IAM is in one region", "iam:GetRole", {"RoleName": "r"}, "aws:requestedregion",
        ["us-east-1"],
    ),
    case(
        "an encryption context", "kms:Encrypt",
        {"KeyId": KEY, "EncryptionContext": {"Tenant": "a"}}, "kms:encryptioncontext:tenant", ["a"],
    ),
    case(
        "the alias in the request", "kms:Encrypt", {"KeyId": ALIAS}, "kms:requestalias",
        ["alias/data"],
    ),
    case(
        "the namespace of metrics", "cloudwatch:PutMetricData", {"Namespace": "N"},
        "cloudwatch:namespace", ["N"],
    ),
    case(
        "the sources of a pattern, also those that are not names", "events:PutRule",
        {"Name": "r", "EventPattern": '{"source": ["a", {"prefix": ""}]}'}, "events:source",
        ["a", '{"prefix": ""}'],
    ),
    case(
        "the id of an assumed session", "sts:AssumeRole",
        {"RoleArn": ROLE, "RoleSessionName": "s", "ExternalId": "x"}, "sts:externalid", ["x"],
    ),
)  # fmt: skip
def test_context_keys(
    call: str, params: Mapping[str, Any], key: str, expected: list[str] | None
) -> None:
    assert find_key(call, params, key) == expected


@cases(
    "call, params, number, key, expected",
    case(
        "a passed role's service", "sagemaker:CreateModel",
        {"ModelName": "m", "ExecutionRoleArn": ROLE}, 1, "iam:passedtoservice",
        ["sagemaker.amazonaws.com"],
    ),
    case(
        "a passed role's tags", "sagemaker:CreateModel",
        {"ModelName": "m", "ExecutionRoleArn": ROLE}, 1, "iam:resourcetag/team", ["b"],
    ),
    case(
        "the operation that tags", "sagemaker:CreateModel", {"ModelName": "m", "Tags": TAG}, 1,
        "sagemaker:taggingaction", ["CreateModel"],
    ),
    case(
        "a secret's key is used by its service", "secretsmanager:GetSecretValue",
        {"SecretId": "token"}, 1, "kms:viaservice", ["secretsmanager.us-west-2.amazonaws.com"],
    ),
)  # fmt: skip
def test_context_keys_of_dependent_permissions(
    call: str, params: Mapping[str, Any], number: int, key: str, expected: list[str]
) -> None:
    assert find_key(call, params, key, number) == expected


def test_a_refusal_shows_the_name_of_the_request_only() -> None:
    """Otherwise a caller without permission learns from the text whether the resource exists."""
    shown = {
        "iam:GetRole": ({"RoleName": "Runner"}, {"RoleName": "Nobody"}),
        "iam:GetAccessKeyLastUsed": ({"AccessKeyId": "AKIAANN"}, {"AccessKeyId": "AKIANONE"}),
        "kms:DescribeKey": ({"KeyId": "alias/data"}, {"KeyId": "alias/none"}),
        "secretsmanager:DescribeSecret": ({"SecretId": "token"}, {"SecretId": "none"}),
    }
    for call, (existing, missing) in shown.items():
        names = [find(call, it)[0].name for it in (existing, missing)]
        given = [next(iter(it.values())) for it in (existing, missing)]
        assert [it.replace(name, "NAME") for it, name in zip(names, given, strict=True)] == [
            names[0].replace(given[0], "NAME")
        ] * 2, call
        assert "team" not in names[0]


OWN = f'"arn:aws:sagemaker:us-west-2:{ACCOUNT}:endpoint/team-a-*"'
GRANTED = (
    '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "*", "Resource": %s}}'
)


@cases(
    "name",
    case("a wildcard", "*"),
    case("a wildcard after the prefix of another name", "team-b-*"),
    case("steps out of a folder", "team-a-/../team-b-x"),
    case("a wildcard of one character", "team-?-x"),
    case("a variable", "${aws:PrincipalAccount}"),
    case("the ARN of another account", "arn:aws:sagemaker:us-west-2:9:endpoint/team-a-x"),
    case("characters that mark wildcards", "\ue000"),
    case("braces of templates", "{account}"),
    case("a very long name", "team-b-" + "x" * 100_000),
    case("an empty name", ""),
)  # fmt: skip
def test_hostile_names_are_only_text(name: str) -> None:
    """A policy for names with a prefix allows names with the prefix, and no others."""
    for need in find("sagemaker:DeleteEndpoint", {"EndpointName": name}):
        assert need.resource == SM + "endpoint/" + name.lower()
        allowed = is_allowed(need.action, need.resource, OWN)
        assert allowed == name.startswith("team-a-")


def test_missing_parameters_need_everything() -> None:
    """An unclear resource is `*`, which a policy for some resources does not allow."""
    for (service, operation), row in sorted(ROWS.items()):
        needs = find_needed(service, operation, {}, HERE)
        assert needs or (service, operation) in (
            ("sts", "GetCallerIdentity"),
            ("sts", "GetSessionToken"),
        ), (operation, row)
        for need in needs:
            assert not is_allowed(need.action, need.resource, OWN), need


def is_allowed(action: str, resource: str, resources: str) -> bool:
    statements = parse_statements(GRANTED % resources, DocumentKind.IDENTITY)
    policy = Policy(id="p", type="user", statements=statements)
    request = AccessRequest(action=action, resource=resource, context={})
    grants = Grants(identity=(policy,))
    return authorize(grants, frozenset(), ACCOUNT, request).is_allowed
