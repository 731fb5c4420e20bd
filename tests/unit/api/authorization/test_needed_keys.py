"""The context keys of what calls need, and hostile or missing values."""

import re
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
from tests.unit.api.authorization.sample_params import build_params, fill_arn
from tests.unit.api.authorization.service_reference import load_reference

from hostelry.api.authorization.finding import ROWS, find_needed

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


@cases(
    "name",
    case("a wildcard", "*"),
    case("a wildcard after the begin of another name", "team-b-*"),
    case("steps into another folder", "team-b-/../team-a-x"),
    case("a path that ends with another name", "x/team-a-x"),
    case("a wildcard of one character", "team-?-x"),
    case("a variable", "${aws:PrincipalAccount}"),
    case("the ARN of another account", "arn:aws:sagemaker:us-west-2:9:endpoint/team-a-x"),
    case("an ARN with wildcards", "arn:aws:*:*:*:*"),
    case("characters that mark wildcards", "\ue000"),
    case("braces of templates", "{account}"),
    case("a very long name", "team-b-" + "x" * 10_000),
    case("an empty text", ""),
)  # fmt: skip
def test_hostile_texts_are_about_no_resource_of_a_prefix(name: str) -> None:
    """Whatever all texts of a request are, a policy for names with a prefix does not allow it."""
    reference = load_reference()
    for service, operation in sorted(ROWS):
        params = build_params(service, operation, name)
        for need in find_needed(service, operation, params, HERE):
            of = need.action.partition(":")[0]
            action = reference.actions.get(need.action)
            for kind in action.types if action else ():
                pattern = fill_arn(reference.arns[f"{of}/{kind}"], "team-a-*")
                assert not fits(pattern, need.resource), (operation, need)


def test_a_name_is_only_text() -> None:
    (need,) = find("sagemaker:DeleteEndpoint", {"EndpointName": "Team-A-/../*"})
    assert need.resource == SM + "endpoint/team-a-/../*"


def test_missing_parameters_need_everything() -> None:
    """An unclear resource is `*`, which a policy for some resources does not allow."""
    nothing = [("sts", "GetCallerIdentity"), ("sts", "GetSessionToken")]
    found = {row: find_needed(*row, {}, HERE) for row in ROWS}
    assert sorted(row for row, needs in found.items() if not needs) == nothing
    unclear = {need.resource for needs in found.values() for need in needs}
    assert {it for it in unclear if not it.endswith("*")} == {
        f"arn:aws:events:us-west-2:{ACCOUNT}:event-bus/default",
        f"arn:aws:logs:us-west-2:{ACCOUNT}:log-group::log-stream:",
    }


def fits(pattern: str, text: str) -> bool:
    """True if a text fits the resource of a policy."""
    parts = [re.escape(it) for it in pattern.split("*")]
    return re.fullmatch(".*".join(parts), text, re.DOTALL) is not None


def test_many_names_take_a_time_that_grows_with_their_number() -> None:
    names = [f"n{number % 20_000}" for number in range(40_000)]
    assert len(find("cloudwatch:DeleteDashboards", {"DashboardNames": names})) == 20_000
