"""Objects below a prefix start transform jobs. Topics and queues get events about the objects."""

import json
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.exceptions import ClientError
from tests.integration.platform import Platform, until
from tests.integration.served_models import Served
from tests.integration.transform_rig import ended, keys, output, serving_rows

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(400)]
CREATE_JOB = "arn:aws:scheduler:::aws-sdk:sagemaker:createTransformJob"
PART_BYTES = 5 * 1024 * 1024


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving_rows(tmp_path_factory.mktemp("served")) as found:
        yield found


@pytest.fixture(scope="module")
def role(served: Served) -> str:
    """A role that EventBridge may assume."""
    principal = {"Service": "events.amazonaws.com"}
    statement = {"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole"}
    trust = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    iam = served.platform.boto3("iam")
    made = iam.create_role(RoleName="events", AssumeRolePolicyDocument=trust)
    iam.attach_role_policy(
        RoleName="events", PolicyArn="arn:aws:iam::aws:policy/AmazonSageMakerFullAccess"
    )
    return str(made["Role"]["Arn"])


def queue(platform: Platform, name: str) -> tuple[str, str]:
    """Url and ARN of a new queue."""
    sqs = platform.boto3("sqs")
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    asked = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    return url, asked["Attributes"]["QueueArn"]


def received(platform: Platform, url: str, num: int, within_s: float = 30) -> list[dict[str, Any]]:
    """Receive and delete `count` messages of a queue."""
    sqs, found = platform.boto3("sqs"), []

    def enough() -> bool:
        got = sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"]
        )
        for message in got.get("Messages", ()):
            found.append(message)
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return len(found) >= num

    until(enough, f"{num} messages", within_s)
    return found


def watch(served: Served, role: str, prefix: str, path: str, letters: str) -> None:
    """A rule that starts a job for each object of the bucket "rows" below `prefix`."""
    events = served.platform.boto3("events")
    detail = {"bucket": {"name": ["rows"]}, "object": {"key": [{"prefix": prefix}]}}
    pattern = {"source": ["aws.s3"], "detail-type": ["Object Created"], "detail": detail}
    name = prefix.strip("/")
    events.put_rule(Name=name, EventPattern=json.dumps(pattern))
    source = {"S3DataType": "S3Prefix", "S3Uri": "s3://<bucket>/<key>"}
    job = {
        "TransformJobName": f"{name}-<id>",
        "ModelName": "linear",
        "TransformInput": {
            "DataSource": {"S3DataSource": source},
            "ContentType": "text/csv",
            "SplitType": "Line",
        },
        "TransformOutput": {"S3OutputPath": path, "Accept": "text/csv", "AssembleWith": "Line"},
        "DataProcessing": {"InputFilter": "$[:2]", "JoinSource": "Input"},
        "TransformResources": {"InstanceType": "ml.m5.large", "InstanceCount": 1},
    }
    paths = {"id": "$.id", "bucket": "$.detail.bucket.name", "key": "$.detail.object.key"}
    target = {
        "Id": "job",
        "Arn": CREATE_JOB,
        "RoleArn": role,
        "InputTransformer": {"InputPathsMap": paths, "InputTemplate": json.dumps(job)},
        "DeadLetterConfig": {"Arn": letters},
    }
    assert events.put_targets(Rule=name, Targets=[target])["FailedEntryCount"] == 0


def jobs_of(served: Served, name: str) -> list[str]:
    """The names of the jobs that a rule has started, the oldest first."""
    try:
        listed = served.sagemaker.list_transform_jobs(
            NameContains=f"{name}-", SortOrder="Ascending", MaxResults=100
        )
    except ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] < 500:
            raise
        return []  # control is away
    return [it["TransformJobName"] for it in listed["TransformJobSummaries"]]


def test_each_object_below_a_prefix_starts_one_job_though_control_and_the_port_are_killed(
    served: Served, role: str
) -> None:
    platform, s3 = served.platform, served.s3
    _, letters = queue(platform, "arrivals-dead")
    s3.put_bucket_notification_configuration(
        Bucket="rows", NotificationConfiguration={"EventBridgeConfiguration": {}}
    )
    watch(served, role, "arrivals/", "s3://rows/scored", letters)
    control = platform.kill("control")
    s3.put_object(Bucket="rows", Key="arrivals/put it.csv", Body=b"1,2\n3,4\n")
    port = platform.kill("s3door")
    platform.back("control", control)
    platform.back("s3door", port)
    until(lambda: len(jobs_of(served, "arrivals")) == 1, "the first job", 30)
    upload = s3.create_multipart_upload(Bucket="rows", Key="arrivals/parts.csv")["UploadId"]
    named = {"Bucket": "rows", "Key": "arrivals/parts.csv", "UploadId": upload}
    part = s3.upload_part(**named, PartNumber=1, Body=b"5,6\n")
    s3.complete_multipart_upload(
        **named, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    )
    s3.copy_object(Bucket="rows", Key="arrivals/copy.csv", CopySource="rows/arrivals/parts.csv")
    s3.put_object(Bucket="rows", Key="elsewhere/no.csv", Body=b"1,2\n")
    until(lambda: len(jobs_of(served, "arrivals")) >= 3, "three jobs", 30)
    names = jobs_of(served, "arrivals")
    assert [ended(served, it)["TransformJobStatus"] for it in names] == ["Completed"] * 3
    assert keys(served, "scored/") == [f"scored/{it}.csv.out" for it in ("copy", "parts", "put it")]
    assert output(served, "scored/put it.csv.out").decode().split() == ["1,2,9.0", "3,4,19.0"]
    assert output(served, "scored/parts.csv.out") == output(served, "scored/copy.csv.out")
    assert jobs_of(served, "arrivals") == names, "each object started one job"


@pytest.mark.thorough
def test_outputs_that_start_jobs_again_end_after_three(served: Served, role: str) -> None:
    platform = served.platform
    url, letters = queue(platform, "loop-dead")
    watch(served, role, "loop/", "s3://rows/loop", letters)
    served.s3.put_object(Bucket="rows", Key="loop/a.csv", Body=b"1,2\n")
    [letter] = received(platform, url, 1, 120)
    reason = letter["MessageAttributes"]["ERROR_MESSAGE"]["StringValue"]
    assert reason.startswith("The object is the output of 3 jobs in a row")
    names = jobs_of(served, "loop")
    assert [ended(served, it)["TransformJobStatus"] for it in names] == ["Completed"] * 3
    assert keys(served, "loop/") == [f"loop/a.csv{'.out' * number}" for number in range(4)]


def test_a_queue_is_notified_of_what_its_filter_names(served: Served) -> None:
    platform, s3 = served.platform, served.s3
    url, arn = queue(platform, "notified")
    s3.create_bucket(Bucket="watched")
    rules = [{"Name": "prefix", "Value": "in/"}, {"Name": "suffix", "Value": ".csv"}]
    given = {
        "Id": "mine",
        "QueueArn": arn,
        "Events": ["s3:ObjectCreated:*"],
        "Filter": {"Key": {"FilterRules": rules}},
    }
    s3.put_bucket_notification_configuration(
        Bucket="watched", NotificationConfiguration={"QueueConfigurations": [given]}
    )
    shown = s3.get_bucket_notification_configuration(Bucket="watched")
    assert shown["QueueConfigurations"] == [given]
    [trial] = received(platform, url, 1)
    assert json.loads(trial["Body"])["Event"] == "s3:TestEvent"
    s3.put_object(Bucket="watched", Key="in/a b.csv", Body=b"hello")
    s3.put_object(Bucket="watched", Key="in/a.txt", Body=b"hello")
    s3.put_object_tagging(
        Bucket="watched", Key="in/a b.csv", Tagging={"TagSet": [{"Key": "a", "Value": "b"}]}
    )
    s3.copy_object(Bucket="watched", Key="in/b.csv", CopySource="watched/in/a.txt")
    notified = [json.loads(it["Body"])["Records"][0] for it in received(platform, url, 2)]
    found = {it["s3"]["object"]["key"]: it for it in notified}
    assert set(found) == {"in/a+b.csv", "in/b.csv"}
    first, second = found["in/a+b.csv"], found["in/b.csv"]
    assert first["s3"]["configurationId"] == "mine"
    assert (first["eventName"], second["eventName"]) == ("ObjectCreated:Put", "ObjectCreated:Copy")
    assert first["s3"]["object"]["size"] == second["s3"]["object"]["size"] == 5
    etag = s3.head_object(Bucket="watched", Key="in/b.csv")["ETag"].strip('"')
    assert first["s3"]["object"]["eTag"] == second["s3"]["object"]["eTag"] == etag


@pytest.mark.parametrize("method", ["GET", "PUT"])
@pytest.mark.parametrize("bucket", ["rows", "nowhere", "%E2%82%AC"])
def test_an_unsigned_call_reads_and_sets_nothing(served: Served, bucket: str, method: str) -> None:
    url = urlsplit(served.s3.meta.endpoint_url)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    key = served.platform.credentials.access_key_id
    scope = f"{key}/{stamp[:8]}/{served.s3.meta.region_name}/s3/aws4_request"
    given = f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host;x-amz-date, Signature="
    headers = {"Authorization": given + "0" * 64, "X-Amz-Date": stamp}
    before = served.s3.get_bucket_notification_configuration(Bucket="rows")
    connection = HTTPConnection(str(url.hostname), url.port or 80, timeout=10)
    connection.request(method, f"/{bucket}?notification", b"<NotificationConfiguration/>", headers)
    answer = connection.getresponse()
    assert (answer.status, b"InvalidRequest" in answer.read()) == (400, True)
    connection.close()
    after = served.s3.get_bucket_notification_configuration(Bucket="rows")
    assert without_metadata(after) == without_metadata(before)


def without_metadata(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name != "ResponseMetadata"}


def test_a_configuration_that_cannot_be_is_refused(served: Served) -> None:
    s3 = served.s3
    s3.create_bucket(Bucket="unwatched")
    arn = f"arn:aws:sqs:{s3.meta.region_name}:{served.platform.credentials.account_id}:none"
    target = {"QueueArn": arn, "Events": ["s3:ObjectCreated:Put"]}
    cases = {
        "unwatched": ({"QueueConfigurations": [target]}, "InvalidArgument"),
        "nowhere": ({"EventBridgeConfiguration": {}}, "NoSuchBucket"),
    }
    for bucket, (given, code) in cases.items():
        with pytest.raises(ClientError) as refused:
            s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration=given)
        assert refused.value.response["Error"]["Code"] == code
    lambdas = [{"LambdaFunctionArn": "arn:aws:lambda:r:1:f", "Events": ["s3:ObjectCreated:*"]}]
    with pytest.raises(ClientError, match="There are no functions here"):
        s3.put_bucket_notification_configuration(
            Bucket="unwatched", NotificationConfiguration={"LambdaFunctionConfigurations": lambdas}
        )
    assert "QueueConfigurations" not in s3.get_bucket_notification_configuration(Bucket="unwatched")
