"""Records of calls: the caller, the parameters without secrets, the resources."""

from typing import Any

import msgspec
from tests.cases import case, cases
from tests.unit.audit.samples import OWNER, call_event

from hostelry.api.operations import OPERATIONS
from hostelry.audit.caller import name_service
from hostelry.audit.record import get_category, is_read
from hostelry.audit.redaction import HIDDEN, MAX_ENTRIES, hide_login, show_params, show_result
from hostelry.audit.resources import find_resources, get_name, get_type

ACCOUNT = OWNER[0]
ROOT_ARN = f"arn:aws:iam::{ACCOUNT}:root"


def test_a_record_has_cloudtrails_members() -> None:
    event = call_event(
        operation="CreateModel",
        params={"modelName": "m"},
        result={"modelArn": "a"},
        address="10.0.0.9",
        user_agent="Boto3/1",
        decision={"decision": "allowed", "statement": {"policy": "p", "sid": "AllowAll"}},
    )
    assert msgspec.json.decode(msgspec.json.encode(event)) == {
        "eventVersion": "1.11",
        "userIdentity": {
            "type": "Root",
            "principalId": ACCOUNT,
            "arn": ROOT_ARN,
            "accountId": ACCOUNT,
            "accessKeyId": "AKIAEXAMPLE",
        },
        "eventTime": "1970-01-01T00:00:01Z",
        "eventSource": "sagemaker.amazonaws.com",
        "eventName": "CreateModel",
        "awsRegion": "us-east-1",
        "sourceIPAddress": "10.0.0.9",
        "userAgent": "Boto3/1",
        "requestParameters": {"modelName": "m"},
        "responseElements": {"modelArn": "a"},
        "requestID": "request-1",
        "eventID": "event-1",
        "readOnly": False,
        "eventType": "AwsApiCall",
        "managementEvent": True,
        "recipientAccountId": ACCOUNT,
        "eventCategory": "Management",
        "additionalEventData": {
            "decision": "allowed",
            "statement": {"policy": "p", "sid": "AllowAll"},
        },
    }


def test_a_read_has_no_response_and_a_failure_has_its_error() -> None:
    event = call_event(params=None, result={"a": 1}, error_code="E", error_message="x" * 5000)
    shown = msgspec.json.decode(msgspec.json.encode(event))
    assert shown["responseElements"] is None
    assert shown["requestParameters"] is None
    assert shown["readOnly"]
    assert (shown["errorCode"], len(shown["errorMessage"])) == ("E", 1024)


def test_a_service_calls_from_its_own_name() -> None:
    event = call_event(caller=name_service(ACCOUNT, "scheduler.amazonaws.com"))
    assert event.source_ip_address == "scheduler.amazonaws.com"
    assert event.user_identity.invoked_by == "scheduler.amazonaws.com"


@cases(
    "service, operation, reads, category",
    case("a list", "sagemaker", "ListModels", True, "Management"),
    case("a change", "sagemaker", "DeleteModel", False, "Management"),
    case("temporary keys", "sts", "AssumeRole", True, "Management"),
    case("a decryption", "kms", "Decrypt", True, "Management"),
    case("a new data key", "kms", "GenerateDataKey", True, "Management"),
    case("a received message", "sqs", "ReceiveMessage", False, "Data"),
    case("a published message", "sns", "PublishBatch", False, "Data"),
    case("metric data", "cloudwatch", "PutMetricData", False, "Data"),
    case("an alarm", "cloudwatch", "PutMetricAlarm", False, "Management"),
)  # fmt: skip
def test_calls_are_counted_as_cloudtrail_counts_them(
    service: str, operation: str, reads: bool, category: str
) -> None:
    assert (is_read(service, operation), get_category(service, operation)) == (reads, category)


@cases(
    "service, operation, params, shown",
    case("names begin in lower case", "sagemaker", "DescribeEndpoint", {"EndpointName": "e"},
        {"endpointName": "e"}),
    case("variables of a container", "sagemaker", "CreateModel",
        {"PrimaryContainer": {"Image": "i", "Environment": {"HF_TOKEN": "planted"}}},
        {"primaryContainer": {"image": "i", "environment": {"HF_TOKEN": HIDDEN}}}),
    case("variables of a transform job", "sagemaker", "CreateTransformJob",
        {"Environment": {"A": "planted"}}, {"environment": {"A": HIDDEN}}),
    case("a secret's text", "secretsmanager", "CreateSecret",
        {"Name": "s", "SecretString": "planted"}, {"name": "s", "secretString": HIDDEN}),
    case("a secret's bytes", "secretsmanager", "PutSecretValue",
        {"SecretId": "s", "SecretBinary": b"planted"}, {"secretId": "s", "secretBinary": HIDDEN}),
    case("a text to encrypt", "kms", "Encrypt", {"KeyId": "k", "Plaintext": b"planted"},
        {"keyId": "k", "plaintext": HIDDEN}),
    case("a cipher text", "kms", "Decrypt", {"CiphertextBlob": b"123"},
        {"ciphertextBlob": "3 bytes"}),
    case("a message", "sqs", "SendMessage", {"QueueUrl": "q", "MessageBody": "planted"},
        {"queueUrl": "q", "messageBody": HIDDEN}),
    case("messages of a batch", "sqs", "SendMessageBatch",
        {"Entries": [{"Id": "1", "MessageBody": "planted"}]},
        {"entries": [{"id": "1", "messageBody": HIDDEN}]}),
    case("a publication", "sns", "Publish", {"Message": "planted", "Subject": "planted"},
        {"message": HIDDEN, "subject": HIDDEN}),
    case("a token of a provider", "sts", "AssumeRoleWithWebIdentity",
        {"RoleArn": "r", "WebIdentityToken": "planted"},
        {"roleArn": "r", "webIdentityToken": HIDDEN}),
    case("a token of a subscription", "sns", "ConfirmSubscription",
        {"TopicArn": "t", "Token": "planted"}, {"topicArn": "t", "token": HIDDEN}),
    case("a login in a URL", "sns", "Subscribe", {"Endpoint": "https://me:planted@host/path"},
        {"endpoint": f"https://{HIDDEN}@host/path"}),
    case("log lines", "logs", "PutLogEvents",
        {"logEvents": [{"timestamp": 1, "message": "planted"}]},
        {"logEvents": [{"timestamp": 1, "message": HIDDEN}]}),
    case("input of a schedule", "scheduler", "CreateSchedule",
        {"Name": "s", "Target": {"Arn": "a", "Input": "planted"}},
        {"name": "s", "target": {"arn": "a", "input": HIDDEN}}),
    case("details of events", "events", "PutEvents", {"Entries": [{"Detail": "planted"}]},
        {"entries": [{"detail": HIDDEN}]}),
    case("tags keep their names", "application-autoscaling", "TagResource",
        {"ResourceARN": "a", "Tags": {"Team": "x"}}, {"resourceARN": "a", "tags": {"Team": "x"}}),
    case("a long text", "sagemaker", "DescribeEndpoint", {"EndpointName": "e" * 2000},
        {"endpointName": "e" * 1024 + "... 2000 characters"}),
    case("no parameters", "sagemaker", "ListModels", {}, None),
    case("members without a value", "sagemaker", "ListModels", {"NameContains": None}, None),
)  # fmt: skip
def test_parameters_are_shown_without_secrets(
    service: str, operation: str, params: dict[str, Any], shown: dict[str, Any] | None
) -> None:
    found = show_params(service, operation, params)
    assert found == shown
    assert b"planted" not in msgspec.json.encode(found)


def test_results_are_shown_without_secrets() -> None:
    keys = {"AccessKeyId": "ASIA1", "SecretAccessKey": "planted", "SessionToken": "planted"}
    assert show_result("sts", "AssumeRole", {"Credentials": keys}) == {
        "credentials": {
            "accessKeyId": "ASIA1",
            "secretAccessKey": HIDDEN,
            "sessionToken": HIDDEN,
        }
    }
    key = {"ServiceCredentialSecret": "planted", "ServiceName": "s"}
    credential = {"ServiceSpecificCredential": key}
    shown = show_result("iam", "CreateServiceSpecificCredential", credential)
    assert shown == {
        "serviceSpecificCredential": {"serviceCredentialSecret": HIDDEN, "serviceName": "s"}
    }
    assert show_result("sagemaker", "DeleteModel", {}) is None


def test_long_lists_and_maps_are_cut() -> None:
    tags = [{"Key": str(it), "Value": "v"} for it in range(200)]
    shown = show_params("sagemaker", "AddTags", {"Tags": tags})
    assert shown is not None
    assert len(shown["tags"]) == MAX_ENTRIES + 1
    assert shown["tags"][-1] == "... 200 entries"
    variables = {f"V{it}": "x" for it in range(200)}
    shown = show_params("sqs", "TagQueue", {"QueueUrl": "q", "Tags": variables})
    assert shown is not None
    assert shown["tags"]["..."] == "200 entries"


def test_every_operation_has_a_plan() -> None:
    for service, operation in OPERATIONS:
        assert show_params(service, operation, {}) is None
        assert show_result(service, operation, {}) is None


@cases(
    "url, shown",
    case("a user and a password", "http://a:b@h/p?q#f", f"http://{HIDDEN}@h/p?q#f"),
    case("a user", "http://a@h", f"http://{HIDDEN}@h"),
    case("no login", "http://h/a@b", "http://h/a@b"),
    case("a broken address", "http://[a@b", HIDDEN),
)
def test_a_login_is_hidden(url: str, shown: str) -> None:
    assert hide_login(url) == shown


ROLE_ARN = f"arn:aws:iam::{ACCOUNT}:role/R"
ARN = f"arn:aws:sagemaker:us-east-1:{ACCOUNT}"


@cases(
    "service, params, found",
    case("an endpoint", "sagemaker", {"EndpointName": "e", "EndpointConfigName": "c"},
        [("AWS::SageMaker::Endpoint", f"{ARN}:endpoint/e"),
         ("AWS::SageMaker::EndpointConfig", f"{ARN}:endpoint-config/c")]),
    case("a role by its ARN, once", "sagemaker",
        {"ExecutionRoleArn": ROLE_ARN, "Other": ROLE_ARN}, [("AWS::IAM::Role", ROLE_ARN)]),
    case("a user", "iam", {"UserName": "ada"},
        [("AWS::IAM::User", f"arn:aws:iam::{ACCOUNT}:user/ada")]),
    case("alarms", "cloudwatch", {"AlarmNames": ["a", "b"]},
        [("AWS::CloudWatch::Alarm", f"arn:aws:cloudwatch:us-east-1:{ACCOUNT}:alarm:a"),
         ("AWS::CloudWatch::Alarm", f"arn:aws:cloudwatch:us-east-1:{ACCOUNT}:alarm:b")]),
    case("a queue by its URL", "sqs", {"QueueUrl": f"http://h/{ACCOUNT}/q"},
        [("AWS::SQS::Queue", f"arn:aws:sqs:us-east-1:{ACCOUNT}:q")]),
    case("a topic", "sns", {"TopicArn": f"arn:aws:sns:us-east-1:{ACCOUNT}:t"},
        [("AWS::SNS::Topic", f"arn:aws:sns:us-east-1:{ACCOUNT}:t")]),
    case("no names", "sagemaker", {"MaxResults": 5, "NameContains": "x"}, []),
)  # fmt: skip
def test_resources_are_found_by_their_names(
    service: str, params: dict[str, Any], found: list[tuple[str, str]]
) -> None:
    resources = find_resources(service, params, *OWNER)
    assert [(it.type, it.ARN) for it in resources] == found
    assert all(it.accountId == ACCOUNT for it in resources)


@cases(
    "arn, kind, name",
    case("a component", f"{ARN}:inference-component/c", "AWS::SageMaker::InferenceComponent", "c"),
    case("a role with a path", "arn:aws:iam::1:role/a/b", "AWS::IAM::Role", "a/b"),
    case("a log group", "arn:aws:logs:r:1:log-group:/aws/x:*", "AWS::Logs::LogGroup", "/aws/x"),
    case("a queue", "arn:aws:sqs:r:1:q", "AWS::SQS::Queue", "q"),
    case("a bucket", "arn:aws:s3:::b", "AWS::S3::Bucket", "b"),
)  # fmt: skip
def test_an_arn_has_a_type_and_a_name(arn: str, kind: str, name: str) -> None:
    assert (get_type(arn), get_name(arn)) == (kind, name)
