"""Scaled to zero and back with a real LLM server: every request is answered, or has AWS's error."""

import signal
from pathlib import Path
from typing import Any

import pytest
from benchmarks.from_zero import Case, Fleet, play, running_platform
from benchmarks.models import tiny_model
from botocore.exceptions import ClientError
from tests.integration.platform import Platform, until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]
NO_CAPACITY = "Inference Component has no capacity to process this request."
COMPAT = {"Key": "hostelry:zero", "Value": "compat"}


def test_from_zero_no_request_fails_whatever_happens_meanwhile(tmp_path: Path) -> None:
    model = tiny_model(tmp_path / "model")
    platform: Platform
    with running_platform(model, tmp_path / "home", "--gateway-workers", "2") as platform:
        fleet = Fleet(platform, "zero", goes_empty=True)
        fleet.create()
        arn = fleet.sagemaker.describe_endpoint(EndpointName="zero")["EndpointArn"]
        fleet.sagemaker.add_tags(ResourceArn=arn, Tags=[COMPAT])
        fleet.to_zero()
        with pytest.raises(ClientError, match=NO_CAPACITY):
            fleet.first_token_at()
        assert fleet.component()["RuntimeConfig"] == {"DesiredCopyCount": 0, "CurrentCopyCount": 0}
        fleet.sagemaker.delete_tags(ResourceArn=arn, TagKeys=[COMPAT["Key"]])
        until(lambda: b"compat" not in platform.home.routes.read_bytes(), "the routes follow")

        # No instance runs, and control cannot receive the wake. Its successor can.
        assert fleet.num_instances() == 0
        expect_all(fleet, 1, lambda: platform.kill("control", signal.SIGKILL))

        fleet.to_zero(with_instance=True)
        expect_all(fleet, 100)

        fleet.to_zero(with_instance=True)
        expect_all(fleet, 20, fleet.kill_what_starts)


def expect_all(fleet: Fleet, count: int, act: Any = None) -> None:
    """Send requests at once from zero. All are answered, and the start is decided only once."""
    case = Case(name="test")
    play(fleet, case, count, act)
    assert case.errors == []
    assert len(case.first_token_s) == count
    assert len(case.decided_s) == 1
