"""Scores of prompts and beam searches of a real server, compared with transformers and PEFT."""

import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
import torch
from tests.integration.lmi_rig import Server, byte_model, serving
from tests.selection import first_alone
from tests.unit.containers.lmi.tiny import CODEC
from tests.unit.engine.oracle import reference_model

pytestmark = pytest.mark.integration

TEXTS = ("The sea is", "One plus one is two", "x" * 90)
ADAPTERS = (None, "es", "fr")
NUM_BEAMS, COUNT = 3, 8


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return byte_model(tmp_path_factory.mktemp("lmi"))


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("shared") / "log"
    with serving(
        model, log, OPTION_ENABLE_LORA="true", OPTION_MAX_ROLLING_BATCH_PREFILL_TOKENS="48"
    ) as ready:
        yield ready


@pytest.fixture(scope="module")
def reference(model: Path) -> Any:
    return reference_model(model, {name: model / "adapters" / name for name in ADAPTERS if name})


def encoded(text: str) -> tuple[int, ...]:
    return CODEC.encode(text, add_special_tokens=True)


@torch.inference_mode()
def logprobs_by_transformers(model: Any, ids: Sequence[int], adapter: str | None) -> list[float]:
    tokens = torch.tensor([list(ids)])
    if adapter is None:
        with model.disable_adapter():
            logits_TV = model(input_ids=tokens).logits[0]
    else:
        model.set_adapter(adapter)
        logits_TV = model(input_ids=tokens).logits[0]
    own = logits_TV.log_softmax(-1)[:-1].gather(1, tokens[0, 1:, None])
    values: list[float] = own.flatten().tolist()
    return values


@torch.inference_mode()
def beams_by_transformers(model: Any, text: str, adapter: str | None) -> list[str]:
    ids = torch.tensor([list(encoded(text))])
    settings = {
        "num_beams": NUM_BEAMS, "num_return_sequences": NUM_BEAMS, "max_new_tokens": COUNT,
        "do_sample": False, "eos_token_id": 2, "pad_token_id": 0,
    }  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if adapter is None:
            with model.disable_adapter():
                found = model.generate(input_ids=ids, **settings)
        else:
            model.set_adapter(adapter)
            found = model.generate(input_ids=ids, **settings)
    rows = [[it for it in row if it not in (0, 2)] for row in found[:, ids.shape[1] :].tolist()]
    return [CODEC.decode(row, skip_special_tokens=True) for row in rows]


def test_echoed_scores_are_those_of_transformers_and_peft_in_any_company(
    server: Server, reference: Any
) -> None:
    cases = [(text, adapter) for text in TEXTS for adapter in ADAPTERS]
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client:

        def scored(case: tuple[str, str | None]) -> Any:
            text, adapter = case
            return client.completions.create(
                model=adapter or "lmi", prompt=text, echo=True, logprobs=2, max_tokens=1
            ).choices[0]

        alone = [scored(case) for case in cases]
        with ThreadPoolExecutor(len(cases)) as pool:
            together = list(pool.map(scored, cases))
    for choices in (alone, together):
        for (text, adapter), choice in zip(cases, choices, strict=True):
            assert choice.text.startswith(text)
            ids = encoded(text)
            found = choice.logprobs.token_logprobs
            assert found[0] is None
            expected = logprobs_by_transformers(reference, ids, adapter)
            assert found[1 : len(ids)] == pytest.approx(expected, abs=1e-4)
            assert len(found) == len(ids) + 1


def test_vllms_and_lmis_forms_hold_the_same_scores(server: Server, reference: Any) -> None:
    ids = list(encoded(TEXTS[0]))
    expected = logprobs_by_transformers(reference, ids, "es")
    parameters = {"details": True, "decoder_input_details": True, "max_new_tokens": 1}
    with server.client() as client:
        body = {"model": "es", "prompt": ids, "prompt_logprobs": 1, "max_tokens": 0, "echo": True}
        (choice,) = client.post("/v1/completions", json=body).json()["choices"]
        lmi = {"inputs": TEXTS[0], "adapters": "es", "parameters": parameters}
        prefill = client.post("/invocations", json=lmi).json()["details"]["prefill"]
    listed = choice["prompt_logprobs"]
    own = [each[str(token)]["logprob"] for each, token in zip(listed[1:], ids[1:], strict=True)]
    assert listed[0] is None
    assert own == pytest.approx(expected, abs=1e-4)
    assert choice["text"] == TEXTS[0]
    assert [it["logprob"] for it in prefill] == pytest.approx(expected, abs=1e-4)
    assert [it["id"] for it in prefill] == ids[1:]


@pytest.mark.parametrize("adapter", first_alone(reversed(ADAPTERS)))
def test_beams_are_those_of_transformers(
    server: Server, reference: Any, adapter: str | None
) -> None:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client:
        answer = client.completions.create(
            model=adapter or "lmi",
            prompt=list(TEXTS),
            n=NUM_BEAMS,
            max_tokens=COUNT,
            extra_body={"use_beam_search": True},
        )
    texts = [choice.text for choice in answer.choices]
    expected = [beam for text in TEXTS for beam in beams_by_transformers(reference, text, adapter)]
    assert texts == expected
