"""Vectors of encoders and pooled decoders against transformers, PEFT and their pooling rules."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from tests.models import random_adapter
from tests.pooled_models import (
    DECODERS,
    FAMILIES,
    reference_classes,
    reference_hidden,
    reference_pooled,
    tiny_encoder,
    tiny_pooled_decoder,
    write_modules,
)
from tests.selection import first_alone
from tests.unit.engine.oracle import assert_nothing_is_held, drain

from hostelry.engine.config import PooledTask
from hostelry.engine.engine import Engine, EngineConfig, ServerFullError, UnsupportedModelError
from hostelry.engine.request import FinishReason, Output, Request, SamplingParams

TEXTS = (
    (5, 9, 33, 12, 77, 120, 4),
    (150, 3, 3, 8),
    (61,),
    tuple(range(20, 60)),
    (7, 1, 42, 1, 13, 13, 101, 56, 34, 91, 17),  # with the padding id inside
    tuple(range(100, 164)),  # as long as the model allows
)
ONE = SamplingParams(max_new_tokens=1)
CLOSE: Any = {"rtol": 1e-4, "atol": 2e-5}


@pytest.fixture(scope="module")
def written_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_encoder(tmp_path_factory.mktemp("bert"), "Bert")


@pytest.fixture(scope="module")
def bert_hidden(written_bert: Path) -> list[torch.Tensor]:
    return reference_hidden(written_bert, TEXTS)


@pytest.fixture
def bert(written_bert: Path, tmp_path: Path) -> Path:
    """A folder of it to change."""
    return shutil.copytree(written_bert, tmp_path / "bert")


def request(name: str, text: Sequence[int], **more: Any) -> Request:
    return Request(id=name, prompt_token_ids=tuple(text), sampling=ONE, **more)


def vector(output: Output) -> torch.Tensor:
    assert output.error is None, output.error
    assert output.finish_reason is FinishReason.POOLED
    assert output.vector is not None
    return torch.from_numpy(numpy.frombuffer(output.vector, "<f4").copy())


def vectors(engine: Engine, requests: Sequence[Request]) -> list[torch.Tensor]:
    """The requests' vectors, computed together."""
    for each in requests:
        engine.add(each)
    by_id = {it.request_id: it for it in drain(engine)}
    assert_nothing_is_held(engine)
    return [vector(by_id[each.id]) for each in requests]


def embedded(
    folder: Path, texts: Sequence[Sequence[int]], config: EngineConfig | None = None
) -> list[torch.Tensor]:
    engine = Engine.load(folder, config or EngineConfig())
    try:
        return vectors(engine, [request(str(number), it) for number, it in enumerate(texts)])
    finally:
        engine.close()


def short(texts: Sequence[Sequence[int]], longest: int) -> list[Sequence[int]]:
    return [it for it in texts if len(it) <= longest]


@pytest.mark.parametrize("family", FAMILIES)
def test_an_encoders_first_token_is_transformers(tmp_path: Path, family: str) -> None:
    folder = tiny_encoder(tmp_path, family)
    texts = TEXTS if family in ("Bert", "DistilBert") else short(TEXTS, 64)
    expected = [it[0] for it in reference_hidden(folder, texts)]
    for got, want in zip(embedded(folder, texts), expected, strict=True):
        torch.testing.assert_close(got, want, **CLOSE)


@pytest.mark.parametrize(
    "mode",
    ["cls_token", "lasttoken", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens",
     "weightedmean_tokens"],
)  # fmt: skip
def test_pooling_modes_are_those_of_sentence_transformers(
    bert: Path, bert_hidden: list[torch.Tensor], mode: str
) -> None:
    write_modules(bert, mode)
    expected = [reference_pooled(it, mode) for it in bert_hidden]
    for got, want in zip(embedded(bert, TEXTS), expected, strict=True):
        torch.testing.assert_close(got, want, **CLOSE)


def test_a_dense_module_follows_the_pooling(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    folder = tiny_encoder(tmp_path, "MPNet")
    write_modules(folder, "mean_tokens", dense=7)
    weights = load_file(folder / "2_Dense" / "model.safetensors")
    for got, hidden in zip(embedded(folder, TEXTS), reference_hidden(folder, TEXTS), strict=True):
        mean = reference_pooled(hidden, "mean_tokens")
        want = torch.tanh(weights["linear.weight"] @ mean + weights["linear.bias"])
        torch.testing.assert_close(got, want, **CLOSE)


@pytest.mark.parametrize("family", FAMILIES)
def test_classes_are_those_of_transformers(tmp_path: Path, family: str) -> None:
    folder = tiny_encoder(tmp_path, family, "ForSequenceClassification", num_labels=3)
    engine = Engine.load(folder)
    assert engine.pooling is not None
    assert engine.pooling.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    types: list[tuple[int, ...]] = [()] * len(TEXTS)
    if family == "Bert":
        types = [tuple(int(place > len(it) // 2) for place in range(len(it))) for it in TEXTS]
    requests = [
        request(str(number), text, token_types=kinds)
        for number, (text, kinds) in enumerate(zip(TEXTS, types, strict=True))
    ]
    expected = reference_classes(folder, TEXTS, types)
    for got, want in zip(vectors(engine, requests), expected, strict=True):
        torch.testing.assert_close(got, want, **CLOSE)
    engine.close()


@pytest.mark.parametrize(
    ("family", "mode"),
    [
        *((it, "lasttoken") for it in DECODERS),
        *first_alone([(it, "mean_tokens") for it in DECODERS]),
    ],
)
def test_pooled_decoders_are_transformers_in_any_chunks(
    tmp_path: Path, family: str, mode: str
) -> None:
    folder = tiny_pooled_decoder(tmp_path, family)
    write_modules(folder, mode, normalize=False)
    expected = [reference_pooled(it, mode) for it in reference_hidden(folder, TEXTS)]
    for config in (EngineConfig(), EngineConfig(max_batched_tokens=8, max_batch_size=4)):
        for got, want in zip(embedded(folder, TEXTS, config), expected, strict=True):
            torch.testing.assert_close(got, want, **CLOSE)


def test_a_decoders_prefix_cache_changes_no_vector(tmp_path: Path) -> None:
    folder = tiny_pooled_decoder(tmp_path, "Qwen3")
    engine = Engine.load(folder)
    first = vectors(engine, [request("first", TEXTS[5])])
    again = vectors(engine, [request("again", TEXTS[5])])
    assert engine.stats.num_cached_tokens > 0
    torch.testing.assert_close(first, again)
    engine.close()


def test_a_causal_model_is_pooled_for_the_task_embed(tmp_path: Path) -> None:
    folder = tiny_pooled_decoder(tmp_path, "Llama", "ForCausalLM", tie_word_embeddings=False)
    config = EngineConfig(pooled=PooledTask(task="embed"))
    expected = [it[-1] for it in reference_hidden(folder, TEXTS)]
    for got, want in zip(embedded(folder, TEXTS, config), expected, strict=True):
        torch.testing.assert_close(got, want, **CLOSE)


@pytest.mark.parametrize("family", ["Llama", "Qwen3"])
def test_classes_of_decoders_are_those_of_transformers(tmp_path: Path, family: str) -> None:
    folder = tiny_pooled_decoder(tmp_path, family, "ForSequenceClassification", num_labels=4)
    texts = [it for it in TEXTS if 0 not in it]
    for got, want in zip(embedded(folder, texts), reference_classes(folder, texts), strict=True):
        torch.testing.assert_close(got, want, **CLOSE)


@pytest.mark.parametrize("mode", ["lasttoken", "mean_tokens"])
def test_adapters_of_pooled_decoders_are_pefts(tmp_path: Path, mode: str) -> None:
    causal = tiny_pooled_decoder(tmp_path / "causal", "Qwen2", "ForCausalLM")
    folder = tiny_pooled_decoder(tmp_path / "model", "Qwen2")
    write_modules(folder, mode, normalize=False)
    of_causal = random_adapter(tmp_path / "one", causal, rank=4, seed=1)
    of_model = random_adapter(
        tmp_path / "two", folder, rank=8, seed=2, task_type="FEATURE_EXTRACTION"
    )
    engine = Engine.load(folder)
    engine.load_adapter("causal", of_causal)
    engine.load_adapter("model", of_model)
    base = [reference_pooled(it, mode) for it in reference_hidden(folder, TEXTS)]
    tuned = [reference_pooled(it, mode) for it in reference_hidden(folder, TEXTS, of_model)]
    names = (None, "model", "causal")
    requests = [
        request(f"{name} {number}", text, adapter=name)
        for name in names
        for number, text in enumerate(TEXTS)
    ]
    got = vectors(engine, requests)
    for mine, want in zip(got, [*base, *tuned], strict=False):
        torch.testing.assert_close(mine, want, **CLOSE)
    for mine, without in zip(got[-len(TEXTS) :], base, strict=True):
        assert not torch.allclose(mine, without, atol=1e-2)
    engine.close()


def test_an_aborted_text_frees_its_pages_and_the_others_go_on(bert: Path) -> None:
    engine = Engine.load(bert)
    engine.add(request("gone", TEXTS[3]))
    engine.add(request("kept", TEXTS[0]))
    engine.abort("gone")
    reasons = {it.request_id: it.finish_reason for it in drain(engine)}
    assert reasons == {"gone": FinishReason.ABORT, "kept": FinishReason.POOLED}
    assert_nothing_is_held(engine)
    engine.close()


def test_a_full_queue_refuses_and_a_text_too_long_is_named(bert: Path) -> None:
    engine = Engine.load(bert, EngineConfig(max_waiting=2))
    engine.add(request("one", TEXTS[0]))
    engine.add(request("two", TEXTS[0]))
    with pytest.raises(ServerFullError, match="2"):
        engine.add(request("three", TEXTS[0]))
    with pytest.raises(ValueError, match="67 tokens"):
        engine.add(request("long", [5] * 67))
    with pytest.raises(ValueError, match="outside the vocabulary"):
        engine.add(request("odd", [5, 199]))
    drain(engine)
    engine.close()


def test_weights_that_are_not_numbers_end_the_request_with_the_reason(bert: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(bert / "model.safetensors")
    tensors["embeddings.word_embeddings.weight"][61] = torch.nan
    save_file(tensors, bert / "model.safetensors")
    engine = Engine.load(bert)
    engine.add(request("bad", TEXTS[2]))
    engine.add(request("good", TEXTS[1]))
    ended = {it.request_id: it for it in drain(engine)}
    assert ended["bad"].finish_reason is FinishReason.ERROR
    assert "not finite" in (ended["bad"].error or "")
    assert ended["good"].finish_reason is FinishReason.POOLED
    engine.close()


REFUSED = [
    pytest.param({"position_embedding_type": "relative_key"}, "relative_key", id="relative keys"),
    pytest.param({"is_decoder": True}, "is_decoder", id="an encoder used as a decoder"),
    pytest.param({"hidden_act": "quick_gelu"}, "quick_gelu", id="an unknown activation"),
    pytest.param({"num_attention_heads": 5}, "no multiple", id="heads that do not divide"),
    pytest.param({"new_feature": 3}, "new_feature", id="a field that nobody knows"),
    pytest.param({"pad_token_id": "0"}, "pad_token_id", id="a padding id that is no number"),
    pytest.param({"vocab_size": 200}, "asks for", id="a size that the tensors contradict"),
]


@pytest.mark.parametrize(("fields", "named"), REFUSED)
def test_an_encoder_that_would_be_computed_differently_is_refused(
    bert: Path, fields: dict[str, Any], named: str
) -> None:
    config = json.loads((bert / "config.json").read_text())
    (bert / "config.json").write_text(json.dumps({**config, **fields}))
    with pytest.raises(UnsupportedModelError, match=named):
        Engine.load(bert)


HOSTILE = [
    pytest.param("modules.json", '[{"type": "Transformer", "path": "../x"}]', "leaves", id="path"),
    pytest.param("modules.json", "[[[", "is no JSON", id="no JSON"),
    pytest.param("modules.json", "{}", "no list", id="no list"),
    pytest.param("modules.json", '[{"type": 3}]', "no type and path", id="no type"),
    pytest.param("1_Pooling/config.json", "{}", "pooling modes", id="no mode"),
    pytest.param("1_Pooling/config.json", '{"include_prompt": false}', "include_", id="prompt"),
    pytest.param("sentence_bert_config.json", '{"max_seq_length": "9"}', "max_seq", id="length"),
    pytest.param("config_sentence_transformers.json", '{"default_prompt_name": "q"}', "none of",
                 id="default prompt"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "text", "named"), HOSTILE)
def test_files_of_sentence_transformers_are_not_trusted(
    bert: Path, file: str, text: str, named: str
) -> None:
    write_modules(bert, "mean_tokens")
    (bert / file).write_text(text)
    with pytest.raises(UnsupportedModelError, match=named):
        Engine.load(bert)


def test_a_task_that_the_model_cannot_do_is_refused(bert: Path) -> None:
    for task, named in (("generate", "cannot generate"), ("classify", "has no head")):
        with pytest.raises(UnsupportedModelError, match=named):
            Engine.load(bert, EngineConfig(pooled=PooledTask(task=task)))
    with pytest.raises(ValueError, match="torch, on one rank"):
        Engine.load(bert, EngineConfig(weight_dtype="int8"))
    with pytest.raises(ValueError, match="66 positions"):
        Engine.load(bert, EngineConfig(max_model_len=67))
