"""Encrypted objects on a whole platform: the bytes on disk, and objects after a restart."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from tests.integration.platform import Platform, until

pytestmark = pytest.mark.integration

PLAINTEXT = os.urandom(1 << 20)  # the store compresses compressible data
KMS = {"ServerSideEncryption": "aws:kms"}


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with Platform(tmp_path_factory.mktemp("keys") / "home") as running:
        running.boto3("s3").create_bucket(Bucket="sealed")
        yield running


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
