"""The gateway while copies, control and the gateway itself are killed and start again."""

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from tests.integration.gateway_rig import (
    EchoProcess,
    FakeControl,
    GatewayRig,
    model_endpoint,
    running_gateway,
    snapshot_of,
    until,
)

pytestmark = pytest.mark.integration
SLOW = "sleep_ms=1500"


@pytest.fixture
def copies() -> Iterator[tuple[EchoProcess, EchoProcess]]:
    first, second = EchoProcess("first"), EchoProcess("second")
    yield first, second
    first.kill()
    second.kill()


@pytest.fixture
def rig(copies: tuple[EchoProcess, EchoProcess], tmp_path: Path) -> Iterator[GatewayRig]:
    first, second = copies
    snapshot = snapshot_of(
        "1",
        model_endpoint("one", first.route),
        model_endpoint("both", first.route, second.route),
    )
    with running_gateway(tmp_path, snapshot) as running:
        yield running


@pytest.fixture
def control(rig: GatewayRig) -> Iterator[FakeControl]:
    fake = FakeControl(rig)
    yield fake
    fake.stop()


class Background:
    """One call in a separate thread."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._outcome: Any = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def outcome(self) -> Any:
        """The result of the call, or the error that it raised."""
        self._thread.join()
        return self._outcome

    def _run(self) -> None:
        try:
            self._outcome = self._call()
        except ClientError as error:
            self._outcome = error


def invoke(client: Any, endpoint_name: str, reported: str = "") -> bytes:
    members = {"CustomAttributes": reported} if reported else {}
    answer = client.invoke_endpoint(EndpointName=endpoint_name, Body=b"hello", **members)
    body: bytes = answer["Body"].read()
    return body


def test_a_copy_killed_in_the_middle_of_a_request_is_a_model_error_and_the_next_goes_on(
    rig: GatewayRig, copies: tuple[EchoProcess, EchoProcess]
) -> None:
    first, second = copies
    client = rig.client()
    assert invoke(client, "one") == b"hello"
    slow = Background(lambda: invoke(client, "one", "sleep_ms=60000"))
    until(lambda: first.asked("/asleep") == 1, "the copy has the request")
    first.kill()
    error = slow.outcome()
    assert isinstance(error, ClientError)
    assert error.response["Error"]["Code"] == "ModelError"
    for _ in range(5):
        assert invoke(client, "both") == b"hello"
    with pytest.raises(ClientError, match="No healthy instance"):
        invoke(client, "one")
    first.restart()
    assert invoke(client, "one") == b"hello"
    assert second.asked("/served") >= 5


def test_endpoints_answer_after_a_killed_gateway_came_back_while_control_is_dead(
    rig: GatewayRig,
) -> None:
    assert invoke(rig.client(), "one") == b"hello"
    for _ in range(2):
        rig.kill()
        rig.start()
        assert invoke(rig.client(), "both") == b"hello"


def test_routes_that_cannot_be_kept_on_a_full_disk_are_served_all_the_same(
    rig: GatewayRig, control: FakeControl, copies: tuple[EchoProcess, EchoProcess]
) -> None:
    assert rig.process is not None
    routes = rig.home.routes
    kept = routes.read_bytes()
    scratch = routes.with_name(f".{routes.name}.{rig.process.pid}")
    scratch.symlink_to("/dev/full")  # the file that the gateway writes and then renames
    control.publish(snapshot_of("2", model_endpoint("new", copies[1].route)))
    until(lambda: b"could not be kept on disk" in rig.log.read_bytes(), "the log says so")
    assert invoke(rig.client(), "new") == b"hello"
    assert routes.read_bytes() == kept, "nothing half-written"


def test_a_broken_route_file_is_no_crash_and_control_mends_it(
    rig: GatewayRig, copies: tuple[EchoProcess, EchoProcess]
) -> None:
    rig.kill()
    rig.home.routes.write_bytes(b'{"version"')
    rig.start()
    with pytest.raises(ClientError, match="not found"):
        invoke(rig.client(), "one")
    control = FakeControl(rig)
    try:
        control.publish(snapshot_of("2", model_endpoint("one", copies[0].route)))
        until(lambda: rig.home.routes.exists(), "the routes are on disk again")
        assert invoke(rig.client(), "one") == b"hello"
    finally:
        control.stop()


def test_routes_follow_control_and_requests_under_way_finish_on_their_copies(
    rig: GatewayRig, control: FakeControl, copies: tuple[EchoProcess, EchoProcess]
) -> None:
    first, second = copies
    client = rig.client()
    slow = Background(lambda: invoke(client, "one", SLOW))
    until(lambda: first.asked("/asleep") == 1, "the copy has the request")
    control.publish(snapshot_of("2", model_endpoint("new", second.route)))

    def is_new() -> bool:
        return b'"new"' in rig.home.routes.read_bytes()

    until(is_new, "the gateway has the new routes")
    assert invoke(client, "new") == b"hello"
    with pytest.raises(ClientError, match="Endpoint one of account 111122223333 not found"):
        invoke(client, "one")
    assert slow.outcome() == b"hello"


def test_a_gateway_that_is_asked_to_stop_finishes_what_is_under_way(
    rig: GatewayRig, copies: tuple[EchoProcess, EchoProcess]
) -> None:
    slow = Background(lambda: invoke(rig.client(), "one", SLOW))
    until(lambda: copies[0].asked("/asleep") == 1, "the copy has the request")
    assert rig.kill(signal.SIGTERM) == 0
    assert slow.outcome() == b"hello"
    rig.start()


def test_control_calls_are_passed_on_with_the_verified_identity(
    rig: GatewayRig, control: FakeControl
) -> None:
    def smuggle(request: Any, **_: Any) -> None:
        request.headers["X-Hostelry-Account"] = "999999999999"
        request.headers["X-Hostelry-Key"] = "guess"

    client = rig.client("sagemaker")
    client.meta.events.register("before-sign.sagemaker", smuggle)
    assert client.list_endpoints(NameContains="x")["Endpoints"] == []
    line, headers, body = control.calls.get(timeout=5)
    assert (line, body) == ("POST /", b'{"NameContains": "x"}')
    assert headers["x-amz-target"] == "SageMaker.ListEndpoints"
    assert headers["x-hostelry-key"] == rig.credentials.internal_key
    assert headers["x-hostelry-account"] == "111122223333"
    assert headers["x-hostelry-region"] == "us-west-2"
    assert headers["x-hostelry-service"] == "sagemaker"
    assert len(headers["x-hostelry-request-id"]) == 36
    assert "authorization" not in headers


def test_calls_wait_for_a_control_that_comes_back(rig: GatewayRig) -> None:
    client = rig.client("sagemaker")
    calls = {"create": client.create_model, "list": client.list_endpoints}
    given = {"create": {"ModelName": "m", "ExecutionRoleArn": "arn:aws:iam::111122223333:role/r"}}
    with ThreadPoolExecutor() as threads:
        waiting = [threads.submit(call, **given.get(name, {})) for name, call in calls.items()]
        assert not wait(waiting, timeout=1.0, return_when=FIRST_COMPLETED).done
        back = FakeControl(rig)
        try:
            assert [it.result()["ResponseMetadata"]["HTTPStatusCode"] for it in waiting] == [
                200
            ] * 2
        finally:
            back.stop()


def test_calls_can_be_retried_when_control_stays_away(rig: GatewayRig) -> None:
    with pytest.raises(ClientError) as failure:
        rig.client("sts").get_caller_identity()
    assert failure.value.response["Error"]["Code"] == "ServiceUnavailable"
    assert failure.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
    assert "control plane is restarting" in failure.value.response["Error"]["Message"]


def test_control_is_out_of_reach_for_what_is_not_an_aws_call(
    rig: GatewayRig, control: FakeControl
) -> None:
    closing = {"Connection": "close"}
    refused = {
        404: rig.signed("/internal/routes", b"", closing),
        403: rig.signed("/", b"{}", closing | {"X-Amz-Target": "SageMaker.ListEndpoints"}, "sts"),
        405: rig.signed("/bucket", b"", closing, service="s3"),
    }
    for status, request in refused.items():
        assert rig.ask(request).startswith(b"HTTP/1.1 %d " % status)
    assert control.calls.empty()


def test_an_s3_client_that_points_here_gets_the_address_of_s3(rig: GatewayRig) -> None:
    with pytest.raises(ClientError, match="AWS_ENDPOINT_URL_S3"):
        rig.client("s3").list_buckets()
