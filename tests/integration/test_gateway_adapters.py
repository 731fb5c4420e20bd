"""Requests for adapters through a real gateway: they stay together, and many of them spread."""

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from openai import OpenAI
from tests.integration.gateway_rig import (
    EchoProcess,
    GatewayRig,
    component,
    components_endpoint,
    running_gateway,
    snapshot_of,
)

pytestmark = pytest.mark.integration
NUM_ADAPTERS = 4
NUM_REQUESTS = 20  # enough that chance would not send all of them to one of three copies


@pytest.fixture(scope="module")
def copies() -> Iterator[list[EchoProcess]]:
    started = [EchoProcess(f"echo-{number}") for number in range(3)]
    yield started
    for copy in started:
        copy.kill()


@pytest.fixture
def rig(copies: list[EchoProcess], tmp_path: Any) -> Iterator[GatewayRig]:
    routes = tuple(copy.route for copy in copies)
    adapters = [
        component(f"adapter-{number}", routes, adapter_id=f"adapter-{number}-1")
        for number in range(NUM_ADAPTERS)
    ]
    endpoint = components_endpoint("llms", component("base", routes), *adapters)
    with running_gateway(tmp_path, snapshot_of("1", endpoint)) as running:
        yield running


def pid_of(client: Any, name: str, reported: str = "show") -> int:
    """The process that answers a request for component `name`."""
    answer = client.invoke_endpoint(
        EndpointName="llms", InferenceComponentName=name, Body=b"", CustomAttributes=reported
    )
    return int(json.loads(answer["Body"].read())["pid"])


def test_one_by_one_all_adapters_share_a_copy_and_the_base_uses_every_copy(
    rig: GatewayRig,
) -> None:
    client = rig.client()
    pids = {pid_of(client, f"adapter-{n % NUM_ADAPTERS}") for n in range(NUM_REQUESTS)}
    assert len(pids) == 1
    assert len({pid_of(client, "base") for _ in range(3 * NUM_REQUESTS)}) == 3


def test_an_adapter_that_many_want_at_once_is_served_by_every_copy(rig: GatewayRig) -> None:
    client = rig.client()
    with ThreadPoolExecutor(NUM_REQUESTS) as pool:
        pids = Counter(
            pool.map(
                lambda _: pid_of(client, "adapter-0", "show;sleep_ms=300"), range(NUM_REQUESTS)
            )
        )
    assert len(pids) == 3
    assert max(pids.values()) <= NUM_REQUESTS / 2


def test_an_adapter_inside_an_archive_that_an_openai_client_names_stays_too(
    rig: GatewayRig, copies: list[EchoProcess]
) -> None:
    before = [copy.asked("/served") for copy in copies]
    client = OpenAI(
        base_url=f"{rig.config.gateway_url}/v1",
        api_key=rig.credentials.openai_api_key,
        max_retries=0,
    )
    with client:
        for _ in range(NUM_REQUESTS):
            client.completions.create(model="base:pirate", prompt="hello")
    served = [copy.asked("/served") - was - 1 for copy, was in zip(copies, before, strict=True)]
    assert sorted(served) == [0, 0, NUM_REQUESTS]
