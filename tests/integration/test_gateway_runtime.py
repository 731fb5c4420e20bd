"""InvokeEndpoint and its stream, through a real gateway process, with boto3 as the client."""

import contextlib
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from benchmarks.echo_model import STAMP
from botocore.exceptions import ClientError, EventStreamError
from tests.cases import case, cases
from tests.integration.gateway_rig import (
    EchoProcess,
    GatewayRig,
    component,
    components_endpoint,
    dead_copy,
    model_endpoint,
    running_gateway,
    snapshot_of,
    until,
)

from hostelry.base.clock import monotonic_s

pytestmark = pytest.mark.integration
MAX_BODY_BYTES = 6 * 1024 * 1024
INVOKE = "/endpoints/models/invocations"


@pytest.fixture(scope="module")
def copy() -> Iterator[EchoProcess]:
    process = EchoProcess("echo")
    yield process
    process.kill()


@pytest.fixture(scope="module")
def rig(copy: EchoProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayRig]:
    copies = (copy.route,)
    snapshot = snapshot_of(
        "1",
        components_endpoint(
            "llms",
            component("base", copies),
            component("pirate", copies, adapter_id="pirate-3"),
            component("asleep", (), adapter_id="asleep-1"),
        ),
        model_endpoint("models", *copies),
        model_endpoint("half-dead", dead_copy(), copy.route),
        model_endpoint("dead", dead_copy()),
    )
    root = tmp_path_factory.mktemp("gateway")
    limits: dict[str, Any] = {"invoke_timeout_s": 1.0, "stream_timeout_s": 1.5}
    limits["max_body_bytes"] = MAX_BODY_BYTES
    with running_gateway(root, snapshot, **limits) as running:
        yield running


@pytest.fixture(scope="module")
def runtime(rig: GatewayRig) -> Any:
    return rig.client()


def test_the_body_comes_back_with_the_answers_members(runtime: Any) -> None:
    answer = runtime.invoke_endpoint(
        EndpointName="models",
        Body=b'{"inputs": 1}',
        ContentType="application/json",
        CustomAttributes="trace=abc",
    )
    assert answer["Body"].read() == b'{"inputs": 1}'
    assert answer["ContentType"] == "application/json"
    assert answer["CustomAttributes"] == "trace=abc"
    assert answer["InvokedProductionVariant"] == "AllTraffic"
    assert len(answer["ResponseMetadata"]["RequestId"]) == 36


def test_large_bodies_pass_both_ways(runtime: Any) -> None:
    body = bytes(range(256)) * (MAX_BODY_BYTES // 256)
    assert runtime.invoke_endpoint(EndpointName="models", Body=body)["Body"].read() == body


def test_a_copy_sees_the_contracts_headers_only(rig: GatewayRig, runtime: Any) -> None:
    def smuggle(request: Any, **_: Any) -> None:
        request.headers["X-Amzn-SageMaker-Adapter-Identifier"] = "stolen"
        request.headers["X-Hostelry-Key"] = "guess"
        request.headers["Cookie"] = "c=1"

    client = rig.client()
    client.meta.events.register("before-sign.sagemaker-runtime", smuggle)
    answer = client.invoke_endpoint(
        EndpointName="llms", InferenceComponentName="base", Body=b"", CustomAttributes="show"
    )
    seen = json.loads(answer["Body"].read())
    assert seen["path"] == "/invocations"
    assert seen["headers"] == {
        "host": "localhost",
        "content-length": "0",
        "x-amzn-sagemaker-custom-attributes": "show",
        "x-amzn-sagemaker-forwarded-api": "InvokeEndpoint",
        "x-request-id": answer["ResponseMetadata"]["RequestId"],
    }


def test_an_adapter_component_is_asked_for_its_adapter(runtime: Any) -> None:
    answer = runtime.invoke_endpoint(
        EndpointName="llms", InferenceComponentName="pirate", Body=b"", CustomAttributes="show"
    )
    headers = json.loads(answer["Body"].read())["headers"]
    assert headers["x-amzn-sagemaker-adapter-identifier"] == "pirate-3"
    assert headers["x-amzn-sagemaker-adapter-alias"] == "pirate"


def test_a_streamed_call_passes_on_what_the_client_accepts(runtime: Any) -> None:
    runtime.invoke_endpoint(
        EndpointName="models", Body=b"", SessionId="NEW_SESSION", CustomAttributes="session"
    )
    answer = runtime.invoke_endpoint_with_response_stream(
        EndpointName="models",
        Body=b"",
        Accept="application/jsonlines",
        ContentType="application/json",
        InferenceId="id-1",
        SessionId="s-1",
        CustomAttributes="show",
    )
    (event,) = answer["Body"]
    headers = json.loads(event["PayloadPart"]["Bytes"])["headers"]
    assert headers["accept"] == "application/jsonlines"
    assert headers["x-amzn-sagemaker-forwarded-api"] == "InvokeEndpointWithResponseStream"
    assert headers["x-amzn-sagemaker-inference-id"] == "id-1"
    assert headers["x-amzn-sagemaker-session-id"] == "s-1"


def test_session_headers_of_the_container_reach_the_client(runtime: Any) -> None:
    answer = runtime.invoke_endpoint(
        EndpointName="models", Body=b"", SessionId="NEW_SESSION", CustomAttributes="session"
    )
    assert answer["NewSessionId"] == "s-1; Expires=2030-01-01T00:00:00Z"
    assert answer["ClosedSessionId"] == "s-0"


ERRORS = [
    pytest.param({"EndpointName": "nope"}, "ValidationError", 400, "not found", id="no endpoint"),
    pytest.param({"EndpointName": "llms"}, "ValidationError", 400, "header is required",
                 id="no component named"),
    pytest.param({"EndpointName": "llms", "InferenceComponentName": "x"}, "ValidationError", 400,
                 "Inference Component x not found", id="an unknown component"),
    pytest.param({"EndpointName": "llms", "InferenceComponentName": "asleep"}, "ValidationError",
                 400, "no capacity", id="an adapter that no copy has"),
    pytest.param({"EndpointName": "models", "TargetVariant": "x"}, "ValidationError", 400,
                 "Variant x not found", id="an unknown variant"),
    pytest.param({"EndpointName": "dead"}, "ServiceUnavailable", 503, "No healthy instance",
                 id="no copy that can be reached"),
    pytest.param({"EndpointName": "models", "CustomAttributes": "status=400"}, "ModelError", 424,
                 'client error (400) from primary with message "body"', id="a refusal"),
    pytest.param({"EndpointName": "models", "CustomAttributes": "status=503"}, "ModelError", 424,
                 "server error (503) from primary", id="a failure of the container"),
    pytest.param({"EndpointName": "models", "CustomAttributes": "close=start"}, "ModelError", 424,
                 "server error (0) from primary", id="a container that gives no answer"),
    pytest.param({"EndpointName": "models", "CustomAttributes": "sleep_ms=4000"}, "ModelError",
                 424, "timed out while waiting for a response", id="a container that is too slow"),
]  # fmt: skip


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("members", "code", "status", "words"), ERRORS)
def test_errors(
    runtime: Any, streamed: bool, members: dict[str, str], code: str, status: int, words: str
) -> None:
    operation = "invoke_endpoint_with_response_stream" if streamed else "invoke_endpoint"
    with pytest.raises(ClientError) as failure:
        getattr(runtime, operation)(Body=b"body", **members)
    answer = failure.value.response
    assert answer["Error"]["Code"] == code
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == status
    assert words in answer["Error"]["Message"]


def test_a_model_error_carries_its_members(runtime: Any) -> None:
    with pytest.raises(runtime.exceptions.ModelError) as failure:
        runtime.invoke_endpoint(EndpointName="models", Body=b"bad", CustomAttributes="status=422")
    answer = failure.value.response
    assert answer["OriginalStatusCode"] == 422
    assert answer["OriginalMessage"] == "bad"
    assert answer["LogStreamArn"].endswith(":log-group:/aws/sagemaker/Endpoints/models")


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("status", "retry_after"), [(429, "7"), (503, "7"), (400, None)], ids=["429", "503", "400"]
)
def test_a_busy_containers_retry_after_reaches_the_client(
    runtime: Any, streamed: bool, status: int, retry_after: str | None
) -> None:
    operation = "invoke_endpoint_with_response_stream" if streamed else "invoke_endpoint"
    reported = f"status={status};retry_after=7"
    with pytest.raises(runtime.exceptions.ModelError) as failure:
        getattr(runtime, operation)(EndpointName="models", Body=b"", CustomAttributes=reported)
    headers = failure.value.response["ResponseMetadata"]["HTTPHeaders"]
    assert headers.get("retry-after") == retry_after


def test_an_answer_cut_off_in_its_middle_is_a_model_error(runtime: Any) -> None:
    with pytest.raises(runtime.exceptions.ModelError, match=r"server error \(0\)"):
        runtime.invoke_endpoint(EndpointName="models", Body=b"", CustomAttributes="close=middle")


def stream(runtime: Any, reported: str) -> Any:
    return runtime.invoke_endpoint_with_response_stream(
        EndpointName="models", Body=b"", ContentType="application/json", CustomAttributes=reported
    )


def test_a_streams_chunks_come_one_by_one_as_they_are_sent(runtime: Any) -> None:
    answer = stream(runtime, "chunks=4;interval_ms=100")
    assert answer["ContentType"] == "application/jsonlines"
    assert answer["InvokedProductionVariant"] == "AllTraffic"
    came_at, chunks = [], []
    for event in answer["Body"]:
        came_at.append(monotonic_s())
        chunks.append(STAMP.unpack(event["PayloadPart"]["Bytes"]))
    assert [number for _, number in chunks] == [0, 1, 2, 3]
    sent_at = [sent for sent, _ in chunks]
    assert came_at[0] < sent_at[-1]


FAILING_STREAMS = [
    pytest.param("close=middle", "closed the stream", "StreamBroken", id="it breaks off"),
    pytest.param("chunks=100;interval_ms=500", "timed out", "ModelInvocationTimeExceeded",
                 id="it takes too long"),
]  # fmt: skip


@pytest.mark.parametrize(("reported", "words", "error_code"), FAILING_STREAMS)
def test_a_stream_that_fails_midway_ends_with_an_exception(
    rig: GatewayRig, runtime: Any, reported: str, words: str, error_code: str
) -> None:
    with contextlib.closing(stream(runtime, reported)["Body"]) as body:
        events = iter(body)
        assert next(events)["PayloadPart"]["Bytes"]
        with pytest.raises(EventStreamError, match=words) as failure:
            list(events)
    assert failure.value.response["Error"]["Code"] == "ModelStreamError"
    headers = {"X-Amzn-SageMaker-Custom-Attributes": reported, "Connection": "close"}
    raw = rig.ask(rig.signed("/endpoints/models/invocations-response-stream", b"", headers))
    assert f'"ErrorCode":"{error_code}"'.encode() in raw


def test_a_copy_that_refuses_connections_costs_no_request(runtime: Any) -> None:
    for number in range(10):
        body = str(number).encode()
        answer = runtime.invoke_endpoint(EndpointName="half-dead", Body=body)
        assert answer["Body"].read() == body


@cases(
    "changes, code",
    case("a wrong secret", {"aws_secret_access_key": "wrong"}, "InvalidSignatureException"),
    case("an unknown key", {"aws_access_key_id": "AKIAUNKNOWN"}, "UnrecognizedClientException"),
)  # fmt: skip
def test_callers_that_are_not_believed(rig: GatewayRig, changes: dict[str, str], code: str) -> None:
    with pytest.raises(ClientError) as failure:
        rig.client(**changes).invoke_endpoint(EndpointName="models", Body=b"")
    assert failure.value.response["Error"]["Code"] == code
    assert failure.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403


def test_requests_signed_for_another_service_or_altered_or_unsigned_are_refused(
    rig: GatewayRig, copy: EchoProcess
) -> None:
    served = copy.asked("/served")
    closing = {"Connection": "close"}
    signed = rig.signed(INVOKE, b"body", closing)
    attempts = {
        "InvalidSignatureException": [
            rig.signed(INVOKE, b"body", closing, service="s3"),
            signed[:-4] + b"evil",
            signed.replace(b"/models/", b"/half-dead/"),
        ],
        "MissingAuthenticationTokenException": [
            b"POST %b HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
            % INVOKE.encode()
        ],
    }
    for code, requests in attempts.items():
        for request in requests:
            answer = rig.ask(request)
            assert answer.startswith(b"HTTP/1.1 403 ")
            assert f"x-amzn-ErrorType: {code}".encode() in answer
    assert copy.asked("/served") == served + 1


def test_a_body_over_the_limit_is_refused_in_the_modelled_form(runtime: Any) -> None:
    with pytest.raises(ClientError) as failure:
        runtime.invoke_endpoint(EndpointName="models", Body=b"x" * (MAX_BODY_BYTES + 1))
    assert failure.value.response["Error"]["Code"] == "ValidationError"
    assert failure.value.response["ResponseMetadata"]["HTTPStatusCode"] == 413
    assert str(MAX_BODY_BYTES) in failure.value.response["Error"]["Message"]


def test_a_body_shorter_than_announced_reaches_no_copy(rig: GatewayRig, copy: EchoProcess) -> None:
    served = copy.asked("/served")
    with rig.connected(rig.signed(INVOKE, b"a longer body")[:-5]):
        pass
    assert copy.asked("/served") == served + 1


def test_a_body_longer_than_announced_is_a_second_request_that_is_refused(rig: GatewayRig) -> None:
    answer = rig.ask(rig.signed(INVOKE, b"body") + b"and more\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"HTTP/1.1 400 " in answer


def test_a_client_that_leaves_cancels_the_copys_work(rig: GatewayRig, copy: EchoProcess) -> None:
    cancelled = copy.asked("/cancelled")
    reported = {"X-Amzn-SageMaker-Custom-Attributes": "sleep_ms=900"}
    with rig.connected(rig.signed(INVOKE, b"", reported)):
        until(lambda: copy.asked("/asleep") == 1, "the copy has the request")
    until(lambda: copy.asked("/cancelled") == cancelled + 1, "the copy's work was cancelled")


def test_a_client_that_leaves_a_stream_cancels_it(rig: GatewayRig, copy: EchoProcess) -> None:
    cancelled = copy.asked("/cancelled")
    reported = {"X-Amzn-SageMaker-Custom-Attributes": "chunks=1000;interval_ms=20"}
    path = "/endpoints/models/invocations-response-stream"
    with rig.connected(rig.signed(path, b"", reported)) as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
    until(lambda: copy.asked("/cancelled") == cancelled + 1, "the copy's stream was cancelled")


def test_hundreds_of_half_sent_requests_hold_up_no_other(rig: GatewayRig, runtime: Any) -> None:
    address = ("127.0.0.1", rig.config.gateway_port)
    lazy = [socket.create_connection(address) for _ in range(300)]
    try:
        for connection in lazy:
            connection.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nX-")
        assert runtime.invoke_endpoint(EndpointName="models", Body=b"hi")["Body"].read() == b"hi"
    finally:
        for connection in lazy:
            connection.close()


def test_the_gateway_describes_itself(rig: GatewayRig) -> None:
    for path in (b"/ping", b"/health"):
        answer = rig.ask(b"GET %b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" % path)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b'"status":"ok"' in answer
