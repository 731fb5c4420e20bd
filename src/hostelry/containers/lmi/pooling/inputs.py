"""Parser of /invocations for a model with vectors: LMI's, Hugging Face's, TEI's and vLLM's bodies.

members                                     read as
------------------------------------------  ----------------------------------------------
inputs                                      LMI, Hugging Face, TEI /embed and /predict
query, texts                                TEI /rerank
query, documents                            /rerank
text_1, text_2 (and the other names)        /score
input                                       /v1/embeddings, or /classify
"""

from collections.abc import Mapping

from hostelry.containers.lmi.pooling.forms import (
    InputsForm,
    PairScores,
    PooledCall,
    PooledForm,
    PooledText,
    TeiRankForm,
    VectorForm,
)
from hostelry.containers.lmi.pooling.parse import (
    PAIR_NAMES,
    PooledRequest,
    PooledRoute,
    check_count,
    check_known,
    get_prefix,
    pair_texts,
    parse_dimensions,
    parse_pooled,
    some_texts,
)
from hostelry.containers.lmi.refusal import bad_request
from hostelry.containers.lmi.request.adapter_choice import choose_adapters
from hostelry.containers.lmi.request.fields import BodyFields, show

# Fields that generating clients send, and that have no effect on a vector.
OF_TOKENS = (
    "max_new_tokens", "max_tokens", "do_sample", "temperature", "top_p", "seed", "details",
    "return_full_text",
)  # fmt: skip
FINISH = (
    "normalize", "truncate", "truncation_direction", "prompt_name", "dimensions", "raw_scores",
    "top_k", "return_all_scores", "function_to_apply",
)  # fmt: skip
INPUTS_KNOWN = ("inputs", "parameters", "stream", "model", "adapters", "adapter", *FINISH)
PARAMETERS_KNOWN = (*FINISH, *OF_TOKENS, "output_formatter")
RANK_KNOWN = (
    "query", "texts", "truncate", "truncation_direction", "raw_scores", "return_text", "adapters",
    "adapter", "model",
)  # fmt: skip
FUNCTIONS: Mapping[str, bool] = {"none": False, "sigmoid": True, "softmax": True}


def parse_invoked(asked: PooledRequest, *, lists: bool) -> PooledCall:
    """The call of a body of /invocations, by the members of the body. Raises Refusal.

    With `lists` a single text is answered with a list, too (TEI).
    """
    body = asked.body
    if "inputs" in body:
        return parse_inputs_call(asked, lists=lists)
    if "query" in body and "texts" in body:
        return parse_tei_rank(asked)
    if "query" in body:
        return parse_pooled(PooledRoute.RERANK, asked)
    if any(first in body for first, _ in PAIR_NAMES):
        return parse_pooled(PooledRoute.SCORE, asked)
    if "input" in body:
        embeds = asked.facts.kind == "embed"
        route = PooledRoute.EMBEDDINGS if embeds else PooledRoute.CLASSIFY
        return parse_pooled(route, asked)
    named = next((it for it in ("prompt", "messages") if it in body), None)
    if named:
        raise bad_request(f"{named}: {generates_nothing(asked)}", named)
    raise bad_request("invalid payload. must contain inputs, input, query and texts, or text_1")


def generates_nothing(asked: PooledRequest) -> str:
    """The reason why a request to generate is refused, with the route for texts."""
    kind = "embeds" if asked.facts.kind == "embed" else "classifies"
    where = "/v1/embeddings" if asked.facts.kind == "embed" else "/classify"
    return (
        f"this model {kind} and generates no text; send its texts to {where} or as inputs, or "
        "serve a model that generates"
    )


def parse_inputs_call(asked: PooledRequest, *, lists: bool) -> PooledCall:
    """The call of a body with `inputs`, whose options are at the top or in `parameters`."""
    body = asked.body
    check_known(body, INPUTS_KNOWN, "a body with inputs")
    body.refuse("stream", (False,), "vectors are not streamed")
    parameters = body.members("parameters")
    check_known(parameters, PARAMETERS_KNOWN, "parameters")
    parameters.refuse("output_formatter", ("json",), "vectors are written as json")
    options = BodyFields(
        {name: parameters.raw(name) if name in parameters else body.raw(name) for name in FINISH},
        "parameters",
    )
    texts = parse_input_texts(body.raw("inputs"))
    listed = lists or isinstance(body.raw("inputs"), list)
    form = InputsForm(vectors=parse_finish(options, asked), listed=listed, top=parse_top(options))
    return inputs_call(asked, options, texts, form)


def parse_tei_rank(asked: PooledRequest) -> PooledCall:
    """TEI's rerank: a query and texts."""
    body = asked.body
    check_known(body, RANK_KNOWN, "a body with query and texts")
    query = body.text("query") or ""
    texts = some_texts(body.raw("texts"), "texts")
    pooled, pairs = pair_texts(asked, [query], texts, "rerank")
    raw = VectorForm(facts=asked.facts, activate=not body.flag("raw_scores"))
    pairs = PairScores(raw, pairs.num_first) if asked.facts.kind == "classify" else pairs
    form = TeiRankForm(pairs=pairs, texts=texts, with_texts=body.flag("return_text"))
    return inputs_call(asked, body, pooled, form)


def inputs_call(
    asked: PooledRequest, options: BodyFields, texts: tuple[PooledText, ...], form: PooledForm
) -> PooledCall:
    """The call by the options that LMI's and TEI's forms share."""
    context = asked.context
    side = (options.text("truncation_direction") or "right").lower()
    if side not in ("left", "right"):
        raise bad_request(
            f"truncation_direction is {show(side)}; it must be left or right",
            "truncation_direction",
        )
    adapters = choose_adapters(context.caller, asked.body, len(texts), context.registered)
    return PooledCall(
        texts=texts,
        adapters=adapters,
        form=form,
        model=context.model_name,
        truncate=-1 if options.flag("truncate") else None,
        side="left" if side == "left" else "right",
        prefix=get_prefix(options.text("prompt_name"), asked.facts),
    )


def parse_finish(options: BodyFields, asked: PooledRequest) -> VectorForm:
    """The finish of the vectors: `normalize` and `dimensions`, or the function for classes."""
    facts = asked.facts
    if facts.kind == "embed":
        for name in ("raw_scores", "top_k", "return_all_scores", "function_to_apply"):
            options.refuse(name, (), "this model embeds and has no classes")
        activate = options.flag("normalize") if "normalize" in options else None
        dimensions = parse_dimensions(options, facts)
        return VectorForm(facts=facts, activate=activate, dimensions=dimensions)
    for name in ("normalize", "dimensions"):
        options.refuse(name, (), "this model classifies and has no embeddings")
    function = options.text("function_to_apply")
    if function is not None and function not in ("none", facts.activation):
        raise bad_request(
            f"function_to_apply is {show(function)}; it must be none or {facts.activation}",
            "function_to_apply",
        )
    is_raw = options.flag("raw_scores") or function == "none"
    return VectorForm(facts=facts, activate=not is_raw)


def parse_top(options: BodyFields) -> int | None:
    """The number of labels of each input: None for only its likeliest, 0 for all."""
    top = options.integer("top_k", 1)
    return 0 if top is None and options.flag("return_all_scores") else top


def parse_input_texts(value: object) -> tuple[PooledText, ...]:
    """A text, a pair as `{"text": ..., "text_pair": ...}`, or a list of either."""
    values = value if isinstance(value, list) else [value]
    if not values:
        raise bad_request("inputs is []; it must be a string or a non-empty list", "inputs")
    check_count(values, "inputs")
    return tuple(parse_input(it) for it in values)


def parse_input(value: object) -> PooledText:
    """One of the inputs."""
    if isinstance(value, str):
        return PooledText(value)
    if isinstance(value, dict) and set(value) in ({"text"}, {"text", "text_pair"}):
        text, second = value["text"], value.get("text_pair")
        if isinstance(text, str) and (second is None or isinstance(second, str)):
            return PooledText(text, second)
    raise bad_request(
        f"inputs holds {show(value)}; it must be a string or an object with text and text_pair",
        "inputs",
    )
