"""An adapter merged into separate weights: its answers, and the answers of all others."""

import warnings
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.cases import case, cases
from tests.models import (
    ALL_TARGETS,
    random_adapter,
    tiny_gemma3,
    tiny_llama,
    tiny_mistral,
    tiny_qwen2,
    tiny_qwen3,
)
from tests.selection import first_alone
from tests.unit.engine.adapters import peft_adapter, reader_of
from tests.unit.engine.oracle import (
    PROMPTS,
    Logits,
    assert_nothing_is_held,
    drain,
    greedy,
    reference_model,
    reference_tokens,
    run,
    variant,
)
from tests.unit.engine.paged_steps import Driver, new_pool, reference_rows

from hostelry.engine.config import PooledTask
from hostelry.engine.engine import AdapterError, Engine, EngineConfig, UnknownAdapterError
from hostelry.engine.fused_adapter import FusedAdapter, MergedDecoder
from hostelry.engine.kernels.decoder import LogitsDecoder
from hostelry.engine.lora.image import HostAdapter
from hostelry.engine.lora.merge import AdapterMerge
from hostelry.engine.models.registry import load_decoder, load_spec
from hostelry.engine.request import Request, SamplingParams

EVERYWHERE = [*ALL_TARGETS, "embed_tokens", "lm_head"]
COUNT = 12
CONFIG = EngineConfig(dtype="fp32", pool_bytes=4 << 20, num_threads=1, fuse_adapter="hot")
FAMILIES = [
    pytest.param(tiny_llama, {}, id="Llama, tied"),
    pytest.param(tiny_llama, {"tie_word_embeddings": False}, id="Llama"),
    pytest.param(tiny_mistral, {}, id="Mistral"),
    pytest.param(tiny_qwen2, {}, id="Qwen2, with biases"),
    pytest.param(tiny_qwen3, {}, id="Qwen3"),
    pytest.param(tiny_gemma3, {}, id="Gemma 3, which scales embeddings"),
]


def merged_engine(model: Path, config: EngineConfig, **adapters: Path) -> Engine:
    engine = Engine.load(model, config)
    for name, folder in adapters.items():
        engine.load_adapter(name, folder)
    engine.await_fused()
    return engine


def merged_rows(engine: Engine) -> list[torch.Tensor]:
    """Logits of every row of every prompt by the merged decoder alone."""
    engine.add(greedy("holder", PROMPTS[0], 1, "hot"))
    decoder = engine._fused.decoder("holder")
    assert decoder is not None, "the adapter is merged"
    spec: Any = engine.model
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[spec.dtype]
    page_tokens = engine._config.page_tokens
    pages = list(range(40))
    driver = Driver(decoder, new_pool(spec, 40, page_tokens, dtype), pages)
    for prompt in PROMPTS:
        driver.add(prompt)
    return driver.finish(7)


@pytest.mark.parametrize(
    ("dtype", "kernels"),
    first_alone([("fp32", "torch"), ("bf16", "native"), ("fp32", "native"), ("bf16", "torch")], 2),
)
@pytest.mark.parametrize(("writer", "overrides"), FAMILIES)
def test_the_logits_are_those_of_peft(
    writer: Callable[..., Path],
    overrides: dict[str, Any],
    dtype: str,
    kernels: str,
    tmp_path: Path,
) -> None:
    model = writer(tmp_path / "model", **overrides)
    linears = peft_adapter(
        tmp_path / "linears",
        model,
        r=5,
        target_modules=ALL_TARGETS,
        use_rslora=True,
        rank_pattern={"down_proj": 2},
        alpha_pattern={"v_proj": 5},
    )
    everywhere = peft_adapter(tmp_path / "all", model, r=3, target_modules=EVERYWHERE)
    some = peft_adapter(tmp_path / "some", model, r=4, target_modules=["v_proj", "down_proj"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PEFT about ties
        references = {
            # PEFT would merge both updates of a tied vocabulary into one tensor: not that one.
            linears: reference_model(model, {"x": linears}).merge_and_unload(),
            some: reference_model(model, {"x": some}).merge_and_unload(),
            everywhere: reference_model(model, {"x": everywhere}),
        }
    for folder, reference in references.items():
        engine = merged_engine(model, variant(CONFIG, dtype=dtype, kernels=kernels), hot=folder)
        computed = merged_rows(engine)
        for prompt, rows in zip(PROMPTS, computed, strict=True):
            wanted = reference_rows(reference, prompt)
            bound = 1e-4 if dtype == "fp32" else 6e-2 * float(wanted.abs().max())
            torch.testing.assert_close(rows, wanted, atol=bound, rtol=1e-4)
        engine.close()


def test_in_bf16_a_merged_weight_is_the_sum_rounded_once(tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "model")
    folder = peft_adapter(tmp_path / "a", model, target_modules=["o_proj"])
    bf16 = torch.bfloat16
    adapter = reader_of(model, bf16).read(folder)
    spec = load_spec(model)
    base = load_decoder(model, spec, max_len=64, dtype=bf16, device=torch.device("cpu"))
    merged = AdapterMerge(base, adapter).weights().layer(1).o.weight_OI
    runs = adapter.layout.linears[7 + 3]
    up_RO = torch.cat(tuple(adapter.image.rows(runs.second))).double()
    down_RI = torch.cat(tuple(adapter.image.rows(runs.first))).double()
    exact = base.layer(1).o.weight_OI.double() + adapter.scales.linears[10] * (up_RO.T @ down_RI)
    assert merged.dtype == bf16
    assert (merged == exact.to(bf16)).float().mean() > 0.999  # but for ties within fp32's rounding


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def folders(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("adapters")
    return {
        name: random_adapter(root / name, model, 8, seed=seed)
        for seed, name in enumerate(("hot", "new", "other"))
    }


@pytest.fixture(scope="module")
def expected(model: Path, folders: dict[str, Path]) -> dict[str | None, list[list[int]]]:
    """Greedy tokens after each prompt by adapter."""
    reference = reference_model(model, folders)
    return {
        name: [reference_tokens(reference, prompt, name, COUNT) for prompt in PROMPTS]
        for name in (None, *folders)
    }


def requests(label: str, adapter: str | None) -> list[Request]:
    return [
        greedy(f"{label} {number}", prompt, COUNT, adapter) for number, prompt in enumerate(PROMPTS)
    ]


def answers(label: str, tokens: list[list[int]]) -> dict[str, list[int]]:
    return {f"{label} {number}": it for number, it in enumerate(tokens)}


def test_one_batch_has_the_merged_adapter_another_one_and_the_base(
    model: Path, folders: dict[str, Path], expected: dict[str | None, list[list[int]]]
) -> None:
    engine = merged_engine(model, CONFIG, hot=folders["hot"], other=folders["other"])
    every = [*requests("hot", "hot"), *requests("other", "other"), *requests("base", None)]
    assert run(engine, every) == {
        **answers("hot", expected["hot"]),
        **answers("other", expected["other"]),
        **answers("base", expected[None]),
    }
    assert engine.stats.pages.num_adapters == 1  # the merged one needs no page of the pool
    assert engine.stats.merged_bytes > 0
    assert engine.adapter_tier("hot").value == "pool"
    assert engine.adapter_metrics("hot").num_requests == len(PROMPTS)
    assert_nothing_is_held(engine)
    engine.close()


def test_the_base_computes_the_same_bits_beside_it(model: Path, folders: dict[str, Path]) -> None:
    plain = Engine.load(model, variant(CONFIG, fuse_adapter=None))
    fused = merged_engine(model, CONFIG, hot=folders["hot"])
    for prompt in PROMPTS:
        assert torch.equal(Logits.of(plain).after(prompt), Logits.of(fused).after(prompt))


def test_a_new_version_is_exact_at_once_and_merged_when_the_old_one_has_ended(
    model: Path, folders: dict[str, Path], expected: dict[str | None, list[list[int]]]
) -> None:
    engine = merged_engine(model, CONFIG, hot=folders["hot"])
    found: dict[str, list[int]] = {}

    def take(outputs: list[Any]) -> None:
        for output in outputs:
            assert output.error is None, output.error
            found.setdefault(output.request_id, []).append(output.token_id)

    for request in requests("old", "hot"):
        engine.add(request)
    take([output for _ in range(3) for output in engine.step()])
    engine.replace_adapter("hot", folders["new"])
    for request in requests("new", "hot"):
        engine.add(request)
    take(drain(engine))
    assert found == {**answers("old", expected["hot"]), **answers("new", expected["new"])}
    assert engine.stats.pages.num_adapters == 1  # the new version, before it was merged
    engine.await_fused()
    assert engine._fused.serves(engine.adapters[0].version.content_id)
    assert run(engine, requests("later", "hot")) == answers("later", expected["new"])
    assert_nothing_is_held(engine)
    engine.close()


def test_unloading_it_leaves_the_clean_base(
    model: Path, folders: dict[str, Path], expected: dict[str | None, list[list[int]]]
) -> None:
    engine = merged_engine(model, CONFIG, hot=folders["hot"])
    for request in requests("hot", "hot"):
        engine.add(request)
    engine.step()
    engine.unload_adapter("hot")
    with pytest.raises(UnknownAdapterError):
        engine.add(greedy("late", PROMPTS[0], 1, "hot"))
    assert engine.stats.merged_bytes > 0  # its requests in flight end on it
    drain(engine)
    assert engine.stats.merged_bytes == 0
    assert run(engine, requests("base", None)) == answers("base", expected[None])
    engine.load_adapter("hot", folders["new"])
    engine.await_fused()
    assert run(engine, requests("again", "hot")) == answers("again", expected["new"])
    engine.close()


def test_its_prompts_are_cached_and_scored_as_others_are(
    model: Path, folders: dict[str, Path]
) -> None:
    prompt = tuple(range(20, 60))

    def scored(engine: Engine) -> dict[str, list[float]]:
        for name, adapter in (("hot", "hot"), ("base", None)):
            sampling = SamplingParams(max_new_tokens=2, ignore_eos=True)
            engine.add(
                Request(
                    id=name,
                    prompt_token_ids=prompt,
                    sampling=sampling,
                    adapter=adapter,
                    num_prompt_logprobs=0,
                )
            )
        scores: dict[str, list[float]] = {}
        for output in drain(engine):
            if output.prompt_logprobs is not None:
                found = output.prompt_logprobs.logprobs
                scores.setdefault(output.request_id, []).extend(found)
        return scores

    engine = merged_engine(model, CONFIG, hot=folders["hot"])
    plain = merged_engine(model, variant(CONFIG, fuse_adapter=None), hot=folders["hot"])
    for name, wanted in scored(plain).items():
        assert scored(engine)[name] == pytest.approx(wanted, abs=1e-4)
    before = engine.stats.num_cached_tokens
    run(engine, [greedy("first", prompt, 1, "hot"), greedy("second", (*prompt, 3), 1, "hot")])
    assert engine.stats.num_cached_tokens > before
    engine.close()


@cases(
    "changes, message",
    case("an empty name", {"fuse_adapter": ""}, "it must be an adapter's name"),
    case("no text", {"fuse_adapter": 5}, "it must be an adapter's name"),
    case("two names", {"fuse_adapter": ("a", "b")}, "an adapter's name"),
    case("a quantized base", {"weight_dtype": "int8"}, "weight_dtype int8"),
    case("several ranks", {"tensor_parallel": 2}, "tensor_parallel 2"),
)
def test_settings_that_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EngineConfig(**{"fuse_adapter": "hot", **changes})


def test_a_model_that_gives_vectors_is_refused(model: Path) -> None:
    config = variant(CONFIG, pooled=PooledTask(task="embed"))
    with pytest.raises(ValueError, match="fuse_adapter is hot, and the model gives vectors"):
        Engine.load(model, config)


def test_sums_too_large_for_the_model_are_refused(model: Path, tmp_path: Path) -> None:
    folder = random_adapter(tmp_path / "huge", model, 4, seed=1, std=1e25)
    engine = Engine.load(model, CONFIG)
    engine.load_adapter("hot", folder)
    with pytest.raises(AdapterError, match=r"'hot' is computed unmerged: .*q_proj of layer 0"):
        engine.await_fused()
    assert any("computed unmerged" in it for it in engine.warnings)
    engine.close()


def test_files_of_the_base_that_were_replaced_are_not_merged_into(
    tmp_path: Path, folders: dict[str, Path]
) -> None:
    own = tiny_llama(tmp_path / "own")
    engine = merged_engine(own, CONFIG)
    weights = own / "model.safetensors"
    copy = weights.read_bytes()
    weights.unlink()
    weights.write_bytes(copy)
    engine.load_adapter("hot", folders["hot"])
    with pytest.raises(AdapterError, match=r"model\.safetensors was replaced"):
        engine.await_fused()
    engine.close()


class Later(Executor):
    """Runs its jobs at `run_next`."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.jobs.append((future, lambda: fn(*args, **kwargs)))
        return future

    def run_next(self) -> None:
        future, job = self.jobs.pop(0)
        try:
            future.set_result(job())
        except ValueError as error:
            future.set_exception(error)


@pytest.fixture
def read(model: Path, folders: dict[str, Path]) -> dict[str, HostAdapter]:
    reader = reader_of(model)
    return {name: reader.read(folder) for name, folder in folders.items()}


class Nothing(LogitsDecoder):
    def forward(self, batch: Any, pool: Any) -> torch.Tensor:
        raise NotImplementedError


def test_a_merge_that_ends_after_its_version_was_replaced_is_not_used(
    read: dict[str, HostAdapter],
) -> None:
    merged: list[str] = []

    def merge(adapter: HostAdapter) -> MergedDecoder:
        merged.append(adapter.content_id)
        return MergedDecoder(Nothing(), 10)

    later = Later()
    fused = FusedAdapter("hot", merge, later)
    fused.set_version("other", read["other"])
    assert not later.jobs, "only the named one is merged"
    fused.set_version("hot", read["hot"])
    fused.set_version("hot", read["new"])
    later.run_next()
    old, new = read["hot"].content_id, read["new"].content_id
    assert not fused.serves(old)
    assert not fused.serves(new)
    later.run_next()
    assert fused.serves(new)
    assert not fused.serves(None)
    assert merged == [old, new]
    fused.set_version("hot", read["new"])  # the same content: nothing to do
    assert not later.jobs
    fused.clear_version("hot")
    assert fused.num_bytes == 0


def test_a_merge_that_failed_is_reported_and_not_repeated(read: dict[str, HostAdapter]) -> None:
    def merge(adapter: HostAdapter) -> MergedDecoder:
        raise AdapterError("no room")

    later = Later()
    fused = FusedAdapter("hot", merge, later)
    fused.set_version("hot", read["hot"])
    later.run_next()
    assert not fused.serves(read["hot"].content_id)
    assert fused.warnings == ["adapter 'hot' is computed unmerged: AdapterError: no room"]
    assert not later.jobs
    fused.set_version("hot", read["new"])
    assert len(later.jobs) == 1
    assert fused.warnings == []
