"""Bodies of requests: what they mean, and how careless and hostile ones are refused."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from tests.unit.containers.lmi.tiny import TEMPLATE

from hostelry.base.clock import ManualClock
from hostelry.containers.lmi.refusal import Cause, Refusal, Surface
from hostelry.containers.lmi.request.adapter_choice import Caller
from hostelry.containers.lmi.request.body import parse_invocation
from hostelry.containers.lmi.request.chat_template import ChatTemplate
from hostelry.containers.lmi.request.context import ParseContext
from hostelry.containers.lmi.request.invocation import Formatter, Invocation, PromptText

CONTEXT = ParseContext(
    dialect=Surface.ASYNC,
    registered=("es", "fr"),
    served=("lmi", "org/base"),
    chat=ChatTemplate(TEMPLATE, {}, ManualClock()),
    fresh_seed=7,
)
LEGACY = replace(CONTEXT, dialect=Surface.LEGACY)


def parse(body: Any, context: ParseContext = CONTEXT, kind: str = "application/json") -> Invocation:
    raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
    found = parse_invocation(kind, raw, context)
    assert isinstance(found, Invocation)
    return found


def nested(depth: int) -> dict[str, Any]:
    """A schema of so many arrays in each other."""
    value: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        value = {"type": "array", "items": value}
    return value


def inputs(**parameters: Any) -> dict[str, Any]:
    return {"inputs": "hi", "parameters": parameters}


@pytest.mark.parametrize(
    ("parameters", "field", "expected"),
    [
        pytest.param({}, "temperature", 1.0, id="samples by default"),
        pytest.param({"do_sample": False}, "temperature", 0.0, id="do_sample false is greedy"),
        pytest.param({"temperature": 0.5}, "temperature", 0.5, id="temperature"),
        pytest.param({"temperature": 0}, "temperature", 0.0, id="temperature 0 is greedy"),
        pytest.param({"top_k": -1}, "top_k", 0, id="top_k -1 is off"),
        pytest.param({"top_k": 5}, "top_k", 5, id="top_k"),
        pytest.param({"top_p": 0.9}, "top_p", 0.9, id="top_p"),
        pytest.param({"min_p": 0.1}, "min_p", 0.1, id="min_p"),
        pytest.param({"repetition_penalty": 1.2}, "repetition_penalty", 1.2, id="repetition"),
        pytest.param({"presence_penalty": -2}, "presence_penalty", -2, id="presence"),
        pytest.param({"frequency_penalty": 2}, "frequency_penalty", 2, id="frequency"),
        pytest.param({}, "seed", 7, id="a seed is supplied"),
        pytest.param({"seed": 11}, "seed", 11, id="the request's own seed"),
        pytest.param({"seed": 0}, "seed", 0, id="seed 0 is a seed"),
        pytest.param({"ignore_eos_token": True}, "ignore_eos", True, id="ignore_eos_token"),
        pytest.param({"stop_token_ids": [4, 5]}, "stop_token_ids", (4, 5), id="stop token ids"),
        pytest.param({"details": True}, "num_logprobs", 0, id="details want logprobs"),
        pytest.param({}, "num_logprobs", None, id="no logprobs unasked"),
        pytest.param(
            {"details": True, "top_n_tokens": 3}, "num_logprobs", 3, id="top tokens beside each"
        ),
        pytest.param({"temperature": None, "top_k": None}, "top_k", 0, id="null is absent"),
        pytest.param(
            {"logit_bias": {"5": -1, "7": 2.5, "9": None}},
            "logit_bias",
            ((5, -1.0), (7, 2.5)),
            id="biases",
        ),
        pytest.param({"logit_bias": {}}, "logit_bias", (), id="no biases"),
        pytest.param({"min_new_tokens": 3}, "min_new_tokens", 3, id="fewest tokens"),
        pytest.param({"min_tokens": 3}, "min_new_tokens", 3, id="fewest tokens, in vLLM's words"),
    ],
)
def test_sampling(parameters: dict[str, Any], field: str, expected: Any) -> None:
    assert getattr(parse(inputs(**parameters)).sampling, field) == expected


@pytest.mark.parametrize(
    ("parameters", "temperature"),
    [
        pytest.param({}, 0.0, id="the rolling batch is greedy"),
        pytest.param({"temperature": 0.7}, 0.0, id="temperature alone does not sample"),
        pytest.param({"temperature": 0.7, "do_sample": True}, 0.7, id="do_sample does"),
    ],
)
def test_the_legacy_dialect_samples_only_when_asked(
    parameters: dict[str, Any], temperature: float
) -> None:
    assert parse(inputs(**parameters), LEGACY).sampling.temperature == temperature


def test_both_names_of_stop_strings_count() -> None:
    parsed = parse(inputs(stop_sequences=["a", "b"], stop="b"))
    assert parsed.texts.stop == ("a", "b")


def test_defaults_of_the_lmi_schema() -> None:
    parsed = parse({"inputs": "hi"})
    assert parsed.prompts == (PromptText("hi"),)
    assert parsed.adapters == (None,)
    assert (parsed.max_new_tokens, parsed.stream) == (30, False)


@pytest.mark.parametrize(
    ("body", "caller", "expected"),
    [
        pytest.param({}, Caller(), (None, None), id="the base without a name"),
        pytest.param({"adapters": "es"}, Caller(), ("es", "es"), id="one name for all inputs"),
        pytest.param({"adapters": ["es", ""]}, Caller(), ("es", None), id="one name per input"),
        pytest.param({"adapter": "fr"}, Caller(), ("fr", "fr"), id="the singular name"),
        pytest.param({"adapters": ""}, Caller(), (None, None), id="empty is the base"),
        pytest.param({"adapters": []}, Caller(), (None, None), id="no names are the base"),
        pytest.param(
            {"model": "tgi"}, Caller(any_model=True), (None, None), id="any other name, to TGI"
        ),
        pytest.param(
            {"model": "es"}, Caller(any_model=True), ("es", "es"), id="an adapter's name, to TGI"
        ),
        pytest.param(
            {"adapters": "es"}, Caller(query_adapter="fr"), ("fr", "fr"), id="query before body"
        ),
        pytest.param(
            {"adapters": "es"}, Caller(adapter="fr", query_adapter="es"), ("fr", "fr"),
            id="header before query and body",
        ),
        pytest.param(
            {"adapters": "es"}, Caller(adapter=""), (None, None), id="an empty header is the base"
        ),
    ],
)  # fmt: skip
def test_adapter_choice(
    body: dict[str, Any], caller: Caller, expected: tuple[str | None, ...]
) -> None:
    context = replace(CONTEXT, caller=caller)
    assert parse({"inputs": ["a", "b"], **body}, context).adapters == expected


@pytest.mark.parametrize(
    ("body", "caller", "message"),
    [
        pytest.param({"adapters": "de"}, Caller(), "Adapter de is not registered", id="unknown"),
        pytest.param({"adapters": ["es", "de"]}, Caller(), "de", id="one of them unknown"),
        pytest.param(
            {}, Caller(adapter="x-1", alias="german"), "Adapter german is not registered",
            id="a header's adapter is called by its alias",
        ),
        pytest.param({}, Caller(query_adapter="de"), "de", id="unknown in the query"),
    ],
)  # fmt: skip
def test_an_unknown_adapter_is_never_the_base(
    body: dict[str, Any], caller: Caller, message: str
) -> None:
    with pytest.raises(Refusal, match=message) as refused:
        parse({"inputs": ["a", "b"], **body}, replace(CONTEXT, caller=caller))
    assert refused.value.cause is Cause.UNKNOWN_ADAPTER


MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("body", "caller", "adapter", "model"),
    [
        pytest.param({}, Caller(), None, "lmi", id="no model is the base"),
        pytest.param({"model": "org/base"}, Caller(), None, "lmi", id="the model's id"),
        pytest.param({"model": "es"}, Caller(), "es", "es", id="model may name an adapter"),
        pytest.param({"model": "lmi"}, Caller(adapter="fr"), "fr", "fr", id="header before model"),
        pytest.param(
            {"model": "es"}, Caller(model="my-base"), None, "my-base",
            id="with the gateway's header the body's model is not read",
        ),
        pytest.param(
            {}, Caller(adapter="es", alias="spanish"), "es", "spanish",
            id="an answer through a header carries the adapter's alias",
        ),
        pytest.param(
            {"model": "x"}, Caller(model="my-es", adapter="es"), "es", "my-es",
            id="the answer carries the gateway's name",
        ),
        pytest.param(
            {"adapters": "es"}, Caller(model="my-base"), "es", "my-base",
            id="without the gateway's adapter header a body may name one of the archive",
        ),
        *(
            pytest.param(
                {"adapters": body}, Caller(model="my-es", adapter="es", alias="spanish"), "es",
                "my-es", id=f"the body says the same as the gateway's header: {body}",
            )
            for body in ("es", "spanish", ["es"], None)
        ),
    ],
)  # fmt: skip
def test_model_choice_of_chats(
    body: dict[str, Any], caller: Caller, adapter: str | None, model: str
) -> None:
    parsed = parse({"messages": MESSAGES, **body}, replace(CONTEXT, caller=caller))
    assert (parsed.adapters, parsed.form.model) == ((adapter,), model)


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        pytest.param({"adapters": "fr"}, Cause.BAD_REQUEST, id="another adapter of the archive"),
        pytest.param({"adapters": "nobody"}, Cause.BAD_REQUEST, id="one that is not there"),
        pytest.param({"adapters": ""}, Cause.BAD_REQUEST, id="the base"),
        pytest.param({"adapter": ["fr"]}, Cause.BAD_REQUEST, id="in a list, under the other name"),
        pytest.param({"adapters": 7}, Cause.BAD_REQUEST, id="no name at all"),
    ],
)
@pytest.mark.parametrize("prompt", [{"messages": MESSAGES}, {"prompt": "a"}])
@pytest.mark.parametrize("model", ["my-es", None])
def test_a_body_never_overrides_the_gateways_adapter(
    body: dict[str, Any], cause: Cause, prompt: dict[str, Any], model: str | None
) -> None:
    context = replace(CONTEXT, caller=Caller(model=model, adapter="es", alias="spanish"))
    with pytest.raises(Refusal, match="adapters is") as refused:
        parse({**prompt, **body}, context)
    assert refused.value.cause is cause


def test_a_chat_is_rendered_by_the_models_template() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    parsed = parse({"messages": [{"role": "user", "content": parts}]})
    assert isinstance(parsed.prompts[0], PromptText)
    assert parsed.prompts[0].text.endswith(
        "<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\n"
    )
    assert not parsed.prompts[0].add_special_tokens
    assert (parsed.max_new_tokens, parsed.sampling.temperature) == (None, 1.0)


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        pytest.param("hi", (PromptText("hi"),), id="a text"),
        pytest.param(["a", "b"], (PromptText("a"), PromptText("b")), id="a list of texts"),
        pytest.param([3, 4], ((3, 4),), id="token ids"),
        pytest.param([[3], [4, 5]], ((3,), (4, 5)), id="lists of token ids"),
    ],
)
def test_prompts_of_completions(prompt: Any, prompts: Any) -> None:
    parsed = parse({"prompt": prompt})
    assert (parsed.prompts, parsed.max_new_tokens) == (prompts, 16)


@pytest.mark.parametrize(
    ("body", "context", "formatter"),
    [
        pytest.param({}, CONTEXT, Formatter.JSON, id="json"),
        pytest.param({"stream": True}, CONTEXT, Formatter.JSONLINES, id="a stream is lines"),
        pytest.param(
            {"stream": True}, replace(CONTEXT, tgi_compat=True), Formatter.SSE, id="TGI's is events"
        ),
        pytest.param(
            {}, replace(CONTEXT, output_formatter="sse"), Formatter.SSE, id="configured formatter"
        ),
        pytest.param(
            {"parameters": {"output_formatter": "jsonlines"}},
            replace(CONTEXT, output_formatter="sse"), Formatter.JSONLINES,
            id="the request's formatter before the configured one",
        ),
        pytest.param(
            {}, replace(CONTEXT, caller=Caller(streaming_api=True)), Formatter.JSONLINES,
            id="the streaming operation streams",
        ),
        pytest.param(
            {"stream": False}, replace(CONTEXT, caller=Caller(streaming_api=True)), Formatter.JSON,
            id="unless the body says no",
        ),
    ],
)  # fmt: skip
def test_formatter(body: dict[str, Any], context: ParseContext, formatter: Formatter) -> None:
    parsed = parse({"inputs": "hi", **body}, context)
    assert parsed.form.formatter is formatter
    assert parsed.stream is (formatter is not Formatter.JSON)


@pytest.mark.parametrize(
    ("kind", "body", "prompts"),
    [
        pytest.param("text/plain", "hé".encode(), (PromptText("hé"),), id="plain text"),
        pytest.param(
            "text/csv; charset=utf-8", b'\xef\xbb\xbfinputs\n"a, b"\nc\n',
            (PromptText("a, b"), PromptText("c")),
            id="a table",
        ),
        pytest.param("", b'{"inputs":"x"}', (PromptText("x"),), id="JSON without a type"),
        pytest.param(
            "application/octet-stream", b'{"inputs":"x"}', (PromptText("x"),), id="JSON as bytes"
        ),
    ],
)  # fmt: skip
def test_content_types(kind: str, body: bytes, prompts: Any) -> None:
    assert parse(body, kind=kind).prompts == prompts


DEEP = b'{"inputs":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(b"", "not valid JSON", id="nothing"),
        pytest.param(b"{", "not valid JSON", id="broken JSON"),
        pytest.param(DEEP, "nests deeper than 200", id="a hundred thousand brackets"),
        pytest.param(b'{"inputs":"\xff"}', "JSON", id="bytes that are no text"),
        pytest.param(b'{"inputs":"a","parameters":{"top_p":NaN}}', "JSON", id="NaN"),
        pytest.param([1], "must be a JSON object", id="a list"),
        pytest.param("text", "must be a JSON object", id="a text"),
        pytest.param({}, "must contain prompt, inputs, or messages", id="no known member"),
        pytest.param({"inputs": None}, "must contain", id="null inputs"),
        pytest.param({"inputs": 3}, "inputs is 3", id="a number as inputs"),
        pytest.param({"inputs": []}, "non-empty", id="no inputs"),
        pytest.param({"inputs": ["a", 1]}, "list of strings", id="mixed inputs"),
        pytest.param({"inputs": ["a"] * 1025}, "at most 1024", id="too many inputs"),
        pytest.param({"inputs": "a", "parameters": []}, "parameters", id="a list of parameters"),
        pytest.param({"inputs": "a", "parameters": "x"}, "object", id="parameters as text"),
        pytest.param({"inputs": "a", "stream": "maybe"}, "true or false", id="stream maybe"),
        pytest.param({"inputs": ["a"], "adapters": ["es", "fr"]}, "Number of adapters", id="more"),
        pytest.param({"inputs": ["a", "b"], "adapters": ["es"]}, "1 adapters, 2", id="fewer"),
        pytest.param({"inputs": "a", "adapters": 5}, "adapters is 5", id="a numbered adapter"),
        pytest.param({"inputs": "a", "adapters": [["es"]]}, "one name per", id="nested names"),
        pytest.param(inputs(max_new_tokens=0), "max_new_tokens", id="no tokens"),
        pytest.param(inputs(max_new_tokens=-3), "at least 1", id="negative tokens"),
        pytest.param(inputs(max_new_tokens=1.5), "whole number", id="half a token"),
        pytest.param(inputs(max_new_tokens="9"), "must be a number", id="digits as text"),
        pytest.param(inputs(max_new_tokens=True), "must be a number", id="true tokens"),
        pytest.param(inputs(max_new_tokens=10**30), "at least 1", id="a number beyond all"),
        pytest.param(inputs(temperature=-0.1), "temperature", id="negative temperature"),
        pytest.param(inputs(top_p=0), "top_p", id="top_p 0"),
        pytest.param(inputs(top_p=1.1), "at most 1", id="top_p above 1"),
        pytest.param(inputs(top_k=-2), "top_k", id="top_k below -1"),
        pytest.param(inputs(repetition_penalty=0), "repetition_penalty", id="no repetition"),
        pytest.param(inputs(repetition_penalty=1e-46), "at least 0.01", id="0 in single precision"),
        pytest.param(inputs(repetition_penalty=1e39), "at most 100", id="inf in single precision"),
        pytest.param(inputs(repetition_penalty=10**400), "at most 100", id="no float at all"),
        pytest.param(inputs(temperature=10**400), "at most 100", id="hotter than any float"),
        pytest.param(inputs(top_k=2**31), "at most 2147483647", id="more tokens than there are"),
        pytest.param(inputs(seed=2**63), "seed", id="a seed beyond 64 bits"),
        pytest.param(inputs(presence_penalty=3), "presence_penalty", id="presence above 2"),
        pytest.param(inputs(stop=[""]), "1 to 1000 characters", id="an empty stop string"),
        pytest.param(inputs(stop=["x"] * 65), "at most 64", id="too many stop strings"),
        pytest.param(inputs(stop_token_ids=["a"]), "token ids", id="texts as token ids"),
        pytest.param(inputs(stop_token_ids=[-1]), "token ids", id="a negative token id"),
        pytest.param(inputs(stop_token_ids=[2**63]), "token ids", id="a token id beyond 64 bits"),
        pytest.param(inputs(stop_token_ids=[2**31]), "token ids", id="a token id beyond 32 bits"),
        pytest.param(inputs(n=0), "at least 1", id="no sequences"),
        pytest.param(inputs(n=129), "at most 128", id="too many sequences"),
        pytest.param(inputs(n=3, best_of=2), "at least n, 3", id="the best three of two"),
        pytest.param(
            {"inputs": ["a"] * 100, "parameters": {"n": 20, "do_sample": True}},
            "are 2000; at most 1024",
            id="too many sequences of all inputs",
        ),
        pytest.param(
            {**inputs(n=2, do_sample=True), "stream": True}, "cannot be streamed",
            id="streams of two",
        ),
        pytest.param(inputs(n=2, temperature=0), "sequences alike", id="two greedy sequences"),
        pytest.param(
            {"prompt": "a", "best_of": 2, "temperature": 0}, "sequences alike", id="a greedy best"
        ),
        pytest.param(
            {"prompt": "a", "best_of": 2, "stream": True}, "known at the end only",
            id="a stream of the best",
        ),
        pytest.param(inputs(num_beams=33), "at most 32", id="beams"),
        pytest.param(inputs(prompt_logprobs=True), "must be a number", id="prompt logprobs"),
        pytest.param(inputs(logit_bias={"5": 101}), "at most 100", id="too much of a bias"),
        pytest.param(inputs(logit_bias={"5": "1"}), "must be a number", id="a bias as text"),
        pytest.param(inputs(logit_bias={"x": 1}), "no token id", id="a bias of no token"),
        pytest.param(inputs(logit_bias={"-1": 1}), "no token id", id="a negative token's bias"),
        pytest.param(inputs(logit_bias={"9" * 30: 1}), "no token id", id="a token beyond all"),
        pytest.param(inputs(logit_bias=[5]), "must be a JSON object", id="a list of biases"),
        pytest.param(
            inputs(logit_bias={str(token): 1 for token in range(1025)}), "at most 1024",
            id="too many biases",
        ),
        pytest.param(inputs(min_new_tokens=-1), "min_new_tokens", id="fewer than no tokens"),
        pytest.param(inputs(guided_json=3), "guided_json is 3", id="a number as schema"),
        pytest.param(inputs(guided_regex=""), "must be a string", id="an empty pattern"),
        pytest.param(inputs(guided_choice="ab"), "list of strings", id="one text to choose"),
        pytest.param(inputs(guided_choice=[1]), "list of strings", id="numbers to choose"),
        pytest.param(inputs(guided_grammar=["a"]), "must be a string", id="a list as grammar"),
        pytest.param(
            inputs(guided_regex="a", guided_choice=["a"]), "only one of them", id="two structures"
        ),
        pytest.param(inputs(grammar={"type": "ebnf"}), "json or regex", id="no grammar of TGI's"),
        pytest.param(inputs(grammar="root ::= x"), "JSON object", id="a text as TGI's grammar"),
        pytest.param(inputs(structured_outputs={}), "must have one of", id="no structure inside"),
        pytest.param(
            inputs(structured_outputs={"regex": "a", "choice": ["b"]}), "must have one of",
            id="two structures inside",
        ),
        pytest.param(inputs(guided_regex="a", ignore_eos=True), "contradict", id="no end"),
        pytest.param(
            inputs(guided_regex="a", min_tokens=2), "contradict", id="a structure and a length"
        ),
        pytest.param(
            inputs(guided_json={}, guided_whitespace_pattern="x"), "no such setting",
            id="another white space",
        ),
        pytest.param(inputs(output_formatter="xml"), "jsonlines", id="an unknown formatter"),
        pytest.param({"messages": []}, "1 to", id="no messages"),
        pytest.param({"messages": "hi"}, "messages", id="a text as messages"),
        pytest.param({"messages": [{"content": "x"}]}, "no role", id="no role"),
        pytest.param({"messages": [{"role": "user", "content": 4}]}, "content", id="number"),
        pytest.param(
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "text only",
            id="an image",
        ),
        pytest.param({"messages": MESSAGES, "tools": [{}]}, "tools", id="a tool that is none"),
        pytest.param(
            {"messages": MESSAGES, "response_format": {"type": "xml"}}, "text, json_object or",
            id="an unknown format",
        ),
        pytest.param(
            {"messages": MESSAGES, "response_format": {"type": "json_schema"}},
            r"response_format.json_schema.schema is None", id="no schema",
        ),
        pytest.param(
            {"messages": MESSAGES, "response_format": "json"}, "response_format",
            id="a text as format",
        ),
        pytest.param({"messages": MESSAGES, "temperature": 2.1}, "at most 2", id="too hot"),
        pytest.param({"messages": MESSAGES, "top_logprobs": 2}, "logprobs true", id="half asked"),
        pytest.param({"messages": MESSAGES, "n": 1.5}, "whole number", id="one and a half"),
        pytest.param({"prompt": []}, "prompt", id="an empty prompt list"),
        pytest.param({"prompt": [[]]}, "token ids", id="an empty list of ids"),
        pytest.param({"prompt": [-1]}, "prompt", id="a negative id"),
        pytest.param({"prompt": {"a": 1}}, "prompt", id="an object as prompt"),
        pytest.param({"prompt": [2**64]}, "prompt", id="an id beyond 64 bits"),
        pytest.param(inputs(guided_json=nested(400)), "deeper than 200", id="a nested schema"),
        pytest.param(nested(400), "deeper than 200", id="a nested body"),
        pytest.param(
            {"messages": [{"role": "user", "content": "a", "more": nested(300)}]},
            "deeper than 200", id="a nested message",
        ),
        pytest.param({"requestType": "OPEN"}, "NEW_SESSION, CLOSE", id="another session request"),
        pytest.param(
            {"inputs": "a", "requestType": "CLOSE"}, "goes without prompt", id="a session with text"
        ),
    ],
)  # fmt: skip
def test_refusals_name_the_field(body: Any, message: str) -> None:
    for context in (CONTEXT, LEGACY):
        with pytest.raises(Refusal, match=message) as refused:
            parse(body, context)
        assert refused.value.cause is Cause.BAD_REQUEST
        assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        pytest.param("text/plain", b"\xff\xfe", id="text that is no UTF-8"),
        pytest.param("text/csv", b"question,context\na,b\n", id="a table without inputs"),
        pytest.param("text/csv", b"", id="an empty table"),
        pytest.param("text/csv", b"inputs\n", id="a table of nothing"),
    ],
)
def test_bodies_of_other_types_are_refused_as_clearly(kind: str, body: bytes) -> None:
    with pytest.raises(Refusal):
        parse(body, kind=kind)


def test_without_a_template_a_chat_is_refused() -> None:
    with pytest.raises(Refusal, match="no chat template"):
        parse({"messages": MESSAGES}, replace(CONTEXT, chat=None))
