"""Whoever reaches a copy's port and has no key of it: another local user, or a host's container.

Docs: SECURITY.md, docs/fleet.md. What a caller may ask is asked through the door.
"""

import http.client
import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest
from tests.integration.agent_rig import (
    Rig,
    echo,
    kill,
    rig,
    run,
    until,
    until_gone,
    until_ready,
)
from tests.integration.gateway_rig import (
    GatewayRig,
    component,
    components_endpoint,
    running_gateway,
    snapshot_of,
)
from tests.integration.lmi_rig import Server, byte_model, serving

from hostelry.base.copy_key import HEADER, VARIABLE
from hostelry.domain.copy import CopyPhase, CopyStatus
from hostelry.domain.routes import CopyRoute

pytestmark = pytest.mark.integration
KEY = "5ec3e7" * 10
ENDPOINT = "llms"
PROMPT = {"inputs": "hello", "parameters": {"max_new_tokens": 4}}
DRILL = f"""
[[image]]
pattern = "drill:*"
command = ["{sys.executable}", "-m", "hostelry.containers.drill"]
[image.probe]
content_type = "application/json"
body = "{{}}"
"""


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The LLM server as an agent starts it, with two adapters of its archive."""
    root = tmp_path_factory.mktemp("llm")
    variables = {"OPTION_ENABLE_LORA": "true", VARIABLE: KEY}
    with serving(byte_model(root), root / "log", **variables) as server:
        yield server


@pytest.fixture(scope="module")
def door(llm: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayRig]:
    copies = (CopyRoute(id="c-1", address=llm.url, key=KEY),)
    endpoint = components_endpoint(
        ENDPOINT, component("base", copies), component("es", copies, adapter_id="es")
    )
    with running_gateway(tmp_path_factory.mktemp("door"), snapshot_of("1", endpoint)) as running:
        yield running


ATTACKS = [
    pytest.param("GET", "/ping", None, id="ping"),
    pytest.param("POST", "/invocations", PROMPT, id="invoke"),
    pytest.param("POST", "/predictions/model", PROMPT, id="invoke by another route"),
    pytest.param("POST", "/v1/completions", {"model": "base", "prompt": "x"}, id="OpenAI's"),
    pytest.param("GET", "/v1/models", None, id="list the models"),
    pytest.param("GET", "/models/model", None, id="read the load"),
    pytest.param("GET", "/adapters", None, id="list the tenants' adapters"),
    pytest.param("POST", "/adapters?name=mine&src=hf://some/adapter", None,
                 id="register an adapter with the operator's token"),
    pytest.param("POST", "/adapters", {"name": "mine", "src": "/etc"}, id="register a folder"),
    pytest.param("POST", "/adapters/es/update", {"src": "/etc"}, id="replace an adapter"),
    pytest.param("DELETE", "/adapters/es", None, id="delete an adapter"),
    pytest.param("DELETE", "/models/model/adapters/es", None, id="delete it by another route"),
    pytest.param("GET", "/no-such-route", None, id="look for routes"),
]  # fmt: skip


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param([], id="no key"),
        pytest.param([(HEADER, KEY[:-1])], id="a part of it"),
        pytest.param([(HEADER, "")], id="an empty one"),
        pytest.param([(HEADER, "a"), (HEADER, KEY)], id="one of two"),
        pytest.param([(HEADER, KEY), (HEADER, KEY)], id="it, twice"),
        pytest.param([(HEADER, KEY.upper())], id="other letters"),
        pytest.param([(HEADER, "\xe9" * len(KEY))], id="no ASCII"),
        pytest.param([("X-Hostelry-Key", KEY)], id="under another name"),
    ],
)
@pytest.mark.parametrize(("method", "path", "body"), ATTACKS)
def test_who_has_no_key_gets_nothing_from_the_llm_server(
    llm: Server, method: str, path: str, body: Any, shown: list[tuple[str, str]]
) -> None:
    headers = [(name.encode(), value.encode("latin-1")) for name, value in shown]
    answer = httpx.request(method, llm.url + path, json=body, headers=headers, timeout=10.0)
    assert answer.status_code == 403
    assert "this copy answers its own platform only" in answer.text
    assert KEY not in answer.text


def test_none_of_it_changed_anything(llm: Server) -> None:
    with llm.client() as client:
        adapters = client.get("/adapters").json()["adapters"]
    assert sorted(it["name"] for it in adapters) == ["es", "fr"]


def test_a_body_is_not_waited_for(llm: Server) -> None:
    where = urlsplit(llm.url)
    with socket.create_connection((where.hostname or "", where.port or 0), timeout=10.0) as there:
        there.sendall(b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n\r\n{")
        answer = b""
        while piece := there.recv(65536):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize("component_name", ["base", "es"])
@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({}, id="an ordinary caller"),
        pytest.param({HEADER: "a guess"}, id="a caller who sends a key"),
        pytest.param({HEADER.lower(): KEY}, id="a caller who knows the key"),
        pytest.param({"X-Hostelry-Model": "other", "X-Hostelry-Key": "x"}, id="others of ours"),
    ],
)
def test_the_door_shows_the_key_and_passes_none_on(
    door: GatewayRig, component_name: str, headers: dict[str, str]
) -> None:
    """A copy that is shown two keys refuses: so the caller's did not arrive."""
    path = f"/endpoints/{ENDPOINT}/invocations"
    named = {"X-Amzn-SageMaker-Inference-Component": component_name, **headers}
    body = json.dumps(PROMPT).encode()
    closing = {"Connection": "close", "Content-Type": "application/json"}
    answer = door.ask(door.signed(path, body, {**closing, **named}))
    assert answer.startswith(b"HTTP/1.1 200 "), answer
    assert KEY.encode() not in answer


def test_the_doors_routes_are_its_own_to_read(door: GatewayRig) -> None:
    assert door.home.routes.stat().st_mode & 0o777 == 0o600
    assert KEY in door.home.routes.read_text(), "it is what this test is about"
    assert KEY not in door.log.read_text()




def key_of(there: Rig, copy_id: str) -> str | None:
    record = there.folder().copy(copy_id).load()
    return None if record is None else record.key


def tried(status: CopyStatus, shown: dict[str, str]) -> int:
    where = urlsplit(status.address or "")
    connection = http.client.HTTPConnection(where.hostname or "", where.port or 0, timeout=10.0)
    try:
        connection.request("POST", "/invocations", b"{}", shown)
        return connection.getresponse().status
    finally:
        connection.close()


def test_each_start_has_a_key_of_its_own_that_a_successor_knows(tmp_path: Path) -> None:
    async def work(there: Rig) -> None:
        agent = await there.launch()
        copies = [echo(it, image="drill:1") for it in ("c-1", "c-2")]
        await agent.apply(copies)
        one, two = [await until_ready(agent, it.id) for it in copies]
        keys = [key_of(there, "c-1") or "", key_of(there, "c-2") or ""]
        assert len(set(keys)) == 2
        assert all(len(key) == 64 for key in keys)
        assert [one.key, two.key] == keys
        for shown, status in (({}, 403), ({HEADER: keys[1]}, 403), ({HEADER: keys[0]}, 200)):
            assert tried(one, shown) == status
        assert there.folder().copy("c-1").record.stat().st_mode & 0o777 == 0o600
        told = Path(f"/proc/{one.pid}/cmdline").read_text() + await agent.log_tail("c-1")
        told += there.folder().agent_log.read_text() + repr(one)
        assert keys[0] not in told

        kill(there.agent_pid())
        successor = await there.launch()
        adopted = await until_ready(successor, "c-1")
        assert (adopted.pid, adopted.key) == (one.pid, keys[0])

        kill(one.pid)
        await until(successor, lambda it: it["c-1"].restarts == 1)
        again = await until_ready(successor, "c-1")
        assert again.key not in (None, *keys)
        assert tried(again, {HEADER: keys[0]}) == 403

    with rig(tmp_path) as there:
        there.home.images.write_text(DRILL)
        run(work(there))


def test_a_copy_from_before_there_were_keys_is_adopted_and_reached(tmp_path: Path) -> None:
    async def work(there: Rig) -> None:
        agent = await there.launch()
        await agent.apply([echo()])
        ready = await until_ready(agent)
        kill(there.agent_pid())
        folder = there.folder().copy("c-1")
        before = json.loads(folder.record.read_bytes())
        del before["key"]
        folder.record.write_bytes(msgspec.json.encode(before))
        successor = await there.launch()
        adopted = await until_ready(successor)
        assert (adopted.pid, adopted.key, adopted.phase) == (ready.pid, None, CopyPhase.READY)
        await successor.apply([])
        assert ready.pid is not None
        await until_gone(ready.pid)

    with rig(tmp_path) as there:
        run(work(there))
