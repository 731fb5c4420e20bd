"""Callers and decisions as the audit trail shows them."""

from typing import Any

import msgspec
from tests.cases import case, cases
from tests.unit.principals.test_caller import AGENTS, OF_ROLE, OF_USER, OTHER, OWNER, TABLE

from hostelry.audit.record import build_identity
from hostelry.aws.sigv4 import Identity
from hostelry.aws.temporary_keys import Session
from hostelry.permissions.authorization import Authorization, DecidingStatement, Reason
from hostelry.permissions.evaluation import Outcome
from hostelry.principals.audited import describe_caller, describe_decision
from hostelry.principals.caller import Principals

ROOT_KEYS = Session(access_key_id="ASIA4", account_id=OTHER, expires_at=9, issued_at=5)
USER_ARN = f"arn:aws:iam::{OTHER}:user/Ann"
NO_MFA = {"mfaAuthenticated": "false"}


@cases(
    "key, user, session, identity",
    case("an account's root", "AKIAROOT", "", None,
        {"type": "Root", "principalId": OTHER, "arn": f"arn:aws:iam::{OTHER}:root",
         "accountId": OTHER, "accessKeyId": "AKIAROOT"}),
    case("temporary keys of the root", "ASIA4", "", ROOT_KEYS,
        {"type": "Root", "principalId": OTHER, "arn": f"arn:aws:iam::{OTHER}:root",
         "accountId": OTHER, "accessKeyId": "ASIA4",
         "sessionContext": {"attributes": {"creationDate": "1970-01-01T00:00:05Z", **NO_MFA}}}),
    case("a user", "AKIAANN", "Ann", None,
        {"type": "IAMUser", "principalId": "AIDAANN", "arn": USER_ARN, "accountId": OTHER,
         "accessKeyId": "AKIAANN", "userName": "Ann"}),
    case("temporary keys of a user", "ASIA2", "", OF_USER,
        {"type": "IAMUser", "principalId": "AIDAANN", "arn": USER_ARN, "accountId": OTHER,
         "accessKeyId": "ASIA2", "userName": "Ann"}),
    case("a role", "ASIA1", "", OF_ROLE,
        {"type": "AssumedRole", "principalId": "AROARUN:s",
         "arn": f"arn:aws:sts::{OTHER}:assumed-role/Run/s", "accountId": OTHER,
         "accessKeyId": "ASIA1",
         "sessionContext": {
            "sessionIssuer": {"type": "Role", "principalId": "AROARUN",
                "arn": f"arn:aws:iam::{OTHER}:role/Run", "accountId": OTHER, "userName": "Run"},
            "attributes": {"creationDate": "1970-01-01T00:00:07Z", **NO_MFA},
            "sourceIdentity": "bob"}}),
    case("a graph's copy", "ASIA3", "", AGENTS,
        {"type": "AWSService", "principalId": "copy/i-1", "arn": f"arn:aws:iam::{OTHER}:root",
         "accountId": OTHER, "accessKeyId": "ASIA3", "invokedBy": "sagemaker.amazonaws.com"}),
)  # fmt: skip
def test_a_caller_is_described_as_cloudtrail_does(
    key: str, user: str, session: Session | None, identity: dict[str, Any]
) -> None:
    found = Principals(TABLE, OWNER).resolve(
        Identity(
            access_key_id=key,
            account_id=OTHER,
            region="us-east-1",
            service="sagemaker",
            user=user,
            session=session,
        )
    )
    shown = msgspec.json.encode(build_identity(describe_caller(found)))
    assert msgspec.json.decode(shown) == identity


@cases(
    "decision, shown",
    case("a deny by a statement",
        Authorization(outcome=Outcome.EXPLICIT_DENY, reason=Reason.IDENTITY_DENIES,
            statement=DecidingStatement(policy_id="P", policy_type="inline", sid="No", index=2)),
        {"decision": "denied", "reason": "with an explicit deny in an identity-based policy",
         "statement": {"policy": "P", "type": "inline", "sid": "No", "index": 2}}),
    case("an allow without a statement",
        Authorization(outcome=Outcome.ALLOWED, reason=Reason.ROOT),
        {"decision": "allowed", "reason": "the root of an account may do everything in it"}),
)  # fmt: skip
def test_a_decision_is_described(decision: Authorization, shown: dict[str, Any]) -> None:
    assert describe_decision(decision) == shown
