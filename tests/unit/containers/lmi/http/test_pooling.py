"""The routes for vectors on a fake engine: every form, and every refusal by its field."""

import base64
import json
from typing import Any

import numpy
import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.containers.lmi.tiny import Answer, ask, config, fake, ids, server

from hostelry.containers.lmi.fake import FACTS, FakeBackend, fake_vector
from hostelry.containers.lmi.http.server import LmiServer
from hostelry.containers.lmi.pooling.forms import apply_activation, unit
from hostelry.engine.pooled import PoolingFacts
from hostelry.engine.request import Request, SamplingParams

EMBEDS = PoolingFacts(
    kind="embed", dimension=8, normalize=True, dimensions=(4,), prompts={"query": "q: "}
)
CLASSIFIES = PoolingFacts(kind="classify", dimension=3, labels=("no", "maybe", "yes"))
RANKS = PoolingFacts(kind="classify", dimension=1, labels=("LABEL_0",), activation="sigmoid")
EMBEDDINGS, CLASSIFY, SCORE = "/v1/embeddings", "/classify", "/score"


def serving(facts: PoolingFacts | None, properties: str = "", **env: str) -> LmiServer:
    """A server over a fake model of this kind, with one adapter."""
    backend = FakeBackend({None: (), "es": ()}, facts=replace(FACTS, pooling=facts))
    settings = config("option.enable_lora=true\n" + properties, **env)
    return server(settings=settings, backend=backend)


def raw(text: str, size: int = 8, adapter: str | None = None) -> Any:
    """The fake engine's result for a text."""
    one = SamplingParams(max_new_tokens=0)
    request = Request(id="", prompt_token_ids=ids(text), sampling=one, adapter=adapter)
    return numpy.frombuffer(fake_vector(request, size), "<f4")


def unit_of(text: str, **more: Any) -> Any:
    return unit(raw(text, **more)[None])[0]


def test_embeddings_of_texts_and_token_ids_are_a_list_with_its_usage() -> None:
    served = serving(EMBEDS)
    answer = ask(served, EMBEDDINGS, {"model": "lmi", "input": ["one", "three"]})
    assert answer.status == 200, answer.text
    assert answer.json["object"] == "list"
    assert answer.json["usage"] == {"prompt_tokens": 8, "total_tokens": 8, "completion_tokens": 0}
    for number, text in enumerate(("one", "three")):
        row = answer.json["data"][number]
        assert (row["object"], row["index"]) == ("embedding", number)
        numpy.testing.assert_allclose(row["embedding"], unit_of(text), rtol=1e-6)
    for given in (list(ids("one")), [list(ids("one"))], "one"):
        again = ask(served, EMBEDDINGS, {"input": given}).json["data"]
        assert [it["embedding"] for it in again] == [answer.json["data"][0]["embedding"]]


def test_base64_holds_the_same_floats() -> None:
    body = {"input": "one", "encoding_format": "base64"}
    (row,) = ask(serving(EMBEDS), EMBEDDINGS, body).json["data"]
    floats = numpy.frombuffer(base64.b64decode(row["embedding"]), "<f4")
    numpy.testing.assert_allclose(floats, unit_of("one"), rtol=1e-6)


def test_dimensions_are_cut_before_the_vector_is_normalized() -> None:
    served = serving(EMBEDS)
    (row,) = ask(served, EMBEDDINGS, {"input": "one", "dimensions": 4}).json["data"]
    numpy.testing.assert_allclose(row["embedding"], unit(raw("one")[None, :4])[0], rtol=1e-6)
    body = {"input": "one", "use_activation": False}
    (row,) = ask(served, EMBEDDINGS, body).json["data"]
    numpy.testing.assert_allclose(row["embedding"], raw("one"), rtol=1e-6)


def test_an_adapter_is_chosen_by_model_and_named_in_the_answer() -> None:
    answer = ask(serving(EMBEDS), EMBEDDINGS, {"model": "es", "input": "one"})
    assert answer.json["model"] == "es"
    numpy.testing.assert_allclose(
        answer.json["data"][0]["embedding"], unit_of("one", adapter="es"), rtol=1e-6
    )
    assert answer.headers["x-hostelry-adapter-version"] == "es"


def test_truncation_keeps_the_side_that_is_asked_for() -> None:
    served = serving(EMBEDS)
    for side, kept in (("right", "abc"), ("left", "def")):
        body = {"input": "abcdef", "truncate_prompt_tokens": 3, "truncation_side": side}
        answer = ask(served, EMBEDDINGS, body)
        assert answer.json["usage"]["prompt_tokens"] == 3
        numpy.testing.assert_allclose(answer.json["data"][0]["embedding"], unit_of(kept), rtol=1e-6)
    long = {"input": "x" * 300}
    assert "takes 256" in ask(served, EMBEDDINGS, long).text
    cut = ask(served, EMBEDDINGS, {**long, "truncate_prompt_tokens": -1})
    assert cut.json["usage"]["prompt_tokens"] == 256


def test_scores_of_an_embedding_model_are_cosines() -> None:
    served = serving(EMBEDS)
    body = {"text_1": "one", "text_2": ["one", "three"]}
    scores = [it["score"] for it in ask(served, SCORE, body).json["data"]]
    want = [float(unit_of("one") @ unit_of(it)) for it in ("one", "three")]
    numpy.testing.assert_allclose(scores, want, rtol=1e-5)


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_rerank_sorts_and_cuts_and_leaves_documents_out_where_asked(path: str) -> None:
    served = serving(EMBEDS)
    body: dict[str, Any] = {"query": "one", "documents": ["three", {"text": "one"}, "two"]}
    results = ask(served, path, body).json["results"]
    assert results[0]["index"] == 1
    assert results[0]["document"] == {"text": "one"}
    scores = [it["relevance_score"] for it in results]
    assert scores == sorted(scores, reverse=True)
    short = ask(served, path, {**body, "top_n": 1, "return_documents": False}).json["results"]
    assert short == [{"index": 1, "relevance_score": scores[0]}]


def test_classes_have_the_likeliest_label_and_all_probabilities() -> None:
    served = serving(CLASSIFIES)
    (row,) = ask(served, CLASSIFY, {"input": "one"}).json["data"]
    want = apply_activation(raw("one", 3)[None], "softmax")[0]
    numpy.testing.assert_allclose(row["probs"], want, rtol=1e-5)
    assert row["label"] == CLASSIFIES.labels[int(want.argmax())]
    assert row["num_classes"] == 3
    plain = {"input": "one", "use_activation": False}
    assert ask(served, CLASSIFY, plain).json["data"][0]["probs"] == raw("one", 3).tolist()
    pooled = ask(served, "/pooling", {"input": "one"}).json["data"][0]
    assert (pooled["object"], pooled["data"]) == ("pooling", row["probs"])


def test_a_cross_encoder_scores_pairs() -> None:
    served = serving(RANKS)
    answer = ask(served, "/v1/score", {"queries": ["a", "b"], "documents": ["c", "d"]})
    assert [it["index"] for it in answer.json["data"]] == [0, 1]
    assert len(fake(served).seen) == 2
    (row,) = ask(served, SCORE, {"text_1": "a", "text_2": "c"}).json["data"]
    assert row["score"] == answer.json["data"][0]["score"]


INVOKED = [
    pytest.param(EMBEDS, "", {"inputs": "one"}, unit_of("one").tolist(), id="LMI: one vector"),
    pytest.param(EMBEDS, "", {"inputs": ["one"]}, [unit_of("one").tolist()], id="a list of inputs"),
    pytest.param(
        EMBEDS, "option.task=feature-extraction", {"inputs": "one"}, [unit_of("one").tolist()],
        id="TEI: always a list",
    ),
    pytest.param(
        EMBEDS, "", {"inputs": "one", "parameters": {"normalize": False, "max_new_tokens": 1}},
        raw("one").tolist(), id="parameters, those of tokens without effect",
    ),
    pytest.param(
        EMBEDS, "", {"inputs": "one", "prompt_name": "query"}, unit_of("q: one").tolist(),
        id="a named prompt",
    ),
    pytest.param(
        EMBEDS, "", {"inputs": "x" * 300, "truncate": True}, unit_of("x" * 256).tolist(),
        id="TEI's truncate",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("facts", "properties", "body", "want"), INVOKED)
def test_invocations_answer_inputs_as_lmi_and_tei_do(
    facts: PoolingFacts, properties: str, body: dict[str, Any], want: Any
) -> None:
    answer = ask(serving(facts, properties), "/invocations", body)
    assert answer.status == 200, answer.text
    numpy.testing.assert_allclose(answer.json, want, rtol=1e-5)


def test_invocations_answer_classes_as_hugging_face_does() -> None:
    served = serving(CLASSIFIES)
    probabilities = apply_activation(raw("one", 3)[None], "softmax")[0].tolist()
    ordered = sorted(zip(CLASSIFIES.labels, probabilities, strict=True), key=lambda it: -it[1])
    best = {"label": ordered[0][0], "score": pytest.approx(ordered[0][1])}
    assert ask(served, "/invocations", {"inputs": "one"}).json == [best]
    assert ask(served, "/invocations", {"inputs": ["one", "one"]}).json == [best, best]
    body = {"inputs": "one", "parameters": {"top_k": 2}}
    labels = [it["label"] for it in ask(served, "/invocations", body).json]
    assert labels == [ordered[0][0], ordered[1][0]]
    pair = ask(served, "/invocations", {"inputs": {"text": "a", "text_pair": "b"}})
    assert pair.status == 200, pair.text


def test_invocations_read_every_other_body_by_its_members() -> None:
    served = serving(EMBEDS)
    assert ask(served, "/invocations", {"input": "one"}).json["object"] == "list"
    ranked = ask(served, "/invocations", {"query": "one", "texts": ["two", "one"]}).json
    assert [it["index"] for it in ranked] == [1, 0]
    assert "results" in ask(served, "/invocations", {"query": "one", "documents": ["a"]}).json
    assert ask(served, "/invocations", {"text_1": "a", "text_2": "b"}).json["object"] == "list"
    csv = {"content-type": "text/csv"}
    assert len(ask(served, "/invocations", b"inputs\none\ntwo\n", headers=csv).json) == 2


REFUSED = [
    pytest.param(EMBEDS, EMBEDDINGS, {"input": []}, "input is []", id="no input"),
    pytest.param(EMBEDS, EMBEDDINGS, {}, "input is None", id="input is missing"),
    pytest.param(EMBEDS, EMBEDDINGS, {"input": ""}, "text 0 is empty", id="an empty text"),
    pytest.param(EMBEDS, EMBEDDINGS, {"input": ["a", ""]}, "text 1 is empty", id="one empty text"),
    pytest.param(EMBEDS, EMBEDDINGS, {"input": ["x"] * 10_000}, "at most 2048", id="10,000 inputs"),
    pytest.param(EMBEDS, EMBEDDINGS, {"input": [[]]}, "input holds []", id="no ids"),
    pytest.param(EMBEDS, EMBEDDINGS, {"input": [1.5]}, "input holds 1.5", id="a fraction as an id"),
    pytest.param(EMBEDS, EMBEDDINGS, {"input": [-1]}, "input holds -1", id="a negative id"),
    pytest.param(EMBEDS, EMBEDDINGS, {"input": [2**40]}, "input holds", id="a huge id"),
    pytest.param(EMBEDS, EMBEDDINGS, {"input": [60_000]}, "token id 60000", id="an unknown id"),
    pytest.param(EMBEDS, EMBEDDINGS, {"input": {"a": 1}}, "input is", id="an object"),
    pytest.param(EMBEDS, EMBEDDINGS, {"input": "a", "encoding_format": "hex"}, "float or base64",
                 id="another encoding"),
    pytest.param(EMBEDS, EMBEDDINGS, {"input": "a", "embed_dtype": "float16"}, "float32",
                 id="another number format"),
    pytest.param(EMBEDS, EMBEDDINGS, {"input": "a", "dimensions": 5}, "[8, 4]", id="dimensions"),
    pytest.param(EMBEDS, EMBEDDINGS, {"input": "a", "dimensions": 0}, "at least 1",
                 id="no dimensions"),
    pytest.param(EMBEDS, EMBEDDINGS, {"input": "a", "truncate_prompt_tokens": 0}, "at least 1",
                 id="truncated to nothing"),
    pytest.param(EMBEDS, EMBEDDINGS, {"input": "a", "truncate_prompt_tokens": 257}, "at most 256",
                 id="truncated above the model's length"),
    pytest.param(EMBEDS, EMBEDDINGS, {"input": "a", "truncation_side": "up"}, "left or right",
                 id="another side"),
    pytest.param(EMBEDS, EMBEDDINGS, {"input": "a", "flavour": 1}, "'flavour' is not a field",
                 id="an unknown field"),
    pytest.param(EMBEDS, EMBEDDINGS, {"input": "a", "priority": 3}, "priority", id="a priority"),
    pytest.param(EMBEDS, EMBEDDINGS, {"input": "a", "prompt_name": "doc"}, "this model has query",
                 id="an unknown prompt"),
    pytest.param(EMBEDS, CLASSIFY, {"input": "a"}, "Send its texts to /v1/embeddings",
                 id="an embedding model cannot classify"),
    pytest.param(CLASSIFIES, EMBEDDINGS, {"input": "a"}, "Send its texts to /classify",
                 id="a classifier cannot embed"),
    pytest.param(CLASSIFIES, SCORE, {"text_1": "a", "text_2": "b"}, "one label",
                 id="a classifier of three labels cannot score"),
    pytest.param(EMBEDS, "/v1/completions", {"prompt": "a"}, "generates no text",
                 id="an embedding model cannot complete"),
    pytest.param(CLASSIFIES, "/v1/chat/completions", {"messages": []}, "generates no text",
                 id="a classifier cannot chat"),
    pytest.param(None, EMBEDDINGS, {"input": "a"}, "option.task=text-embedding",
                 id="a generating model cannot embed"),
    pytest.param(None, "/rerank", {"query": "a", "documents": ["b"]}, "generates text",
                 id="a generating model cannot rerank"),
    pytest.param(EMBEDS, SCORE, {"text_1": "a"}, "text_1 and text_2", id="half a pair"),
    pytest.param(EMBEDS, SCORE, {"text_1": ["a", "b"], "text_2": ["c"]}, "give as many",
                 id="pairs of different counts"),
    pytest.param(EMBEDS, "/rerank", {"query": 3, "documents": ["b"]}, "query is 3",
                 id="a query that is no text"),
    pytest.param(EMBEDS, "/rerank", {"query": "a", "documents": [{"body": "b"}]}, "documents is",
                 id="documents of unknown form"),
    pytest.param(EMBEDS, "/pooling", {"input": "a", "task": "token_embed"}, "token_embed",
                 id="another pooling task"),
]  # fmt: skip


@pytest.mark.parametrize(("facts", "path", "body", "named"), REFUSED)
def test_a_request_that_cannot_be_answered_is_400_with_the_field(
    facts: PoolingFacts | None, path: str, body: dict[str, Any], named: str
) -> None:
    answer = ask(serving(facts), path, body)
    assert answer.status == 400, answer.text
    assert named in answer.json["error"]["message"]


def invoked(body: Any, facts: PoolingFacts = EMBEDS) -> Answer:
    return ask(serving(facts), "/invocations", body)


@cases(
    "body, named",
    case("a stream", {"inputs": "a", "stream": True}, "not streamed"),
    case("an input that is no text", {"inputs": [3]}, "inputs holds 3"),
    case("top_k", {"inputs": "a", "parameters": {"top_k": 2}}, "no classes"),
    case("unknown", {"inputs": "a", "parameters": {"beams": 2}}, "'beams'"),
    case("a prompt", {"prompt": "a"}, "generates no text"),
    case("no known member", {"nothing": 1}, "must contain inputs"),
    case("NaN", b'{"inputs": NaN}', "not valid JSON"),
)  # fmt: skip
def test_invocations_refuse_in_their_dialects_form(body: Any, named: str) -> None:
    answer = invoked(body)
    assert answer.status == 424, answer.text
    assert named in answer.json["error"]


def test_quotas_queues_and_deadlines_are_those_of_generation() -> None:
    served = serving(EMBEDS)
    for headers, status in (
        ({"x-hostelry-tenant": "greedy"}, 429),
        ({"x-hostelry-tenant": "crowd"}, 503),
        ({"x-hostelry-first-token-deadline-s": "0.5"}, 503),
    ):
        answer = ask(served, EMBEDDINGS, {"input": "a"}, headers=headers)
        assert answer.status == status, answer.text
        assert answer.headers["retry-after"]


def test_the_task_is_read_by_every_name_it_has() -> None:
    tasks = {"text-embedding": "embed", "feature-extraction": "embed", "classify": "classify"}
    assert {it: config(f"option.task={it}").engine.pooled.task for it in tasks} == tasks
    assert config("option.normalize=false").engine.pooled.normalize is False
    assert config("").engine.pooled.normalize is None
    assert config("option.pooling=mean").engine.pooled.pooling == "mean"


def test_numbers_far_from_zero_become_probabilities() -> None:
    logits = numpy.array([[1e4, -1e4, 0.0]], numpy.float32)
    assert apply_activation(logits, "softmax").tolist() == [[1.0, 0.0, 0.0]]
    assert apply_activation(logits, "sigmoid").tolist() == [[1.0, 0.0, 0.5]]
    assert json.dumps(unit(numpy.zeros((1, 3), numpy.float32)).tolist()) == "[[0.0, 0.0, 0.0]]"
