"""Encrypted artifacts, as the SDKs store repacked code: SSE-KMS, with and without a key id.

After the examples of the boto3 documentation for KMS and S3.
"""

import os
import tempfile
import uuid
from typing import Any

import boto3
from botocore.exceptions import ClientError


def refused(code: str, call: Any, **arguments: Any) -> None:
    try:
        call(**arguments)
    except ClientError as error:
        found = error.response["Error"]["Code"]
    else:
        found = "an answer"
    assert found == code, found


kms, s3 = boto3.client("kms"), boto3.client("s3")
bucket = f"encrypted-{uuid.uuid4().hex[:12]}"
s3.create_bucket(Bucket=bucket)
try:
    key = kms.create_key(Description="artifacts", Tags=[{"TagKey": "team", "TagValue": "llm"}])
    arn = key["KeyMetadata"]["Arn"]
    alias = f"alias/artifacts-{uuid.uuid4().hex[:8]}"
    kms.create_alias(AliasName=alias, TargetKeyId=arn)

    # The default key, then the caller's key by ARN and by alias. S3 answers with the key's ARN.
    default = kms.describe_key(KeyId="alias/aws/s3")["KeyMetadata"]["Arn"]
    for given, expected in (
        ({}, default),
        ({"SSEKMSKeyId": arn}, arn),
        ({"SSEKMSKeyId": alias}, arn),
    ):
        put = s3.put_object(
            Bucket=bucket,
            Key="model.tar.gz",
            Body=b"weights",
            ServerSideEncryption="aws:kms",
            **given,
        )
        assert put["SSEKMSKeyId"] == expected, put
        head = s3.head_object(Bucket=bucket, Key="model.tar.gz")
        assert (head["ServerSideEncryption"], head["SSEKMSKeyId"]) == ("aws:kms", expected), head
        assert s3.get_object(Bucket=bucket, Key="model.tar.gz")["Body"].read() == b"weights"

    # The SDK uploads a repacked archive like this: in parts, without a key id.
    archive = os.urandom(20 * 1024 * 1024)
    with tempfile.NamedTemporaryFile() as file:
        file.write(archive)
        file.flush()
        encryption = {"ServerSideEncryption": "aws:kms"}
        s3.upload_file(file.name, bucket, "repacked.tar.gz", ExtraArgs=encryption)
    assert s3.get_object(Bucket=bucket, Key="repacked.tar.gz")["Body"].read() == archive
    part = s3.get_object(Bucket=bucket, Key="repacked.tar.gz", Range="bytes=8388600-8388620")
    assert part["Body"].read() == archive[8388600:8388621]
    copied = {"Bucket": bucket, "Key": "repacked.tar.gz"}
    s3.copy_object(
        Bucket=bucket, Key="copy.tar.gz", CopySource=copied, SSEKMSKeyId=arn, **encryption
    )
    assert s3.head_object(Bucket=bucket, Key="copy.tar.gz")["SSEKMSKeyId"] == arn
    assert s3.get_object(Bucket=bucket, Key="copy.tar.gz")["Body"].read() == archive

    # A bucket's default encryption, as Terraform sets it.
    rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms"}}
    s3.put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration={"Rules": [rule]})
    found = s3.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"]
    assert found[0]["ApplyServerSideEncryptionByDefault"] == {"SSEAlgorithm": "aws:kms"}, found
    upload = s3.create_multipart_upload(Bucket=bucket, Key="parts")
    sent = s3.upload_part(
        Bucket=bucket, Key="parts", UploadId=upload["UploadId"], PartNumber=1, Body=b"part"
    )
    s3.complete_multipart_upload(
        Bucket=bucket,
        Key="parts",
        UploadId=upload["UploadId"],
        MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": sent["ETag"]}]},
    )
    assert s3.head_object(Bucket=bucket, Key="parts")["SSEKMSKeyId"] == default
    s3.delete_bucket_encryption(Bucket=bucket)

    # Unusable keys.
    sealed = {"Bucket": bucket, "Key": "no", "Body": b"x", "ServerSideEncryption": "aws:kms"}
    refused("KMS.NotFoundException", s3.put_object, **sealed, SSEKMSKeyId=str(uuid.uuid4()))
    kms.disable_key(KeyId=arn)
    refused("KMS.DisabledException", s3.put_object, **sealed, SSEKMSKeyId=arn)
    kms.enable_key(KeyId=arn)

    # Envelope encryption by the program.
    context = {"model": "llama"}
    data_key = kms.generate_data_key(KeyId=alias, KeySpec="AES_256", EncryptionContext=context)
    blob = data_key["CiphertextBlob"]
    again = kms.decrypt(CiphertextBlob=blob, EncryptionContext=context)
    assert again["Plaintext"] == data_key["Plaintext"]
    refused("InvalidCiphertextException", kms.decrypt, CiphertextBlob=blob)

    kms.delete_alias(AliasName=alias)
    kms.schedule_key_deletion(KeyId=arn, PendingWindowInDays=7)
    refused("KMS.KMSInvalidStateException", s3.put_object, **sealed, SSEKMSKeyId=arn)
finally:
    for item in s3.list_objects_v2(Bucket=bucket).get("Contents", []):
        s3.delete_object(Bucket=bucket, Key=item["Key"])
    s3.delete_bucket(Bucket=bucket)
print("objects were encrypted under keys of KMS, and read back")
