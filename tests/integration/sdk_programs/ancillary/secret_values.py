"""A model hub's token in Secrets Manager, used for a deployment, and then rotated by hand."""

import json
import uuid

import boto3

client = boto3.client("secretsmanager")
name = f"hub/{uuid.uuid4().hex[:8]}"
made = client.create_secret(
    Name=name,
    Description="token of the model hub",
    SecretString=json.dumps({"HF_TOKEN": "hf_first"}),
    Tags=[{"Key": "team", "Value": "llm"}],
)
try:
    got = client.get_secret_value(SecretId=name)
    assert json.loads(got["SecretString"]) == {"HF_TOKEN": "hf_first"}, got["Name"]
    assert got["VersionId"] == made["VersionId"]
    client.put_secret_value(SecretId=made["ARN"], SecretString='{"HF_TOKEN": "hf_second"}')
    assert "hf_second" in client.get_secret_value(SecretId=name)["SecretString"]
    before = client.get_secret_value(SecretId=name, VersionStage="AWSPREVIOUS")
    assert before["VersionId"] == made["VersionId"]
    described = client.describe_secret(SecretId=name)
    assert described["Tags"] == [{"Key": "team", "Value": "llm"}], described
    pages = client.get_paginator("list_secrets").paginate(PaginationConfig={"PageSize": 1})
    assert name in [it["Name"] for page in pages for it in page["SecretList"]]
    client.delete_secret(SecretId=name, RecoveryWindowInDays=7)
    try:
        client.get_secret_value(SecretId=name)
    except client.exceptions.InvalidRequestException:
        client.restore_secret(SecretId=name)
    assert "hf_second" in client.get_secret_value(SecretId=name)["SecretString"]
finally:
    client.delete_secret(SecretId=name, ForceDeleteWithoutRecovery=True)
try:
    client.describe_secret(SecretId=name)
except client.exceptions.ResourceNotFoundException:
    print("a secret was kept, changed, restored and deleted")
