"""A request's answer does not depend on its company: the same tokens and logits, bit for bit.

Native kernels in fp32. The logits are seen through the log-probabilities that the engine reports.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.models import random_adapter, tiny_llama
from tests.unit.engine.oracle import variant

from hostelry.engine.engine import Engine, EngineConfig
from hostelry.engine.request import Output, Request, SamplingParams

Answer = tuple[tuple[int | None, float | None, tuple[float, ...]], ...]

CONFIG = EngineConfig(
    dtype="fp32", kernels="native", pool_bytes=1 << 20, num_threads=1, pin_share=0.0
)
COUNT = 12
RANKS = {"r3": 3, "r8": 8, "r16": 16}
PROMPTS = (
    (5, 9, 33, 12, 77, 120, 4),
    tuple(range(20, 60)),
    (61,),
    tuple(range(20, 75)),  # begins as the second one does
)
SAMPLINGS = (
    SamplingParams(max_new_tokens=COUNT, ignore_eos=True, num_logprobs=2),
    SamplingParams(
        max_new_tokens=COUNT,
        ignore_eos=True,
        num_logprobs=2,
        temperature=0.9,
        top_p=0.9,
        top_k=40,
        repetition_penalty=1.1,
        seed=11,
    ),
)
CASES = [
    (prompt, adapter, sampling)
    for prompt in range(len(PROMPTS))
    for adapter in (None, *RANKS)
    for sampling in range(len(SAMPLINGS))
]


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def adapter_folders(
    model_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("adapters")
    return {
        name: random_adapter(root / name, model_folder, rank, seed=rank)
        for name, rank in RANKS.items()
    }


@pytest.fixture(scope="module")
def alone(model_folder: Path, adapter_folders: dict[str, Path]) -> dict[str, Answer]:
    """Every answer with nothing else in the engine and nothing cached."""
    engine = loaded(model_folder, adapter_folders, variant(CONFIG, prefix_cache=False))
    answers: dict[str, Answer] = {}
    for case in CASES:
        answers |= run(engine, [request(case)])
    return answers


def loaded(model: Path, adapters: dict[str, Path], config: EngineConfig) -> Engine:
    engine = Engine.load(model, config)
    for name, folder in adapters.items():
        engine.load_adapter(name, folder)
    return engine


def request(case: tuple[int, str | None, int], suffix: str = "") -> Request:
    prompt, adapter, sampling = case
    return Request(
        id=f"{prompt} {adapter} {sampling}{suffix}",
        prompt_token_ids=PROMPTS[prompt],
        sampling=SAMPLINGS[sampling],
        adapter=adapter,
    )


def run(engine: Engine, requests: list[Request]) -> dict[str, Answer]:
    for each in requests:
        engine.add(each)
    return collected(drained(engine))


def drained(engine: Engine) -> Iterator[Output]:
    while engine.has_work:
        yield from engine.step()
        engine._scheduler.check_integrity()


def collected(outputs: Iterator[Output]) -> dict[str, Answer]:
    answers: dict[str, Answer] = {}
    for output in outputs:
        assert output.error is None, output.error
        token = (
            output.token_id,
            output.logprob,
            tuple(each.logprob for each in output.top_logprobs),
        )
        answers[output.request_id] = (*answers.get(output.request_id, ()), token)
    return answers


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="all at once"),
        pytest.param({"num_threads": 2}, id="on two threads"),
        pytest.param({"max_batch_size": 3, "max_batched_tokens": 3}, id="prompts in chunks of 1-3"),
        pytest.param({"max_batch_size": 5, "max_batched_tokens": 17}, id="chunks up to seventeen"),
        pytest.param({"page_tokens": 1}, id="pages of one token"),
        pytest.param({"page_tokens": 7}, id="pages of seven tokens"),
        pytest.param({"pool_bytes": 44 * 8192}, id="adapters evicted for each other"),
        pytest.param({"prefix_cache": False}, id="without a prefix cache"),
        pytest.param({"max_loras": 1}, id="one adapter a step"),
    ],
)
def test_any_company_gives_the_same_bits(
    changes: dict[str, int],
    model_folder: Path,
    adapter_folders: dict[str, Path],
    alone: dict[str, Answer],
) -> None:
    engine = loaded(model_folder, adapter_folders, variant(CONFIG, **changes))
    assert run(engine, [request(case) for case in CASES]) == alone
    again = run(engine, [request(case) for case in reversed(CASES)])
    assert again == alone
    if changes.get("prefix_cache", True):
        assert engine.stats.num_cached_tokens > 0 or changes.get("page_tokens") == 7


def test_preempted_requests_give_the_same_bits(
    model_folder: Path, alone: dict[str, Answer]
) -> None:
    engine = Engine.load(model_folder, variant(CONFIG, page_tokens=1, pool_bytes=150 * 512))
    cases = [case for case in CASES if case[1] is None]
    answers = run(engine, [request(case) for case in cases])
    assert engine.stats.num_preemptions > 0
    assert answers == {name: alone[name] for name in answers}
    assert len(answers) == len(cases)


@settings(max_examples=25, deadline=None)
@given(
    chance=st.randoms(use_true_random=False),
    max_batch_size=st.integers(1, 6),
    more_tokens=st.integers(0, 44),
    num_pages=st.integers(46, 120),
    prefix_cache=st.booleans(),
    num_threads=st.integers(1, 2),
    chosen=st.lists(st.sampled_from(CASES), min_size=1, max_size=14),
)
def test_random_schedules_give_the_same_bits(
    chance: random.Random,
    max_batch_size: int,
    more_tokens: int,
    num_pages: int,
    prefix_cache: bool,
    num_threads: int,
    chosen: list[tuple[int, str | None, int]],
    model_folder: Path,
    adapter_folders: dict[str, Path],
    alone: dict[str, Answer],
) -> None:
    config = variant(
        CONFIG,
        max_batch_size=max_batch_size,
        max_batched_tokens=max_batch_size + more_tokens,
        pool_bytes=num_pages * 8192,
        prefix_cache=prefix_cache,
        num_threads=num_threads,
    )
    engine = loaded(model_folder, adapter_folders, config)
    waiting = [request(case, f" {number}") for number, case in enumerate(chosen)]
    aborted: set[str] = set()
    outputs: list[Output] = []
    while waiting or engine.has_work:
        if waiting and chance.random() < 0.5:
            engine.add(waiting.pop())
        if engine._requests and chance.random() < 0.05:
            aborted.add(next(iter(engine._requests)))
            engine.abort(next(iter(engine._requests)))
        outputs += engine.step()
        engine._scheduler.check_integrity()
    answers = collected(each for each in outputs if each.token_id is not None)
    for name, answer in answers.items():
        expected = alone[name.rsplit(" ", 1)[0]]
        assert answer == expected[: len(answer)]
        assert len(answer) == COUNT or name in aborted
