"""The LLM server under a flood: shares, quotas and deadlines, as real processes."""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cases import case, cases
from tests.integration.lmi_rig import START_S, Server, byte_model, eventually, serving, start

pytestmark = pytest.mark.integration

TENANTS = {"bounded": {"max_concurrent": 2}}
DEADLINE = "X-Hostelry-First-Token-Deadline-S"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """At most two requests run at a time."""
    root = tmp_path_factory.mktemp("lmi")
    with serving(
        byte_model(root),
        root / "log",
        OPTION_ENABLE_LORA="true",
        OPTION_MAX_ROLLING_BATCH_SIZE="2",
        OPTION_TENANTS=json.dumps(TENANTS),
    ) as running:
        yield running


def ask(
    client: httpx.Client, num_tokens: int, tenant: str | None = None, **headers: str
) -> httpx.Response:
    parameters = {"max_new_tokens": num_tokens, "do_sample": False, "ignore_eos_token": True}
    if tenant is not None:
        headers["X-Hostelry-Tenant"] = tenant
    body = {"inputs": "hello", "parameters": parameters}
    return client.post("/invocations", json=body, headers=headers)


def load(client: httpx.Client) -> dict[str, Any]:
    reported: dict[str, Any] = client.get("/models/lmi").json()[0]["models"][0]["engine"]
    return reported


def test_a_steady_tenant_is_served_while_another_floods(server: Server) -> None:
    with server.client() as client, ThreadPoolExecutor(24) as pool:
        flood = [pool.submit(ask, client, 900, "flood") for _ in range(24)]
        eventually(lambda: load(client)["waitingRequests"] > 10, "the flood waits")
        for _ in range(3):
            assert ask(client, 4, "steady").status_code == 200
        assert load(client)["waitingRequests"] > 0, "the flood still waits"
        assert {each.result().status_code for each in flood} == {200}


def test_a_quota_is_429_for_its_tenant_alone(server: Server) -> None:
    with server.client() as client, ThreadPoolExecutor(8) as pool:
        flood = [pool.submit(ask, client, 400, "bounded") for _ in range(8)]
        assert ask(client, 4, "other").status_code == 200
        answers = [each.result() for each in flood]
    refused = [it for it in answers if it.status_code != 200]
    assert {it.status_code for it in refused} == {429}
    assert all(int(it.headers["retry-after"]) >= 1 for it in refused)
    assert "quota of 2 concurrent requests" in refused[0].json()["message"]


def test_a_request_that_would_begin_too_late_is_503(server: Server) -> None:
    with server.client() as client, ThreadPoolExecutor(4) as pool:
        long = [pool.submit(ask, client, 1500, "flood") for _ in range(4)]
        eventually(lambda: load(client)["waitingRequests"] > 0, "the batch is full")
        late = ask(client, 4, "flood", **{DEADLINE: "0.02"})
        assert (late.status_code, late.headers["retry-after"]) == (503, "1")
        assert {each.result().status_code for each in long} == {200}
        assert load(client)["expiredRequests"] >= 1


def test_endless_headers_are_cut_off(server: Server) -> None:
    with server.client() as client:
        refused = ask(client, 4, "x" * 300)
        assert (refused.status_code, "1 to 256" in refused.text) == (424, True)
    host, _, port = server.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as raw:
        raw.sendall(b"POST /invocations HTTP/1.1\r\nX-Hostelry-Tenant: ")
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            raw.sendall(b"x" * (64 << 20))
    assert server.status() == 200


@cases("tenants", case("cut off", "{"), case("weight 0", '{"a":{"weight":0}}'))
def test_tenants_that_cannot_be_end_the_start(tenants: str, tmp_path: Path) -> None:
    process, _ = start(tmp_path, tmp_path / "log", OPTION_TENANTS=tenants)
    assert process.wait(START_S) == 2
    assert "OPTION_TENANTS is" in (tmp_path / "log").read_text()
