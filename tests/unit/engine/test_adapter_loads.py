"""Adapters on their way into the pool, and the permitted effects of a failure."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.unit.engine.store_bench import Bench, CountingUploader

from hostelry.engine.adapter_loads import AdapterLoads
from hostelry.engine.kernels.batch import AdapterIndex
from hostelry.engine.lora.image import HostAdapter
from hostelry.engine.lora.loader import LeftHost, LoadedToHost
from hostelry.engine.pages.unified import PagePool
from hostelry.engine.scheduler.decisions import SchedulerLimits
from hostelry.engine.scheduler.planner import Scheduler

LIMITS = SchedulerLimits(max_batch_size=4, max_batched_tokens=64, page_tokens=16)


class KnowingPlacer(CountingUploader):
    """Knows which contents have an index."""

    def __init__(self) -> None:
        super().__init__()
        self.known: set[str] = set()

    def index(self, adapter: HostAdapter, page_numbers: Sequence[int]) -> AdapterIndex:
        self.known.add(adapter.content_id)
        return adapter.index(page_numbers)

    def forget(self, content_id: str) -> None:
        self.known.discard(content_id)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def placer() -> KnowingPlacer:
    return KnowingPlacer()


@pytest.fixture
def loads(bench: Bench, placer: KnowingPlacer) -> AdapterLoads:
    pages = PagePool(256, pin_budget_pages=0)
    return AdapterLoads(bench.store, Scheduler(LIMITS, pages), pages, placer)


def settle(bench: Bench, loads: AdapterLoads) -> list[str]:
    """Let every executor work, absorb the events, and return the reasons of failures."""
    reasons = [it.reason for it in loads.absorb(0.0)]
    while bench.disk.run() + bench.remote.run() + bench.upload.run():
        reasons += [it.reason for it in loads.absorb(0.0)]
    return reasons


def test_a_copy_that_fails_leaves_no_index_behind(
    bench: Bench, placer: KnowingPlacer, loads: AdapterLoads
) -> None:
    a = bench.register("a")
    bench.uploader.error = RuntimeError("out of device memory")
    loads.preload(a, 0.0)
    assert a in placer.known
    assert settle(bench, loads) == ["RuntimeError: out of device memory"]
    assert not loads.is_in_pool(a)
    assert a not in placer.known


def test_what_is_in_the_pool_keeps_its_index_when_another_copy_of_it_fails(
    bench: Bench, placer: KnowingPlacer, loads: AdapterLoads
) -> None:
    a = bench.register("a")
    loads.preload(a, 0.0)
    assert settle(bench, loads) == []
    where = loads.index(a)
    bench.uploader.error = RuntimeError("out of device memory")
    bench.store.start_upload(a, (1,))
    assert settle(bench, loads) == ["RuntimeError: out of device memory"]
    assert loads.is_in_pool(a)
    assert loads.index(a) is where
    assert a in placer.known


def test_a_load_that_fails_after_its_content_was_registered_again_is_no_failure(
    bench: Bench,
) -> None:
    a = bench.register("a")
    bench.run()
    assert bench.store.evict(a)
    bench.uncache(a)
    (bench.folder / "a" / "adapter.txt").unlink()
    bench.store.request(a)
    assert bench.store.poll() == [LeftHost(a)]
    bench.register("again", "a")
    assert [type(it) for it in bench.run()] == [LoadedToHost]
    assert bench.store.host(a) is not None
    assert bench.store.stats.num_failed_loads == 1
