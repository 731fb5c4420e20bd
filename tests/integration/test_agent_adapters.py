"""Models and adapters through a real agent, a real model server and a real object store."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cases import case, cases
from tests.integration.agent_rig import (
    ObjectStore,
    adapter,
    ask,
    echo,
    kill,
    object_store,
    rig,
    until,
    until_failed,
    until_gone,
    until_ready,
)
from tests.unit.base.tars import Member, targz

from hostelry.base.ports import free_port
from hostelry.domain.copy import AdapterPhase, AdapterStatus, CopyPhase, CopyStatus
from hostelry.domain.model import ArtifactSource, SourceKind
from hostelry.fleet.local.client import HttpAgent

pytestmark = pytest.mark.integration

ADAPTER = targz([Member(name="adapter_config.json", body=b"{}")])


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("s3")) as store:
        yield store


async def until_adapters(agent: HttpAgent, phases: dict[str, AdapterPhase]) -> CopyStatus:
    """The copy c-1 once its adapters are in just these phases."""

    def holds(copies: dict[str, CopyStatus]) -> bool:
        return {it.id: it.phase for it in copies["c-1"].adapters} == phases

    return (await until(agent, holds))["c-1"]


def reason_of(status: CopyStatus, adapter_id: str) -> str:
    [found] = [it for it in status.adapters if it.id == adapter_id]
    assert isinstance(found, AdapterStatus)
    return found.reason or ""


async def test_a_copy_sees_its_model_and_models_named_by_variables(
    s3: ObjectStore, tmp_path: Path
) -> None:
    with rig(tmp_path, s3.url) as there:
        archive = s3.put("m.tar.gz", targz([Member(name="config.json", body=b"{}")]))
        s3.put("weights/a/b.bin", b"12345")
        agent = await there.launch()
        source = ArtifactSource(uri=archive, kind=SourceKind.ARCHIVE)
        named = {"HF_MODEL_ID": "s3://models/weights", "OPTION_MODEL_ID": "org/model"}
        await agent.apply([echo(name, source=source, environment=named) for name in ("c-1", "c-2")])
        status = await until_ready(agent)
        await until_ready(agent, "c-2")
        assert await ask(status, "/model") == {"config.json": 2}
        given = await ask(status, "/environment")
        assert given["OPTION_MODEL_ID"] == "org/model"
        weights = Path(given["HF_MODEL_ID"]) / "a" / "b.bin"
        assert weights.read_bytes() == b"12345"
        logs = await agent.log_tail("c-1") + await agent.log_tail("c-2")
        assert logs.count("downloading s3://models/m.tar.gz: 100%") == 1, "once per instance"


@cases(
    "key, body, output",
    case("missing", "absent.tar.gz", None, ["NoSuchKey", '"absent.tar.gz"']),
    case("no archive", "junk.tar.gz", b"junk" * 999, ["neither a .tar.gz nor"]),
    case("hostile", "evil.tar.gz", targz([Member(name="/etc/x")]), ["'/etc/x'", "absolute"]),
)
async def test_a_bad_artifact_fails_the_copy_with_its_cause(
    s3: ObjectStore, tmp_path: Path, key: str, body: bytes | None, output: list[str]
) -> None:
    with rig(tmp_path, s3.url) as there:
        uri = f"s3://models/{key}" if body is None else s3.put(key, body)
        agent = await there.launch()
        source = ArtifactSource(uri=uri, kind=SourceKind.ARCHIVE)
        await agent.apply([echo(source=source)])
        reason = (await until_failed(agent)).reason or ""
        assert "Failed to download model data for inference component c-1" in reason
        assert [text for text in [uri, *output] if text not in reason] == []


def test_a_copy_waits_for_a_store_that_is_away(tmp_path: Path) -> None:
    async def away() -> None:
        agent = await there.launch()
        source = ArtifactSource(uri="s3://models/late.tar.gz", kind=SourceKind.ARCHIVE)
        await agent.apply([echo(source=source)])
        copies = await until(agent, lambda it: it["c-1"].reason is not None)
        assert copies["c-1"].phase is CopyPhase.DOWNLOADING
        assert "object store failed" in (copies["c-1"].reason or "")

    async def back() -> None:
        status = await until_ready(await there.launch())
        assert await ask(status, "/model") == {"config.json": 2}

    port = free_port()
    with object_store(tmp_path, port) as store:
        store.put("late.tar.gz", targz([Member(name="config.json", body=b"{}")]))
    with rig(tmp_path, f"http://127.0.0.1:{port}") as there:
        asyncio.run(away())
        with object_store(tmp_path, port):
            asyncio.run(back())


async def test_adapters_follow_the_desired_ones_without_touching_the_copy(
    s3: ObjectStore, tmp_path: Path
) -> None:
    good, empty = s3.put("good.tar.gz", ADAPTER), s3.put("e.tar.gz", targz([Member(name="x")]))
    es, fr = adapter("es@1", good), adapter("fr@1", good)
    broken = adapter("broken@1", empty)
    absent = adapter("absent@1", "s3://models/none.tar.gz")
    ready, failed = AdapterPhase.READY, AdapterPhase.FAILED
    with rig(tmp_path, s3.url) as there:
        agent = await there.launch()
        await agent.apply([echo(adapters=(es, broken, absent))])
        status = await until_adapters(
            agent, {"es@1": ready, "broken@1": failed, "absent@1": failed}
        )
        assert status.phase is CopyPhase.READY, "a failed adapter never fails its copy"
        assert "424" in reason_of(status, "broken@1")
        assert "NoSuchKey" in reason_of(status, "absent@1")
        assert set(await ask(status, "/adapters")) == {"es@1"}
        await agent.apply([echo(adapters=(es, fr))])
        await until_adapters(agent, {"es@1": ready, "fr@1": ready})
        await agent.apply([echo(adapters=(fr,))])
        after = await until_adapters(agent, {"fr@1": ready})
        assert set(await ask(after, "/adapters")) == {"fr@1"}
        assert after.pid == status.pid
        kill(after.pid)
        await until(agent, lambda it: it["c-1"].pid not in (None, after.pid))
        again = await until_adapters(agent, {"fr@1": ready})
        assert set(await ask(again, "/adapters")) == {"fr@1"}, "registered with the new process"


async def test_an_adapter_named_like_one_of_the_archive_fails_and_leaves_that_one_alone(
    s3: ObjectStore, tmp_path: Path
) -> None:
    es = adapter("es@1", s3.put("good.tar.gz", ADAPTER))
    with rig(tmp_path, s3.url) as there:
        agent = await there.launch()
        await agent.apply([echo(environment={"ECHO_ADAPTER": "es@1"}, adapters=(es,))])
        status = await until_adapters(agent, {"es@1": AdapterPhase.FAILED})
        assert "already has an adapter named es@1" in reason_of(status, "es@1")
        await agent.apply([echo(environment={"ECHO_ADAPTER": "es@1"})])
        after = await until_adapters(agent, {})
        assert set(await ask(after, "/adapters")) == {"es@1"}


async def test_an_adopting_agent_takes_out_adapters_that_went_meanwhile(
    s3: ObjectStore, tmp_path: Path
) -> None:
    good = s3.put("good.tar.gz", ADAPTER)
    es, fr = adapter("es@1", good), adapter("fr@1", good)
    ready = AdapterPhase.READY
    with rig(tmp_path, s3.url) as there:
        agent = await there.launch()
        await agent.apply([echo(adapters=(es, fr))])
        before = await until_adapters(agent, {"es@1": ready, "fr@1": ready})
        kill(there.agent_pid())
        await until_gone(there.agent_pid())
        there.folder().save_desired((echo(adapters=(fr,)),))
        agent = await there.launch()
        [first] = (await agent.observe()).copies
        assert [(it.id, it.phase) for it in first.adapters] == [("fr@1", ready)], "proven at once"
        after = await until_adapters(agent, {"fr@1": ready})
        assert after.pid == before.pid
        assert set(await ask(after, "/adapters")) == {"fr@1"}
