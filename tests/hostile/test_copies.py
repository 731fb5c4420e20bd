"""Attackers who reach a copy's port without its key: another local user, or a host's container.

Docs: SECURITY.md, docs/fleet.md. What a client may ask is asked through the gateway.
"""

import asyncio
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest
from tests.cases import case, cases
from tests.integration.agent_rig import (
    Rig,
    echo,
    kill,
    rig,
    until,
    until_gone,
    until_ready,
    until_true,
)
from tests.integration.gateway_rig import (
    GatewayRig,
    component,
    components_endpoint,
    running_gateway,
    snapshot_of,
)
from tests.integration.lmi_rig import Server, byte_model, serving
from tests.integration.platform import command_line
from tests.integration.test_agent_copy_user import python_of_all, refused_here, started

from hostelry.base.guards import COPY_KEY_HEADER, COPY_KEY_VARIABLE
from hostelry.domain.copy import CopyPhase, CopyStatus
from hostelry.domain.routes import CopyRoute
from hostelry.fleet.local.client import HttpAgent
from hostelry.fleet.rules.copy_user import EACH_ITS_OWN
from hostelry.home.home import load_config, save_config

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
    variables = {"OPTION_ENABLE_LORA": "true", COPY_KEY_VARIABLE: KEY}
    with serving(byte_model(root), root / "log", **variables) as server:
        yield server


@pytest.fixture(scope="module")
def gateway(llm: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayRig]:
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


@cases(
    "shown",
    case("no key", []),
    case("a part of it", [(COPY_KEY_HEADER, KEY[:-1])]),
    case("an empty one", [(COPY_KEY_HEADER, "")]),
    case("one of two", [(COPY_KEY_HEADER, "a"), (COPY_KEY_HEADER, KEY)]),
    case("it, twice", [(COPY_KEY_HEADER, KEY), (COPY_KEY_HEADER, KEY)]),
    case("other letters", [(COPY_KEY_HEADER, KEY.upper())]),
    case("no ASCII", [(COPY_KEY_HEADER, "\xe9" * len(KEY))]),
    case("under another name", [("X-Hostelry-Key", KEY)]),
)
@pytest.mark.parametrize(("method", "path", "body"), ATTACKS)
def test_who_has_no_key_gets_nothing_from_the_llm_server(
    llm: Server, method: str, path: str, body: Any, shown: list[tuple[str, str]]
) -> None:
    headers = [(name.encode(), value.encode("latin-1")) for name, value in shown]
    with httpx.Client(base_url=llm.url, timeout=10.0, verify=False) as http:
        answer = http.request(method, path, json=body, headers=headers)
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
@cases(
    "headers",
    case("an ordinary caller", {}),
    case("a caller who sends a key", {COPY_KEY_HEADER: "a guess"}),
    case("a caller who knows the key", {COPY_KEY_HEADER.lower(): KEY}),
    case("others of ours", {"X-Hostelry-Model": "other", "X-Hostelry-Key": "x"}),
)
def test_the_gateway_shows_the_key_and_passes_none_on(
    gateway: GatewayRig, component_name: str, headers: dict[str, str]
) -> None:
    """A copy that is shown two keys refuses: so the caller's did not arrive."""
    path = f"/endpoints/{ENDPOINT}/invocations"
    named = {"X-Amzn-SageMaker-Inference-Component": component_name, **headers}
    body = json.dumps(PROMPT).encode()
    closing = {"Connection": "close", "Content-Type": "application/json"}
    answer = gateway.ask(gateway.signed(path, body, {**closing, **named}))
    assert answer.startswith(b"HTTP/1.1 200 "), answer
    assert KEY.encode() not in answer


def test_the_gateways_routes_are_its_own_to_read(gateway: GatewayRig) -> None:
    assert gateway.home.routes.stat().st_mode & 0o777 == 0o600
    assert KEY in gateway.home.routes.read_text(), "it is what this test is about"
    assert KEY not in gateway.log.read_text()


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
        for shown, status in (
            ({}, 403),
            ({COPY_KEY_HEADER: keys[1]}, 403),
            ({COPY_KEY_HEADER: keys[0]}, 200),
        ):
            assert tried(one, shown) == status
        assert there.folder().copy("c-1").record.stat().st_mode & 0o777 == 0o600
        seen = command_line(one.pid or 0) + await agent.log_tail("c-1")
        seen += there.folder().agent_log.read_text() + repr(one)
        assert keys[0] not in seen

        kill(there.agent_pid())
        successor = await there.launch()
        adopted = await until_ready(successor, "c-1")
        assert (adopted.pid, adopted.key) == (one.pid, keys[0])

        kill(one.pid)
        await until(successor, lambda it: it["c-1"].restarts == 1)
        again = await until_ready(successor, "c-1")
        assert again.key not in (None, *keys)
        assert tried(again, {COPY_KEY_HEADER: keys[0]}) == 403

    with rig(tmp_path) as there:
        there.home.images.write_text(DRILL)
        asyncio.run(work(there))


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
        asyncio.run(work(there))


# Copies with a user each: what one process can do to another copy's, and to the platform's.
OTHER_USER = 61_235  # another local user
ATTACK = """
import ctypes, json, os, resource, sys, _multiprocessing, _posixshmem
pid, folder, name = json.load(sys.stdin)
libc = ctypes.CDLL(None, use_errno=True)
def ptrace():
    if libc.ptrace(16, pid, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")
def read(path):
    with open(path, "rb") as file:
        file.seek(0 if not path.endswith("/mem") else id(file))
        file.read(1)
def rebuild():
    _multiprocessing.SemLock._rebuild(0, 1, 1, "/" + name)
acts = {
    "signal": lambda: os.kill(pid, 0),
    "end": lambda: os.kill(pid, 15),
    "trace": ptrace,
    "lower its priority": lambda: os.setpriority(os.PRIO_PROCESS, pid, 19),
    "pin it": lambda: os.sched_setaffinity(pid, {0}),
    "limit it": lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, 0)),
    "offer it to the kernel": lambda: open(f"/proc/{pid}/oom_score_adj", "w").close(),
    **{f"read {it}": lambda it=it: read(f"/proc/{pid}/{it}")
       for it in ("mem", "environ", "maps", "io", "stack", "auxv")},
    "see what it has open": lambda: os.listdir(f"/proc/{pid}/fd"),
    "enter its folder": lambda: os.listdir(f"/proc/{pid}/cwd"),
    "list its folder": lambda: os.listdir(folder),
    "list its work": lambda: os.listdir(folder + "/work"),
    "read its work": lambda: read(folder + "/work/mine"),
    "write in its work": lambda: open(folder + "/work/other", "w").close(),
    "read its record": lambda: read(folder + "/copy.json"),
    "read its log": lambda: read(folder + "/log"),
    "write to its log": lambda: open(folder + "/log", "a").close(),
    "map its shared memory": lambda: _posixshmem.shm_open("/" + name, os.O_RDWR, 0o600),
    "read its shared memory": lambda: read("/dev/shm/" + name),
    "unlink its shared memory": lambda: _posixshmem.shm_unlink("/" + name),
    "take its semaphore": rebuild,
}
def outcome(act):
    try:
        act()
    except OSError as error:
        return type(error).__name__
    return "done"
print(json.dumps({what: outcome(act) for what, act in acts.items()}))
"""
VICTIM = """
import json, os, sys, _multiprocessing, _posixshmem
folder, name = json.load(sys.stdin)
os.close(_posixshmem.shm_open("/" + name, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
_multiprocessing.SemLock(1, 1, 1, "/" + name, False)
open(folder + "/work/mine", "w").close()
"""
CLOSED = """
import json, os, sys
top = json.load(sys.stdin)
os.makedirs(top + "/b/c")
os.chmod(top, 0)
"""


def as_user(number: int, program: str, given: Any) -> str:
    """Run `program` as that user, without other groups, and return its output."""
    done = subprocess.run(
        [python_of_all(), "-c", program],
        input=json.dumps(given),
        user=number,
        group=number,
        extra_groups=[],
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users can enter. pytest's own folders are private."""
    with tempfile.TemporaryDirectory(prefix="hostelry-", dir="/tmp") as name:
        Path(name).chmod(0o711)
        yield Path(name)


def user_of(pid: int | None) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


@contextmanager
def shared_names(number: int, folder: Path) -> Iterator[str]:
    """Shared memory and a semaphore of that user, and a file in its copy's work folder."""
    name = f"hostelry-hostile-{os.getpid()}"
    as_user(number, VICTIM, [str(folder), name])
    try:
        yield name
    finally:
        for prefix in ("", "sem."):
            Path(f"/dev/shm/{prefix}{name}").unlink(missing_ok=True)


def test_no_other_user_reaches_a_copy_but_by_its_port(folder: Path) -> None:
    async def work(there: Rig) -> None:
        agent, (mine, other) = await started(there, folder, "c-1", "c-2", user=EACH_ITS_OWN)
        users = [user_of(it) for it in (mine, other)]
        assert len({0, *users}) == 3
        keys = [key_of(there, it) or "" for it in ("c-1", "c-2")]
        victim = there.folder().copy("c-2")
        with shared_names(users[1], victim.root) as name:
            for attacker in (users[0], OTHER_USER):
                seen = json.loads(as_user(attacker, ATTACK, [other, str(victim.root), name]))
                assert {what for what, came in seen.items() if came != "PermissionError"} == set()
            seen = json.loads(as_user(users[1], ATTACK, [other, str(victim.root), name]))
            assert seen["read its work"] == "done", "the attacks are what they say"
            assert seen["map its shared memory"] == seen["take its semaphore"] == "done"
        await until_gone(other)  # its own user may end it
        again = await until(agent, lambda it: it["c-2"].restarts == 1)
        assert again["c-1"].restarts == 0
        status = await until_ready(agent, "c-2")
        assert (user_of(status.pid), len({*keys, status.key})) == (users[1], 3)
        assert [tried(status, {COPY_KEY_HEADER: key}) for key in keys] == [403, 403]

    with rig(folder) as there:
        if not refused_here(there):
            asyncio.run(work(there))


def test_what_a_copy_leaves_behind_goes_with_it(folder: Path) -> None:
    async def work(there: Rig) -> None:
        agent, (pid,) = await started(there, folder, "c-1", user=EACH_ITS_OWN)
        root = there.folder().copy("c-1").root
        as_user(user_of(pid), CLOSED, f"{root}/work/a")
        await agent.apply([])
        await until_gone(pid)
        await until_true(lambda: not root.exists(), "the folder is gone")

    with rig(folder) as there:
        if not refused_here(there):
            asyncio.run(work(there))


async def started_again(agent: HttpAgent, copy_id: str, restarts: int) -> CopyStatus:
    await until(agent, lambda it: it[copy_id].restarts > restarts)
    return await until_ready(agent, copy_id)


def test_a_home_goes_on_with_another_setting(folder: Path) -> None:
    async def work(there: Rig) -> None:
        agent, (pid,) = await started(there, folder, "c-1", user=EACH_ITS_OWN)
        for setting, is_root in ((None, True), (EACH_ITS_OWN, False)):
            before = user_of(pid)
            save_config(there.home, replace(load_config(there.home), copy_user=setting))
            kill(there.agent_pid())
            agent = await there.launch()
            adopted = await until_ready(agent, "c-1")
            assert (adopted.pid, user_of(pid)) == (pid, before), "what runs goes on as it is"
            kill(pid)
            pid = (await started_again(agent, "c-1", adopted.restarts)).pid or 0
            assert (user_of(pid) == 0) is is_root

    with rig(folder) as there:
        if not refused_here(there):
            asyncio.run(work(there))


def test_a_copy_listens_where_every_user_may_connect_only_with_its_key(llm: Server) -> None:
    """Ports and abstract sockets are open to all users. The LLM server has no abstract socket."""
    pids = [llm.process.pid, llm.engine_pid()]
    opened = {os.readlink(it) for pid in pids for it in Path(f"/proc/{pid}/fd").iterdir()}
    rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    named = [row[7] for row in rows if len(row) > 7 and f"socket:[{row[6]}]" in opened]
    assert named == []
