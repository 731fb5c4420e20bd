"""InvokeEndpointAsync through a real gateway and the process that keeps requests, with boto3."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from botocore.exceptions import ClientError
from msgspec.structs import replace
from tests.cases import case, cases
from tests.integration.gateway_rig import GatewayRig, model_endpoint, running_gateway, snapshot_of
from tests.integration.platform import until

from hostelry.base.ports import free_port
from hostelry.domain.async_request import AsyncInference

pytestmark = pytest.mark.integration
INPUT = "s3://in/key"


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayRig]:
    settings = AsyncInference(output_uri="s3://out/answers", failure_uri="s3://out/failures")
    queued = replace(model_endpoint("queued"), async_inference=settings)
    snapshot = snapshot_of("1", queued, model_endpoint("models"))
    root = tmp_path_factory.mktemp("gateway")
    with running_gateway(root, snapshot, jobs_port=free_port()) as running:
        yield running


@contextmanager
def jobs_process(rig: GatewayRig) -> Iterator[httpx.Client]:
    """The jobs process on the gateway's home, and a client with its key."""
    command = [sys.executable, "-m", "hostelry.services.jobs", "--home", str(rig.home.root)]
    key = {"X-Hostelry-Key": rig.credentials.internal_key}

    def answers() -> bool:
        try:
            return client.get("/internal/health").status_code == 200
        except httpx.HTTPError:
            return False

    with (
        httpx.Client(base_url=rig.config.jobs_url, headers=key) as client,
        Path(rig.home.root / "jobs-test.log").open("ab") as log,
        subprocess.Popen(command, stderr=log) as process,
    ):
        try:
            until(answers, "an answer of the process for jobs")
            yield client
        finally:
            process.send_signal(signal.SIGKILL)


def refused(call: Any, **params: Any) -> tuple[str, str, int]:
    with pytest.raises(ClientError) as caught:
        call(**params)
    answer: dict[str, Any] = caught.value.response
    status = answer["ResponseMetadata"]["HTTPStatusCode"]
    return answer["Error"]["Code"], answer["Error"]["Message"], status


def test_a_request_is_accepted_only_while_something_keeps_it(rig: GatewayRig) -> None:
    invoke = rig.client().invoke_endpoint_async
    code, message, status = refused(invoke, EndpointName="queued", InputLocation=INPUT)
    assert (code, status) == ("ServiceUnavailable", 503)
    assert "could not be queued: the jobs process does not answer" in message
    with jobs_process(rig):
        answer = invoke(EndpointName="queued", InputLocation=INPUT, InferenceId="mine")
        assert answer["ResponseMetadata"]["HTTPStatusCode"] == 202
        assert answer["InferenceId"] == "mine"
        assert answer["OutputLocation"] == "s3://out/answers/mine.out"
        assert answer["FailureLocation"] == "s3://out/failures/mine-error.out"
        inline = invoke(EndpointName="queued", Body=b"\x00" * 128_000, Filename="f")
        assert inline["OutputLocation"] == "s3://out/answers/f.out"
    with jobs_process(rig) as successor:
        for inference_id in ("mine", inline["InferenceId"]):
            row = successor.get(f"/internal/jobs/{inference_id}").json()
            assert (row["endpoint_name"], row["state"]) == ("queued", "waiting")


@cases(
    "operation, params, text",
    case("queueing where none is", "invoke_endpoint_async",
        {"EndpointName": "models", "InputLocation": INPUT},
        "takes InvokeEndpoint, not InvokeEndpointAsync"),
    case("an answer at once from a queue", "invoke_endpoint",
        {"EndpointName": "queued", "Body": b"x"}, "it takes InvokeEndpointAsync only"),
    case("a stream from a queue", "invoke_endpoint_with_response_stream",
        {"EndpointName": "queued", "Body": b"x"}, "it takes InvokeEndpointAsync only"),
    case("a body too large", "invoke_endpoint_async",
        {"EndpointName": "queued", "Body": b"x" * 128_001}, "less than or equal to 128000"),
    case("no such endpoint", "invoke_endpoint_async",
        {"EndpointName": "nope", "InputLocation": INPUT},
        "Endpoint nope of account 111122223333 not found."),
)  # fmt: skip
def test_calls_that_are_refused(
    rig: GatewayRig, operation: str, params: dict[str, Any], text: str
) -> None:
    code, message, status = refused(getattr(rig.client(), operation), **params)
    assert (code, status) == ("ValidationError", 400)
    assert text in message
