"""Control and the object store stopped in their tracks (SIGSTOP), and let go again.

The supervisor, which kills what hangs for longer than ten seconds, is stopped as well where a slow
machine might need as long.
"""

import io
import os
import signal
import tarfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from tests.integration.drill import (
    NO_RETRIES,
    OK,
    ROLE,
    copies_of,
    create_component,
    create_endpoint,
    described,
    wait_ready,
    write_image_rule,
)
from tests.integration.platform import Platform, until

pytestmark = pytest.mark.integration

PATIENT_S, IMPATIENT_S = 40, 1
EXISTS = "ValidationException"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    root = tmp_path_factory.mktemp("hangs") / "home"
    write_image_rule(root)
    with Platform(root) as running:
        create_endpoint(running)
        yield running


@contextmanager
def hung(platform: Platform, name: str) -> Iterator[None]:
    """A platform process stopped for the while, unless it is killed meanwhile."""
    pid = platform.kill(name, signal.SIGSTOP)
    try:
        yield
    finally:
        # A killed process may still be listed as alive for a moment: only the signal knows.
        record = platform.running(name)
        if record is not None and record.pid == pid:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


class Calls:
    """CreateEndpointConfig without retries, each call in a separate thread."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._threads: list[threading.Thread] = []
        self.outcomes: dict[str, str] = {}

    def make(self, prefix: str, count: int, timeout_s: float) -> None:
        client = self._platform.boto3("sagemaker", retries=NO_RETRIES, read_timeout=timeout_s)
        for number in range(count):
            thread = threading.Thread(target=self._one, args=(client, f"{prefix}-{number}"))
            self._threads.append(thread)
            thread.start()

    def join(self) -> Counter[str]:
        for thread in self._threads:
            thread.join(PATIENT_S + 10)
        return Counter(self.outcomes.values())

    def _one(self, client: Any, name: str) -> None:
        self.outcomes[name] = create_config(client, name)


def create_config(client: Any, name: str) -> str:
    """Create a configuration. Returns OK or the error."""
    try:
        client.create_endpoint_config(
            EndpointConfigName=name,
            ExecutionRoleArn=ROLE,
            ProductionVariants=[
                {"VariantName": "v", "InstanceType": "ml.m5.large", "InitialInstanceCount": 1}
            ],
        )
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    except BotoCoreError as error:
        return type(error).__name__
    return OK


def check_nothing_is_lost(platform: Platform, outcomes: dict[str, str]) -> None:
    """Assert that acknowledged configurations exist, and others exist whole or can be created."""
    client = platform.boto3("sagemaker")
    for name, outcome in outcomes.items():
        if outcome != OK:
            assert create_config(client, name) in (OK, EXISTS)
        assert client.describe_endpoint_config(EndpointConfigName=name)["ProductionVariants"]


def test_calls_wait_for_a_hung_control_and_are_answered_when_it_goes_on(
    platform: Platform,
) -> None:
    calls = Calls(platform)
    with hung(platform, "up"), hung(platform, "control"):
        calls.make("patient", 6, PATIENT_S)
        calls.make("impatient", 3, IMPATIENT_S)
        output = platform.cli("status", code=1).stdout
        assert "Control does not answer" in output
        unknown = platform.cli("invoke", "nosuch", str(platform.home.images), code=1).stderr
        assert "names are those of the gateway's last routes" in unknown
        assert "there is no endpoint or component nosuch" in unknown
        assert OK not in calls.outcomes.values()
    assert calls.join() == {OK: 6, "ReadTimeoutError": 3}
    check_nothing_is_lost(platform, calls.outcomes)


def test_calls_to_a_hung_control_that_is_killed_can_be_retried(platform: Platform) -> None:
    calls, before = Calls(platform), platform.pid("control")
    with hung(platform, "control"):
        calls.make("killed", 6, PATIENT_S)
        threading.Event().wait(1.0)  # the calls are on their way, as far as control's socket
        platform.kill("control")
    outcomes = calls.join()
    assert outcomes["ServiceUnavailable"] > 0
    assert outcomes.keys() <= {"ServiceUnavailable", OK}, "OK: sent again to the next control"
    platform.back("control", before)
    again = platform.boto3("sagemaker", retries=NO_RETRIES)
    until(lambda: create_config(again, "again") in (OK, EXISTS), "control answers")
    check_nothing_is_lost(platform, calls.outcomes)


def archive(size_bytes: int) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as packed:
        member = tarfile.TarInfo("weights.bin")
        member.size = size_bytes
        packed.addfile(member, io.BytesIO(bytes(size_bytes)))
    return content.getvalue()


def copies_in(platform: Platform, phase: str, name: str) -> bool:
    return any(f"component/{name}  {phase}" in it for it in status_lines(platform))


def status_lines(platform: Platform) -> list[str]:
    return platform.cli("status").stdout.splitlines()


def test_a_create_waits_for_a_hung_object_store_and_a_delete_does_not(platform: Platform) -> None:
    s3, sagemaker = platform.boto3("s3"), platform.boto3("sagemaker")
    s3.create_bucket(Bucket="hung")
    s3.put_object(Bucket="hung", Key="model.tar.gz", Body=archive(1_000_000))
    with hung(platform, "up"), hung(platform, "objectstore"):
        for name in ("waits", "leaves"):
            create_component(platform, name, 1, "s3://hung/model.tar.gz")
        until(lambda: copies_in(platform, "downloading", "leaves"), "leaves downloads")
        until(lambda: copies_in(platform, "downloading", "waits"), "waits downloads")
        sagemaker.delete_inference_component(InferenceComponentName="leaves")
        until(lambda: described(platform, "leaves") is None, "leaves is gone")
        shown = described(platform, "waits")
        assert shown is not None
        assert shown["InferenceComponentStatus"] == "Creating"
    wait_ready(platform, "waits", 1)
    assert len(copies_of(platform, "waits")) == 1
    sagemaker.delete_inference_component(InferenceComponentName="waits")
    until(lambda: described(platform, "waits") is None, "waits is gone")
