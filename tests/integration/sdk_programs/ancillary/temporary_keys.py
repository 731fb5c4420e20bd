"""Objects read and written with a role's temporary keys, as AWS's AssumeRole example does."""

import urllib.request
import uuid

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

sts, s3 = boto3.client("sts"), boto3.client("s3")
account, _, rest = sts.get_caller_identity()["Arn"].removeprefix("arn:aws:sts::").partition(":")
role = f"arn:aws:iam::{account}:role/{rest.split('/')[1]}"
bucket = f"temporary-{uuid.uuid4().hex[:12]}"
s3.create_bucket(Bucket=bucket)
try:
    keys = sts.assume_role(RoleArn=role, RoleSessionName="reader")["Credentials"]
    session = boto3.Session(
        aws_access_key_id=keys["AccessKeyId"],
        aws_secret_access_key=keys["SecretAccessKey"],
        aws_session_token=keys["SessionToken"],
    )
    theirs = session.client("s3", config=Config(signature_version="s3v4"))
    theirs.put_object(
        Bucket=bucket, Key="a b/ä+", Body=b"weights" * 1000, ServerSideEncryption="aws:kms"
    )
    assert theirs.get_object(Bucket=bucket, Key="a b/ä+")["Body"].read() == b"weights" * 1000
    listed = theirs.list_objects_v2(Bucket=bucket, Prefix="a b/")["Contents"]
    assert [it["Key"] for it in listed] == ["a b/ä+"], listed
    asked = {"Bucket": bucket, "Key": "a b/ä+"}
    url = theirs.generate_presigned_url("get_object", Params=asked, ExpiresIn=60)
    with urllib.request.urlopen(url) as answer:
        assert answer.read() == b"weights" * 1000
    altered = boto3.Session(
        aws_access_key_id=keys["AccessKeyId"],
        aws_secret_access_key=keys["SecretAccessKey"][::-1],
        aws_session_token=keys["SessionToken"],
    )
    try:
        altered.client("s3").list_objects_v2(Bucket=bucket)
        code = "an answer"
    except ClientError as error:
        code = error.response["Error"]["Code"]
    assert code == "SignatureDoesNotMatch", code
finally:
    s3.delete_object(Bucket=bucket, Key="a b/ä+")
    s3.delete_bucket(Bucket=bucket)
print("a role's temporary keys read and wrote objects")
