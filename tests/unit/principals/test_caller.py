"""Callers with verified keys, resolved by the rows of a table."""

import json

import pytest
from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.aws.sigv4 import Identity
from hostelry.aws.temporary_keys import Session
from hostelry.base.errors import ServiceError
from hostelry.permissions.authorization import authorize
from hostelry.permissions.evaluation import AccessRequest
from hostelry.principals.caller import Caller, CallerKind, Principals
from hostelry.principals.table import KeyRow, PolicyRow, PrincipalRow, PrincipalTable

OWNER, OTHER = "111122223333", "444455556666"
READ = "arn:aws:iam::aws:policy/Read"
USER = PrincipalRow(
    account=OTHER,
    name="Ann",
    id="AIDAANN",
    arn=f"arn:aws:iam::{OTHER}:user/Ann",
    policies=(READ, "arn:of:a:policy:that:was:deleted"),
    tags={"Team": "red"},
)
ROLE = replace(USER, name="Run", id="AROARUN", arn=f"arn:aws:iam::{OTHER}:role/Run")


def document(*actions: str, effect: str = "Allow") -> str:
    statement = {"Effect": effect, "Action": list(actions), "Resource": "*"}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


TABLE = PrincipalTable(
    accounts=frozenset({OTHER}),
    users={f"{OTHER}/ann": USER},
    roles={f"{OTHER}/run": ROLE},
    access_keys={
        "AKIAROOT": KeyRow(account=OTHER),
        "AKIAANN": KeyRow(account=OTHER, user=f"{OTHER}/ann"),
    },
    policies={READ: PolicyRow(id="Read", type="aws-managed", document=document("s3:Get*"))},
)
OF_ROLE = Session(
    access_key_id="ASIA1",
    account_id=OTHER,
    expires_at=1,
    role_name="Run",
    role_id="AROARUN",
    session_name="s",
    tags={"team": "blue"},
    source_identity="bob",
    issued_at=7,
)
OF_USER = Session(
    access_key_id="ASIA2", account_id=OTHER, expires_at=1, user_name="Ann", user_id="AIDAANN"
)
AGENTS = Session(access_key_id="ASIA3", account_id=OTHER, expires_at=1, session_name="i-1")


def signer(
    key: str, account: str = OTHER, user: str = "", session: Session | None = None
) -> Identity:
    return Identity(
        access_key_id=key,
        account_id=account,
        region="us-west-2",
        service="sagemaker",
        user=user,
        session=session,
    )


def resolve(identity: Identity, table: PrincipalTable = TABLE) -> Caller:
    return Principals(table, OWNER).resolve(identity)


@cases(
    "identity, kind, arn, user_id, principal",
    case("the key of the home", signer("AKIAOWN", OWNER), CallerKind.ROOT,
        f"arn:aws:iam::{OWNER}:root", OWNER, ""),
    case("the root of another account", signer("AKIAROOT"), CallerKind.ROOT,
        f"arn:aws:iam::{OTHER}:root", OTHER, ""),
    case("a user", signer("AKIAANN", user="ann"), CallerKind.USER, USER.arn, "AIDAANN",
        "user/Ann"),
    case("a user with temporary keys", signer("ASIA2", session=OF_USER), CallerKind.USER, USER.arn,
        "AIDAANN", "user/Ann"),
    case("a session of a role", signer("ASIA1", session=OF_ROLE), CallerKind.ROLE,
        f"arn:aws:sts::{OTHER}:assumed-role/Run/s", "AROARUN:s", "role/Run"),
    case("a copy", signer("ASIA3", session=AGENTS), CallerKind.AGENT,
        f"arn:aws:iam::{OTHER}:root", "i-1", "copy/i-1"),
)  # fmt: skip
def test_a_verified_caller_is_a_principal(
    identity: Identity, kind: CallerKind, arn: str, user_id: str, principal: str
) -> None:
    caller = resolve(identity)
    assert (caller.kind, caller.arn, caller.user_id) == (kind, arn, user_id)
    assert caller.principal == principal
    assert caller.grants.is_root == (kind in (CallerKind.ROOT, CallerKind.AGENT))


@cases(
    "identity, table",
    case("a key of a user that was deleted", signer("AKIAANN", user="ann"),
        replace(TABLE, users={})),
    case("a key that was disabled or deleted", signer("AKIAGONE", user="ann"), TABLE),
    case("a key of another user", signer("AKIAANN", user="eve"), TABLE),
    case("a closed account", signer("AKIAROOT"), replace(TABLE, accounts=frozenset())),
    case("a user of a closed account", signer("AKIAANN", user="ann"),
        replace(TABLE, accounts=frozenset())),
    case("a role that was made again", signer("ASIA1", session=replace(OF_ROLE, role_id="AROA0")),
        TABLE),
    case("a session of a role that was deleted", signer("ASIA1", session=OF_ROLE),
        replace(TABLE, roles={})),
    case("a user that was made again", signer("ASIA2", session=replace(OF_USER, user_id="AIDA0")),
        TABLE),
)  # fmt: skip
def test_keys_that_are_not_valid_any_more_are_refused(
    identity: Identity, table: PrincipalTable
) -> None:
    with pytest.raises(ServiceError) as refused:
        resolve(identity, table)
    assert (refused.value.code, refused.value.http_status) == ("UnrecognizedClientException", 403)


def is_allowed(caller: Caller, action: str) -> bool:
    asked = AccessRequest(action=action, resource="*", context=caller.keys)
    return authorize(caller.grants, caller.who, caller.account, asked).is_allowed


def with_document(text: str) -> PrincipalTable:
    return replace(TABLE, policies={READ: PolicyRow(id="Read", type="user", document=text)})


@cases(
    "identity, table, action, allowed",
    case("a policy of the user allows it", signer("AKIAANN", user="ann"), TABLE, "s3:GetObject",
        True),
    case("no policy allows it", signer("AKIAANN", user="ann"), TABLE, "s3:PutObject", False),
    case("the root needs no policy", signer("AKIAROOT"), TABLE, "s3:PutObject", True),
    case("a session policy limits the session",
        signer("ASIA1", session=replace(OF_ROLE, policies=(document("s3:List*"),))), TABLE,
        "s3:GetObject", False),
    case("a managed session policy that was deleted allows nothing",
        signer("ASIA1", session=replace(OF_ROLE, policy_arns=("arn:gone",))), TABLE,
        "s3:GetObject", False),
    case("a boundary that was deleted allows nothing", signer("AKIAANN", user="ann"),
        replace(TABLE, users={f"{OTHER}/ann": replace(USER, boundary="arn:gone")}),
        "s3:GetObject", False),
    case("a document that cannot be read denies everything", signer("AKIAANN", user="ann"),
        with_document("{"), "s3:GetObject", False),
    case("the role bounds the agent",
        signer("ASIA3", session=replace(AGENTS, bounded_by="Run")), TABLE, "s3:PutObject", False),
    case("the role lets the agent read",
        signer("ASIA3", session=replace(AGENTS, bounded_by="Run")), TABLE, "s3:GetObject", True),
    case("a role that was deleted lets the agent read nothing",
        signer("ASIA3", session=replace(AGENTS, bounded_by="Gone")), TABLE, "s3:GetObject",
        False),
)  # fmt: skip
def test_policies_bound_a_caller(
    identity: Identity, table: PrincipalTable, action: str, allowed: bool
) -> None:
    assert is_allowed(resolve(identity, table), action) is allowed


def test_conditions_read_the_callers_keys() -> None:
    keys = resolve(signer("ASIA1", session=OF_ROLE)).keys
    assert keys["aws:principalarn"] == (ROLE.arn,)
    assert keys["aws:principaltag/team"] == ("blue",)
    assert keys["aws:sourceidentity"] == ("bob",)
    assert keys["aws:tokenissuetime"] == ("7",)
    assert resolve(signer("AKIAANN", user="ann")).keys["aws:username"] == ("Ann",)
