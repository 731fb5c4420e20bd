"""The engine against transformers and PEFT on a tiny random Llama, and its own rules."""

import random
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import force_setattr
from tests.cases import case, cases
from tests.models import random_adapter, tiny_llama
from tests.unit.engine.oracle import (
    PROMPTS,
    all_reference_tokens,
    assert_nothing_is_held,
    drain,
    greedy,
    reference_model,
    run,
    variant,
)

from hostelry.engine.engine import AdapterError, Engine, EngineConfig, UnknownAdapterError
from hostelry.engine.request import FinishReason, Request, SamplingParams

COUNT = 20
ADAPTERS = {"r8": 8, "r16": 16, "r16b": 16, "r64": 64}
CONFIG = EngineConfig(dtype="fp32", pool_bytes=4 << 20, num_threads=1)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def adapter_folders(
    model_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("adapters")
    return {
        name: random_adapter(root / name, model_folder, rank, seed=seed)
        for seed, (name, rank) in enumerate(ADAPTERS.items())
    }


@pytest.fixture(scope="module")
def expected(
    model_folder: Path, adapter_folders: dict[str, Path]
) -> dict[tuple[int, str | None], list[int]]:
    """Greedy tokens by prompt's index and adapter."""
    model = reference_model(model_folder, adapter_folders)
    found = {
        adapter: all_reference_tokens(model, PROMPTS, adapter, COUNT)
        for adapter in (None, *ADAPTERS)
    }
    return {
        (index, adapter): found[adapter][index]
        for index in range(len(PROMPTS))
        for adapter in found
    }


@pytest.fixture
def engine(model_folder: Path, adapter_folders: dict[str, Path]) -> Engine:
    return loaded(model_folder, adapter_folders, CONFIG)


@pytest.fixture(scope="module")
def bare_engine(model_folder: Path) -> Engine:
    """Without adapters, for requests that it refuses."""
    return Engine.load(model_folder, CONFIG)


def loaded(model: Path, adapters: dict[str, Path], config: EngineConfig) -> Engine:
    engine = Engine.load(model, config)
    for name, folder in adapters.items():
        engine.load_adapter(name, folder)
    return engine


def all_requests(expected: dict[tuple[int, str | None], list[int]]) -> list[Request]:
    return [
        greedy(f"{index} {adapter}", PROMPTS[index], COUNT, adapter) for index, adapter in expected
    ]


def as_text(expected: dict[tuple[int, str | None], list[int]]) -> dict[str, list[int]]:
    return {f"{index} {adapter}": tokens for (index, adapter), tokens in expected.items()}


def test_adapters_change_the_answer(expected: dict[tuple[int, str | None], list[int]]) -> None:
    for index in range(len(PROMPTS)):
        answers = {tuple(expected[index, adapter]) for adapter in (None, *ADAPTERS)}
        assert len(answers) == 1 + len(ADAPTERS)


@cases(
    "changes",
    case("everything prefilled together", {}),
    case("one request at a time", {"max_batch_size": 1}),
    case("prompts in chunks of 1-3", {"max_batch_size": 3, "max_batched_tokens": 3}),
    case("prompts in chunks of 16", {"max_batch_size": 8, "max_batched_tokens": 16}),
    case("pages of one token", {"page_tokens": 1}),
    case("pages of seven tokens", {"page_tokens": 7}),
    case("one adapter a step", {"max_loras": 1}),
)
def test_greedy_tokens_equal_peft(
    changes: dict[str, Any],
    model_folder: Path,
    adapter_folders: dict[str, Path],
    expected: dict[tuple[int, str | None], list[int]],
) -> None:
    engine = loaded(model_folder, adapter_folders, variant(CONFIG, **changes))
    assert run(engine, all_requests(expected)) == as_text(expected)
    assert_nothing_is_held(engine)


def test_preempted_requests_go_on_where_they_were(
    model_folder: Path, expected: dict[tuple[int, str | None], list[int]]
) -> None:
    config = variant(CONFIG, page_tokens=1, pool_bytes=90 * 512, pin_share=0.0)
    engine = Engine.load(model_folder, config)
    requests = [greedy(str(n), prompt, COUNT) for n, prompt in enumerate(PROMPTS)]
    assert run(engine, requests) == {str(n): expected[n, None] for n in range(len(PROMPTS))}
    assert engine.stats.num_preemptions > 0
    assert_nothing_is_held(engine)


def test_adapters_that_do_not_fit_together_take_turns(
    model_folder: Path,
    adapter_folders: dict[str, Path],
    expected: dict[tuple[int, str | None], list[int]],
) -> None:
    config = variant(CONFIG, pool_bytes=84 * 16 * 512, pin_share=0.0)
    engine = loaded(model_folder, adapter_folders, config)
    assert run(engine, all_requests(expected)) == as_text(expected)
    assert engine.stats.pages.counts.num_evicted_adapters > 0
    assert_nothing_is_held(engine)


def test_requests_that_join_midway_change_nothing(
    engine: Engine, expected: dict[tuple[int, str | None], list[int]]
) -> None:
    requests = all_requests(expected)
    tokens: dict[str, list[int]] = {request.id: [] for request in requests}
    while requests or engine.has_work:
        if requests:
            engine.add(requests.pop())
        for output in engine.step():
            assert output.token_id is not None
            tokens[output.request_id].append(output.token_id)
    assert tokens == as_text(expected)


@pytest.mark.parametrize("seed", range(3))
def test_random_company_and_aborts_change_nothing(
    seed: int,
    model_folder: Path,
    adapter_folders: dict[str, Path],
    expected: dict[tuple[int, str | None], list[int]],
) -> None:
    chance = random.Random(seed)
    config = variant(
        CONFIG,
        pool_bytes=86 * 16 * 512,
        pin_share=0.0,
        max_batch_size=chance.randint(2, 6),
        max_batched_tokens=chance.randint(6, 40),
    )
    engine = loaded(model_folder, adapter_folders, config)
    waiting = all_requests(expected) * 2
    chance.shuffle(waiting)
    tokens: dict[str, list[int]] = {}
    while waiting or engine.has_work:
        if waiting and chance.random() < 0.5:
            request = waiting.pop()
            if request.id not in engine._requests:
                engine.add(request)
                tokens[request.id] = []
        if tokens and chance.random() < 0.1:
            engine.abort(chance.choice(list(tokens)))
        for output in engine.step():
            assert output.error is None
            if output.token_id is not None:
                tokens[output.request_id].append(output.token_id)
        engine._scheduler.check_integrity()
    wanted = as_text(expected)
    for name, found in tokens.items():
        assert found == wanted[name][: len(found)]
    assert sum(len(found) == COUNT for found in tokens.values()) > len(tokens) // 4
    assert_nothing_is_held(engine)


@cases(
    "request_fields, message",
    case("an empty prompt", {"prompt_token_ids": ()}, "empty prompt"),
    case("a prompt of the full length", {"prompt_token_ids": (1,) * 256}, "max_model_len, 256"),
    case("a token beyond the vocabulary", {"prompt_token_ids": (1, 199)}, "token id 199"),
    case("a negative token", {"prompt_token_ids": (-1,)}, "token id -1"),
    case("an image", {"images": (b"x",)}, "which this engine does not read"),
    case("an unknown adapter", {"adapter": "nobody"}, "'nobody' is not loaded"),
    case("an empty adapter name", {"adapter": ""}, "'' is not loaded"),
)
def test_refused_requests(
    request_fields: dict[str, Any], message: str, bare_engine: Engine
) -> None:
    fields: dict[str, Any] = {"id": "a", "prompt_token_ids": (1,), "sampling": SamplingParams()}
    with pytest.raises(ValueError, match=message):
        bare_engine.add(Request(**{**fields, **request_fields}))
    assert not bare_engine.has_work


def test_a_request_longer_than_the_whole_pool_is_refused(model_folder: Path) -> None:
    engine = Engine.load(model_folder, variant(CONFIG, pool_bytes=2 * 16 * 512, pin_share=0.0))
    with pytest.raises(ValueError, match=r"needs 3 pages for 33 tokens .* the pool has 2"):
        engine.add(greedy("a", [1] * 13, 20))
    assert len(run(engine, [greedy("a", [1] * 13, 19)])["a"]) == 19


def test_the_same_id_twice_is_refused(engine: Engine) -> None:
    engine.add(greedy("a", [1], 3))
    with pytest.raises(ValueError, match="already in progress"):
        engine.add(greedy("a", [1], 3))


def test_generation_ends_at_the_models_length(engine: Engine) -> None:
    engine.add(greedy("a", [5] * 250, 100))
    outputs = drain(engine)
    assert len(outputs) == 6
    assert outputs[-1].finish_reason is FinishReason.LENGTH


def test_end_tokens(engine: Engine, expected: dict[tuple[int, str | None], list[int]]) -> None:
    stop = expected[0, None][4]
    first = expected[0, None].index(stop)
    params = SamplingParams(max_new_tokens=COUNT, stop_token_ids=(stop,), ignore_eos=True)
    engine.add(Request(id="a", prompt_token_ids=PROMPTS[0], sampling=params))
    outputs = drain(engine)
    assert [output.token_id for output in outputs] == expected[0, None][: first + 1]
    assert outputs[-1].finish_reason is FinishReason.EOS


def test_abort_frees_pages_at_once_and_is_reported_once(engine: Engine) -> None:
    engine.add(greedy("a", [5] * 40, 50))
    engine.add(greedy("b", [5] * 40, 3))
    engine.step()
    engine.abort("a")
    engine.abort("a")
    engine.abort("unknown")
    assert engine.stats.num_running == 1
    outputs = drain(engine)
    assert [o.finish_reason for o in outputs if o.request_id == "a"] == [FinishReason.ABORT]
    assert [o.finish_reason for o in outputs if o.request_id == "b"][-1] is FinishReason.LENGTH
    assert_nothing_is_held(engine)


def test_unloading_lets_requests_finish_on_the_old_weights(
    engine: Engine,
    model_folder: Path,
    tmp_path: Path,
    expected: dict[tuple[int, str | None], list[int]],
) -> None:
    engine.add(greedy("old", PROMPTS[0], COUNT, "r16"))
    first = [output.token_id for output in engine.step()]
    engine.unload_adapter("r16")
    with pytest.raises(UnknownAdapterError):
        engine.add(greedy("refused", PROMPTS[0], COUNT, "r16"))
    engine.load_adapter("r16", random_adapter(tmp_path / "new", model_folder, 16, seed=77))
    engine.add(greedy("new", PROMPTS[0], COUNT, "r16"))
    outputs = drain(engine)
    old = first + [o.token_id for o in outputs if o.request_id == "old"]
    new = [o.token_id for o in outputs if o.request_id == "new"]
    assert old == expected[0, "r16"]
    assert new != old
    with pytest.raises(UnknownAdapterError, match="'nobody' is not loaded"):
        engine.unload_adapter("nobody")


def test_a_taken_name_is_refused(engine: Engine, adapter_folders: dict[str, Path]) -> None:
    with pytest.raises(AdapterError, match="'r8' is already loaded"):
        engine.load_adapter("r8", adapter_folders["r16"])
    assert [each.version.name for each in engine.adapters] == list(ADAPTERS)
    assert engine.adapters[0].summary.rank == 8


def test_memory_of_unloaded_adapters_is_used_again(
    model_folder: Path, adapter_folders: dict[str, Path]
) -> None:
    engine = Engine.load(model_folder, CONFIG)
    sizes = set()
    for _ in range(20):
        engine.load_adapter("a", adapter_folders["r8"])
        engine.load_adapter("b", adapter_folders["r64"])
        run(engine, [greedy(name, PROMPTS[0], 2, name) for name in "ab"])
        sizes.add((engine.stats.pages.num_adapter_pages, engine.stats.adapters.host_bytes))
        engine.unload_adapter("a")
        engine.unload_adapter("b")
    assert len(sizes) == 1
    assert engine.stats.pages.num_adapter_pages == engine.stats.adapters.host_bytes == 0


def test_an_adapter_that_overflows_harms_only_its_own_requests(
    engine: Engine,
    model_folder: Path,
    tmp_path: Path,
    expected: dict[tuple[int, str | None], list[int]],
) -> None:
    engine.load_adapter("huge", random_adapter(tmp_path / "huge", model_folder, 8, std=1e18))
    for index in range(len(PROMPTS)):
        engine.add(greedy(f"huge {index}", PROMPTS[index], COUNT, "huge"))
        engine.add(greedy(f"base {index}", PROMPTS[index], COUNT))
    first = drain(engine)
    assert {o.error for o in first if o.request_id.startswith("huge")} == {
        "the model's logits are not finite"
    }
    # Its pages, full of nan, are given to others now.
    assert run(engine, all_requests(expected)) == as_text(expected)
    for index in range(len(PROMPTS)):
        tokens = [o.token_id for o in first if o.request_id == f"base {index}"]
        assert tokens == expected[index, None]


def test_a_step_that_fails_ends_its_requests_with_the_error(engine: Engine) -> None:
    class Broken:
        def forward(self, *_: object) -> None:
            raise RuntimeError("out of luck")

    engine.add(greedy("a", [1, 2], 3))
    force_setattr(engine._deps, "decoder", Broken())
    (output,) = drain(engine)
    assert output.finish_reason is FinishReason.ERROR
    assert output.error == "the step failed: RuntimeError: out of luck"
    assert_nothing_is_held(engine)


@cases(
    "asked, stored, expected_dtype, num_warnings",
    case("auto is the stored dtype", "auto", "bfloat16", "bf16", 0),
    case("fp32 is honoured", "fp32", "bfloat16", "fp32", 0),
    case("bf16 is honoured", "bf16", "float32", "bf16", 0),
    case("stored fp16 warns on a CPU", "auto", "float16", None, 1),
    case("fp16 asked for warns on a CPU", "fp16", "float32", None, 1),
)
def test_dtypes(
    asked: str, stored: str, expected_dtype: str | None, num_warnings: int, tmp_path: Path
) -> None:
    folder = tiny_llama(tmp_path / "model", dtype=stored)
    engine = Engine.load(folder, variant(CONFIG, dtype=asked))
    assert engine.model.dtype in ((expected_dtype,) if expected_dtype else ("bf16", "fp32"))
    assert len(engine.warnings) == num_warnings
    assert len(run(engine, [greedy("a", [1, 2, 3], 4)])["a"]) == 4


def test_what_is_kept_is_shown_nearest_first(engine: Engine) -> None:
    """The pool's adapter comes first. Hits of each tier, and the pages' owners, agree with it."""
    assert engine.cache.state(0).adapters == ()
    run(engine, [greedy("a", PROMPTS[0], COUNT, "r16b")])
    state = engine.cache.state(2)
    first, second = state.adapters
    assert (first.registered.version.name, first.tier.value) == ("r16b", "pool")
    assert (second.tier.value, second.code) == ("host", None)
    assert state.owners is not None
    assert first.code is not None
    assert state.owners.codes.count(first.code) == engine.stats.pages.num_adapter_pages
    assert state.totals.num_requests == first.metrics.num_requests == 1
    assert state.totals.num_generated_tokens == COUNT
    hits = {tier: num for tier, num in state.totals.hits.items() if num}
    assert hits == first.metrics.hits
