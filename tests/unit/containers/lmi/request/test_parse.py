"""Bodies of requests: their meaning, and refusals of careless and hostile bodies."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.containers.lmi.tiny import TEMPLATE

from hostelry.base.clock import ManualClock
from hostelry.containers.lmi.refusal import Cause, Refusal, Surface
from hostelry.containers.lmi.request.adapter_choice import AdapterCaller as Caller
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
    """A schema of nested arrays, `depth` deep."""
    value: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        value = {"type": "array", "items": value}
    return value


def inputs(**parameters: Any) -> dict[str, Any]:
    return {"inputs": "hi", "parameters": parameters}


@cases(
    "parameters, field, expected",
    case("samples by default", {}, "temperature", 1.0),
    case("do_sample false is greedy", {"do_sample": False}, "temperature", 0.0),
    case("temperature", {"temperature": 0.5}, "temperature", 0.5),
    case("temperature 0 is greedy", {"temperature": 0}, "temperature", 0.0),
    case("top_k -1 is off", {"top_k": -1}, "top_k", 0),
    case("top_k", {"top_k": 5}, "top_k", 5),
    case("top_p", {"top_p": 0.9}, "top_p", 0.9),
    case("min_p", {"min_p": 0.1}, "min_p", 0.1),
    case("repetition", {"repetition_penalty": 1.2}, "repetition_penalty", 1.2),
    case("presence", {"presence_penalty": -2}, "presence_penalty", -2),
    case("frequency", {"frequency_penalty": 2}, "frequency_penalty", 2),
    case("a seed is supplied", {}, "seed", 7),
    case("the request's own seed", {"seed": 11}, "seed", 11),
    case("seed 0 is a seed", {"seed": 0}, "seed", 0),
    case("ignore_eos_token", {"ignore_eos_token": True}, "ignore_eos", True),
    case("stop token ids", {"stop_token_ids": [4, 5]}, "stop_token_ids", (4, 5)),
    case("details want logprobs", {"details": True}, "num_logprobs", 0),
    case("no logprobs unasked", {}, "num_logprobs", None),
    case("top tokens beside each", {"details": True, "top_n_tokens": 3}, "num_logprobs", 3),
    case("null is absent", {"temperature": None, "top_k": None}, "top_k", 0),
    case(
        "biases",
        {"logit_bias": {"5": -1, "7": 2.5, "9": None}},
        "logit_bias",
        ((5, -1.0), (7, 2.5)),
    ),
    case("no biases", {"logit_bias": {}}, "logit_bias", ()),
    case("fewest tokens", {"min_new_tokens": 3}, "min_new_tokens", 3),
    case("fewest tokens, in vLLM's words", {"min_tokens": 3}, "min_new_tokens", 3),
)
def test_sampling(parameters: dict[str, Any], field: str, expected: Any) -> None:
    assert getattr(parse(inputs(**parameters)).sampling, field) == expected


@cases(
    "parameters, temperature",
    case("the rolling batch is greedy", {}, 0.0),
    case("temperature alone does not sample", {"temperature": 0.7}, 0.0),
    case("do_sample does", {"temperature": 0.7, "do_sample": True}, 0.7),
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


@cases(
    "body, caller, expected",
    case("the base without a name", {}, Caller(), (None, None)),
    case("one name for all inputs", {"adapters": "es"}, Caller(), ("es", "es")),
    case("one name per input", {"adapters": ["es", ""]}, Caller(), ("es", None)),
    case("the singular name", {"adapter": "fr"}, Caller(), ("fr", "fr")),
    case("empty is the base", {"adapters": ""}, Caller(), (None, None)),
    case("no names are the base", {"adapters": []}, Caller(), (None, None)),
    case("any other name, to TGI", {"model": "tgi"}, Caller(any_model=True), (None, None)),
    case("an adapter's name, to TGI", {"model": "es"}, Caller(any_model=True), ("es", "es")),
    case("query before body", {"adapters": "es"}, Caller(query_adapter="fr"), ("fr", "fr")),
    case("header before query and body", {"adapters": "es"},
        Caller(adapter="fr", query_adapter="es"), ("fr", "fr")),
    case("an empty header is the base", {"adapters": "es"}, Caller(adapter=""), (None, None)),
)  # fmt: skip
def test_adapter_choice(
    body: dict[str, Any], caller: Caller, expected: tuple[str | None, ...]
) -> None:
    context = replace(CONTEXT, caller=caller)
    assert parse({"inputs": ["a", "b"], **body}, context).adapters == expected


@cases(
    "body, caller, message",
    case("unknown", {"adapters": "de"}, Caller(), "Adapter de is not registered"),
    case("one of them unknown", {"adapters": ["es", "de"]}, Caller(), "de"),
    case("a header's adapter is called by its alias", {}, Caller(adapter="x-1", alias="german"),
        "Adapter german is not registered"),
    case("unknown in the query", {}, Caller(query_adapter="de"), "de"),
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


@cases(
    "body, cause",
    case("another adapter of the archive", {"adapters": "fr"}, Cause.BAD_REQUEST),
    case("one that is not there", {"adapters": "nobody"}, Cause.BAD_REQUEST),
    case("the base", {"adapters": ""}, Cause.BAD_REQUEST),
    case("in a list, under the other name", {"adapter": ["fr"]}, Cause.BAD_REQUEST),
    case("no name at all", {"adapters": 7}, Cause.BAD_REQUEST),
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


@cases(
    "prompt, prompts",
    case("a text", "hi", (PromptText("hi"),)),
    case("a list of texts", ["a", "b"], (PromptText("a"), PromptText("b"))),
    case("token ids", [3, 4], ((3, 4),)),
    case("lists of token ids", [[3], [4, 5]], ((3,), (4, 5))),
)
def test_prompts_of_completions(prompt: Any, prompts: Any) -> None:
    parsed = parse({"prompt": prompt})
    assert (parsed.prompts, parsed.max_new_tokens) == (prompts, 16)


@cases(
    "body, context, formatter",
    case("json", {}, CONTEXT, Formatter.JSON),
    case("a stream is lines", {"stream": True}, CONTEXT, Formatter.JSONLINES),
    case("TGI's is events", {"stream": True}, replace(CONTEXT, tgi_compat=True), Formatter.SSE),
    case("configured formatter", {}, replace(CONTEXT, output_formatter="sse"), Formatter.SSE),
    case("the request's formatter before the configured one",
        {"parameters": {"output_formatter": "jsonlines"}}, replace(CONTEXT, output_formatter="sse"),
        Formatter.JSONLINES),
    case("the streaming operation streams", {}, replace(CONTEXT, caller=Caller(streaming_api=True)),
        Formatter.JSONLINES),
    case("unless the body says no", {"stream": False},
        replace(CONTEXT, caller=Caller(streaming_api=True)), Formatter.JSON),
)  # fmt: skip
def test_formatter(body: dict[str, Any], context: ParseContext, formatter: Formatter) -> None:
    parsed = parse({"inputs": "hi", **body}, context)
    assert parsed.form.formatter is formatter
    assert parsed.stream is (formatter is not Formatter.JSON)


@cases(
    "kind, body, prompts",
    case("plain text", "text/plain", "hé".encode(), (PromptText("hé"),)),
    case("a table", "text/csv; charset=utf-8", b'\xef\xbb\xbfinputs\n"a, b"\nc\n',
        (PromptText("a, b"), PromptText("c"))),
    case("JSON without a type", "", b'{"inputs":"x"}', (PromptText("x"),)),
    case("JSON as bytes", "application/octet-stream", b'{"inputs":"x"}', (PromptText("x"),)),
)  # fmt: skip
def test_content_types(kind: str, body: bytes, prompts: Any) -> None:
    assert parse(body, kind=kind).prompts == prompts


DEEP = b'{"inputs":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@cases(
    "body, message",
    case("nothing", b"", "not valid JSON"),
    case("broken JSON", b"{", "not valid JSON"),
    case("a hundred thousand brackets", DEEP, "nests deeper than 200"),
    case("bytes that are no text", b'{"inputs":"\xff"}', "JSON"),
    case("NaN", b'{"inputs":"a","parameters":{"top_p":NaN}}', "JSON"),
    case("a list", [1], "must be a JSON object"),
    case("a text", "text", "must be a JSON object"),
    case("no known member", {}, "must contain prompt, inputs, or messages"),
    case("null inputs", {"inputs": None}, "must contain"),
    case("a number as inputs", {"inputs": 3}, "inputs is 3"),
    case("no inputs", {"inputs": []}, "non-empty"),
    case("mixed inputs", {"inputs": ["a", 1]}, "list of strings"),
    case("too many inputs", {"inputs": ["a"] * 1025}, "at most 1024"),
    case("a list of parameters", {"inputs": "a", "parameters": []}, "parameters"),
    case("parameters as text", {"inputs": "a", "parameters": "x"}, "object"),
    case("stream maybe", {"inputs": "a", "stream": "maybe"}, "true or false"),
    case("more", {"inputs": ["a"], "adapters": ["es", "fr"]}, "Number of adapters"),
    case("fewer", {"inputs": ["a", "b"], "adapters": ["es"]}, "1 adapters, 2"),
    case("a numbered adapter", {"inputs": "a", "adapters": 5}, "adapters is 5"),
    case("nested names", {"inputs": "a", "adapters": [["es"]]}, "one name per"),
    case("no tokens", inputs(max_new_tokens=0), "max_new_tokens"),
    case("negative tokens", inputs(max_new_tokens=-3), "at least 1"),
    case("half a token", inputs(max_new_tokens=1.5), "whole number"),
    case("digits as text", inputs(max_new_tokens="9"), "must be a number"),
    case("true tokens", inputs(max_new_tokens=True), "must be a number"),
    case("a number beyond all", inputs(max_new_tokens=10**30), "at least 1"),
    case("negative temperature", inputs(temperature=-0.1), "temperature"),
    case("top_p 0", inputs(top_p=0), "top_p"),
    case("top_p above 1", inputs(top_p=1.1), "at most 1"),
    case("top_k below -1", inputs(top_k=-2), "top_k"),
    case("no repetition", inputs(repetition_penalty=0), "repetition_penalty"),
    case("0 in single precision", inputs(repetition_penalty=1e-46), "at least 0.01"),
    case("inf in single precision", inputs(repetition_penalty=1e39), "at most 100"),
    case("no float at all", inputs(repetition_penalty=10**400), "at most 100"),
    case("hotter than any float", inputs(temperature=10**400), "at most 100"),
    case("more tokens than there are", inputs(top_k=2**31), "at most 2147483647"),
    case("a seed beyond 64 bits", inputs(seed=2**63), "seed"),
    case("presence above 2", inputs(presence_penalty=3), "presence_penalty"),
    case("an empty stop string", inputs(stop=[""]), "1 to 1000 characters"),
    case("too many stop strings", inputs(stop=["x"] * 65), "at most 64"),
    case("texts as token ids", inputs(stop_token_ids=["a"]), "token ids"),
    case("a negative token id", inputs(stop_token_ids=[-1]), "token ids"),
    case("a token id beyond 64 bits", inputs(stop_token_ids=[2**63]), "token ids"),
    case("a token id beyond 32 bits", inputs(stop_token_ids=[2**31]), "token ids"),
    case("no sequences", inputs(n=0), "at least 1"),
    case("too many sequences", inputs(n=129), "at most 128"),
    case("the best three of two", inputs(n=3, best_of=2), "at least n, 3"),
    case("too many sequences of all inputs",
        {"inputs": ["a"] * 100, "parameters": {"n": 20, "do_sample": True}},
        "are 2000; at most 1024"),
    case("streams of two", {**inputs(n=2, do_sample=True), "stream": True}, "cannot be streamed"),
    case("two greedy sequences", inputs(n=2, temperature=0), "sequences alike"),
    case("a greedy best", {"prompt": "a", "best_of": 2, "temperature": 0}, "sequences alike"),
    case("a stream of the best", {"prompt": "a", "best_of": 2, "stream": True},
        "known at the end only"),
    case("beams", inputs(num_beams=33), "at most 32"),
    case("prompt logprobs", inputs(prompt_logprobs=True), "must be a number"),
    case("too much of a bias", inputs(logit_bias={"5": 101}), "at most 100"),
    case("a bias as text", inputs(logit_bias={"5": "1"}), "must be a number"),
    case("a bias of no token", inputs(logit_bias={"x": 1}), "no token id"),
    case("a negative token's bias", inputs(logit_bias={"-1": 1}), "no token id"),
    case("a token beyond all", inputs(logit_bias={"9" * 30: 1}), "no token id"),
    case("a list of biases", inputs(logit_bias=[5]), "must be a JSON object"),
    case("too many biases", inputs(logit_bias={str(token): 1 for token in range(1025)}),
        "at most 1024"),
    case("fewer than no tokens", inputs(min_new_tokens=-1), "min_new_tokens"),
    case("a number as schema", inputs(guided_json=3), "guided_json is 3"),
    case("an empty pattern", inputs(guided_regex=""), "must be a string"),
    case("one text to choose", inputs(guided_choice="ab"), "list of strings"),
    case("numbers to choose", inputs(guided_choice=[1]), "list of strings"),
    case("a list as grammar", inputs(guided_grammar=["a"]), "must be a string"),
    case("two structures", inputs(guided_regex="a", guided_choice=["a"]), "only one of them"),
    case("no grammar of TGI's", inputs(grammar={"type": "ebnf"}), "json or regex"),
    case("a text as TGI's grammar", inputs(grammar="root ::= x"), "JSON object"),
    case("no structure inside", inputs(structured_outputs={}), "must have one of"),
    case("two structures inside", inputs(structured_outputs={"regex": "a", "choice": ["b"]}),
        "must have one of"),
    case("no end", inputs(guided_regex="a", ignore_eos=True), "contradict"),
    case("a structure and a length", inputs(guided_regex="a", min_tokens=2), "contradict"),
    case("another white space", inputs(guided_json={}, guided_whitespace_pattern="x"),
        "no such setting"),
    case("an unknown formatter", inputs(output_formatter="xml"), "jsonlines"),
    case("no messages", {"messages": []}, "1 to"),
    case("a text as messages", {"messages": "hi"}, "messages"),
    case("no role", {"messages": [{"content": "x"}]}, "no role"),
    case("number", {"messages": [{"role": "user", "content": 4}]}, "content"),
    case("an image", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        "text only"),
    case("a tool that is none", {"messages": MESSAGES, "tools": [{}]}, "tools"),
    case("an unknown format", {"messages": MESSAGES, "response_format": {"type": "xml"}},
        "text, json_object or"),
    case("no schema", {"messages": MESSAGES, "response_format": {"type": "json_schema"}},
        r"response_format.json_schema.schema is None"),
    case("a text as format", {"messages": MESSAGES, "response_format": "json"}, "response_format"),
    case("too hot", {"messages": MESSAGES, "temperature": 2.1}, "at most 2"),
    case("half asked", {"messages": MESSAGES, "top_logprobs": 2}, "logprobs true"),
    case("one and a half", {"messages": MESSAGES, "n": 1.5}, "whole number"),
    case("an empty prompt list", {"prompt": []}, "prompt"),
    case("an empty list of ids", {"prompt": [[]]}, "token ids"),
    case("a negative id", {"prompt": [-1]}, "prompt"),
    case("an object as prompt", {"prompt": {"a": 1}}, "prompt"),
    case("an id beyond 64 bits", {"prompt": [2**64]}, "prompt"),
    case("a nested schema", inputs(guided_json=nested(400)), "deeper than 200"),
    case("a nested body", nested(400), "deeper than 200"),
    case("a nested message", {"messages": [{"role": "user", "content": "a", "more": nested(300)}]},
        "deeper than 200"),
    case("another session request", {"requestType": "OPEN"}, "NEW_SESSION, CLOSE"),
    case("a session with text", {"inputs": "a", "requestType": "CLOSE"}, "goes without prompt"),
)  # fmt: skip
def test_refusals_name_the_field(body: Any, message: str) -> None:
    for context in (CONTEXT, LEGACY):
        with pytest.raises(Refusal, match=message) as refused:
            parse(body, context)
        assert refused.value.cause is Cause.BAD_REQUEST
        assert len(str(refused.value)) < 400


@cases(
    "kind, body",
    case("text that is no UTF-8", "text/plain", b"\xff\xfe"),
    case("a table without inputs", "text/csv", b"question,context\na,b\n"),
    case("an empty table", "text/csv", b""),
    case("a table of nothing", "text/csv", b"inputs\n"),
)
def test_bodies_of_other_types_are_refused_as_clearly(kind: str, body: bytes) -> None:
    with pytest.raises(Refusal):
        parse(body, kind=kind)


def test_without_a_template_a_chat_is_refused() -> None:
    with pytest.raises(Refusal, match="no chat template"):
        parse({"messages": MESSAGES}, replace(CONTEXT, chat=None))
