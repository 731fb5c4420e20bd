"""Errors: the code, message, status and members that botocore shows to a program."""

from random import Random
from typing import Any

import pytest
from botocore.model import ServiceModel
from tests.cases import case, cases

from hostelry.aws.call import ApiCall, serialize_error
from hostelry.aws.codes import query_code
from hostelry.aws.failure import error_shapes
from hostelry.aws.models import CONTROL_SERVICES, service_model
from hostelry.aws.runtime import runtime_error
from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest

JSON, QUERY, EC2, CBOR = "json", "query", "ec2", "smithy-rpc-v2-cbor"
REST = "rest-json"
MESSAGE = 'Could not find "é" & <more>.'
ANY_OPERATION = {
    "sagemaker": "ListTags",
    "application-autoscaling": "DescribeScalableTargets",
    "cloudwatch": "ListMetrics",
    "sts": "GetCallerIdentity",
    "iam": "GetRole",
    "logs": "DescribeLogGroups",
    "sqs": "ListQueues",
    "kms": "ListKeys",
    "ecr": "DescribeRepositories",
    "secretsmanager": "ListSecrets",
    "sns": "ListTopics",
    "ec2": "DescribeRegions",
    "scheduler": "ListSchedules",
    "events": "ListRules",
    "cloudtrail": "LookupEvents",
}
SPOKEN = [
    (service, protocol)
    for service in CONTROL_SERVICES
    for protocol in service_model(service).metadata["protocols"]
]


def call_of(service: str, protocol: str) -> ApiCall:
    return ApiCall(
        service=service,
        operation=ANY_OPERATION[service],
        params={},
        protocol=protocol,
        request_id="id-1",
    )


def shape_of(service: str, name: str) -> Any:
    model: ServiceModel = service_model(service)
    return model.shape_for(name)


@pytest.mark.parametrize(("service", "protocol"), SPOKEN)
def test_a_modelled_error_arrives_whole(
    service: str, protocol: str, client: Any, any_value: Any
) -> None:
    for name in (it.name for it in service_model(service).error_shapes):
        shape = shape_of(service, name)
        stated = shape.metadata.get("error", {})
        members = {
            member: any_value(random=Random(7), full=True, constrained=False).of(inner)
            for member, inner in shape.members.items()
            if member.lower() != "message" and (protocol != QUERY or inner.type_name == "string")
        }
        call = call_of(service, protocol)
        error = ServiceError(name, MESSAGE, 400, {**members, "NotAMember": 1})
        response = serialize_error(error, call, "id-1")
        parsed = client(service=service, operation=call.operation, protocol=protocol).read(response)
        # Clients still show codes of SQS's old query protocol, which its model does not state.
        shown = query_code(name) if service == "sqs" else name
        assert parsed["Error"]["Code"] == stated.get("code", shown)
        assert parsed["Error"]["Message"] == MESSAGE
        assert parsed["ResponseMetadata"]["RequestId"] == "id-1"
        assert response.status == stated.get("httpStatusCode", 400)
        assert {member: parsed[member] for member in members} == members, name


@pytest.mark.parametrize(("service", "protocol"), SPOKEN)
@pytest.mark.parametrize(
    ("code", "query_code", "status"),
    [
        ("ValidationException", "ValidationError", 400),
        ("SerializationException", "MalformedInput", 400),
        ("UnknownOperationException", "InvalidAction", 400),
        ("AccessDeniedException", "AccessDenied", 403),
        ("InvalidSignatureException", "SignatureDoesNotMatch", 403),
        ("IncompleteSignatureException", "IncompleteSignature", 403),
        ("UnrecognizedClientException", "InvalidClientTokenId", 403),
        ("MissingAuthenticationTokenException", "MissingAuthenticationToken", 403),
        ("ThrottlingException", "Throttling", 400),
        ("InternalFailure", "InternalFailure", 500),
    ],
)
def test_a_common_error_has_the_name_its_protocol_gives_it(
    service: str, protocol: str, code: str, query_code: str, status: int, client: Any
) -> None:
    call = call_of(service, protocol)
    response = serialize_error(ServiceError(code, MESSAGE, status), call, "id-1")
    parsed = client(service=service, operation=call.operation, protocol=protocol).read(response)
    compatible = "awsQueryCompatible" in service_model(service).metadata
    plain = protocol in (JSON, REST) and not compatible
    plain = plain or (service, code) == ("sns", "ValidationException")  # modelled, with this code
    assert parsed["Error"]["Code"] == (code if plain else query_code)
    assert parsed["Error"]["Message"] == MESSAGE
    modelled = error_shapes(service).get(code)
    stated = modelled.metadata.get("error", {}) if modelled is not None else {}
    assert response.status == stated.get("httpStatusCode", status)
    if service == "cloudwatch" and protocol != QUERY:
        assert parsed["Error"]["Type"] == ("Sender" if status < 500 else "Receiver")


FORM = {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}
GRANITE = "GraniteServiceVersion20100801"


@cases(
    "request_, service, protocol",
    case("nothing at all: JSON", HttpRequest("POST", "/"), "sagemaker", JSON),
    case(
        "an unknown operation of a known prefix",
        HttpRequest("POST", "/", "", {"x-amz-target": "SageMaker.Nope"}),
        "sagemaker",
        JSON,
    ),
    case(
        "a query-compatible service in JSON",
        HttpRequest("POST", "/", "", {"x-amz-target": f"{GRANITE}.Nope"}),
        "cloudwatch",
        JSON,
    ),
    case(
        "a Smithy path",
        HttpRequest("POST", f"/service/{GRANITE}/operation/Nope"),
        "cloudwatch",
        CBOR,
    ),
    case("a Smithy path cut short", HttpRequest("POST", "/service/"), "cloudwatch", CBOR),
    case(
        "a form",
        HttpRequest("POST", "/", "", FORM, b"Action=Nope&Version=2011-06-15"),
        "sts",
        QUERY,
    ),
    case("an unreadable form", HttpRequest("POST", "/", "", FORM, b"\xff"), "sts", QUERY),
    case(
        "a form in the query of a GET",
        HttpRequest("GET", "/", "Action=GetCallerIdentity&Version=2011-06-15"),
        "sts",
        QUERY,
    ),
)
def test_before_a_request_is_read_its_protocol_is_guessed(
    request_: HttpRequest, service: str, protocol: str, client: Any
) -> None:
    response = serialize_error(ServiceError("Odd", MESSAGE, 403), None, "id-1", request_)
    botocore = client(service=service, operation=ANY_OPERATION[service], protocol=protocol)
    parsed = botocore.read(response)
    assert (parsed["Error"]["Code"], parsed["Error"]["Message"]) == ("Odd", MESSAGE)
    assert parsed["ResponseMetadata"]["HTTPStatusCode"] == 403


def test_an_error_of_no_request_is_json(client: Any) -> None:
    response = serialize_error(ServiceError("Odd", MESSAGE, 500), None, "id-1")
    botocore = client(service="sagemaker", operation="ListTags", protocol=JSON)
    assert botocore.read(response)["Error"]["Code"] == "Odd"


RUNTIME_STATUS = {
    "InternalDependencyException": 530,
    "InternalFailure": 500,
    "ModelError": 424,
    "ModelNotReadyException": 429,
    "ServiceUnavailable": 503,
    "ValidationError": 400,
    "AccessDeniedException": 403,
}


@pytest.mark.parametrize("code", sorted(RUNTIME_STATUS))
def test_runtime_errors_have_their_status_and_members(code: str, client: Any) -> None:
    members = {"OriginalStatusCode": 500, "OriginalMessage": "x" * 5000, "LogStreamArn": None}
    status = RUNTIME_STATUS[code] if code == "AccessDeniedException" else 400
    response = runtime_error(ServiceError(code, MESSAGE, status, members), "id-1")
    botocore = client(service="sagemaker-runtime", operation="InvokeEndpoint", protocol="rest-json")
    parsed = botocore.read(response)
    assert parsed["Error"] == {"Code": code, "Message": MESSAGE}
    assert parsed["ResponseMetadata"]["RequestId"] == "id-1"
    assert response.status == RUNTIME_STATUS[code]
    if code == "ModelError":
        assert parsed["OriginalStatusCode"] == 500
        assert parsed["OriginalMessage"] == "x" * 2048
    else:
        assert "OriginalStatusCode" not in parsed


def test_an_error_on_a_runtime_path_is_written_as_the_runtime_api_does() -> None:
    request = HttpRequest("POST", "/endpoints/e/invocations")
    error = ServiceError("MissingAuthenticationTokenException", MESSAGE, 403)
    response = serialize_error(error, None, "id-1", request)
    assert response == runtime_error(error, "id-1")
    assert response.headers["x-amzn-ErrorType"] == "MissingAuthenticationTokenException"
