"""Encrypted objects on a whole platform: the bytes on disk, and objects after a restart."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from tests.integration.accounts_rig import Json, Tenant, make_account, make_user
from tests.integration.platform import Platform, until

pytestmark = pytest.mark.integration

PLAINTEXT = os.urandom(1 << 20)  # the store compresses compressible data
KMS = {"ServerSideEncryption": "aws:kms"}


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with Platform(tmp_path_factory.mktemp("keys") / "home") as running:
        running.boto3("s3").create_bucket(Bucket="sealed")
        yield running


@pytest.fixture(scope="module")
def tenants(platform: Platform) -> tuple[Tenant, Tenant]:
    """Two accounts, each with a bucket."""
    both = make_account(platform, "keeper-a"), make_account(platform, "keeper-b")
    for tenant in both:
        tenant.client("s3").create_bucket(Bucket=tenant.bucket)
    return both


def content(s3: Any, key: str) -> bytes:
    got: bytes = s3.get_object(Bucket="sealed", Key=key)["Body"].read()
    return got


def files_with(folder: Path, text: bytes) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and text in path.read_bytes()]


def test_what_is_encrypted_is_on_disk_nowhere_in_the_clear_and_outlives_kill_nine(
    platform: Platform,
) -> None:
    s3 = platform.boto3("s3")
    s3.put_object(Bucket="sealed", Key="clear", Body=PLAINTEXT[::-1])
    answer = s3.put_object(Bucket="sealed", Key="kms", Body=PLAINTEXT, **KMS)
    managed = platform.boto3("kms").describe_key(KeyId="alias/aws/s3")["KeyMetadata"]["Arn"]
    assert (answer["ServerSideEncryption"], answer["SSEKMSKeyId"]) == ("aws:kms", managed)
    s3.put_object(Bucket="sealed", Key="aes", Body=PLAINTEXT, ServerSideEncryption="AES256")
    assert files_with(platform.home.objects, PLAINTEXT[::-1][:64])
    assert files_with(platform.home.objects, PLAINTEXT[:64]) == []
    for name in ("objectstore", "control"):
        platform.back(name, platform.kill(name, signal.SIGKILL))
    until(lambda: answers(s3), "the store and its keys are back")
    assert content(s3, "kms") == content(s3, "aes") == PLAINTEXT
    platform.down()
    platform.start()
    s3 = platform.boto3("s3")
    assert content(s3, "kms") == content(s3, "aes") == PLAINTEXT
    found = s3.get_object(Bucket="sealed", Key="kms", Range="bytes=1000-1999")
    assert found["Body"].read() == PLAINTEXT[1000:2000]
    assert found["SSEKMSKeyId"] == managed


def get_code(call: Callable[..., Any], **params: Any) -> str:
    """The code and text of the error that answers a call. Empty if it succeeds."""
    try:
        call(**params)
    except ClientError as error:
        found = error.response["Error"]
        return f"{found['Code']}: {found['Message']}"
    return ""


def make_key(tenant: Tenant, policy: Json | None = None) -> str:
    """The ARN of a new key of an account."""
    given = {} if policy is None else {"Policy": json.dumps(policy)}
    return str(tenant.client("kms").create_key(**given)["KeyMetadata"]["Arn"])


def test_an_account_encrypts_objects_with_its_own_keys(
    platform: Platform, tenants: tuple[Tenant, Tenant]
) -> None:
    tenant, _ = tenants
    s3, kms, key = tenant.client("s3"), tenant.client("kms"), make_key(tenant)
    kms.create_alias(AliasName="alias/objects", TargetKeyId=key)
    managed = kms.describe_key(KeyId="alias/aws/s3")["KeyMetadata"]["Arn"]
    at = {"Bucket": tenant.bucket, "Key": "k"}
    for named, expected in (({}, managed), ({"SSEKMSKeyId": key}, key),
                            ({"SSEKMSKeyId": "alias/objects"}, key)):  # fmt: skip
        put = s3.put_object(**at, Body=PLAINTEXT[1::2], **KMS, **named)
        assert put["SSEKMSKeyId"] == expected
        assert s3.get_object(**at)["Body"].read() == PLAINTEXT[1::2]
    assert files_with(platform.home.objects, PLAINTEXT[1:129:2]) == []
    default = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": "alias/objects"}
    rules = [{"ApplyServerSideEncryptionByDefault": default}]
    s3.put_bucket_encryption(
        Bucket=tenant.bucket, ServerSideEncryptionConfiguration={"Rules": rules}
    )
    assert s3.put_object(Bucket=tenant.bucket, Key="d", Body=b"x")["SSEKMSKeyId"] == key
    upload = s3.create_multipart_upload(Bucket=tenant.bucket, Key="m")
    of = {"Bucket": tenant.bucket, "Key": "m", "UploadId": upload["UploadId"]}
    sent = s3.upload_part(**of, PartNumber=1, Body=b"part")
    parts = [{"PartNumber": 1, "ETag": sent["ETag"]}]
    s3.complete_multipart_upload(**of, MultipartUpload={"Parts": parts})
    assert s3.get_object(Bucket=tenant.bucket, Key="m")["SSEKMSKeyId"] == key
    s3.delete_bucket_encryption(Bucket=tenant.bucket)
    assert "SSEKMSKeyId" not in s3.put_object(Bucket=tenant.bucket, Key="d", Body=b"x")


def test_the_policies_of_a_key_and_of_a_caller_decide_on_objects(
    tenants: tuple[Tenant, Tenant],
) -> None:
    tenant, other = tenants
    key, theirs = make_key(tenant), make_key(other)
    s3, at = tenant.client("s3"), {"Bucket": tenant.bucket, "Key": "p"}
    denied = get_code(s3.put_object, **at, Body=b"x", **KMS, SSEKMSKeyId=theirs)
    absent = get_code(s3.put_object, **at, Body=b"x", **KMS, SSEKMSKeyId=f"{theirs[:-4]}0000")
    assert denied.startswith("AccessDenied: User: ")
    assert denied.replace(theirs, f"{theirs[:-4]}0000") == absent
    s3.put_object(**at, Body=b"x", **KMS, SSEKMSKeyId=key)
    reads = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
    user = make_user(tenant, "reader", reads)
    text = get_code(user.client("s3").get_object, **at)
    assert text.endswith("because no identity-based policy allows the kms:Decrypt action")
    assert "kms:GenerateDataKey" in get_code(
        user.client("s3").put_object, **at, Body=b"x", **KMS, SSEKMSKeyId=key
    )
    copied = {"Bucket": tenant.bucket, "Key": "copy", "CopySource": at}
    assert "kms:Decrypt" in get_code(user.client("s3").copy_object, **copied)
    assert user.client("s3").head_object(**at)["SSEKMSKeyId"] == key
    crypt = {"Effect": "Allow", "Action": ["kms:Decrypt", "kms:GenerateDataKey"], "Resource": key}
    may = make_user(tenant, "keeper", reads, crypt)
    assert get_code(may.client("s3").get_object, **at) == ""
    assert get_code(may.client("s3").copy_object, **copied) == ""

    def allow(*accounts: str) -> None:
        roots = {"AWS": [f"arn:aws:iam::{it}:root" for it in accounts]}
        statement = {"Effect": "Allow", "Principal": roots, "Action": "kms:*", "Resource": "*"}
        document = json.dumps({"Version": "2012-10-17", "Statement": statement})
        other.client("kms").put_key_policy(KeyId=theirs, PolicyName="default", Policy=document)

    allow(other.account, tenant.account)
    shared = {"Bucket": tenant.bucket, "Key": "shared"}

    def is_written() -> bool:
        return get_code(s3.put_object, **shared, Body=b"y", **KMS, SSEKMSKeyId=theirs) == ""

    until(is_written, "the other account's key may be used", 5)
    assert s3.get_object(**shared)["Body"].read() == b"y"
    allow(other.account)
    until(lambda: "kms:Decrypt" in get_code(s3.get_object, **shared), "it may not", 5)


def test_a_read_under_a_disabled_key_fails_with_its_cause(
    platform: Platform, tenants: tuple[Tenant, Tenant]
) -> None:
    tenant, _ = tenants
    key, kms, s3 = make_key(tenant), tenant.client("kms"), tenant.client("s3")
    at = {"Bucket": tenant.bucket, "Key": "off"}
    s3.put_object(**at, Body=b"x", **KMS, SSEKMSKeyId=key)
    kms.disable_key(KeyId=key)
    disabled = f"KMS.DisabledException: {key} is disabled."
    until(lambda: get_code(s3.get_object, **at) == disabled, "reads are refused", 5)
    kms.enable_key(KeyId=key)
    until(lambda: get_code(s3.get_object, **at) == "", "reads are served", 5)
    own = platform.boto3("s3")
    key = platform.boto3("kms").create_key()["KeyMetadata"]["Arn"]
    own.put_object(Bucket="sealed", Key="off", Body=b"x", **KMS, SSEKMSKeyId=key)
    platform.boto3("kms").schedule_key_deletion(KeyId=key, PendingWindowInDays=7)
    pending = f"KMS.KMSInvalidStateException: {key} is pending deletion."

    def is_pending() -> bool:
        return get_code(own.get_object, Bucket="sealed", Key="off") == pending

    until(is_pending, "reads by the operator are refused", 5)


def test_a_running_home_is_backed_up_whole(platform: Platform, tmp_path: Path) -> None:
    folder = tmp_path / "backup"
    assert platform.cli("backup", str(folder)).stdout.startswith("Backed up ")
    assert "is whole: " in platform.cli("backup", "verify", str(folder)).stdout
    again = platform.cli("backup", str(folder), code=1)
    assert "has a backup already" in again.stderr


@pytest.mark.thorough
def test_a_backup_of_a_running_home_serves_again_elsewhere(
    platform: Platform, tmp_path: Path
) -> None:
    s3, folder = platform.boto3("s3"), tmp_path / "backup"
    s3.put_object(Bucket="sealed", Key="kept", Body=PLAINTEXT, **KMS)
    platform.boto3("sagemaker").create_model(
        ModelName="kept",
        ExecutionRoleArn=platform.credentials.role_arn,
        PrimaryContainer={"Image": "djl-inference:0.29.0-lmi", "ModelDataUrl": "s3://sealed/kept"},
    )
    platform.cli("backup", str(folder))
    s3.delete_object(Bucket="sealed", Key="kept")
    with Platform(tmp_path / "other", "--from", str(folder)) as other:
        assert content(other.boto3("s3"), "kept") == PLAINTEXT
        other.boto3("sagemaker").describe_model(ModelName="kept")
        other.down()
        refused = other.cli("up", "--detach", *other.port_flags(), *other.flags, code=1)
        assert "is not an empty home" in refused.stderr


def answers(s3: Any) -> bool:
    try:
        return bool(content(s3, "kms"))
    except (BotoCoreError, ClientError):
        return False
