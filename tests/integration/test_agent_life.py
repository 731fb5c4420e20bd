"""Agents and copies as real processes: starts, failures and ends of copies."""

import asyncio
import json
import signal
import sys
from pathlib import Path

import httpx
import pytest
from tests.integration.agent_rig import (
    ask,
    echo,
    instance,
    kill,
    rig,
    until,
    until_failed,
    until_gone,
    until_ready,
)

from hostelry.base.errors import InstanceLostError, RetryableError, TerminalError
from hostelry.base.guards import INTERNAL_KEY_HEADER as HEADER
from hostelry.domain.copy import CopyPhase
from hostelry.fleet.local.client import HttpAgent
from hostelry.fleet.ray.fleet import RayFleet

pytestmark = pytest.mark.integration


async def test_a_copy_is_ready_once_an_invocation_was_answered(tmp_path: Path) -> None:
    with rig(tmp_path) as there:
        agent = await there.launch()
        await agent.apply([echo(environment={"LD_PRELOAD": "/evil.so", "MINE": "1"})])
        status = await until_ready(agent)
        given = await ask(status, "/environment")
        assert given["MINE"] == "1"
        assert given["HOSTELRY_CPUS"] == "2"
        assert status.address == f"http://127.0.0.1:{given['SAGEMAKER_BIND_TO_PORT']}"
        assert await ask(status, "/model") == {}
        wicked = [name for name in given if "KEY" in name or "SECRET" in name or name[:3] == "LD_"]
        assert wicked == ["HOSTELRY_COPY_KEY"], "what callers of this very copy show"
        assert there.key not in given.values()
        assert "echo server, mode ok" in await agent.log_tail("c-1")
        assert await agent.log_tail("c-none") == ""


# Ray's driver, as far as a launch needs it: the agent at the address runs, calls are kept.
DRIVER = """
import json, sys
for line in sys.stdin:
    call = json.loads(line)
    print(call["name"], file=open(sys.argv[1], "a"))
    answer = {"number": call["number"]}
    if call["name"] == "launch":
        answer["running"] = [{"id": "i-1", "address": sys.argv[2]}]
    print(json.dumps(answer), flush=True)
"""


@pytest.mark.parametrize("is_own", [True, False], ids=["its key", "a key of an earlier version"])
async def test_an_agent_with_another_key_is_replaced(is_own: bool, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    with rig(tmp_path) as there:
        address = (await there.fleet.launch(instance("i-1"))).address
        command = [sys.executable, "-c", DRIVER, str(calls), address]
        fleet = RayFleet(command, there.key if is_own else "the key of agents")
        if is_own:
            assert (await fleet.launch(instance("i-1"))).address == address
        else:
            with pytest.raises(InstanceLostError, match="another key"):
                await fleet.launch(instance("i-1"))
        fleet.close()
        assert calls.read_text().split() == ["launch", *([] if is_own else ["terminate"])]


async def observe_until_it_ends(agent: HttpAgent) -> None:
    """Poll as control does, until the agent answers without a change, or not at all."""
    have, seen = None, (await agent.observe()).version
    while seen != have:
        have = seen
        try:
            seen = (await agent.observe(have, 50.0)).version
        except RetryableError:
            return


@pytest.mark.parametrize("asked", ["SIGTERM", "shutdown"])
async def test_an_agent_ends_its_requests_without_an_error(tmp_path: Path, asked: str) -> None:
    with rig(tmp_path) as there:
        agent = await there.launch()
        await agent.apply([echo()])
        await until_ready(agent)
        pid = there.agent_pid()
        record = there.folder().load_agent()
        assert record is not None
        # A body that never ends: only the server's end ends this request.
        reader, writer = await asyncio.open_connection("127.0.0.1", record.port)
        head = f"PUT /copies HTTP/1.1\r\nHost: 127.0.0.1\r\n{HEADER}: {there.key}\r\n"
        writer.write(f"{head}Content-Length: 9\r\n\r\n[".encode())
        await writer.drain()
        poll = asyncio.create_task(observe_until_it_ends(agent))
        await asyncio.sleep(0.3)
        assert not poll.done()
        if asked == "SIGTERM":
            kill(pid, signal.SIGTERM)
        else:
            await agent.shutdown()
        await asyncio.wait_for(poll, 20.0)
        answer = await asyncio.wait_for(reader.read(), 20.0)
        assert answer.partition(b"\r\n")[0] in (b"", b"HTTP/1.1 503 Service Unavailable")
        writer.close()
        await until_gone(pid)
        log = there.folder().agent_log.read_text()
        assert "Traceback" not in log, log


async def test_copies_that_cannot_run_fail_with_their_cause(tmp_path: Path) -> None:
    desired = [
        echo("unknown", image="sklearn:1"),
        echo("absent", image="nowhere:1"),
        echo("exits", "exit"),
        echo("never", "never", startup_timeout_s=2.0),
        echo("refuses", "refuse"),
    ]
    causes = {
        "unknown": ['No rule for the image "sklearn:1"', "images.toml"],
        "absent": ["cannot start /nowhere/server"],
        "exits": ["CannotStartContainerError", "inference component exits", "exited with code 1"],
        "never": ["did not pass the ping health check", "within 2 s"],
        "refuses": ["serves no request", "400", "wants something else"],
    }
    with rig(tmp_path) as there:
        agent = await there.launch()
        await agent.apply(desired)
        for copy_id, texts in causes.items():
            status = await until_failed(agent, copy_id)
            assert status.reason is not None
            assert [text for text in texts if text not in status.reason] == []
            assert status.pid is None
        exits = (await until_failed(agent, "exits")).log_tail
        assert exits.count("this server does not want to start") == 3
        kill(there.agent_pid())
        agent = await there.launch()
        copies = await until(agent, lambda it: len(it) == len(desired))
        assert {copy.phase for copy in copies.values()} == {CopyPhase.FAILED}, "failed is final"


async def test_a_killed_copy_is_noticed_and_started_again(tmp_path: Path) -> None:
    with rig(tmp_path) as there:
        agent = await there.launch()
        await agent.apply([echo()])
        before = await until_ready(agent)
        kill(before.pid)
        copies = await until(agent, lambda it: bool(it["c-1"].reason))
        assert "ended by signal 9" in (copies["c-1"].reason or "")
        assert "echo server" in copies["c-1"].log_tail
        after = await until_ready(agent)
        assert after.pid != before.pid
        assert after.restarts == 1
        assert (after.reason, after.log_tail) == (None, "")
        assert after.last_end is not None, "how it ended is told while it is ready again"
        assert "ended by signal 9" in after.last_end.cause
        assert "echo server" in after.last_end.log_tail


async def test_a_stopped_copy_leaves_nothing_running(tmp_path: Path) -> None:
    with rig(tmp_path) as there:
        agent = await there.launch()
        await agent.apply([echo("a", "fork"), echo("b", "fork"), echo("c")])
        pids = []
        for copy_id in ("a", "b"):
            status = await until_ready(agent, copy_id)
            child = there.folder().copy(copy_id).root / "child.pid"
            pids += [status.pid or 0, int(child.read_text())]
        # "a" ends because it is no longer desired, "b" because its instance ends.
        await agent.apply([echo("b", "fork"), echo("c")])
        await until(agent, lambda it: "a" not in it)
        assert not there.folder().copy("a").root.exists()
        await until_gone(pids[0])
        await until_gone(pids[1])
        agent_pid = there.agent_pid()
        await there.fleet.terminate("i-1")
        for pid in [*pids, agent_pid]:
            await until_gone(pid)
        assert not there.folder().root.exists()
        assert list(await there.fleet.list()) == []
        await there.fleet.terminate("i-1")


async def test_a_copy_desired_again_while_it_stops_comes_back(tmp_path: Path) -> None:
    with rig(tmp_path) as there:
        agent = await there.launch()
        await agent.apply([echo()])
        before = await until_ready(agent)
        await agent.apply([])
        await agent.apply([echo()])
        copies = await until(agent, lambda it: "c-1" in it and it["c-1"].pid != before.pid)
        assert set(copies) == {"c-1"}
        assert (await until_ready(agent)).restarts == 0


async def test_a_changed_spec_replaces_the_process(tmp_path: Path) -> None:
    with rig(tmp_path) as there:
        agent = await there.launch()
        await agent.apply([echo()])
        before = await until_ready(agent)
        await agent.apply([echo(environment={"NEW": "1"})])
        await until(agent, lambda it: "c-1" in it and it["c-1"].pid not in (None, before.pid))
        after = await until_ready(agent)
        assert (await ask(after, "/environment"))["NEW"] == "1"


async def test_the_agent_answers_only_to_the_key_and_to_sense(tmp_path: Path) -> None:
    with rig(tmp_path) as there:
        agent = await there.launch()
        address = (await there.fleet.list())[0].address
        right = {HEADER: there.key}
        async with httpx.AsyncClient(base_url=address, trust_env=False) as http:
            for headers in (
                {},
                {HEADER: "wrong"},
                {HEADER: there.key + "x"},
            ):
                for method, path in (("GET", "/observe"), ("PUT", "/copies"), ("POST", "/nope")):
                    answer = await http.request(method, path, headers=headers)
                    assert answer.status_code == 403
            for body in (b"", b"{", b"{}", b'[{"id": 1}]', b'[{"id": "c-1"}]'):
                assert (await http.put("/copies", headers=right, content=body)).status_code == 400
            assert (await http.get("/observe?wait_s=soon", headers=right)).status_code == 400
            assert (await http.get("/logs/..%2f..", headers=right)).status_code in (400, 404)
            assert (await http.get("/nope", headers=right)).status_code == 404
        with pytest.raises(TerminalError, match="is not an id"):
            await agent.apply([echo("../../evil")])
        with pytest.raises(TerminalError, match="comes twice"):
            await agent.apply([echo(), echo()])
        assert (await agent.observe()).copies == ()


async def test_an_observer_waits_for_news_and_no_longer(tmp_path: Path) -> None:
    with rig(tmp_path) as there:
        agent = await there.launch()
        first = await agent.observe()
        assert (await agent.observe(first.version, 0.2)).version == first.version
        waiting = asyncio.create_task(agent.observe(first.version, 20.0))
        await agent.apply([echo("x", image="sklearn:1")])
        assert (await waiting).version != first.version


async def test_an_agent_that_cannot_start_names_the_cause(tmp_path: Path) -> None:
    with rig(tmp_path) as there:
        kept = there.home.config.read_bytes()
        there.home.config.write_text("{")
        with pytest.raises(TerminalError, match=r"(?s)exited with code 1.*truncated"):
            await there.launch()
        there.home.config.write_bytes(kept)
        await there.launch()


async def test_instances_are_launched_once_however_often_they_are_asked_for(tmp_path: Path) -> None:
    with rig(tmp_path) as there:
        await asyncio.gather(*(there.launch(name) for name in ("i-1", "i-1", "i-2", "i-1")))
        assert [it.id for it in await there.fleet.list()] == ["i-1", "i-2"]
        pid = there.agent_pid()
        await there.launch()
        assert there.agent_pid() == pid
        recorded = json.loads(there.folder().instance.read_bytes())
        assert recorded["instance_type"] == "ml.m5.large"


async def test_a_rule_that_is_broken_or_added_later_is_met_by_the_next_start_only(
    tmp_path: Path,
) -> None:
    with rig(tmp_path) as there:
        agent = await there.launch()
        await agent.apply([echo()])
        before = await until_ready(agent)
        rules = there.home.images.read_text()
        there.home.images.write_text("[[image]]\npattern = 1\n")
        await agent.apply([echo(), echo("c-2")])
        assert "images.toml" in ((await until_failed(agent, "c-2")).reason or "")
        kill(there.agent_pid())
        agent = await there.launch()
        assert (await until_ready(agent)).pid == before.pid, "what runs is adopted all the same"
        kill(before.pid)
        copies = await until(agent, lambda it: "images.toml" in (it["c-1"].reason or ""))
        assert copies["c-1"].phase is CopyPhase.UNHEALTHY
        there.home.images.write_text(rules)
        await until_ready(agent)
