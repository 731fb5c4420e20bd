"""A container engine runs, isolates, adopts, ends and explains users' own images."""

import asyncio
import os
import re
import signal
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace
from tests.integration.agent_rig import (
    ObjectStore,
    Rig,
    adapter,
    echo,
    kill,
    object_store,
    until,
    until_failed,
    until_gone,
    until_ready,
    until_true,
)
from tests.integration.container_rig import (
    ENGINE_TABLE,
    FLAT_IMAGE,
    IMAGE,
    PORT_IMAGE,
    container_rig,
    containers,
    invoke,
    machine,
    output,
    where_containers_run,
)
from tests.unit.base.tars import Member, targz

from hostelry.domain.copy import AdapterPhase, CopyPhase, CopySpec, CopyStatus
from hostelry.domain.shape import Requirements
from hostelry.fleet.host.processes import identify
from hostelry.fleet.launch.container_launcher import ContainerRecord
from hostelry.fleet.local.fleet import stop_everything

pytestmark = pytest.mark.integration

ADAPTER = targz([Member(name="adapter_config.json", body=b"of es")])
BARE = targz([Member(name="weights")])


def box(copy_id: str = "c-1", image: str = IMAGE, **environment: str) -> CopySpec:
    return echo(copy_id, image=image, environment=environment)


def log_of(there: Rig, copy_id: str = "c-1") -> str:
    return there.folder().copy(copy_id).log.read_text()


@where_containers_run
def test_an_image_runs_by_the_container_contract(tmp_path: Path) -> None:
    async def work() -> None:
        agent = await there.launch()
        await agent.apply([box(GREETING="hello there", TWO_LINES="a\nb", HOSTELRY_CPUS="99")])
        ready = await until_ready(agent)
        assert "started with serve" in log_of(there)
        assert "an empty object was answered with 400" in log_of(there)
        asked = {
            "GREETING": "hello there",
            "TWO_LINES": "a\nb",
            "SAGEMAKER_BIND_TO_PORT": "8080",
            "AWS_REGION": "us-west-2",
            "HOSTELRY_MODEL_DIR": "/opt/ml/model",
            "USER": "(unset)",
            "HF_TOKEN": "(unset)",
            "NVIDIA_VISIBLE_DEVICES": "void",
        }
        assert {name: await output(ready, f"env {name}") for name in asked} == asked
        assert await output(ready, "env HOSTELRY_CPUS") != "99"
        assert await output(ready, "read /opt/ml/model") == "error: Is a directory"
        assert "Read-only" in await output(ready, "write /opt/ml/model/x")
        assert await output(ready, "write /x") == "written", "a layer of its own"
        assert "NoNewPrivs:\t1" in await output(ready, "capabilities")
        assert "CapEff:\t00000000000000eb" in await output(ready, "capabilities")
        assert "unreachable" in await output(ready, "connect 192.0.2.1 80"), "no network"
        outside = there.folder().load_agent()
        assert outside is not None
        assert "refused" in await output(ready, f"connect 127.0.0.1 {outside.port}"), (
            "not the host's"
        )
        await agent.apply([])
        await until(agent, lambda copies: not copies)
        assert containers(there) == []
        assert identify(ready.pid or 0) is None

    os.environ["HF_TOKEN"] = "the operator's secret"
    try:
        with container_rig(tmp_path) as there:
            asyncio.run(work())
    finally:
        del os.environ["HF_TOKEN"]


@where_containers_run
def test_a_containers_end_is_explained(tmp_path: Path) -> None:
    memory = Requirements(min_memory_bytes=64 * 1024**2, max_memory_bytes=64 * 1024**2)

    async def work() -> None:
        agent = await there.launch()
        small = replace(box("small"), requirements=memory)
        broken = replace(box("broken", BROKEN="1"), startup_timeout_s=3.0)
        await agent.apply([small, box("other"), broken, box("gone", "no/such:1")])
        ready = await until_ready(agent, "small")
        other = await until_ready(agent, "other")
        with pytest.raises(httpx.HTTPError):
            await invoke(ready, "eat 200")
        ended = (await until(agent, lambda it: it["small"].restarts == 1))["small"]
        assert "memory" in (ended.reason or ""), ended
        assert "64 MB (MaxMemoryRequiredInMb" in (ended.reason or "")
        again = await until_ready(agent, "small")
        assert again.pid != ready.pid
        with pytest.raises(httpx.HTTPError):
            await invoke(other, "exit 7")
        ended = (await until(agent, lambda it: it["other"].restarts == 1))["other"]
        assert "exited with code 7" in (ended.reason or "")
        missing = await until_failed(agent, "gone")
        for words in ('"no/such:1" is not on this machine', "cannot be pulled", "images.toml"):
            assert words in (missing.reason or "")
        reason = (await until_failed(agent, "broken")).reason or ""
        assert "answered 500" in reason
        assert "HOSTELRY_PROBE_BODY" in reason

    with container_rig(tmp_path) as there:
        asyncio.run(work())


@where_containers_run
def test_a_killed_agents_container_is_adopted_and_still_reached(tmp_path: Path) -> None:
    async def work() -> None:
        agent = await there.launch()
        await agent.apply([box(), box("stubborn", STUBBORN="1")])
        before = await until_ready(agent)
        stubborn = await until_ready(agent, "stubborn")
        first = there.agent_pid()
        kill(first)
        await until_gone(first)
        assert await output(before, "env AWS_REGION") == "us-west-2", "without any agent"
        agent = await there.launch()
        after = await until_ready(agent)
        assert (after.pid, after.address) == (before.pid, before.address)
        record = ContainerRecord.load(there.folder().copy("c-1").root)
        assert record is not None
        assert record.followers[0] is not None
        kill(record.followers[0].pid)
        await until_gone(record.followers[0].pid)
        copies = await until(agent, lambda it: it["c-1"].phase is CopyPhase.READY)
        assert copies["c-1"].restarts == 0, "the follower is replaced, not the copy"

        await agent.apply([box("stubborn", STUBBORN="1")])
        await until(agent, lambda it: "c-1" not in it)
        kill(there.agent_pid(), signal.SIGKILL)
        stop_everything(there.home.instances, grace_s=1.0)
        assert containers(there) == []
        assert identify(stubborn.pid or 0) is None
        assert "got SIGTERM" in log_of(there, "stubborn"), "asked before it was killed"

    with container_rig(tmp_path) as there:
        asyncio.run(work())


@where_containers_run
def test_containers_whose_copies_are_not_desired_are_removed(tmp_path: Path) -> None:
    async def work() -> None:
        agent = await there.launch()
        await agent.apply([box()])
        ready = await until_ready(agent)
        kill(there.agent_pid())
        kill(ready.pid)
        there.folder().save_desired(())
        agent = await there.launch()
        await until_true(lambda: containers(there) == [], "the container is removed")
        await until_true(lambda: not there.folder().copy_ids(), "the folder is removed")

    with container_rig(tmp_path) as there:
        asyncio.run(work())


NETWORKS = """
[[image]]
pattern = "*:port"
container = true
network = "host"

[[image]]
pattern = "*:1"
container = true
network = "host"

[[image]]
pattern = "*:flat"
container = true
command = ["/bin/server"]
network = "bridge"
[image.probe]
content_type = "text/plain"
body = "env PATH"
"""


@where_containers_run
def test_a_network_is_had_where_the_operator_allows_it(tmp_path: Path) -> None:
    async def work() -> None:
        there.home.images.write_text(NETWORKS + ENGINE_TABLE)
        agent = await there.launch()
        await agent.apply(
            [box("a", PORT_IMAGE), box("b", PORT_IMAGE), box("c", IMAGE), box("d", FLAT_IMAGE)]
        )
        one, two = await until_ready(agent, "a"), await until_ready(agent, "b")
        assert one.address != two.address
        assert await output(one, "env SAGEMAKER_BIND_TO_PORT") == (one.address or "").split(":")[-1]
        assert "accept-bind-to-port" in ((await until_failed(agent, "c")).reason or "")
        bridged = await until_ready(agent, "d")
        assert await output(bridged, "env SAGEMAKER_BIND_TO_PORT") == "8080"

    with container_rig(tmp_path) as there:
        asyncio.run(work())


@where_containers_run
def test_an_image_without_a_program_names_what_it_needs(tmp_path: Path) -> None:
    async def work() -> None:
        agent = await there.launch()
        await agent.apply([box(image=FLAT_IMAGE), box("hostile", image="dir:/etc")])
        reason = (await until_failed(agent)).reason or ""
        assert "needs an ENTRYPOINT" in reason
        assert "is not the name of a container image" in (
            (await until_failed(agent, "hostile")).reason or ""
        )
        assert len(containers(there)) <= 1

    with container_rig(tmp_path) as there:
        asyncio.run(work())
    assert containers(there) == []
    assert machine().engine is not None


@where_containers_run
def test_adapters_reach_a_container_that_runs(tmp_path: Path) -> None:
    async def work(store: ObjectStore) -> None:
        agent = await there.launch()
        await agent.apply([box()])
        ready = await until_ready(agent)
        es = adapter("es@1", store.put("es.tar.gz", ADAPTER))
        bare = adapter("bare@1", store.put("bare.tar.gz", BARE))
        await agent.apply([replace(box(), adapters=(es, bare))])

        def decided(copies: dict[str, CopyStatus]) -> bool:
            return all(it.phase is not AdapterPhase.PENDING for it in copies["c-1"].adapters)

        copy = (await until(agent, lambda it: len(it["c-1"].adapters) == 2 and decided(it)))["c-1"]
        phases = {it.id: it.phase for it in copy.adapters}
        assert phases == {"es@1": AdapterPhase.READY, "bare@1": AdapterPhase.FAILED}
        assert copy.pid == ready.pid, "the container is the same"
        assert re.search(r"adapter at /opt/ml/models/\w+/adapter_config.json: of es", log_of(there))
        shelf = there.folder().copy("c-1").root / "adapters"
        await agent.apply([box()])
        await until_true(lambda: not list(shelf.iterdir()), "the adapters' files are gone")

    with object_store(tmp_path) as store, container_rig(tmp_path, store.url) as there:
        asyncio.run(work(store))
