"""Changes of adapters: side by side, in order for each name, and whole or not at all."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.unit.containers.lmi.tiny import ask, config, fake, ids, server

from hostelry.containers.lmi.fake import FakeBackend
from hostelry.containers.lmi.http import adapter_registry as registry_module
from hostelry.containers.lmi.http.adapter_registry import AdapterRecord, AdapterRegistry
from hostelry.containers.lmi.refusal import Cause, Refusal

SLOW = "s3://bucket/slow"


def record(name: str, src: str = "s3://bucket/fine", **more: bool) -> AdapterRecord:
    return AdapterRecord(name=name, alias=name, src=src, **more)


def with_registry(
    scenario: Callable[[AdapterRegistry, FakeBackend], Awaitable[None]], limit_s: float = 60.0
) -> None:
    async def run() -> None:
        backend = FakeBackend({None: ids("x")})
        await scenario(
            AdapterRegistry(backend, enabled=True, max_pinned=2, limit_s=limit_s), backend
        )

    asyncio.run(run())


async def refused(change: Awaitable[object]) -> Refusal:
    with pytest.raises(Refusal) as refusal:
        await change
    return refusal.value


def test_a_slow_registration_holds_up_no_other() -> None:
    async def scenario(registry: AdapterRegistry, backend: FakeBackend) -> None:
        slow = asyncio.create_task(registry.register(record("slow", SLOW)))
        await asyncio.gather(*(registry.register(record(f"a{it}")) for it in range(50)))
        assert len(registry.records) == 50
        assert not slow.done()
        backend.slow.set()
        await slow
        assert "slow" in registry.records

    with_registry(scenario)


def test_one_name_is_registered_once() -> None:
    async def scenario(registry: AdapterRegistry, backend: FakeBackend) -> None:
        tasks = [asyncio.create_task(registry.register(record("a", SLOW))) for _ in range(5)]
        await asyncio.sleep(0)
        backend.slow.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert results[0] is None
        assert [it.cause for it in results if isinstance(it, Refusal)] == [Cause.CONFLICT] * 4

    with_registry(scenario)


def test_a_source_that_hangs_is_given_up_and_leaves_nothing() -> None:
    async def scenario(registry: AdapterRegistry, backend: FakeBackend) -> None:
        refusal = await refused(registry.register(record("a", SLOW)))
        assert (refusal.cause, registry.records) == (Cause.DEPENDENCY, {})
        await registry.register(record("a"))

    with_registry(scenario, limit_s=0.0)


def test_changes_under_way_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "MAX_CHANGES", 3)

    async def scenario(registry: AdapterRegistry, backend: FakeBackend) -> None:
        tasks = [asyncio.create_task(registry.register(record(f"a{it}", SLOW))) for it in range(3)]
        await asyncio.sleep(0)
        refusal = await refused(registry.register(record("one more")))
        assert (refusal.cause, refusal.headers) == (Cause.QUEUE_FULL, {"retry-after": "1"})
        backend.slow.set()
        await asyncio.gather(*tasks)
        await registry.register(record("one more"))

    with_registry(scenario)


def test_pins_are_counted_while_they_load() -> None:
    async def scenario(registry: AdapterRegistry, backend: FakeBackend) -> None:
        records = [record(f"a{number}", SLOW, pin=True) for number in range(4)]
        tasks = [asyncio.create_task(registry.register(it)) for it in records]
        await asyncio.sleep(0)
        backend.slow.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        causes = [it.cause for it in results if isinstance(it, Refusal)]
        assert causes == [Cause.NO_MEMORY] * 2
        assert backend.pinned == {"a0", "a1"}

    with_registry(scenario)


@pytest.mark.parametrize("src", ["s3://b/bad", "s3://b/huge", "s3://b/crowded", "/not/there"])
def test_an_update_that_fails_changes_nothing(src: str) -> None:
    async def scenario(registry: AdapterRegistry, backend: FakeBackend) -> None:
        await registry.register(record("a", "hf://org/one"))
        await refused(registry.update("a", src=src, preload=None, pin=True))
        assert registry.records["a"] == record("a", "hf://org/one")
        assert (backend.versions["a"], backend.pinned) == ("hf://org/one", set())

    with_registry(scenario)


def test_an_update_with_a_source_is_a_new_version_also_from_the_same_place() -> None:
    served = server()
    for src in ("s3://b/new", "s3://b/new"):
        assert ask(served, f"/adapters/es/update?src={src}").status == 200
        assert fake(served).versions["es"] == src
    described = ask(served, "/adapters/es", method="GET").json
    assert (described["src"], described["version"]) == ("s3://b/new", "s3://b/new")


def test_a_lazy_adapter_is_read_at_its_first_request_or_by_a_later_update(tmp_path: Path) -> None:
    served = server()
    assert ask(served, "/adapters?name=a&src=hf://org/a&preload=false").status == 200
    assert ask(served, "/adapters?name=b&src=hf://org/b&preload=false").status == 200
    assert ask(served, "/adapters?name=c&src=/not/there&preload=false").status == 424
    assert ask(served, "/adapters/a", method="GET").json["loaded"] is False
    assert ask(served, "/adapters/a/update?src=hf://org/a2").status == 200
    assert "a" not in fake(served).versions
    assert ask(served, "/invocations", {"inputs": "x", "adapters": "a"}).status == 200
    assert ask(served, "/adapters/b/update?preload=true").status == 200
    assert (fake(served).versions["a"], fake(served).versions["b"]) == (
        "hf://org/a2",
        "hf://org/b",
    )


def test_requests_of_others_run_while_a_lazy_adapter_is_read() -> None:
    async def scenario(registry: AdapterRegistry, backend: FakeBackend) -> None:
        await registry.register(record("lazy", SLOW, preload=False))
        await registry.register(record("other"))
        waiting = asyncio.create_task(registry.ensure_loaded(["lazy"]))
        await registry.ensure_loaded(["other", None, "lazy-not-there"])
        assert not waiting.done()
        backend.slow.set()
        await waiting
        assert registry.records["lazy"].loaded

    with_registry(scenario)


def test_the_view_of_an_adapter() -> None:
    served = server(settings=config("option.enable_lora=true"))
    described = ask(served, "/adapters/es", method="GET").json
    assert (described["tier"], described["rank"], described["bytes"]) == ("host", 8, 10)
    ask(served, "/adapters/es/update?pin=true")
    assert ask(served, "/adapters/es", method="GET").json["tier"] == "pool"
    (workflow,) = ask(served, "/models/lmi", method="GET").json
    tiers = workflow["models"][0]["adapterTiers"]
    assert set(tiers) == {"pool", "merged", "host", "disk", "loads"}
