"""Parsers of requests for vectors, one for each route.

A field that a route does not know is refused by name. The routes of each kind of model:

    model                          routes
    -----------------------------  --------------------------------------------------------
    embeds                         embeddings, pooling, score and rerank (cosine)
    classifies, one label          classify, pooling, score and rerank
    classifies, several labels     classify, pooling
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum

import msgspec

from hostelry.containers.lmi.pooling.forms import (
    ClassesForm,
    ListForm,
    PairScores,
    PooledCall,
    PooledForm,
    PooledText,
    RerankForm,
    ScoreForm,
    VectorForm,
)
from hostelry.containers.lmi.refusal import Refusal, bad_request
from hostelry.containers.lmi.request.adapter_choice import choose_by_model
from hostelry.containers.lmi.request.context import ParseContext
from hostelry.containers.lmi.request.fields import BodyFields, is_token_id, show
from hostelry.engine.pooled import PoolingFacts

MAX_TEXTS = 2048
PAIR_NAMES = (
    ("text_1", "text_2"), ("queries", "documents"), ("queries", "items"), ("data_1", "data_2"),
)  # fmt: skip

# Fields of every route. The last row is accepted because it changes no vector.
READ = ("model", "adapters", "adapter", "truncate_prompt_tokens", "truncation_side")
COMMON = (*READ, "user", "request_id", "cache_salt", "priority")
ONE_VECTOR = (*COMMON, "input", "add_special_tokens", "use_activation", "activation")
ENCODED = ("encoding_format", "embed_dtype", "endianness")
KNOWN: Mapping[str, tuple[str, ...]] = {
    "embeddings": (*ONE_VECTOR, *ENCODED, "dimensions", "normalize", "prompt_name"),
    "pooling": (*ONE_VECTOR, *ENCODED, "dimensions", "normalize", "task"),
    "classify": ONE_VECTOR,
    "score": (*COMMON, "use_activation", "activation", *(it for pair in PAIR_NAMES for it in pair)),
    "rerank": (
        *COMMON, "use_activation", "activation", "query", "documents", "top_n", "return_documents",
    ),
}  # fmt: skip


class PooledRoute(Enum):
    """A family of routes for vectors."""

    EMBEDDINGS = "embeddings"
    POOLING = "pooling"
    CLASSIFY = "classify"
    SCORE = "score"
    RERANK = "rerank"


class PooledRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a request, the model it is for, and the values that go with it."""

    body: BodyFields
    facts: PoolingFacts
    context: ParseContext


def parse_pooled(route: PooledRoute, asked: PooledRequest) -> PooledCall:
    """The call of a body of one of the routes. Raises Refusal."""
    check_known(asked.body, KNOWN[route.value], f"/{route.value}")
    asked.body.refuse("priority", (0,), "requests are scheduled by tenant, not by priority")
    return PARSERS[route](asked)


def check_known(body: BodyFields, known: Sequence[str], where: str) -> None:
    """Raise Refusal for a member that is not one of `known` and is not null."""
    for name in body.names():
        if name not in known:
            raise bad_request(
                f"{show(name)} is not a field of {where}, which knows {', '.join(known)}",
                name,
            )


def parse_embeddings(asked: PooledRequest) -> PooledCall:
    """OpenAI's embeddings."""
    if asked.facts.kind != "embed":
        raise cannot("/v1/embeddings", asked.facts)
    return one_vector_call(asked, ListForm(vectors=vector_form(asked), in_base64=is_base64(asked)))


def parse_pooling(asked: PooledRequest) -> PooledCall:
    """VLLM's /pooling: the vectors of a model of any kind."""
    task = asked.body.text("task")
    if task not in (None, asked.facts.kind):
        raise bad_request(
            f"task is {show(task)}; this model's is {asked.facts.kind}, with one vector a text",
            "task",
        )
    form = ListForm(
        vectors=vector_form(asked), in_base64=is_base64(asked), kind="pooling", member="data"
    )
    return one_vector_call(asked, form)


def parse_classify(asked: PooledRequest) -> PooledCall:
    """VLLM's /classify."""
    if asked.facts.kind != "classify":
        raise cannot("/classify", asked.facts)
    return one_vector_call(asked, ClassesForm(vector_form(asked)))


def parse_score(asked: PooledRequest) -> PooledCall:
    """VLLM's /score: each pair of texts, or one text with each of the others."""
    for first_name, second_name in PAIR_NAMES:
        if first_name in asked.body and second_name in asked.body:
            first = some_texts(asked.body.raw(first_name), first_name)
            second = some_texts(asked.body.raw(second_name), second_name)
            break
    else:
        raise bad_request("the body must have text_1 and text_2 (or queries and documents)")
    if len(first) not in (1, len(second)):
        raise bad_request(
            f"{first_name} has {len(first)} texts and {second_name} {len(second)}; give as many, "
            f"or one in {first_name}",
            first_name,
        )
    texts, pairs = pair_texts(asked, first, second, "/score")
    return build_call(asked, texts, ScoreForm(pairs))


def parse_rerank(asked: PooledRequest) -> PooledCall:
    """Cohere's and Jina's rerank, as vLLM has it."""
    query = asked.body.raw("query")
    if not isinstance(query, str):
        raise bad_request(f"query is {show(query)}; it must be a string", "query")
    documents = some_documents(asked.body.raw("documents"))
    texts, pairs = pair_texts(asked, [query], documents, "/rerank")
    form = RerankForm(
        pairs=pairs,
        documents=documents,
        top=asked.body.integer("top_n", 0) or 0,
        with_documents=asked.body.flag("return_documents", True),
    )
    return build_call(asked, texts, form)


PARSERS: Mapping[PooledRoute, Callable[[PooledRequest], PooledCall]] = {
    PooledRoute.EMBEDDINGS: parse_embeddings,
    PooledRoute.POOLING: parse_pooling,
    PooledRoute.CLASSIFY: parse_classify,
    PooledRoute.SCORE: parse_score,
    PooledRoute.RERANK: parse_rerank,
}


def one_vector_call(asked: PooledRequest, form: PooledForm) -> PooledCall:
    """The call of a body with `input`."""
    return build_call(asked, parse_input(asked.body.raw("input")), form)


def build_call(asked: PooledRequest, texts: tuple[PooledText, ...], form: PooledForm) -> PooledCall:
    """The call of OpenAI's and vLLM's routes, by the fields they share."""
    body, context = asked.body, asked.context
    adapter = choose_by_model(context.caller, body, context.served, context.registered)
    side = body.text("truncation_side") or "right"
    if side not in ("left", "right"):
        raise bad_request(
            f"truncation_side is {show(side)}; it must be left or right", "truncation_side"
        )
    truncate = body.integer("truncate_prompt_tokens", -1)
    if truncate == 0:
        raise bad_request(
            "truncate_prompt_tokens is 0; it must be at least 1, or -1", "truncate_prompt_tokens"
        )
    return PooledCall(
        texts=texts,
        adapters=(adapter,) * len(texts),
        form=form,
        model=context.caller.model or adapter or context.model_name,
        truncate=truncate,
        side="left" if side == "left" else "right",
        add_special_tokens=body.flag("add_special_tokens", True),
        prefix=get_prefix(body.text("prompt_name"), asked.facts),
    )


def pair_texts(
    asked: PooledRequest, first: Sequence[str], second: Sequence[str], where: str
) -> tuple[tuple[PooledText, ...], PairScores]:
    """The texts to compute, and how their pairs are scored."""
    facts = asked.facts
    if facts.kind == "embed":
        texts = tuple(PooledText(it) for it in (*first, *second))
        return texts, PairScores(vector_form(asked), len(first))
    if facts.dimension != 1:
        raise bad_request(
            f"{where} needs a model with one label (a cross-encoder) or one that embeds; this one "
            f"has {facts.dimension} labels: send its texts to /classify"
        )
    left = [*first] * len(second) if len(first) == 1 else first
    pairs = zip(left, second, strict=True)
    texts = tuple(PooledText(one, other) for one, other in pairs)
    return texts, PairScores(vector_form(asked), len(texts))


def vector_form(asked: PooledRequest) -> VectorForm:
    """The finish of the vectors, by `use_activation` (`activation`, `normalize`), `dimensions`."""
    names = ("use_activation", "activation", "normalize")
    given = [name for name in names if name in asked.body]
    if len(given) > 1:
        raise bad_request(f"{' and '.join(given)} are the same; give one of them", given[1])
    activate = asked.body.flag(given[0]) if given else None
    return VectorForm(
        facts=asked.facts, activate=activate, dimensions=parse_dimensions(asked.body, asked.facts)
    )


def parse_dimensions(body: BodyFields, facts: PoolingFacts) -> int | None:
    """The numbers kept of an embedding, all by default."""
    asked = body.integer("dimensions", 1)
    if asked is None or asked == facts.dimension:
        return None
    if asked in facts.dimensions or (facts.any_dimensions and asked < facts.dimension):
        return asked
    allowed = [facts.dimension, *facts.dimensions]
    choices = f"1 to {facts.dimension}" if facts.any_dimensions else f"one of {allowed}"
    raise bad_request(
        f"dimensions is {asked}; with this model it must be {choices} (is_matryoshka and "
        "matryoshka_dimensions in config.json)",
        "dimensions",
    )


def is_base64(asked: PooledRequest) -> bool:
    """True if vectors are written in base64."""
    body = asked.body
    body.refuse("embed_dtype", ("float32",), "vectors are float32")
    body.refuse("endianness", ("native", "little"), "vectors are little-endian")
    given = body.text("encoding_format") or "float"
    if given not in ("float", "base64"):
        raise bad_request(
            f"encoding_format is {show(given)}; it must be float or base64",
            "encoding_format",
        )
    return given == "base64"


def get_prefix(name: str | None, facts: PoolingFacts) -> str:
    """The text before each text, from the prompt that the request, or else the model, names."""
    if name is None:
        return facts.prompts.get(facts.default_prompt or "", "")
    if name not in facts.prompts:
        raise bad_request(
            f"prompt_name is {show(name)}; this model has {', '.join(facts.prompts) or 'none'}",
            "prompt_name",
        )
    return facts.prompts[name]


def parse_input(value: object) -> tuple[PooledText, ...]:
    """OpenAI's `input`: a text, token ids, or a list of either."""
    if isinstance(value, str):
        return (PooledText(value),)
    if not isinstance(value, list) or not value:
        raise bad_request(
            f"input is {show(value)}; it must be a string, token ids, or a non-empty list of "
            "either",
            "input",
        )
    if all(is_token_id(it) for it in value):
        return (PooledText(tuple(value)),)
    check_count(value, "input")
    return tuple(one_input(it) for it in value)


def one_input(value: object) -> PooledText:
    """A member of a list."""
    if isinstance(value, str):
        return PooledText(value)
    if isinstance(value, list) and value and all(is_token_id(it) for it in value):
        return PooledText(tuple(value))
    raise bad_request(
        f"input holds {show(value)}; its members must be strings or lists of token ids",
        "input",
    )


def some_texts(value: object, name: str) -> list[str]:
    """A string, or a list of strings."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts or not all(isinstance(it, str) for it in texts):
        raise bad_request(
            f"{name} is {show(value)}; it must be a string or a non-empty list of strings",
            name,
        )
    check_count(texts, name)
    return [str(it) for it in texts]


def some_documents(value: object) -> list[str]:
    """A list of strings, or of objects with a `text`."""
    if isinstance(value, list):
        value = [it["text"] if isinstance(it, dict) and set(it) == {"text"} else it for it in value]
    return some_texts(value, "documents")


def check_count(values: Sequence[object], name: str) -> None:
    """Raise Refusal for more texts than a request may have."""
    if len(values) > MAX_TEXTS:
        raise bad_request(f"{name} has {len(values)} members; at most {MAX_TEXTS}", name)


def cannot(where: str, facts: PoolingFacts) -> Refusal:
    """The refusal of a route that the model cannot do."""
    if facts.kind == "embed":
        return bad_request(
            f"this model embeds and cannot {where}; that needs a sequence classification model. "
            "Send its texts to /v1/embeddings"
        )
    return bad_request(
        f"this model classifies and cannot {where}; that needs an encoder without a "
        "classification head, or a decoder with option.task=text-embedding. Send its texts to "
        "/classify"
    )
