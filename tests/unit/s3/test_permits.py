"""Requests to the S3 port: the account of a bucket, and the policies of a caller."""

import json

import pytest
from tests.cases import case, cases
from tests.unit.s3.signed_heads import CREDENTIALS, passage

from hostelry.aws.sigv4 import Identity
from hostelry.base.clock import ManualClock
from hostelry.principals.caller import Caller, Principals
from hostelry.principals.source import FixedPrincipals
from hostelry.principals.table import KeyRow, KmsKeyRow, PolicyRow, PrincipalRow, PrincipalTable
from hostelry.s3.admission import S3Refusal
from hostelry.s3.head import Head, parse_head
from hostelry.s3.passage import find_claimed_key
from hostelry.s3.permits import AskedOfStore, ObjectPermits, needs_body

OWNER, OTHER = CREDENTIALS.account_id, "444455556666"
STATEMENT = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::theirs/open/*"}
TABLE = PrincipalTable(
    accounts=frozenset({OTHER}),
    users={
        f"{OTHER}/ann": PrincipalRow(
            account=OTHER,
            name="ann",
            id="AIDA",
            arn=f"arn:aws:iam::{OTHER}:user/ann",
            policies=("read",),
        )
    },
    access_keys={
        "AKIAROOT": KeyRow(account=OTHER),
        "AKIAANN": KeyRow(account=OTHER, user=f"{OTHER}/ann"),
    },
    policies={
        "read": PolicyRow(
            id="read",
            type="user",
            document=json.dumps({"Version": "2012-10-17", "Statement": STATEMENT}),
        )
    },
    buckets={"theirs": OTHER},
)
SOURCE = FixedPrincipals(Principals(TABLE, OWNER))


def permits() -> ObjectPermits:
    return ObjectPermits(OWNER, SOURCE, lambda: 1.0, frozenset({"catalogue"}))


def signer(key: str, account: str, user: str = "") -> Identity:
    return Identity(
        access_key_id=key, account_id=account, region="us-west-2", service="s3", user=user
    )


OF_OWNER = signer(CREDENTIALS.access_key_id, OWNER)
ROOT, ANN = signer("AKIAROOT", OTHER), signer("AKIAANN", OTHER, "ann")


def head_of(text: str, **headers: str) -> Head:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return parse_head(f"{text} HTTP/1.1\r\nHost: h\r\n{lines}\r\n".encode())


def code_of(identity: Identity, head: Head, on_behalf: str = "") -> str:
    """The code of the refusal, or an empty text."""
    caller: Caller = permits().resolve(identity, on_behalf)
    try:
        permits().check(AskedOfStore(caller=caller, head=head, source_ip="10.0.0.1"))
    except S3Refusal as refusal:
        return refusal.code
    return ""


@cases(
    "identity, head, code",
    case("the root reads its account's bucket", ROOT, head_of("GET /theirs/k"), ""),
    case("the root reads the first account's bucket", ROOT, head_of("GET /ours/k"),
        "AccessDenied"),
    case("the root reads the catalogue", ROOT, head_of("GET /catalogue/k"), ""),
    case("the root writes to the catalogue", ROOT, head_of("PUT /catalogue/k"), "AccessDenied"),
    case("the operator reads another account's bucket", OF_OWNER, head_of("GET /theirs/k"),
        "AccessDenied"),
    case("the operator makes a bucket of that name", OF_OWNER, head_of("PUT /theirs"),
        "BucketAlreadyExists"),
    case("a copy from another account's bucket", ROOT,
        head_of("PUT /theirs/k", x_amz_copy_source="/ours/secret"), "AccessDenied"),
    case("a copy from an escaped name of another account's bucket", ROOT,
        head_of("PUT /theirs/k", x_amz_copy_source="%6furs/secret"), "AccessDenied"),
    case("a user reads what its policy allows", ANN, head_of("GET /theirs/open/k"), ""),
    case("a user reads another object", ANN, head_of("GET /theirs/k"), "AccessDenied"),
    case("a user writes", ANN, head_of("PUT /theirs/open/k"), "AccessDenied"),
    case("a user lists", ANN, head_of("GET /theirs?list-type=2"), "AccessDenied"),
    case("a path that leaves the bucket", ANN, head_of("GET /theirs/open/../k"),
        "InvalidRequest"),
    case("a sub-resource that is not known", ANN, head_of("GET /theirs/open/k?novel"),
        "AccessDenied"),
)  # fmt: skip
def test_a_request_is_held_to_account_and_policies(
    identity: Identity, head: Head, code: str
) -> None:
    assert code_of(identity, head) == code


@cases(
    "on_behalf, head, code",
    case("an account's own bucket", OTHER, head_of("PUT /theirs/k"), ""),
    case("a bucket of the first account", OTHER, head_of("GET /ours/k"), "AccessDenied"),
    case("a role that does not exist", f"{OTHER}/gone", head_of("GET /theirs/k"), "AccessDenied"),
)
def test_the_platform_acts_for_one_account(on_behalf: str, head: Head, code: str) -> None:
    assert code_of(OF_OWNER, head, on_behalf) == code


def test_only_the_first_account_acts_for_others() -> None:
    assert code_of(ROOT, head_of("GET /ours/k"), OWNER) == "AccessDenied"
    assert code_of(ANN, head_of("GET /theirs/k"), OTHER) == "AccessDenied"


def test_the_body_is_read_if_it_alone_names_the_objects_that_a_limited_caller_deletes() -> None:
    several, one = head_of("POST /theirs?delete"), head_of("DELETE /theirs/open/k")
    ann, root = permits().resolve(ANN, ""), permits().resolve(ROOT, "")
    assert needs_body(ann, several)
    assert not needs_body(ann, one)
    assert not needs_body(root, several)


def test_a_bucket_is_its_makers_before_control_publishes_it() -> None:
    found = permits()
    assert found.find_owner("new") == OWNER
    found.note_claim("new", OTHER)
    assert found.find_owner("new") == OTHER


@cases(
    "head, key",
    case("a header", head_of("GET /b", authorization="AWS4-HMAC-SHA256 Credential=AKIA1/x/y"),
        "AKIA1"),
    case("a presigned URL", head_of("GET /b?X-Amz-Credential=AKIA2%2Fx%2Fy"), "AKIA2"),
    case("a signature of version 2", head_of("GET /b", authorization="AWS AKIA3:sig"), "AKIA3"),
    case("a presigned URL of version 2", head_of("GET /b?AWSAccessKeyId=AKIA4"), "AKIA4"),
    case("no signature", head_of("GET /b"), None),
)  # fmt: skip
def test_the_claimed_key_is_found_in_any_kind_of_signature(head: Head, key: str | None) -> None:
    assert find_claimed_key(head) == key


KEY, OWNERS_KEY = (f"arn:aws:kms:us-west-2:{it}:key/1" for it in (OTHER, OWNER))
ALLOWS = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": {
            "Effect": "Allow",
            "Principal": {"AWS": [f"arn:aws:iam::{OTHER}:root", f"arn:aws:iam::{OWNER}:root"]},
            "Action": "kms:*",
            "Resource": "*",
            "Condition": {"StringEquals": {"kms:CallerAccount": [OTHER, OWNER]}},
        },
    }
)
DENIES = ALLOWS.replace('"Allow"', '"Deny"')
NOT_OTHERS = ALLOWS.replace(OTHER, "777788889999")


@cases(
    "identity, key, row, code",
    case("the root uses a key of its account", ROOT, KEY, KmsKeyRow(state="Enabled"), ""),
    case("a user without a permission", ANN, KEY, KmsKeyRow(state="Enabled"), "AccessDenied"),
    case("a user may use the managed key", ANN, KEY,
        KmsKeyRow(state="Enabled", is_managed=True), ""),
    case("the operator, by the policy of another account's key", OF_OWNER, KEY,
        KmsKeyRow(state="Enabled", policy=ALLOWS), ""),
    case("the operator, by the default policy of another account's key", OF_OWNER, KEY,
        KmsKeyRow(state="Enabled"), "AccessDenied"),
    case("another account's managed key", OF_OWNER, KEY,
        KmsKeyRow(state="Enabled", policy=ALLOWS, is_managed=True), "AccessDenied"),
    case("another account's key that is missing", OF_OWNER, KEY, None, "AccessDenied"),
    case("the root, by a policy that names others", ROOT, OWNERS_KEY,
        KmsKeyRow(state="Enabled", policy=NOT_OTHERS), "AccessDenied"),
    case("the root, by a policy that denies it", ROOT, OWNERS_KEY,
        KmsKeyRow(state="Enabled", policy=DENIES), "AccessDenied"),
    case("a user whom only the policy of another account's key allows", ANN, OWNERS_KEY,
        KmsKeyRow(state="Enabled", policy=ALLOWS), "AccessDenied"),
)  # fmt: skip
def test_a_key_is_used_as_its_policy_and_the_callers_policies_allow(
    identity: Identity, key: str, row: KmsKeyRow | None, code: str
) -> None:
    asked = AskedOfStore(
        caller=permits().resolve(identity, ""), head=head_of("GET /theirs/k"), source_ip=""
    )
    if not code:
        permits().check_key(asked, ("Decrypt",), key, row)
        return
    with pytest.raises(S3Refusal, match="not authorized to perform: kms:Decrypt on") as refused:
        permits().check_key(asked, ("Decrypt",), key, row)
    assert refused.value.code == code


async def no_body() -> bytes:
    raise AssertionError("the body is not needed")


async def test_requests_that_no_known_key_signed_are_left_to_the_store() -> None:
    found = passage(ManualClock())
    unsigned = head_of("GET /b/k")
    assert (await found.passed(unsigned, "", no_body)).raw == unsigned.raw
    forged = head_of(
        "GET /b/k", x_hostelry_for=OTHER, authorization="AWS4-HMAC-SHA256 Credential=AKIA9/x"
    )
    with pytest.raises(S3Refusal):
        await found.passed(forged, "", no_body)
