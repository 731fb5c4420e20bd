"""KMS: keys, aliases and encryption under them."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.api.context import CallContext
from hostelry.api.operations import perform
from hostelry.aws.access_keys import STORE_KEY_ID
from hostelry.aws.temporary_keys import Session
from hostelry.base.clock import ManualClock
from hostelry.base.errors import ServiceError
from hostelry.base.root_key import RootKey
from hostelry.domain.principal import Account
from hostelry.domain.scope import Scope
from hostelry.domain.shape import NO_RESOURCES
from hostelry.permissions.authorization import Grants
from hostelry.principals.caller import Caller, CallerKind
from hostelry.store.records import State

Kms = Callable[..., dict[str, Any]]
DAY_S = 86_400
ABSENT_ID = "00000000-0000-4000-8000-000000000000"
ARN = "arn:aws:kms:us-west-2:123456789012:"


@pytest.fixture
def kms(api: Api) -> Kms:
    return lambda operation, **params: api.call(operation, "kms", **params)


@pytest.fixture
def key_id(kms: Kms) -> str:
    metadata = kms("CreateKey", Description="weights", Tags=[{"TagKey": "a", "TagValue": "b"}])
    return str(metadata["KeyMetadata"]["KeyId"])


@pytest.fixture
def fails(kms: Kms) -> Callable[..., tuple[str, str]]:
    def fails(operation: str, **params: Any) -> tuple[str, str]:
        with pytest.raises(ServiceError) as caught:
            kms(operation, **params)
        return caught.value.code, caught.value.message

    return fails


def test_a_new_key_is_a_symmetric_one_of_the_customer(kms: Kms, key_id: str) -> None:
    found = kms("DescribeKey", KeyId=key_id)["KeyMetadata"]
    assert found["Arn"] == f"{ARN}key/{key_id}"
    assert (found["KeyState"], found["Enabled"], found["KeyManager"]) == (
        "Enabled",
        True,
        "CUSTOMER",
    )
    assert (found["KeySpec"], found["KeyUsage"]) == ("SYMMETRIC_DEFAULT", "ENCRYPT_DECRYPT")
    assert found["Description"] == "weights"


@pytest.mark.parametrize(
    "member",
    [
        {"KeySpec": "RSA_2048"},
        {"CustomerMasterKeySpec": "ECC_NIST_P256"},
        {"KeySpec": "HMAC_256"},
        {"KeyUsage": "SIGN_VERIFY"},
        {"KeyUsage": "GENERATE_VERIFY_MAC"},
        {"Origin": "EXTERNAL"},
        {"MultiRegion": True},
    ],
    ids=str,
)
def test_other_kinds_of_keys_are_refused_by_name(
    fails: Callable[..., tuple[str, str]], member: Mapping[str, Any]
) -> None:
    code, message = fails("CreateKey", **member)
    assert code == "UnsupportedOperationException"
    assert message.startswith(f"{next(iter(member))} {next(iter(member.values()))} is not")


@pytest.mark.parametrize("form", ["{id}", "{arn}key/{id}", "alias/k", "{arn}alias/k"])
def test_every_form_of_a_name_finds_the_key(kms: Kms, key_id: str, form: str) -> None:
    kms("CreateAlias", AliasName="alias/k", TargetKeyId=key_id)
    given = form.format(id=key_id, arn=ARN)
    assert kms("DescribeKey", KeyId=given)["KeyMetadata"]["KeyId"] == key_id
    blob = kms("Encrypt", KeyId=given, Plaintext=b"secret")["CiphertextBlob"]
    answer = kms("Decrypt", CiphertextBlob=blob, KeyId=given)
    assert (answer["Plaintext"], answer["KeyId"]) == (b"secret", f"{ARN}key/{key_id}")


@cases(
    "given, message",
    case("a key id", ABSENT_ID, f"Key '{ARN}key/{ABSENT_ID}' does not exist"),
    case("an alias", "alias/no", f"Alias {ARN}alias/no is not found."),
    case("an alias's ARN", f"{ARN}alias/no", f"Alias {ARN}alias/no is not found."),
    case("neither", "nonsense", "Invalid keyId 'nonsense'"),
    case(
        "another region",
        f"arn:aws:kms:eu-west-1:123456789012:key/{ABSENT_ID}",
        "Invalid arn eu-west-1",
    ),
    case("another service", "arn:aws:s3:::bucket", "Invalid arn arn:aws:s3:::bucket"),
)
def test_a_name_without_a_key(
    fails: Callable[..., tuple[str, str]], given: str, message: str
) -> None:
    assert fails("DescribeKey", KeyId=given) == ("NotFoundException", message)


@pytest.mark.parametrize("service", ["s3", "sagemaker", "secretsmanager"])
def test_aws_managed_keys_are_there_from_the_start(
    kms: Kms, fails: Callable[..., tuple[str, str]], service: str
) -> None:
    found = kms("DescribeKey", KeyId=f"alias/aws/{service}")["KeyMetadata"]
    assert found["KeyManager"] == "AWS"
    aliases = {it["AliasName"]: it for it in kms("ListAliases")["Aliases"]}
    assert aliases[f"alias/aws/{service}"]["TargetKeyId"] == found["KeyId"]
    assert fails("ScheduleKeyDeletion", KeyId=found["KeyId"])[0] == "AccessDeniedException"
    assert fails("DeleteAlias", AliasName=f"alias/aws/{service}")[0] == "NotAuthorizedException"


def test_the_encryption_context_must_be_the_same(
    kms: Kms, key_id: str, fails: Callable[..., tuple[str, str]]
) -> None:
    blob = kms("Encrypt", KeyId=key_id, Plaintext=b"x", EncryptionContext={"a": "1", "b": "2"})
    blob = blob["CiphertextBlob"]
    swapped = {"b": "2", "a": "1"}
    assert kms("Decrypt", CiphertextBlob=blob, EncryptionContext=swapped)["Plaintext"] == b"x"
    for other in ({}, {"a": "1"}, {"a": "1", "b": "3"}):
        refused = fails("Decrypt", CiphertextBlob=blob, EncryptionContext=other)
        assert refused == ("InvalidCiphertextException", "")


@pytest.mark.parametrize("blob", [b"x", b"\x01", b"\x01" * 17, b"\x01" * 80, b"\x02" * 80])
def test_bytes_that_no_key_made(fails: Callable[..., tuple[str, str]], blob: bytes) -> None:
    assert fails("Decrypt", CiphertextBlob=blob)[0] == "InvalidCiphertextException"


def test_the_caller_may_say_which_key_it_must_be(
    kms: Kms, key_id: str, fails: Callable[..., tuple[str, str]]
) -> None:
    other = kms("CreateKey")["KeyMetadata"]["KeyId"]
    blob = kms("Encrypt", KeyId=key_id, Plaintext=b"x")["CiphertextBlob"]
    assert fails("Decrypt", CiphertextBlob=blob, KeyId=other)[0] == "IncorrectKeyException"


@pytest.mark.parametrize(
    ("asked", "num_bytes"),
    [({"KeySpec": "AES_256"}, 32), ({"KeySpec": "AES_128"}, 16), ({"NumberOfBytes": 64}, 64)],
)
def test_a_data_key_is_random_and_decrypts(
    kms: Kms, key_id: str, asked: Mapping[str, Any], num_bytes: int
) -> None:
    pairs = {"aws:s3:arn": "arn:aws:s3:::b/k"}
    first = kms("GenerateDataKey", KeyId=key_id, EncryptionContext=pairs, **asked)
    second = kms("GenerateDataKey", KeyId=key_id, EncryptionContext=pairs, **asked)
    assert len(first["Plaintext"]) == num_bytes
    assert first["Plaintext"] != second["Plaintext"]
    back = kms("Decrypt", CiphertextBlob=first["CiphertextBlob"], EncryptionContext=pairs)
    assert back["Plaintext"] == first["Plaintext"]
    bare = kms("GenerateDataKeyWithoutPlaintext", KeyId=key_id, **asked)
    assert "Plaintext" not in bare
    assert len(kms("Decrypt", CiphertextBlob=bare["CiphertextBlob"])["Plaintext"]) == num_bytes


@pytest.mark.parametrize("asked", [{}, {"KeySpec": "AES_256", "NumberOfBytes": 32}], ids=str)
def test_a_data_key_has_one_length(
    key_id: str, fails: Callable[..., tuple[str, str]], asked: Mapping[str, Any]
) -> None:
    text = "Please specify either number of bytes or key spec."
    assert fails("GenerateDataKey", KeyId=key_id, **asked) == ("ValidationException", text)


def test_a_ciphertext_moves_to_another_key(kms: Kms, key_id: str) -> None:
    other = kms("CreateKey")["KeyMetadata"]["KeyId"]
    blob = kms("Encrypt", KeyId=key_id, Plaintext=b"x")["CiphertextBlob"]
    moved = kms(
        "ReEncrypt",
        CiphertextBlob=blob,
        DestinationKeyId=other,
        DestinationEncryptionContext={"a": "b"},
    )
    assert moved["SourceKeyId"] == f"{ARN}key/{key_id}"
    back = kms("Decrypt", CiphertextBlob=moved["CiphertextBlob"], EncryptionContext={"a": "b"})
    assert (back["KeyId"], back["Plaintext"]) == (f"{ARN}key/{other}", b"x")


def test_a_disabled_key_encrypts_nothing_until_it_is_enabled(
    kms: Kms, key_id: str, fails: Callable[..., tuple[str, str]]
) -> None:
    blob = kms("Encrypt", KeyId=key_id, Plaintext=b"x")["CiphertextBlob"]
    kms("DisableKey", KeyId=key_id)
    expected = ("DisabledException", f"{ARN}key/{key_id} is disabled.")
    assert fails("Encrypt", KeyId=key_id, Plaintext=b"x") == expected
    assert fails("Decrypt", CiphertextBlob=blob) == expected
    assert fails("GenerateDataKey", KeyId=key_id, KeySpec="AES_256") == expected
    kms("EnableKey", KeyId=key_id)
    assert kms("Decrypt", CiphertextBlob=blob)["Plaintext"] == b"x"


def test_a_key_pending_deletion_can_be_saved_and_else_is_gone(
    kms: Kms, key_id: str, fails: Callable[..., tuple[str, str]], clock: ManualClock, state: State
) -> None:
    kms("CreateAlias", AliasName="alias/k", TargetKeyId=key_id)
    blob = kms("Encrypt", KeyId=key_id, Plaintext=b"x")["CiphertextBlob"]
    answer = kms("ScheduleKeyDeletion", KeyId=key_id, PendingWindowInDays=7)
    assert answer["KeyState"] == "PendingDeletion"
    assert answer["DeletionDate"] == clock.now() + 7 * DAY_S
    expected = ("KMSInvalidStateException", f"{ARN}key/{key_id} is pending deletion.")
    assert fails("Decrypt", CiphertextBlob=blob) == expected
    assert fails("EnableKey", KeyId=key_id) == expected
    kms("CancelKeyDeletion", KeyId=key_id)
    assert kms("DescribeKey", KeyId=key_id)["KeyMetadata"]["KeyState"] == "Disabled"
    kms("ScheduleKeyDeletion", KeyId=key_id, PendingWindowInDays=7)
    clock.advance(7 * DAY_S)
    assert fails("DescribeKey", KeyId=key_id)[0] == "NotFoundException"
    assert fails("DescribeKey", KeyId="alias/k")[0] == "NotFoundException"
    assert fails("Decrypt", CiphertextBlob=blob)[0] == "InvalidCiphertextException"
    assert not [it for it in state.kms_keys.list() if it.value.key_id == key_id]


@pytest.mark.parametrize("days", [1, 6, 31, 365])
def test_the_waiting_period_is_7_to_30_days(
    key_id: str, fails: Callable[..., tuple[str, str]], days: int
) -> None:
    code, _ = fails("ScheduleKeyDeletion", KeyId=key_id, PendingWindowInDays=days)
    assert code == "ValidationException"


def test_aliases_are_made_moved_listed_and_deleted(
    kms: Kms, key_id: str, fails: Callable[..., tuple[str, str]]
) -> None:
    other = kms("CreateKey")["KeyMetadata"]["KeyId"]
    kms("CreateAlias", AliasName="alias/k", TargetKeyId=key_id)
    assert fails("CreateAlias", AliasName="alias/k", TargetKeyId=other) == (
        "AlreadyExistsException",
        f"An alias with the name {ARN}alias/k already exists",
    )
    assert [it["AliasName"] for it in kms("ListAliases", KeyId=key_id)["Aliases"]] == ["alias/k"]
    kms("UpdateAlias", AliasName="alias/k", TargetKeyId=other)
    assert kms("DescribeKey", KeyId="alias/k")["KeyMetadata"]["KeyId"] == other
    kms("DeleteAlias", AliasName="alias/k")
    gone = ("NotFoundException", f"Alias {ARN}alias/k is not found.")
    assert fails("UpdateAlias", AliasName="alias/k", TargetKeyId=other) == gone
    assert fails("CreateAlias", AliasName="alias/aws/mine", TargetKeyId=key_id)[0] == (
        "NotAuthorizedException"
    )
    assert fails("CreateAlias", AliasName="mine", TargetKeyId=key_id)[0] == "ValidationException"


def test_what_terraform_reads_of_a_key(kms: Kms, key_id: str) -> None:
    assert "kms:*" in kms("GetKeyPolicy", KeyId=key_id, PolicyName="default")["Policy"]
    statement = {"Effect": "Allow", "Principal": "*", "Action": "kms:*", "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": statement})
    kms("PutKeyPolicy", KeyId=key_id, PolicyName="default", Policy=policy)
    assert kms("GetKeyPolicy", KeyId=key_id)["Policy"] == policy
    assert kms("GetKeyRotationStatus", KeyId=key_id)["KeyRotationEnabled"] is False
    assert kms("ListResourceTags", KeyId=key_id)["Tags"] == [{"TagKey": "a", "TagValue": "b"}]
    kms("TagResource", KeyId=key_id, Tags=[{"TagKey": "c", "TagValue": "d"}])
    kms("UntagResource", KeyId=key_id, TagKeys=["a"])
    assert kms("ListResourceTags", KeyId=key_id)["Tags"] == [{"TagKey": "c", "TagValue": "d"}]
    kms("UpdateKeyDescription", KeyId=key_id, Description="new")
    assert kms("DescribeKey", KeyId=key_id)["KeyMetadata"]["Description"] == "new"


def test_keys_are_listed_in_pages(kms: Kms) -> None:
    made = {kms("CreateKey")["KeyMetadata"]["KeyId"] for _ in range(5)}
    seen: list[str] = []
    answer = kms("ListKeys", Limit=3)
    while answer["Truncated"]:
        seen += [it["KeyId"] for it in answer["Keys"]]
        answer = kms("ListKeys", Limit=3, Marker=answer["NextMarker"])
    seen += [it["KeyId"] for it in answer["Keys"]]
    assert made < set(seen)
    assert len(seen) == len(set(seen)) == 5 + 3


def test_a_policy_that_is_none_is_refused(fails: Callable[..., tuple[str, str]]) -> None:
    assert fails("CreateKey", Policy="[]")[0] == "MalformedPolicyDocumentException"


def test_material_is_stored_sealed_and_of_no_use_without_its_root_key(
    api: Api, key_id: str, kms: Kms
) -> None:
    blob = kms("Encrypt", KeyId=key_id, Plaintext=b"x")["CiphertextBlob"]
    found = api.state.kms_keys.get(api.scope, key_id)
    assert found is not None
    other = kms("CreateKey")["KeyMetadata"]["KeyId"]
    other_found = api.state.kms_keys.get(api.scope, other)
    assert other_found is not None
    swapped = replace(found.value, material=other_found.value.material)
    api.state.kms_keys.put(api.scope, key_id, swapped, expect=found.version)
    with pytest.raises(ServiceError, match="another root key"):
        kms("Decrypt", CiphertextBlob=blob)
    assert RootKey().read(may_make=True) != RootKey().read(may_make=True)


def test_keys_are_of_one_account_and_region(api: Api, kms: Kms, key_id: str) -> None:
    blob = kms("Encrypt", KeyId=key_id, Plaintext=b"x")["CiphertextBlob"]
    elsewhere = Scope("123456789012", "eu-west-1")
    with pytest.raises(ServiceError) as caught:
        api.call_as(elsewhere, "Decrypt", "kms", CiphertextBlob=blob)
    assert caught.value.code == "InvalidCiphertextException"


def root_session(account: str) -> Session:
    """Temporary keys of an account's root."""
    return Session(access_key_id="ASIAX", account_id=account, expires_at=1, session_name="s")


def test_a_key_of_another_account_is_used_as_its_policy_allows(
    api: Api, kms: Kms, key_id: str
) -> None:
    other = Scope("210987654321", api.scope.region)
    api.state.accounts.put(
        other.account_wide,
        other.account,
        Account(id=other.account, name="other", created_at=0.0),
        expect=None,
    )
    blob = kms("Encrypt", KeyId=key_id, Plaintext=b"x")["CiphertextBlob"]

    def call(operation: str, **params: Any) -> dict[str, Any]:
        return api.call_as(other, operation, "kms", root_session(other.account), **params)

    def refuse(operation: str, **params: Any) -> str:
        with pytest.raises(ServiceError) as caught:
            call(operation, **params)
        assert caught.value.code == "AccessDeniedException"
        return caught.value.message

    missing = refuse("Encrypt", KeyId=f"{ARN}key/{ABSENT_ID}", Plaintext=b"x")
    hidden = refuse("Encrypt", KeyId=f"{ARN}key/{key_id}", Plaintext=b"x")
    assert missing.replace(ABSENT_ID, key_id) == hidden
    assert "the resource does not exist in this Region, no resource-based" in hidden
    refuse("Decrypt", CiphertextBlob=blob)
    statement = {
        "Effect": "Allow",
        "Principal": {"AWS": other.account},
        "Action": "kms:Decrypt",
        "Resource": "*",
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": statement})
    kms("PutKeyPolicy", KeyId=key_id, PolicyName="default", Policy=policy)
    assert call("Decrypt", CiphertextBlob=blob)["Plaintext"] == b"x"
    assert call("Decrypt", CiphertextBlob=blob, KeyId=f"{ARN}key/{key_id}")["KeyId"] == (
        f"{ARN}key/{key_id}"
    )
    refuse("Encrypt", KeyId=f"{ARN}key/{key_id}", Plaintext=b"x")
    refuse("DisableKey", KeyId=f"{ARN}key/{key_id}")


def test_the_object_store_asks_for_data_keys_of_any_account_and_for_nothing_else(
    api: Api, key_id: str
) -> None:
    store = Caller(
        kind=CallerKind.ROOT,
        account="999999999999",
        arn="arn:aws:iam::999999999999:root",
        user_id="999999999999",
        principal_arn="",
        access_key_id=STORE_KEY_ID,
        grants=Grants(is_root=True),
        who=frozenset(),
        keys={},
    )
    context = CallContext(
        scope=Scope(store.account, api.scope.region),
        state=api.state,
        now=api.clock.now(),
        get_shape=lambda _: NO_RESOURCES,
        role_arn="",
        role_name="",
        caller=store,
        metrics=api.metrics,
        root_key=api.root_key,
    )
    asked = {"KeyId": f"{ARN}key/{key_id}", "KeySpec": "AES_256"}
    made = perform(context, "kms", "GenerateDataKey", asked)
    found = perform(context, "kms", "Decrypt", {"CiphertextBlob": made["CiphertextBlob"]})
    assert found["Plaintext"] == made["Plaintext"]
    for service, operation in (("kms", "ListKeys"), ("iam", "ListUsers")):
        with pytest.raises(ServiceError, match="The object store's key is not for"):
            perform(context, service, operation, {})
