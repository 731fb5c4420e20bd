"""Real boto3 clients, their requests caught just before the network and answered by us."""

from collections.abc import Callable
from typing import Any, NoReturn
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.config import Config
from botocore.exceptions import ClientError

from hostelry.aws.call import ApiCall, parse_call, serialize_error, serialize_result
from hostelry.aws.runtime import InvokeRequest, parse_invocation
from hostelry.aws.sigv4 import Secret, Verifier
from hostelry.base.clock import SystemClock
from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest, HttpResponse

KEY, SECRET, ACCOUNT = "AKIDEXAMPLE", "secret", "111122223333"
ARN = f"arn:aws:sagemaker:us-west-2:{ACCOUNT}"
VERIFIER = Verifier(
    lambda key: Secret(secret_access_key=SECRET, account_id=ACCOUNT) if key == KEY else None
)
Answer = Callable[[ApiCall], dict[str, Any]]


class Body:
    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self, **_: Any) -> Any:
        yield self._body


def arrived(request: AWSPreparedRequest) -> HttpRequest:
    url = urlsplit(request.url)
    headers = {
        name.lower(): value.decode() if isinstance(value, bytes) else value
        for name, value in request.headers.items()
    }
    body = request.body or b""
    body = body.encode() if isinstance(body, str) else bytes(body)
    return HttpRequest(request.method, url.path, url.query, {"host": url.netloc, **headers}, body)


def respond(request: HttpRequest, answer: Answer) -> HttpResponse:
    call = None
    try:
        VERIFIER.verify(request, SystemClock().now())
        if request.path.startswith("/endpoints/"):
            fail(parse_invocation(request))
        call = parse_call(request, "id-1")
        return serialize_result(call, answer(call))
    except ServiceError as error:
        return serialize_error(error, call, "id-1", request)


def fail(invocation: InvokeRequest) -> NoReturn:
    text = f"{invocation.inference_component_name} broke."
    raise ServiceError("ModelError", text, 400, {"OriginalStatusCode": 500})


def client_of(service: str, answer: Answer, secret: str = SECRET, key: str = KEY) -> Any:
    client = boto3.client(
        service,
        region_name="us-west-2",
        endpoint_url="http://127.0.0.1:8787",
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        config=Config(retries={"total_max_attempts": 1}),
    )

    def before_send(request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        response = respond(arrived(request), answer)
        headers = {name.lower(): value for name, value in response.headers.items()}
        return AWSResponse(request.url, response.status, headers, Body(response.body))

    client.meta.events.register("before-send", before_send)
    return client


def test_a_model_is_created() -> None:
    seen: list[ApiCall] = []

    def answer(call: ApiCall) -> dict[str, Any]:
        seen.append(call)
        return {"ModelArn": f"{ARN}:model/m"}

    params = {
        "ModelName": "m",
        "PrimaryContainer": {"Image": "lmi", "Environment": {"OPTION_MODEL_ID": "x"}},
        "Tags": [{"Key": "k", "Value": "\u00e9"}],
    }
    result = client_of("sagemaker", answer).create_model(**params)
    assert result["ModelArn"] == f"{ARN}:model/m"
    assert result["ResponseMetadata"]["RequestId"] == "id-1"
    assert seen[0].params == params


def test_what_boto3_lets_through_is_refused_here() -> None:
    with pytest.raises(ClientError) as caught:
        client_of("sagemaker", lambda call: {}).delete_model(ModelName="no_good")
    assert caught.value.response["Error"]["Code"] == "ValidationException"
    assert "at 'modelName'" in caught.value.response["Error"]["Message"]


def test_a_big_zipped_put_metric_data_arrives() -> None:
    seen: list[ApiCall] = []

    def answer(call: ApiCall) -> dict[str, Any]:
        seen.append(call)
        return {}

    datum = {"MetricName": "m" * 50, "Value": 1.5, "Unit": "Count"}
    client_of("cloudwatch", answer).put_metric_data(Namespace="n", MetricData=[datum] * 900)
    assert seen[0].params == {"Namespace": "n", "MetricData": [datum] * 900}


def test_cloudwatch_errors_keep_their_old_codes() -> None:
    def answer(call: ApiCall) -> dict[str, Any]:
        raise ServiceError("ResourceNotFound", f"{call.params['AlarmNames']}")

    client = client_of("cloudwatch", answer)
    with pytest.raises(client.exceptions.ResourceNotFound) as caught:
        client.delete_alarms(AlarmNames=["a"])
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 404


def test_identity_and_role() -> None:
    who = {"Account": ACCOUNT, "UserId": "u", "Arn": f"arn:aws:iam::{ACCOUNT}:role/r"}
    parsed = client_of("sts", lambda call: who).get_caller_identity()
    assert {name: parsed[name] for name in who} == who
    role = {
        "Path": "/",
        "RoleName": "r",
        "RoleId": "A" * 16,
        "Arn": who["Arn"],
        "CreateDate": 1_700_000_000,
    }
    found = client_of("iam", lambda call: {"Role": role}).get_role(RoleName="r")
    assert found["Role"]["CreateDate"].timestamp() == 1_700_000_000


def no_such_role(call: ApiCall) -> dict[str, Any]:
    raise ServiceError("NoSuchEntity", "The role with name r cannot be found.")


def test_a_missing_role_is_its_modelled_exception() -> None:
    client = client_of("iam", no_such_role)
    with pytest.raises(client.exceptions.NoSuchEntityException, match="cannot be found"):
        client.get_role(RoleName="r")


@pytest.mark.parametrize(
    ("service", "call", "wrong_key", "wrong_secret"),
    [
        (
            "sagemaker",
            lambda client: client.list_models(),
            "UnrecognizedClientException",
            "InvalidSignatureException",
        ),
        (
            "sts",
            lambda client: client.get_caller_identity(),
            "InvalidClientTokenId",
            "SignatureDoesNotMatch",
        ),
        (
            "cloudwatch",
            lambda client: client.list_metrics(),
            "InvalidClientTokenId",
            "SignatureDoesNotMatch",
        ),
        (
            "sagemaker-runtime",
            lambda client: client.invoke_endpoint(EndpointName="e", Body=b"x"),
            "UnrecognizedClientException",
            "InvalidSignatureException",
        ),
    ],
)
def test_wrong_credentials(
    service: str, call: Callable[[Any], Any], wrong_key: str, wrong_secret: str
) -> None:
    for client, code in (
        (client_of(service, lambda call: {}, key="AKIDNOBODY"), wrong_key),
        (client_of(service, lambda call: {}, secret="wrong"), wrong_secret),
    ):
        with pytest.raises(ClientError) as caught:
            call(client)
        assert caught.value.response["Error"]["Code"] == code
        assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403


def test_a_model_error_has_its_members() -> None:
    client = client_of("sagemaker-runtime", lambda call: {})
    with pytest.raises(client.exceptions.ModelError) as caught:
        client.invoke_endpoint(EndpointName="e", Body=b"x", InferenceComponentName="c")
    assert caught.value.response["OriginalStatusCode"] == 500
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 424


def test_a_presigned_identity_call_is_believed_and_read() -> None:
    client = client_of("sts", lambda call: {})
    url = urlsplit(client.generate_presigned_url("get_caller_identity", HttpMethod="GET"))
    request = HttpRequest("GET", url.path or "/", url.query, {"host": url.netloc})
    assert VERIFIER.verify(request, SystemClock().now()).account_id == ACCOUNT
    call = parse_call(request, "id-1")
    assert (call.service, call.operation, call.params) == ("sts", "GetCallerIdentity", {})
