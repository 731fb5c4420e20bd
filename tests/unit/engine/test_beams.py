"""Beam search: the sequences of transformers' generate, with logits from the engine."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from tests.cases import case, cases
from tests.models import random_adapter, tiny_llama
from tests.unit.engine.oracle import drain, reference_model

from hostelry.engine.engine import Engine, EngineConfig
from hostelry.engine.request import Request, SamplingParams, TokenLogprob
from hostelry.engine.sampling.beams import BeamParams, BeamSearch, EarlyStopping

PROMPTS = ((5, 9, 33, 12, 77), tuple(range(20, 60)), (61,))
COUNT = 10


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def adapter_folder(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_adapter(tmp_path_factory.mktemp("adapter") / "r4", model_folder, 4)


@pytest.fixture(scope="module")
def engine(model_folder: Path, adapter_folder: Path) -> Engine:
    loaded = Engine.load(
        model_folder, EngineConfig(dtype="fp32", pool_bytes=4 << 20, num_threads=1)
    )
    loaded.load_adapter("r4", adapter_folder)
    return loaded


@pytest.fixture(scope="module")
def model(model_folder: Path, adapter_folder: Path) -> Any:
    return reference_model(model_folder, {"r4": adapter_folder})


def searched(
    engine: Engine,
    prompt: tuple[int, ...],
    search: BeamSearch,
    adapter: str | None,
) -> list[tuple[int, ...]]:
    """The sequences of a search whose steps are requests of one token each."""
    sampling = SamplingParams(max_new_tokens=1, ignore_eos=True, num_logprobs=search.num_candidates)
    first = Request(id="0", prompt_token_ids=prompt, sampling=sampling, adapter=adapter)
    while search.running:
        requests = [
            replace(first, id=str(number), prompt_token_ids=prompt + beam.token_ids)
            for number, beam in enumerate(search.running)
        ]
        for request in requests:
            engine.add(request)
        outputs = {output.request_id: output for output in drain(engine)}
        search.advance([outputs[request.id].top_logprobs for request in requests])
    return [beam.token_ids for beam in search.complete]


@torch.inference_mode()
def generated(
    model: Any, prompt: Sequence[int], adapter: str | None, ends: list[int], **fields: Any
) -> list[tuple[int, ...]]:
    """The same by transformers, padding removed."""
    num_beams = fields["num_beams"]
    settings = {
        "max_new_tokens": COUNT, "do_sample": False, "num_return_sequences": num_beams,
        "eos_token_id": ends or None, "pad_token_id": 0, **fields,
    }  # fmt: skip
    ids = torch.tensor([list(prompt)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if adapter is None:
            with model.disable_adapter():
                sequences = model.generate(input_ids=ids, **settings)
        else:
            model.set_adapter(adapter)
            sequences = model.generate(input_ids=ids, **settings)
    found = []
    for row in sequences[:, len(prompt) :].tolist():
        stop = next((at for at, token in enumerate(row) if token in ends), len(row) - 1)
        found.append(tuple(row[: stop + 1]))
    return found


@cases(
    "num_beams, length_penalty, early_stopping, adapter",
    case("transformers' defaults", 4, 1.0, False, None),
    case("ended once there are enough, with an adapter", 4, 1.0, True, "r4"),
    case("ended once nothing better can come", 3, 1.0, "never", None),
    case("long ones favoured", 2, 2.0, "never", "r4"),
    case("length does not count", 7, 0.0, False, None),
    case("short ones favoured", 4, -1.0, False, "r4"),
)
def test_sequences_are_those_of_transformers(
    engine: Engine,
    model: Any,
    num_beams: int,
    length_penalty: float,
    early_stopping: EarlyStopping,
    adapter: str | None,
) -> None:
    fields = {
        "num_beams": num_beams, "length_penalty": length_penalty, "early_stopping": early_stopping,
    }  # fmt: skip
    params = BeamParams(
        num_beams=num_beams, length_penalty=length_penalty, early_stopping=early_stopping
    )
    num_ended = 0
    for prompt in PROMPTS:
        likely = generated(model, prompt, adapter, [], **fields)
        # End tokens that beams meet. By default, longer sequences have better scores here.
        many = sorted({token for beam in likely for token in beam[::2]})[:8]
        for ends in ([], [likely[0][0]], many):
            search = BeamSearch(params, max_new_tokens=COUNT, end_token_ids=ends)
            own = searched(engine, prompt, search, adapter)
            assert own == generated(model, prompt, adapter, ends, **fields)
            num_ended += sum(search.ends_by_token(beam) for beam in search.complete)
    assert num_ended or (early_stopping is not True and length_penalty > 0)


def test_one_beam_is_the_greedy_sequence(engine: Engine, model: Any) -> None:
    search = BeamSearch(BeamParams(num_beams=1), max_new_tokens=COUNT, end_token_ids=())
    expected = generated(model, PROMPTS[0], None, [], num_beams=1)
    assert searched(engine, PROMPTS[0], search, None) == expected


def tokens(*logprobs: float) -> list[TokenLogprob]:
    return [TokenLogprob(token_id=number, logprob=it) for number, it in enumerate(logprobs)]


def test_a_beam_knows_its_steps() -> None:
    search = BeamSearch(BeamParams(num_beams=1), max_new_tokens=2, end_token_ids=())
    search.advance([tokens(-1.0, -2.0)])
    search.advance([tokens(-0.5, -3.0)])
    (beam,) = search.complete
    assert beam.token_ids == (0, 0)
    assert [step.logprob for step in beam.steps] == [-1.0, -1.5]
    assert not search.ends_by_token(beam)
    assert search.running == []


@cases(
    "num_beams, max_new_tokens, num_ends, message",
    case("no beams", 0, 1, 0, "num_beams is 0"),
    case("no tokens", 2, 0, 0, "max_new_tokens 0"),
    case("many ends", 32, 5, 20, "need 672 alternatives a step; at most 256"),
)
def test_refused(num_beams: int, max_new_tokens: int, num_ends: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BeamSearch(
            BeamParams(num_beams=num_beams),
            max_new_tokens=max_new_tokens,
            end_token_ids=range(num_ends),
        )
