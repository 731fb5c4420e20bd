"""Reasons of decisions, the statement that decides, AWS's texts, and kept decisions."""

import json
from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.permissions.authorization import (
    Authorization,
    DecidingStatement,
    Grants,
    Reason,
    ResourcePolicy,
    authorize,
    explain_denial,
)
from hostelry.permissions.decision_cache import DecisionCache
from hostelry.permissions.document import DocumentKind, MalformedDocument, parse_statements
from hostelry.permissions.evaluation import AccessRequest, Outcome, Policy, trusts

ACCOUNT = "111122223333"
USER = f"arn:aws:iam::{ACCOUNT}:user/alice"
WHO = frozenset({f"AWS:{USER}"})
REQUEST = AccessRequest(action="s3:GetObject", resource="arn:aws:s3:::b/k", context={})


def allow(action: str = "s3:*", **more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": action, "Resource": "*", **more}


def deny(action: str = "s3:*", **more: Any) -> dict[str, Any]:
    return allow(action, Effect="Deny", **more)


def build_policy(*statements: dict[str, Any], name: str = "p", owned: bool = False) -> Policy:
    text = json.dumps({"Version": "2012-10-17", "Statement": list(statements)})
    kind = DocumentKind.RESOURCE if owned else DocumentKind.IDENTITY
    return Policy(id=name, type="inline", statements=parse_statements(text, kind))


def name_user(statement: dict[str, Any], principal: str = USER) -> dict[str, Any]:
    return {**statement, "Principal": {"AWS": principal}}


def own(*statements: dict[str, Any], account: str = ACCOUNT, **more: Any) -> ResourcePolicy:
    return ResourcePolicy(account=account, policy=build_policy(*statements, owned=True), **more)


NONE, ALLOW, DENY = (), (build_policy(allow()),), (build_policy(deny()),)


@cases(
    "grants, resource, reason, text",
    case("an allow", Grants(identity=ALLOW), None, Reason.IDENTITY_ALLOWS, None),
    case(
        "no allow",
        Grants(),
        None,
        Reason.IDENTITY_LACKS,
        "because no identity-based policy allows the s3:GetObject action",
    ),
    case(
        "a deny",
        Grants(identity=(*ALLOW, *DENY), boundary=DENY),
        own(name_user(deny())),
        Reason.IDENTITY_DENIES,
        "with an explicit deny in an identity-based policy",
    ),
    case(
        "no allow of the boundary",
        Grants(identity=ALLOW, boundary=NONE, session=NONE),
        None,
        Reason.BOUNDARY_LACKS,
        "because no permissions boundary allows the s3:GetObject action",
    ),
    case(
        "a deny of the boundary",
        Grants(identity=ALLOW, boundary=(*ALLOW, *DENY)),
        None,
        Reason.BOUNDARY_DENIES,
        "with an explicit deny in a permissions boundary",
    ),
    case(
        "no allow of the session",
        Grants(identity=ALLOW, boundary=ALLOW, session=NONE),
        None,
        Reason.SESSION_LACKS,
        "because no session policy allows the s3:GetObject action",
    ),
    case(
        "a deny of the session",
        Grants(identity=ALLOW, session=DENY),
        None,
        Reason.SESSION_DENIES,
        "with an explicit deny in a session policy",
    ),
    case(
        "an allow of the resource", Grants(), own(name_user(allow())), Reason.RESOURCE_ALLOWS, None
    ),
    case(
        "a deny of the resource",
        Grants(identity=ALLOW),
        own(name_user(deny())),
        Reason.RESOURCE_DENIES,
        "with an explicit deny in a resource-based policy",
    ),
    case(
        "no allow of a resource of another account",
        Grants(identity=ALLOW),
        own(name_user(allow("kms:*")), account="444455556666"),
        Reason.RESOURCE_LACKS,
        "because no resource-based policy allows the s3:GetObject action",
    ),
    case(
        "no allow of a key",
        Grants(identity=ALLOW),
        own(name_user(allow(), "444455556666"), is_decisive=True),
        Reason.RESOURCE_LACKS,
        "because no resource-based policy allows the s3:GetObject action",
    ),
    case("the root", Grants(is_root=True, identity=DENY, boundary=DENY), None, Reason.ROOT, None),
    case(
        "a session of the root",
        Grants(is_root=True, session=NONE),
        own(name_user(allow(), ACCOUNT)),
        Reason.SESSION_LACKS,
        "because no session policy allows the s3:GetObject action",
    ),
    case(
        "the root at a resource of another account",
        Grants(is_root=True),
        ResourcePolicy(account="444455556666", policy=None),
        Reason.RESOURCE_LACKS,
        "because no resource-based policy allows the s3:GetObject action",
    ),
)
def test_reasons(
    grants: Grants, resource: ResourcePolicy | None, reason: Reason, text: str | None
) -> None:
    decision = authorize(grants, WHO, ACCOUNT, REQUEST, resource)
    assert decision.reason is reason
    assert decision.is_allowed is (text is None)
    if text is not None:
        assert explain_denial(USER, REQUEST, decision) == (
            f"User: {USER} is not authorized to perform: s3:GetObject on resource:"
            f" arn:aws:s3:::b/k {text}"
        )


def test_a_denial_without_a_resource_names_none() -> None:
    request = AccessRequest(action="sagemaker:ListModels", resource="*", context={})
    text = explain_denial(USER, request, authorize(Grants(), WHO, ACCOUNT, request))
    assert text == (
        f"User: {USER} is not authorized to perform: sagemaker:ListModels because no identity-based"
        " policy allows the sagemaker:ListModels action"
    )


@cases(
    "statement, text",
    case(
        "no allow", allow("s3:*"), "because no role trust policy allows the sts:AssumeRole action"
    ),
    case("a deny", deny("sts:*"), "with an explicit deny in the role trust policy"),
)
def test_a_denial_of_a_role_names_its_trust_policy(statement: dict[str, Any], text: str) -> None:
    role = f"arn:aws:iam::{ACCOUNT}:role/r"
    request = AccessRequest(action="sts:AssumeRole", resource=role, context={})
    grants = Grants(identity=(build_policy(allow("*")),))
    decision = authorize(grants, WHO, ACCOUNT, request, own(name_user(statement), is_decisive=True))
    assert explain_denial(USER, request, decision).endswith(f"on resource: {role} {text}")


def test_a_service_is_no_member_of_the_account() -> None:
    who = frozenset({"Service:sagemaker.amazonaws.com"})
    service = {"Service": "sagemaker.amazonaws.com"}
    resource = own(name_user(deny(), ACCOUNT), {**allow(), "Principal": service})
    assert authorize(Grants(), who, ACCOUNT, REQUEST, resource).is_allowed


def test_the_deciding_statement_has_its_policy_sid_and_place() -> None:
    policies = (
        build_policy(allow("kms:*"), allow(Sid="Read"), allow(Sid="Again"), name="first"),
        build_policy(deny("s3:Put*"), deny("s3:Delete*", Sid="Keep"), name="second"),
    )

    def find(action: str) -> DecidingStatement | None:
        request = AccessRequest(action=action, resource="arn:aws:s3:::b/k", context={})
        return authorize(Grants(identity=policies), WHO, ACCOUNT, request).statement

    assert find("s3:GetObject") == DecidingStatement(
        policy_id="first", policy_type="inline", sid="Read", index=1
    )
    assert find("s3:DeleteObject") == DecidingStatement(
        policy_id="second", policy_type="inline", sid="Keep", index=1
    )
    assert find("sns:Publish") is None


def test_keys_that_the_context_lacks_are_named() -> None:
    condition = {"StringEquals": {"aws:PrincipalTag/Team": "${aws:ResourceTag/team}"}}
    grants = Grants(identity=(build_policy(allow(Condition=condition)),))
    assert grants.keys == ("aws:principaltag/team", "aws:resourcetag/team")
    request = AccessRequest(
        action="s3:GetObject", resource="*", context={"aws:principaltag/team": ("red",)}
    )
    assert authorize(grants, WHO, ACCOUNT, REQUEST).missing == ("aws:PrincipalTag/Team",)
    assert authorize(grants, WHO, ACCOUNT, request).missing == ("aws:ResourceTag/team",)


def check_resource(statement: dict[str, Any], version: str | None = "2012-10-17") -> None:
    document = {"Statement": statement, **({"Version": version} if version else {})}
    parse_statements(json.dumps(document), DocumentKind.RESOURCE)


@cases(
    "principal",
    case("everybody", "*"),
    case("everybody of AWS", {"AWS": "*"}),
    case("an account", {"AWS": "123456789012"}),
    case("the root of an account", {"AWS": "arn:aws:iam::123456789012:root"}),
    case("a list", {"AWS": ["123456789012", "arn:aws:iam::123456789012:user/x", "*"]}),
    case("a session", {"AWS": "arn:aws:sts::123456789012:assumed-role/r/s"}),
    case("a unique id", {"AWS": "AIDACKCEVSQ6C2EXAMPLE"}),
    case("a service", {"Service": "sagemaker.amazonaws.com"}),
    case("several types", {"AWS": "123456789012", "Service": ["s3.amazonaws.com"]}),
)
def test_principals_of_resource_policies(principal: object) -> None:
    check_resource(allow(Principal=principal))
    check_resource(deny(NotPrincipal=principal), version=None)


@cases(
    "statement, text",
    case("no principal", allow(), "Missing required field Principal"),
    case(
        "no account",
        allow(Principal={"AWS": "12345"}),
        'Invalid principal in policy: "AWS":"12345"',
    ),
    case(
        "a part of an ARN",
        allow(Principal={"AWS": "arn:aws:iam::1:user/*"}),
        'Invalid principal in policy: "AWS":"arn:aws:iam::1:user/*"',
    ),
    case("an unknown type", allow(Principal={"Group": "x"}), "Syntax errors in policy."),
    case(
        "two forms",
        allow(Principal="*", NotPrincipal="*"),
        "Syntax errors in policy.",
    ),
    case(
        "no ARN",
        allow(Principal="*", Resource="bucket"),
        'Resource bucket must be in ARN format or "*".',
    ),
    case(
        "a variable in the account of an ARN",
        allow(Principal="*", Resource="arn:aws:s3::${aws:username}:b"),
        "Resource arn:aws:s3::${aws:username}:b must have policy variables after its fifth colon"
        " only.",
    ),
)
def test_resource_policies_that_are_refused(statement: dict[str, Any], text: str) -> None:
    with pytest.raises(MalformedDocument) as caught:
        check_resource(statement)
    assert str(caught.value) == text


def test_documents_of_the_first_version_have_no_variables() -> None:
    statement = {**name_user(allow()), "Resource": "arn:aws:s3:::b/${aws:username}"}
    decisions = []
    for version in ("2008-10-17", "2012-10-17"):
        text = json.dumps({"Version": version, "Statement": statement})
        statements = parse_statements(text, DocumentKind.RESOURCE)
        policy = Policy(id="r", type="resource", statements=statements)
        resource = ResourcePolicy(account=ACCOUNT, policy=policy)
        for name in ("alice", "${aws:username}"):
            request = AccessRequest(
                action="s3:GetObject",
                resource=f"arn:aws:s3:::b/{name}",
                context={"aws:username": ("alice",)},
            )
            decisions.append(authorize(Grants(), WHO, ACCOUNT, request, resource).is_allowed)
    assert decisions == [False, True, True, False]


def test_a_role_is_assumed_by_the_action_that_its_trust_policy_names() -> None:
    document = {
        "Version": "2012-10-17",
        "Statement": {
            "Effect": "Allow",
            "Principal": {"Federated": "idp"},
            "Action": "sts:AssumeRoleWithWebIdentity",
        },
    }
    statements = parse_statements(json.dumps(document), DocumentKind.TRUST)
    who = frozenset({"Federated:idp"})
    assert trusts(statements, who, {}, "sts:AssumeRoleWithWebIdentity")
    assert not trusts(statements, who, {})
    assert not trusts(
        statements, frozenset({"Federated:other"}), {}, "sts:AssumeRoleWithWebIdentity"
    )


def build_grants(value: str) -> Grants:
    condition = {"StringEquals": {"aws:SourceIp": value}}
    return Grants(identity=(build_policy(allow(Condition=condition)),))


def ask(cache: DecisionCache, grants: Grants, address: str, **more: Any) -> Authorization:
    context = {"aws:sourceip": (address,), "aws:currenttime": (str(len(cache)),)}
    request = AccessRequest(action="s3:GetObject", resource="arn:aws:s3:::b/k", context=context)
    return cache.authorize(grants, WHO, ACCOUNT, request, **more)


def test_a_decision_is_kept_by_the_values_that_it_depends_on() -> None:
    cache = DecisionCache()
    first = build_grants("10.0.0.1")
    assert ask(cache, first, "10.0.0.1").is_allowed
    assert ask(cache, first, "10.0.0.1") is ask(cache, first, "10.0.0.1")
    assert ask(cache, build_grants("10.0.0.1"), "10.0.0.1") is ask(cache, first, "10.0.0.1")
    assert len(cache) == 1
    assert not ask(cache, first, "10.0.0.2").is_allowed
    assert len(cache) == 2


def test_a_kept_decision_ends_with_the_policies_that_it_came_from() -> None:
    cache = DecisionCache()
    assert ask(cache, build_grants("10.0.0.1"), "10.0.0.1").is_allowed
    assert not ask(cache, build_grants("10.0.0.2"), "10.0.0.1").is_allowed
    denied = own(name_user(deny(Condition={"Null": {"aws:SourceVpc": "true"}})))
    grants = build_grants("10.0.0.1")
    assert ask(cache, grants, "10.0.0.1").is_allowed
    decision = ask(cache, grants, "10.0.0.1", resource=denied)
    assert decision.outcome is Outcome.EXPLICIT_DENY
    assert ask(cache, grants, "10.0.0.1", resource=denied) is decision


def test_a_cache_stays_small() -> None:
    cache = DecisionCache(limit=3)
    grants = build_grants("10.0.0.1")
    for number in range(10):
        ask(cache, grants, f"10.0.0.{number}")
        assert len(cache) <= 3
