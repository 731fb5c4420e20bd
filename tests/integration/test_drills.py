"""Each process killed with SIGKILL, during traffic and during a create, on a whole platform."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from tests.integration.drill import (
    COMPONENT,
    ENDPOINT,
    OK,
    Traffic,
    copies_of,
    create_component,
    create_endpoint,
    described,
    wait_ready,
    write_image_rule,
)
from tests.integration.platform import Platform, until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

# What a client may see while the door itself is gone.
NO_DOOR = {"EndpointConnectionError", "ConnectionClosedError", "ConnectTimeoutError"}
# What a client may see of a model server that died under its request.
NO_MODEL = {"ModelError", "ServiceUnavailable"}
PLATFORM_PROCESSES = ["gateway-1", "control", "objectstore"]


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    root = tmp_path_factory.mktemp("drills") / "home"
    write_image_rule(root)
    with Platform(root) as running:
        create_endpoint(running)
        create_component(running, COMPONENT, copies=2)
        wait_ready(running, COMPONENT, copies=2)
        yield running


def agent_pid(platform: Platform) -> int:
    (record,) = platform.home.instances.glob("*/agent.json")
    return int(json.loads(record.read_bytes())["process"]["pid"])


def test_a_killed_model_server_fails_only_its_own_requests_and_comes_back(
    platform: Platform,
) -> None:
    before = copies_of(platform, COMPONENT)
    with Traffic(platform).flowing() as traffic:
        os.kill(next(iter(before.values())), signal.SIGKILL)
        traffic.goes_on(50)
        wait_ready(platform, COMPONENT, copies=2)
        traffic.goes_on(20)
    assert traffic.errors <= NO_MODEL, traffic.outcomes
    assert copies_of(platform, COMPONENT).keys() == before.keys()


def test_a_stream_whose_model_server_is_killed_ends_with_a_modelled_error(
    platform: Platform,
) -> None:
    wait_ready(platform, COMPONENT, copies=2)
    ends: list[tuple[int, str]] = []
    traffic = Traffic(platform)
    readers = [
        threading.Thread(target=lambda: ends.append(traffic.stream(600, 0.05))) for _ in range(2)
    ]
    for reader in readers:
        reader.start()
    until(lambda: all(reader.is_alive() for reader in readers), "streams run")
    threading.Event().wait(0.5)  # real tokens are under way on both copies
    for pid in copies_of(platform, COMPONENT).values():
        os.kill(pid, signal.SIGKILL)
    for reader in readers:
        reader.join(30)
    assert [code for _, code in ends] == ["ModelStreamError"] * 2, ends
    assert all(lines > 0 for lines, _ in ends)
    seen: list[str] = []

    def answers() -> bool:
        seen.append(traffic.once())
        return seen[-1] == OK

    until(answers, "answers again")
    assert set(seen) <= {OK, *NO_MODEL}, "clients try again on 503, not on 400"
    wait_ready(platform, COMPONENT, copies=2)


def test_a_killed_agent_fails_no_request_and_its_copies_go_on(platform: Platform) -> None:
    wait_ready(platform, COMPONENT, copies=2)
    copies, old = copies_of(platform, COMPONENT), agent_pid(platform)
    with Traffic(platform).flowing() as traffic:
        os.kill(old, signal.SIGKILL)
        traffic.goes_on(20)
        until(lambda: agent_pid(platform) != old, "a new agent")
        until(lambda: copies_of(platform, COMPONENT) == copies, "the same processes adopted")
        traffic.goes_on(20)
    assert not traffic.errors, traffic.outcomes


def kill_gateway(platform: Platform) -> None:
    """Every worker at once; returns when all are back."""
    killed = [(name, platform.kill(name)) for name in platform.gateway_workers]
    for name, pid in killed:
        platform.back(name, pid)


def test_a_killed_gateway_is_back_within_seconds(platform: Platform) -> None:
    with Traffic(platform).flowing() as traffic:
        kill_gateway(platform)
        traffic.goes_on(20)
    assert traffic.errors <= NO_DOOR, traffic.outcomes


def test_a_killed_control_fails_no_invocation_and_adopts_everything(platform: Platform) -> None:
    copies, agent = copies_of(platform, COMPONENT), agent_pid(platform)
    with Traffic(platform).flowing() as traffic:
        old = platform.kill("control")
        traffic.goes_on(50)
        platform.back("control", old)
        wait_ready(platform, COMPONENT, copies=2)
        traffic.goes_on(20)
    assert not traffic.errors, traffic.outcomes
    assert copies_of(platform, COMPONENT) == copies
    assert agent_pid(platform) == agent


def test_a_restarted_gateway_answers_from_its_kept_routes_while_control_is_dead(
    platform: Platform,
) -> None:
    traffic = Traffic(platform)
    control = platform.pid("control")
    os.kill(control, signal.SIGSTOP)
    try:
        kill_gateway(platform)
        until(lambda: traffic.once() == OK, "an answer without control")
    finally:
        os.kill(control, signal.SIGCONT)
    wait_ready(platform, COMPONENT, copies=2)


def test_a_killed_object_store_loses_no_acknowledged_object(platform: Platform) -> None:
    s3 = platform.boto3("s3", s3={"addressing_style": "path"})
    s3.create_bucket(Bucket="drill")
    s3.put_object(Bucket="drill", Key="before", Body=b"acknowledged")
    with Traffic(platform).flowing() as traffic:
        old = platform.kill("objectstore")
        platform.back("objectstore", old)

        def read() -> bytes | None:
            try:
                return bytes(s3.get_object(Bucket="drill", Key="before")["Body"].read())
            except (BotoCoreError, ClientError):
                return None

        assert until(read, "the object store answers again") == b"acknowledged"
        traffic.goes_on(20)
    assert not traffic.errors, traffic.outcomes


@pytest.mark.parametrize("victim", [*PLATFORM_PROCESSES, "agent", "model server"])
def test_a_create_that_was_acknowledged_survives_the_death_of(
    platform: Platform, victim: str
) -> None:
    name = "made-while-" + victim.replace(" ", "-")
    create_component(platform, name, copies=1)
    if victim in PLATFORM_PROCESSES:
        platform.back(victim, platform.kill(victim))
    elif victim == "agent":
        os.kill(agent_pid(platform), signal.SIGKILL)
    else:
        pids = until(lambda: copies_of(platform, name), "the copy's process")
        os.kill(next(iter(pids.values())), signal.SIGKILL)
    wait_ready(platform, name, copies=1)
    until(lambda: Traffic(platform, name).once() == OK, "the new component answers")

    platform.boto3("sagemaker").delete_inference_component(InferenceComponentName=name)
    until(lambda: described(platform, name) is None, "the component is gone")
    assert not copies_of(platform, name)


def test_an_endpoint_is_deleted_while_it_is_being_created(platform: Platform) -> None:
    sagemaker = platform.boto3("sagemaker")
    sagemaker.create_endpoint(EndpointName="short-lived", EndpointConfigName=ENDPOINT)
    sagemaker.delete_endpoint(EndpointName="short-lived")

    def gone() -> bool:
        listed = sagemaker.list_endpoints(NameContains="short-lived")["Endpoints"]
        return not listed

    until(gone, "the endpoint is gone", within_s=10)


def test_everything_killed_at_once_comes_back_with_the_next_up(tmp_path: Path) -> None:
    root = tmp_path / "home"
    write_image_rule(root)
    with Platform(root) as platform:
        create_endpoint(platform)
        create_component(platform, COMPONENT, copies=1)
        wait_ready(platform, COMPONENT, copies=1)
        for pid in platform.processes():
            os.kill(pid, signal.SIGKILL)
        until(lambda: not platform.processes(), "all dead")
        platform.start()
        wait_ready(platform, COMPONENT, copies=1)
        assert until(lambda: Traffic(platform).once() == OK, "an answer")
