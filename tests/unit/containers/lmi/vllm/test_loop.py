"""The loop of the engine process over a fake vLLM: requests, adapters, quotas, deadlines, death."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cases import case, cases
from tests.unit.containers.lmi.vllm.fake_vllm import FakeVllm

from hostelry.base.clock import ManualClock
from hostelry.containers.lmi.engine.loop import MessageLoop
from hostelry.containers.lmi.engine.messages import (
    Abort,
    Add,
    AskAdapter,
    AskCache,
    AskStats,
    CancelRegistration,
    Done,
    FromEngine,
    PinAdapter,
    Refused,
    RegisterAdapter,
    Stepped,
    UnloadAdapter,
)
from hostelry.containers.lmi.settings.engine_settings import EngineSettings
from hostelry.containers.lmi.vllm.adapters import PreparedAdapter
from hostelry.containers.lmi.vllm.engine import VllmEngine
from hostelry.engine.lora.errors import AdapterError
from hostelry.engine.request import FinishReason, Output, Request, SamplingParams, Structure
from hostelry.engine.scheduler.tenants import TenantPolicies, TenantPolicy


@dataclass
class Rig:
    """A loop, its sent messages, and the contents of its adapters' folders."""

    root: Path
    settings: EngineSettings
    vllm: FakeVllm = field(default_factory=FakeVllm)
    sent: list[FromEngine] = field(default_factory=list)
    clock: ManualClock = field(default_factory=ManualClock)
    compiled: "Future[Any]" = field(default_factory=Future)

    def __post_init__(self) -> None:
        self.engine = VllmEngine(
            self.vllm,
            self.settings,
            prepare=self.prepare,
            compile_structure=lambda _: self.compiled,
            send=self.sent.append,
            clock=self.clock,
        )
        event_loop = asyncio.get_running_loop()
        self.loop = MessageLoop(
            self.engine,
            self.sent.append,
            lambda: event_loop.call_soon_threadsafe(self.loop.settle),
        )

    def prepare(self, src: str) -> PreparedAdapter:
        if src == "bad":
            raise AdapterError("r is 0; it must be a positive integer")
        folder = self.root / src
        folder.mkdir(exist_ok=True)
        return PreparedAdapter(
            folder=folder, content_id=f"content of {src}", rank=8, num_bytes=10, warnings=()
        )

    async def turns(self) -> None:
        """Let every task and thread end that does not wait for the test."""
        for _ in range(30):
            await asyncio.sleep(0.002)

    async def registered(self, name: str, src: str, **more: Any) -> Done:
        self.loop.take(RegisterAdapter(len(self.sent) + 100, name, src, **more))
        await self.turns()
        return self.done()

    def done(self) -> Done:
        return next(it for it in reversed(self.sent) if isinstance(it, Done))

    def outputs(self, request_id: str) -> list[Output]:
        return [
            each
            for message in self.sent
            if isinstance(message, Stepped)
            for each in message.outputs
            if each.request_id == request_id
        ]


def request(name: str, adapter: str | None = None, **more: Any) -> Request:
    sampling = SamplingParams(
        max_new_tokens=more.pop("tokens", 3), structure=more.pop("structure", None)
    )
    prompt = more.pop("prompt", (5, 6))
    return Request(id=name, prompt_token_ids=prompt, sampling=sampling, adapter=adapter, **more)


@asynccontextmanager
async def played(root: Path, **settings: Any) -> AsyncIterator[Rig]:
    """A rig whose engine is closed at the end."""
    rig = Rig(root, EngineSettings(**settings))
    yield rig
    rig.engine.close()
    await rig.turns()


async def test_tokens_come_one_by_one_and_end_with_a_reason(tmp_path: Path) -> None:
    async with played(tmp_path) as rig:
        rig.vllm.go.set()
        rig.loop.take(Add((request("a"), request("b", tokens=1))))
        await rig.turns()
    assert [it.token_id for it in rig.outputs("a")] == [1, 2, 3]
    assert rig.outputs("a")[-1].finish_reason is FinishReason.LENGTH
    assert [it.token_id for it in rig.outputs("b")] == [1]


@cases(
    "bad, fault, text",
    case("no prompt", {"prompt": ()}, "request", "empty prompt"),
    case("too long", {"prompt": (1,) * 50}, "request", "max_model_len, 50"),
    case("no such token", {"prompt": (100,)}, "request", "vocabulary of 100"),
    case("no adapter", {"adapter": "no"}, "adapter_missing", "'no' is not loaded"),
)
async def test_one_bad_request_of_a_message_refuses_all(
    tmp_path: Path, bad: dict[str, Any], fault: str, text: str
) -> None:
    async with played(tmp_path) as rig:
        rig.vllm.go.set()
        rig.loop.take(Add((request("a"), request("b", **bad))))
        await rig.turns()
    (refused,) = rig.sent
    assert isinstance(refused, Refused)
    assert (refused.request_ids, refused.fault) == (("a", "b"), fault)
    assert text in refused.message
    assert not rig.vllm.started


async def test_a_batch_is_bounded_and_the_next_one_is_the_tenant_with_the_least_service(
    tmp_path: Path,
) -> None:
    async with played(tmp_path, max_batch_size=1) as rig:
        many = tuple(request(f"big{number}", tenant="big") for number in range(4))
        rig.loop.take(Add(many))
        rig.loop.take(Add((request("small", tenant="small"),)))
        await rig.turns()
        assert rig.vllm.started == ["big0"]
        rig.vllm.go.set()
        await rig.turns()
    assert rig.vllm.started == ["big0", "small", "big1", "big2", "big3"]


@cases(
    "policy, fault",
    case("concurrent requests", TenantPolicy(max_concurrent=1), "quota"),
    case("tokens over time", TenantPolicy(tokens_per_s=1.0, burst_s=2.0), "quota"),
)
async def test_quotas(tmp_path: Path, policy: TenantPolicy, fault: str) -> None:
    async with played(tmp_path, tenants=TenantPolicies(table={"t": policy})) as rig:
        rig.loop.take(Add((request("a", tenant="t"),)))
        rig.loop.take(Add((request("b", tenant="t"),)))
        rig.loop.take(Add((request("c", tenant="other"),)))
        await rig.turns()
    assert rig.vllm.started == ["a", "c"]
    (refused,) = (it for it in rig.sent if isinstance(it, Refused))
    assert (refused.request_ids, refused.fault) == (("b",), fault)
    assert refused.retry_after_s >= 1


async def test_a_full_queue_refuses(tmp_path: Path) -> None:
    async with played(tmp_path, max_batch_size=1, max_waiting=1) as rig:
        for name in "abc":
            rig.loop.take(Add((request(name),)))
            await rig.turns()
    (refused,) = rig.sent
    assert isinstance(refused, Refused)
    assert (refused.request_ids, refused.fault) == (("c",), "full")


async def test_aborted_requests_end_in_vllm_and_make_room(tmp_path: Path) -> None:
    async with played(tmp_path, max_batch_size=1) as rig:
        rig.loop.take(Add((request("a"), request("b"), request("c"))))
        await rig.turns()
        rig.loop.take(Abort(("a", "b", "unknown")))
        await rig.turns()
        assert rig.vllm.started == ["a", "c"]
        assert rig.vllm.ended == ["a"]
    assert [it.finish_reason for it in rig.outputs("b")] == [FinishReason.ABORT]


async def test_a_request_without_a_first_token_in_time_ends(tmp_path: Path) -> None:
    async with played(tmp_path) as rig:
        rig.loop.take(Add((request("late", first_token_deadline_s=0.01),)))
        await rig.turns()
    assert [it.finish_reason for it in rig.outputs("late")] == [FinishReason.DEADLINE]
    assert rig.vllm.ended == ["late"]


@cases(
    "error, reason, message",
    case("a failure of vLLM", RuntimeError("vLLM: no memory"), FinishReason.ERROR,
        "RuntimeError: vLLM: no memory"),
    case("a fault of the request", ValueError("image 1 cannot be read"), FinishReason.REFUSED,
        "image 1 cannot be read"),
)  # fmt: skip
async def test_an_error_of_one_request_ends_that_one(
    tmp_path: Path, error: Exception, reason: FinishReason, message: str
) -> None:
    async with played(tmp_path) as rig:
        rig.vllm.error = error
        rig.vllm.go.set()
        rig.loop.take(Add((request("a"),)))
        await rig.turns()
        rig.vllm.error = None
        rig.loop.take(Add((request("b", tokens=1),)))
        await rig.turns()
    (failed,) = rig.outputs("a")
    assert failed.finish_reason is reason
    assert failed.error == message
    assert [it.token_id for it in rig.outputs("b")] == [1]


async def test_a_structure_is_compiled_beside_running_requests(tmp_path: Path) -> None:
    async with played(tmp_path) as rig:
        rig.vllm.go.set()
        rig.loop.take(Add((request("shaped", structure=Structure("json_object")),)))
        rig.loop.take(Add((request("plain"),)))
        await rig.turns()
        assert rig.vllm.started == ["plain"]
        rig.compiled.set_result(None)
        await rig.turns()
        assert rig.vllm.started == ["plain", "shaped"]


async def test_a_structure_that_is_refused_refuses_the_request(tmp_path: Path) -> None:
    async with played(tmp_path) as rig:
        rig.loop.take(Add((request("shaped", structure=Structure("json_object")),)))
        rig.compiled.set_exception(ValueError("the regex is too large"))
        await rig.turns()
    (refused,) = rig.sent
    assert isinstance(refused, Refused)
    assert (refused.fault, refused.message) == ("request", "the regex is too large")


async def test_a_new_version_serves_new_requests_and_the_old_one_ends_with_its_last(
    tmp_path: Path,
) -> None:
    async with played(tmp_path) as rig:
        assert (await rig.registered("es", "one")).fault is None
        rig.loop.take(Add((request("old", "es"),)))
        await rig.turns()
        done = await rig.registered("es", "two", replace=True)
        assert done.adapter is not None
        assert done.adapter.version == "content of two"
        rig.loop.take(Add((request("new", "es"),)))
        await rig.turns()
        assert len(rig.vllm.loaded) == 2
        assert rig.vllm.keys["old"] != rig.vllm.keys["new"]
        rig.vllm.go.set()
        await rig.turns()
        assert list(rig.vllm.loaded.values()) == [rig.vllm.keys["new"]]
    assert rig.outputs("old")[-1].adapter_content_id == "content of one"
    assert rig.outputs("new")[-1].adapter_content_id == "content of two"
    assert not (tmp_path / "one").exists()
    assert (tmp_path / "two").exists()


@cases(
    "name, src, more, fault, text",
    case("a name that is taken", "es", "two", {}, "adapter_exists", "loaded already"),
    case("one that PEFT would refuse", "fr", "bad", {}, "adapter_refused", "r is 0"),
    case("a pin", "fr", "two", {"pin": True}, "adapter_refused", "pin is not done"),
)
async def test_refused_adapters_change_nothing(
    tmp_path: Path, name: str, src: str, more: dict[str, Any], fault: str, text: str
) -> None:
    async with played(tmp_path) as rig:
        await rig.registered("es", "one")
        done = await rig.registered(name, src, **more)
        assert done.fault == fault
        assert text in done.message
        assert len(rig.vllm.loaded) == 1


async def test_an_adapter_that_vllm_would_drop_in_part_is_refused(tmp_path: Path) -> None:
    async with played(tmp_path) as rig:
        rig.vllm.unused = ["model.layers.0.odd", "model.layers.1.odd"]
        done = await rig.registered("es", "one")
        assert done.fault == "adapter_refused"
        assert "model.layers.0.odd and 1 more" in done.message
        await rig.turns()
        assert not rig.vllm.loaded
        rig.loop.take(AskAdapter(1, "es"))
        assert rig.done().fault == "adapter_missing"


async def test_a_registration_that_takes_too_long_is_answered_and_undone(tmp_path: Path) -> None:
    async with played(tmp_path) as rig:
        rig.loop.take(RegisterAdapter(1, "es", "one"))
        rig.loop.take(CancelRegistration(1))
        assert "in time" in rig.done().message
        await rig.turns()
        assert not rig.vllm.loaded
        assert len(rig.sent) == 1


async def test_calls_about_adapters(tmp_path: Path) -> None:
    async with played(tmp_path) as rig:
        await rig.registered("es", "one")
        rig.loop.take(PinAdapter(1, "es", pin=True))
        assert rig.done().fault == "adapter_refused"
        rig.loop.take(PinAdapter(2, "es", pin=False))
        assert rig.done().fault is None
        rig.loop.take(AskAdapter(3, "es"))
        view = rig.done().adapter
        assert view is not None
        assert (view.version, view.rank) == ("content of one", 8)
        rig.loop.take(AskCache(6, 10))
        cache = rig.done().cache
        assert cache is not None
        assert [(it.name, it.view, it.code) for it in cache.adapters] == [("es", view, None)]
        rig.loop.take(UnloadAdapter(4, "es"))
        assert rig.done().fault is None
        await rig.turns()
        assert not rig.vllm.loaded
        rig.loop.take(UnloadAdapter(5, "es"))
        assert rig.done().fault == "adapter_missing"


async def test_counters_return_to_zero(tmp_path: Path) -> None:
    async with played(tmp_path, max_batch_size=1) as rig:
        rig.loop.take(Add((request("a"), request("b"))))
        await rig.turns()
        rig.loop.take(AskStats(1))
        stats = rig.done().stats
        assert stats is not None
        assert (stats.running_requests, stats.waiting_requests) == (1, 1)
        assert stats.free_pages == 93
        rig.vllm.go.set()
        await rig.turns()
        rig.loop.take(AskStats(2))
        stats = rig.done().stats
        assert stats is not None
        assert (stats.running_requests, stats.waiting_requests, stats.free_pages) == (0, 0, 100)
        assert (stats.prompt_tokens, stats.generated_tokens) == (4, 6)


async def test_the_heart_beats_with_steps_and_ends_with_vllm(tmp_path: Path) -> None:
    async with played(tmp_path) as rig:
        rig.loop.take(Add((request("a"),)))
        beating = asyncio.ensure_future(rig.engine.beat())
        await rig.turns()
        assert rig.sent == [Stepped(())]
        beating.cancel()
        rig.vllm.failure = "vLLM's engine core died"
        assert await rig.engine.beat() == "vLLM's engine core died"
