"""Real servers of models with vectors, with OpenAI's client, alone and through the gateway."""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy
import openai
import pytest
import torch
from tests.integration.gateway_rig import (
    component,
    components_endpoint,
    running_gateway,
    snapshot_of,
)
from tests.integration.lmi_rig import Server, eventually, is_idle, serving
from tests.models import random_adapter
from tests.pooled_models import (
    reference_classes,
    reference_hidden,
    reference_pooled,
    tiny_encoder,
    tiny_pooled_decoder,
    write_modules,
    write_word_tokenizer,
)
from tests.unit.containers.lmi.tiny import ids, write_tokenizer

from hostelry.domain.routes import CopyRoute

pytestmark = pytest.mark.integration
TEXTS = ("the sea is blue", "cats sleep all day and day", "deep", "The SEA is DEEP and blue")


def client_of(server: Server) -> openai.OpenAI:
    return openai.OpenAI(api_key="none", base_url=f"{server.url}/v1", max_retries=0)


def embedded(client: openai.OpenAI, model: str, texts: Sequence[str]) -> Any:
    """The vectors that OpenAI's client gives (it asks for base64)."""
    answer = client.embeddings.create(model=model, input=list(texts))
    return numpy.array([it.embedding for it in answer.data], numpy.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tiny_encoder(tmp_path_factory.mktemp("bert"), "Bert")
    write_modules(folder, "mean_tokens", max_seq_length=32)
    write_word_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def encoder(model: Path) -> Iterator[Server]:
    with serving(model, model / "log") as server:
        yield server


@pytest.fixture(scope="module")
def expected(model: Path) -> Any:
    """sentence-transformers' arithmetic by transformers' hidden states."""
    tokenizer = write_word_tokenizer(model)
    hidden = reference_hidden(model, [it.ids for it in tokenizer.encode_batch(list(TEXTS))])
    means = torch.stack([reference_pooled(it, "mean_tokens") for it in hidden])
    return torch.nn.functional.normalize(means, dim=1).numpy()


def test_openais_client_gets_the_vectors_of_sentence_transformers(
    encoder: Server, expected: Any
) -> None:
    client = client_of(encoder)
    numpy.testing.assert_allclose(embedded(client, "lmi", TEXTS), expected, atol=2e-5)
    floats = client.embeddings.create(model="lmi", input=TEXTS[0], encoding_format="float")
    numpy.testing.assert_allclose(floats.data[0].embedding, expected[0], atol=2e-5)
    assert floats.usage.prompt_tokens == 6
    with pytest.raises(openai.BadRequestError, match="max_model_len"):
        client.embeddings.create(model="lmi", input="sea " * 40)
    with pytest.raises(openai.BadRequestError, match="generates no text"):
        client.completions.create(model="lmi", prompt="the sea")


def test_through_the_gateway_the_vectors_are_the_same(
    encoder: Server, expected: Any, tmp_path: Path
) -> None:
    copies = (CopyRoute(id="c-1", address=encoder.url),)
    endpoint = components_endpoint("vectors", component("minilm", copies))
    with running_gateway(tmp_path, snapshot_of("1", endpoint)) as rig:
        key, url = rig.credentials.openai_api_key, f"{rig.config.gateway_url}/v1"
        with openai.OpenAI(api_key=key, base_url=url, max_retries=0) as client:
            answer = client.embeddings.create(model="minilm", input=list(TEXTS))
            assert answer.model == "minilm"
            got = [it.embedding for it in answer.data]
            numpy.testing.assert_allclose(got, expected, atol=2e-5)
            with pytest.raises(openai.NotFoundError):
                client.embeddings.create(model="nothing", input="deep")
        body = json.dumps({"inputs": TEXTS[0]})
        invoked = rig.client().invoke_endpoint(
            EndpointName="vectors",
            InferenceComponentName="minilm",
            ContentType="application/json",
            Body=body,
        )
        numpy.testing.assert_allclose(json.loads(invoked["Body"].read()), expected[0], atol=2e-5)


def test_many_clients_share_batches_and_a_lost_client_leaves_nothing(
    encoder: Server, expected: Any
) -> None:
    client = client_of(encoder)
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: embedded(client, "lmi", TEXTS), range(64)))
    for answer in answers:
        numpy.testing.assert_allclose(answer, expected, atol=2e-5)
    gone = openai.OpenAI(api_key="none", base_url=f"{encoder.url}/v1", max_retries=0, timeout=0.01)
    with pytest.raises(openai.APITimeoutError):
        gone.embeddings.create(model="lmi", input=["sea " * 30] * 2048)
    with encoder.client() as watching:
        eventually(lambda: is_idle(watching), "no text of the lost client is left")


def test_a_cross_encoder_reranks_as_transformers_scores(tmp_path: Path) -> None:
    folder = tiny_encoder(tmp_path, "Bert", "ForSequenceClassification", num_labels=1)
    tokenizer = write_word_tokenizer(folder)
    pairs = tokenizer.encode_batch([(TEXTS[2], it) for it in TEXTS])
    logits = reference_classes(folder, [it.ids for it in pairs], [it.type_ids for it in pairs])
    scores = torch.sigmoid(torch.cat(logits)).numpy()
    with serving(folder, tmp_path / "log") as server, server.client() as client:
        body = {"model": "lmi", "query": TEXTS[2], "documents": list(TEXTS)}
        answer = client.post("/v1/rerank", json=body).json()
        by_index = {it["index"]: it["relevance_score"] for it in answer["results"]}
        numpy.testing.assert_allclose([by_index[it] for it in range(4)], scores, atol=2e-5)
        assert [it["index"] for it in answer["results"]] == (-scores).argsort().tolist()
        listed = {"text_1": TEXTS[2], "text_2": list(TEXTS)}
        data = client.post("/score", json=listed).json()["data"]
        numpy.testing.assert_allclose([it["score"] for it in data], scores, atol=2e-5)


def test_a_pooled_decoder_with_an_adapter_is_peft(tmp_path: Path) -> None:
    folder = tiny_pooled_decoder(tmp_path / "model", "Qwen3", vocab_size=259)
    write_tokenizer(folder)
    adapter = random_adapter(tmp_path / "es", folder, rank=4, task_type="FEATURE_EXTRACTION")
    tokens = [ids(it) for it in TEXTS]
    want = {
        "lmi": torch.stack([it[-1] for it in reference_hidden(folder, tokens)]),
        "es": torch.stack([it[-1] for it in reference_hidden(folder, tokens, adapter)]),
    }
    env = {"OPTION_ENABLE_LORA": "true", "OPTION_TASK": "text-embedding"}
    with serving(folder, tmp_path / "log", **env) as server, server.client() as client:
        added = client.post("/adapters", params={"name": "es", "src": str(adapter)})
        assert added.status_code == 200, added.text
        with ThreadPoolExecutor(2) as pool:
            asked = {it: pool.submit(embedded, client_of(server), it, TEXTS) for it in want}
            got = {name: it.result() for name, it in asked.items()}
    for name, hidden in want.items():
        unit = torch.nn.functional.normalize(hidden, dim=1).numpy()
        numpy.testing.assert_allclose(got[name], unit, atol=2e-5)
