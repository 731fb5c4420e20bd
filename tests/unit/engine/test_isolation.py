"""Any fault of one request ends only that request, with its cause."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from msgspec.structs import force_setattr, replace
from tests.cases import case, cases
from tests.models import tiny_llama
from tests.unit.engine.oracle import assert_nothing_is_held, drain, greedy

from hostelry.engine.engine import Engine, EngineConfig
from hostelry.engine.kernels.decoder import LogitsDecoder
from hostelry.engine.request import FinishReason, Output, Request, SamplingParams, Structure

CONFIG = EngineConfig(dtype="fp32", pool_bytes=4 << 20, num_threads=1)
COUNT = 6
FORBIDDEN = 77  # in a prompt, for decoders that break at it


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def expected(folder: Path) -> dict[str, list[Output]]:
    """The outputs of the neighbours alone."""
    return by_request(run(Engine.load(folder, CONFIG), neighbours()))


def neighbours() -> list[Request]:
    sampled = SamplingParams(
        max_new_tokens=COUNT, ignore_eos=True, temperature=1.0, seed=5, num_logprobs=2
    )
    return [
        greedy("greedy", (5, 6, 7), COUNT),
        Request(id="sampled", prompt_token_ids=(8, 9), sampling=sampled),
    ]


def run(engine: Engine, requests: list[Request]) -> list[Output]:
    for request in requests:
        engine.add(request)
    return drain(engine)


def by_request(outputs: list[Output]) -> dict[str, list[Output]]:
    ids = {output.request_id for output in outputs}
    return {each: [it for it in outputs if it.request_id == each] for each in ids}


class AnyToken:
    """A grammar that allows every token."""

    def fill(self, allowed_RW: npt.NDArray[np.int32], row: int) -> None:
        allowed_RW[row] = -1

    def accept(self, token_id: int) -> bool:
        return True


class BreaksOnFill(AnyToken):
    def fill(self, allowed_RW: npt.NDArray[np.int32], row: int) -> None:
        raise RuntimeError("a matcher's defect")


class BreaksOnAccept(AnyToken):
    def accept(self, token_id: int) -> bool:
        raise RuntimeError("a matcher's defect")


class ForgetsWhatItAllowed(AnyToken):
    def accept(self, token_id: int) -> bool:
        return False


class BreaksLater(AnyToken):
    def __init__(self) -> None:
        self.steps = 0

    def accept(self, token_id: int) -> bool:
        self.steps += 1
        if self.steps == 3:
            raise RecursionError("too deep")
        return True


@dataclass
class Structures:
    """Every structure is one of `grammar`."""

    grammar: Callable[[], AnyToken]

    def submit(self, structure: Structure) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(self)
        return future

    def start(self) -> AnyToken:
        return self.grammar()


def structured() -> Request:
    sampling = SamplingParams(max_new_tokens=COUNT, structure=Structure("regex", "a"))
    return Request(id="poison", prompt_token_ids=(3, 4), sampling=sampling)


@cases(
    "grammar, cause",
    case("in the mask", BreaksOnFill, "RuntimeError: a matcher's defect"),
    case("at the token", BreaksOnAccept, "RuntimeError: a matcher's defect"),
    case("at its third token", BreaksLater, "RecursionError: too deep"),
    case("a token that it refuses", ForgetsWhatItAllowed, "grammar allows"),
)
def test_a_grammar_that_breaks_ends_its_own_request(
    folder: Path,
    expected: dict[str, list[Output]],
    grammar: Callable[[], AnyToken],
    cause: str,
) -> None:
    engine = Engine.load(folder, CONFIG)
    engine._validator._structures = Structures(grammar)  # type: ignore[assignment]
    outputs = by_request(run(engine, [structured(), *neighbours()]))
    last = outputs.pop("poison")[-1]
    assert last.finish_reason is FinishReason.ERROR
    assert last.error is not None
    assert cause in last.error
    assert outputs == expected
    assert_nothing_is_held(engine)


@dataclass
class BreaksAt(LogitsDecoder):
    """A decoder that computes no step which holds the token."""

    inner: Any
    token_id: int

    def forward(self, batch: Any, pool: Any) -> Any:
        if self.token_id in batch.token_ids_T:
            raise RuntimeError("no kernel for this")
        return self.inner.forward(batch, pool).clone()


def test_a_step_that_one_request_breaks_is_computed_without_it(
    folder: Path, expected: dict[str, list[Output]]
) -> None:
    engine = Engine.load(folder, CONFIG)
    decoder = BreaksAt(engine._deps.decoder, FORBIDDEN)
    force_setattr(engine._deps, "decoder", decoder)
    poison = greedy("poison", (1, FORBIDDEN), COUNT)
    outputs = by_request(run(engine, [poison, *neighbours()]))
    (last,) = outputs.pop("poison")
    assert last.finish_reason is FinishReason.ERROR
    assert last.error == "the step failed: RuntimeError: no kernel for this"
    assert outputs == expected
    assert_nothing_is_held(engine)


def test_what_cannot_be_added_leaves_nothing(
    folder: Path, expected: dict[str, list[Output]]
) -> None:
    engine = Engine.load(folder, CONFIG)

    def broken() -> AnyToken:
        raise RecursionError("too deep")

    engine._validator._structures = Structures(broken)  # type: ignore[assignment]
    with pytest.raises(RecursionError):
        engine.add(structured())
    assert by_request(run(engine, neighbours())) == expected
    assert_nothing_is_held(engine)


@cases(
    "settings, message",
    case("a token beyond 64 bits", {"stop_token_ids": (2**63,)}, "stop_token_ids"),
    case("a negative token", {"stop_token_ids": (-1,)}, "stop_token_ids"),
    case("a penalty that vanishes", {"repetition_penalty": 1e-46}, "0.01"),
    case("a penalty that is no number", {"repetition_penalty": float("nan")}, "0.01"),
    case("an endless penalty", {"repetition_penalty": float("inf")}, "100"),
    case("a nan as temperature", {"temperature": float("nan")}, "temperature"),
    case("more tokens than there are", {"top_k": 2**63}, "top_k"),
    case("a nan as top_p", {"top_p": float("nan")}, "top_p"),
    case("more than 64 bits of tokens", {"max_new_tokens": 2**64}, "max_new_tokens"),
    case("a seed beyond 64 bits", {"seed": 2**65}, "seed"),
    case("a negative token's bias", {"logit_bias": ((-1, 1.0),)}, "logit_bias"),
    case("a bias of nan", {"logit_bias": ((1, float("nan")),)}, "logit_bias"),
)
def test_numbers_out_of_range_are_no_sampling_params(settings: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SamplingParams(**settings)


@cases(
    "settings",
    case("a stop token", {"stop_token_ids": (199,)}),
    case("a biased token", {"logit_bias": ((199, 1.0),)}),
)
def test_tokens_that_the_model_does_not_have_are_refused(folder: Path, settings: Any) -> None:
    request = Request(id="a", prompt_token_ids=(1,), sampling=SamplingParams(**settings))
    with pytest.raises(ValueError, match="token id 199; the model's vocabulary has 199"):
        Engine.load(folder, CONFIG).add(request)


@cases(
    "settings",
    case("a subnormal temperature", {"temperature": 5e-324}),
    case("0 in single precision", {"temperature": 1e-45, "top_k": 1}),
    case("a subnormal min_p", {"temperature": 100.0, "min_p": 5e-324}),
    case("a subnormal top_p", {"temperature": 1.0, "top_p": 5e-324}),
    case("all tokens and more", {"temperature": 1.0, "top_k": 2**31 - 1}),
    case("the least penalty", {"repetition_penalty": 0.01, "temperature": 1e-30}),
    case("the largest penalty", {"repetition_penalty": 100.0, "temperature": 1e-30}),
    case("the least seed", {"seed": 1 - 2**63, "temperature": 1.0}),
)
def test_extremes_within_the_ranges_give_tokens_and_harm_no_other_request(
    folder: Path, expected: dict[str, list[Output]], settings: Any
) -> None:
    sampling = SamplingParams(max_new_tokens=COUNT, ignore_eos=True, num_logprobs=1, **settings)
    engine = Engine.load(folder, CONFIG)
    poison = Request(id="poison", prompt_token_ids=(3, 4), sampling=sampling)
    outputs = by_request(run(engine, [poison, *neighbours()]))
    assert len(outputs.pop("poison")) == COUNT
    assert outputs == expected
    assert_nothing_is_held(engine)


def test_a_salt_keeps_cached_prefixes_apart(folder: Path) -> None:
    engine = Engine.load(folder, CONFIG)
    asked = greedy("first", tuple(range(3, 67)), 1)
    cached = []
    for number, salt in enumerate(("", "", "blue", "blue", "red", "")):
        before = engine.stats.num_cached_tokens
        run(engine, [replace(asked, id=str(number), cache_salt=salt)])
        cached.append(engine.stats.num_cached_tokens > before)
    assert cached == [False, True, False, True, False, True]


def test_allowed_and_banned_tokens_hold_in_the_engine(folder: Path) -> None:
    engine = Engine.load(folder, CONFIG)
    (free,) = by_request(run(engine, [greedy("free", (5, 6, 7), COUNT)])).values()
    first, second = free[0].token_id, free[1].token_id
    assert first is not None
    assert second is not None
    base = greedy("banned", (5, 6, 7), COUNT)
    params = replace(base.sampling, bad_words=((first, second), (first,) * 3))
    (banned,) = by_request(run(engine, [replace(base, sampling=params)])).values()
    tokens = [it.token_id for it in banned]
    assert tokens[0] == first
    assert tokens[1] != second
    only = replace(base, id="only", sampling=replace(base.sampling, allowed_token_ids=(9, 11)))
    (allowed,) = by_request(run(engine, [only])).values()
    assert {it.token_id for it in allowed} <= {9, 11}
    assert_nothing_is_held(engine)
