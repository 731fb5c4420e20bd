"""Adapters below the pool under any order of events."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit.engine.store_bench import Bench

from hostelry.engine.lora.loader import (
    AdapterEvent,
    Dropped,
    LeftHost,
    LoadedToHost,
    LoadFailed,
    Uploaded,
    UploadFailed,
)
from hostelry.engine.lora.versions import AdapterVersion


class RandomUse(RuleBasedStateMachine):
    """Any order of everything: bounds kept, nothing held is lost, every request is answered."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.root = Path(self.directory.name)
        self.bench = Bench(self.root, num_remote=2)
        self.held: list[AdapterVersion] = []
        self.asked: dict[str, int] = {}
        self.in_host: dict[str, bool] = {}  # by the events
        self.uploading: set[str] = set()  # likewise

    def teardown(self) -> None:
        try:
            self.bench.clock.advance(10_000)
            for _ in range(20):
                self.take(self.bench.run())
                self.bench.clock.advance(10)
            assert not any(self.asked.values()), "a request was never answered"
        finally:
            self.directory.cleanup()

    def take(self, events: Sequence[AdapterEvent]) -> None:
        for event in events:
            if isinstance(event, LoadedToHost | LeftHost):
                self.in_host[event.content_id] = isinstance(event, LoadedToHost)
            if isinstance(event, LoadedToHost | LoadFailed):
                self.asked[event.content_id] = 0
            elif isinstance(event, Dropped):
                self.asked.pop(event.content_id, None)
                self.uploading.discard(event.content_id)  # the end of an upload without users
                assert event.content_id not in {it.content_id for it in self.held}
            elif isinstance(event, Uploaded | UploadFailed):
                self.uploading.remove(event.content_id)
        for content_id, is_there in self.in_host.items():
            assert (self.bench.store.host(content_id) is not None) == is_there

    @rule(name=st.sampled_from("abcde"), text=st.sampled_from(["p", "q", "r", "s 800", "t 1200"]))
    def register(self, name: str, text: str) -> None:
        self.bench.register(name, text)

    @rule(name=st.sampled_from("fgh"), text=st.sampled_from(["p", "u", "v 800"]))
    def register_far(self, name: str, text: str) -> None:
        self.bench.register_far(name, text)

    @rule(name=st.sampled_from("abcdefgh"))
    def retire(self, name: str) -> None:
        self.bench.store.retire(name)

    @rule(name=st.sampled_from("abcdefgh"), in_pool=st.booleans())
    def acquire(self, name: str, in_pool: bool) -> None:
        version = self.bench.store.acquire(name, in_pool=in_pool)
        if version is not None:
            self.held.append(version)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        version = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.bench.store.release(version)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def request(self, data: st.DataObject) -> None:
        version = data.draw(st.sampled_from(self.held))
        self.asked[version.content_id] = 1
        self.bench.store.request(version.content_id)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def upload(self, data: st.DataObject) -> None:
        content_id = data.draw(st.sampled_from(self.held)).content_id
        is_in_host = self.bench.store.host(content_id) is not None
        if is_in_host and content_id not in self.uploading:
            self.bench.store.start_upload(content_id, (1, 2))
            self.uploading.add(content_id)

    @rule(name=st.sampled_from("abcdefgh"))
    def change_or_lose(self, name: str) -> None:
        path = self.root / name / "adapter.txt"
        if path.is_file():
            path.unlink()
        self.bench.shelf.places[f"far://{name}"] = OSError("lost")

    @rule(seconds=st.sampled_from([0.1, 3.0, 200.0]))
    def wait(self, seconds: float) -> None:
        self.bench.clock.advance(seconds)

    @rule()
    def disk(self) -> None:
        self.bench.disk.run()

    @rule()
    def remote(self) -> None:
        self.bench.remote.run()

    @rule()
    def uploads(self) -> None:
        self.bench.upload.run()

    @rule()
    def poll(self) -> None:
        self.take(self.bench.store.poll())

    @invariant()
    def counts_agree(self) -> None:
        self.bench.store.check_integrity()
        assert self.bench.store.stats.num_running_uploads == len(self.uploading)
        assert self.bench.cache.num_bytes <= self.bench.cache.max_bytes


TestRandomUse = RandomUse.TestCase
TestRandomUse.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
