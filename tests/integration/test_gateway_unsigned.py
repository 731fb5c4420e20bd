"""A gateway that accepts unsigned calls."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError
from tests.integration.gateway_rig import (
    EchoProcess,
    FakeControl,
    model_endpoint,
    running_gateway,
    snapshot_of,
)

pytestmark = pytest.mark.integration


@pytest.fixture
def copy() -> Iterator[EchoProcess]:
    process = EchoProcess("echo")
    yield process
    process.kill()


def test_unsigned_calls_pass_as_the_owner_and_wrong_signatures_still_do_not(
    tmp_path: Path, copy: EchoProcess
) -> None:
    snapshot = snapshot_of("1", model_endpoint("models", copy.route))
    with running_gateway(tmp_path, snapshot, insecure_no_auth=True) as rig, ExitStack() as stopped:
        control = FakeControl(rig)
        stopped.callback(control.stop)
        unsigned = Config(signature_version=UNSIGNED, retries={"total_max_attempts": 1})
        answer = rig.client(config=unsigned).invoke_endpoint(EndpointName="models", Body=b"hi")
        assert answer["Body"].read() == b"hi"
        rig.client("sagemaker", config=unsigned).list_endpoints()
        _, headers, _ = control.calls.get(timeout=5)
        assert headers["x-hostelry-account"] == rig.credentials.account_id
        assert headers["x-hostelry-service"] == "sagemaker"
        with pytest.raises(ClientError, match="signature"):
            rig.client(aws_secret_access_key="wrong").invoke_endpoint(
                EndpointName="models", Body=b""
            )
        assert "signatures are not required" in rig.log.read_text()
