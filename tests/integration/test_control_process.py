"""A real control process with real agents, called as the gateway calls it, killed and restarted."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from botocore.exceptions import BotoCoreError, ClientError
from tests.integration.control_rig import (
    ROLE,
    ControlUnderTest,
    create_endpoint,
    endpoint_status,
    is_running,
)

pytestmark = pytest.mark.integration


@pytest.fixture
def control(tmp_path: Path) -> Iterator[ControlUnderTest]:
    under_test = ControlUnderTest(tmp_path)
    try:
        under_test.start()
        yield under_test
    finally:
        under_test.stop_everything()


def test_an_endpoint_lives_through_the_death_of_control_and_of_its_agent(
    control: ControlUnderTest,
) -> None:
    sagemaker = control.client()
    create_endpoint(sagemaker, "first")
    control.until(lambda: endpoint_status(sagemaker, "first") == "InService", "first serves")
    agents = control.agents()
    assert len(agents) == 1

    control.kill()
    control.start()
    assert endpoint_status(sagemaker, "first") == "InService"
    assert control.agents() == agents, "agents are adopted, not started again"

    ((instance_id, pid),) = agents.items()
    os.kill(pid, signal.SIGKILL)
    control.until(lambda: control.agents().get(instance_id) not in (None, pid), "the agent is back")
    assert endpoint_status(sagemaker, "first") == "InService"
    assert set(control.agents()) == {instance_id}

    second = subprocess.run(control.command, capture_output=True, timeout=60, check=False)
    assert second.returncode == 1
    assert b"cannot be listened on" in second.stderr
    assert endpoint_status(sagemaker, "first") == "InService"

    assert control.kill(signal.SIGTERM) == 0
    assert is_running(control.agents()[instance_id]), "agents outlive control"
    control.start()
    pids = list(control.agents().values())
    sagemaker.delete_endpoint(EndpointName="first")
    control.until(lambda: endpoint_status(sagemaker, "first") is None, "first is gone")
    assert not any(is_running(it) for it in pids)
    assert control.state()["endpoints"] == []


def test_nothing_acknowledged_is_lost_by_killing_control_in_the_middle(
    control: ControlUnderTest,
) -> None:
    sagemaker = control.client()
    acknowledged: list[str] = []
    for number in range(60):
        name = f"config-{number}"
        try:
            sagemaker.create_endpoint_config(
                EndpointConfigName=name,
                ExecutionRoleArn=ROLE,
                ProductionVariants=[
                    {
                        "VariantName": "AllTraffic",
                        "InstanceType": "ml.m5.large",
                        "InitialInstanceCount": 1,
                    }
                ],
            )
            acknowledged.append(name)
            if number == 20:
                create_endpoint(sagemaker, "in-the-middle")
            if number == 30:
                assert control.process is not None
                control.process.kill()
        except BotoCoreError:
            continue  # not acknowledged
    assert 30 <= len(acknowledged) < 60
    assert control.process is not None
    control.process.wait(20)
    control.start()
    for name in acknowledged:
        assert sagemaker.describe_endpoint_config(EndpointConfigName=name)
    control.until(
        lambda: endpoint_status(sagemaker, "in-the-middle") == "InService", "the endpoint serves"
    )
    assert len(control.agents()) == 1


def test_what_careless_and_hostile_callers_are_answered(control: ControlUnderTest) -> None:
    with httpx.Client(base_url=control.url, timeout=30) as http:
        check_answers(control, http)


def check_answers(control: ControlUnderTest, http: httpx.Client) -> None:
    key = control.credentials.internal_key
    for headers in ({}, {"X-Hostelry-Key": "x"}, {"X-Hostelry-Key": key[:-1]}):
        for method, path in [
            ("POST", "/"),
            ("GET", "/internal/state"),
            ("GET", "/internal/routes"),
        ]:
            refused = http.request(method, path, headers=headers)
            assert refused.status_code == 403
            assert key not in refused.text

    nameless = http.post("/", headers={"X-Hostelry-Key": key})
    assert nameless.status_code == 403

    target = {
        "X-Amz-Target": "SageMaker.CreateEndpoint",
        "Content-Type": "application/x-amz-json-1.1",
    }
    own = {**control.headers, **target, "X-Hostelry-Request-Id": "rid-1"}
    for body in [b"", b"{", b"[]", b"\xff\xfe", b'{"EndpointName": 1}', b"{" * 100_000]:
        answer = http.post("/", headers=own, content=body)
        assert answer.status_code == 400, body[:20]
        assert answer.headers["x-amzn-requestid"] == "rid-1"
        assert answer.json()["__type"]

    unknown = http.post(
        "/", headers={**own, "X-Amz-Target": "SageMaker.ListClusters"}, content=b"{}"
    )
    assert unknown.status_code in (400, 404, 501)
    assert "ListClusters" in unknown.text

    with pytest.raises(ClientError, match="Could not find"):
        control.client().describe_endpoint(EndpointName="nowhere")
    assert control.client("sts").get_caller_identity()["Account"] == "111122223333"

    assert control.health()["status"] == "ok"
    routes = http.get("/internal/routes", headers=control.headers)
    assert routes.status_code == 200
    assert routes.json()["endpoints"] == []
    again = http.get("/internal/routes", params={"have": "older"}, headers=control.headers)
    assert again.json() == routes.json()


def test_a_broken_images_file_does_not_keep_control_from_starting(tmp_path: Path) -> None:
    control = ControlUnderTest(tmp_path)
    control.home.images.write_text("[[image]\n")
    try:
        control.start()
        create_endpoint(control.client(), "first")
        control.until(
            lambda: endpoint_status(control.client(), "first") == "InService", "first serves"
        )
        assert f"the image rules stay as they were: {control.home.images}" in (
            control.log.read_text()
        )
    finally:
        control.stop_everything()
