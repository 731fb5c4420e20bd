"""Bodies of requests to the LLM server: valid bodies, and hostile changes of them."""

import json
from collections.abc import Callable
from random import Random
from typing import Any

NUMBERS: tuple[Any, ...] = (
    0, 1, -1, 2, 0.5, 1.5, 1e-46, 5e-324, 1e308, -1e308, 1e39, 2**31 - 1, 2**31, 2**32, 2**53 + 1,
    2**63 - 1, 2**63, 2**64, -(2**63), 10**30, 10**400, -0.0, 258, 259,
)  # fmt: skip
TEXTS = ("", "a", "user", "es", "\0", "\u2028", "é" * 50, "a" * 3000, "\\", "{", "<|im_end|>")
STRUCTURES: tuple[dict[str, Any], ...] = (
    {"guided_regex": "(ab|c){1,9}"},
    {"guided_regex": "(a+)+$"},
    {"guided_choice": ["yes", "no"]},
    {"guided_grammar": 'root ::= "a" root | "b"'},
    {"guided_json": {"type": "object", "properties": {"a": {"type": "integer"}}}},
    {"response_format": {"type": "json_object"}},
    {"response_format": {"type": "json_schema", "json_schema": {"schema": {"enum": [1, "b"]}}}},
    {"structured_outputs": {"choice": ["a", "b"]}},
    {"grammar": {"type": "regex", "value": "[a-c]+"}},
)
CITY = {"type": "object", "properties": {"city": {"enum": ["a", "b"]}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": CITY, "strict": True}}
CLOCK = {"type": "function", "function": {"name": "clock"}}
TOOLS: tuple[list[dict[str, Any]], ...] = ([], [WEATHER], [CLOCK], [WEATHER, CLOCK])
CHOICES: tuple[Any, ...] = ("none", "auto", "required", {**CLOCK})
PAST: tuple[dict[str, Any], ...] = (
    {"role": "assistant", "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "clock", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "c", "content": "ten"},
)  # fmt: skip
# It shows tools, and its calls and reasoning have Qwen's format.
CHAT_TEMPLATE = (
    "{% for tool in tools or [] %}{{ tool.function.name }}<tool_call>{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>{% if enable_thinking is defined %}</think>"
    "{% endif %}{% endif %}"
)
FIELDS: dict[str, Callable[[Random], Any]] = {
    "max_new_tokens": lambda random: random.randrange(1, 6),
    "max_tokens": lambda random: random.randrange(1, 6),
    "min_new_tokens": lambda random: random.randrange(3),
    "temperature": lambda random: random.choice((0, 1e-30, 0.7, 2)),
    "top_p": lambda random: random.random(),
    "top_k": lambda random: random.randrange(-1, 300),
    "min_p": lambda random: random.random(),
    "do_sample": lambda random: random.random() < 0.5,
    "seed": lambda random: random.randrange(2**31),
    "repetition_penalty": lambda random: random.choice((0.01, 0.9, 1.3, 100)),
    "presence_penalty": lambda random: random.uniform(-2, 2),
    "frequency_penalty": lambda random: random.uniform(-2, 2),
    "stop": lambda random: random.choice(("a", ["a", "bc"], [])),
    "stop_sequences": lambda _: ["zz"],
    "stop_token_ids": lambda random: [random.randrange(259)],
    "logit_bias": lambda random: {str(random.randrange(259)): random.uniform(-100, 100)},
    "ignore_eos": lambda random: random.random() < 0.5,
    "n": lambda random: random.randrange(1, 4),
    "best_of": lambda random: random.randrange(1, 4),
    "logprobs": lambda random: random.choice((True, 2)),
    "top_logprobs": lambda random: random.randrange(3),
    "top_n_tokens": lambda random: random.randrange(3),
    "details": lambda _: True,
    "return_full_text": lambda _: True,
    "echo": lambda _: True,
    "truncate": lambda random: random.randrange(1, 9),
    "skip_special_tokens": lambda _: False,
    "include_stop_str_in_output": lambda _: True,
    "output_formatter": lambda random: random.choice(
        ("json", "jsonlines", "sse", "3p", "3p_stream", "json_chat", "sse_chat", "none")
    ),
    "use_beam_search": lambda random: random.random() < 0.3,
    "num_beams": lambda random: random.randrange(1, 4),
    "length_penalty": lambda random: random.uniform(-2, 2),
    "early_stopping": lambda random: random.choice((True, False, "never")),
    "prompt_logprobs": lambda random: random.randrange(3),
    "no_repeat_ngram_size": lambda random: random.randrange(4),
    "allowed_token_ids": lambda random: random.sample(range(259), 3),
    "bad_words": lambda _: ["ab", "c"],
    "repetition_detection": lambda _: {"max_pattern_size": 3, "min_count": 2},
    "truncation_side": lambda random: random.choice(("left", "right")),
    "tools": lambda random: random.choice(TOOLS),
    "tool_choice": lambda random: random.choice(CHOICES),
    "parallel_tool_calls": lambda random: random.random() < 0.5,
    "thinking_token_budget": lambda random: random.randrange(-1, 5),
    "include_reasoning": lambda random: random.random() < 0.5,
    "chat_template_kwargs": lambda _: {"enable_thinking": False},
    "documents": lambda _: [{"text": "a"}],
    "stream": lambda random: random.random() < 0.5,
    "stream_options": lambda _: {"include_usage": True},
    "adapters": lambda random: random.choice(("es", "fr", "nobody", ["es"])),
    "model": lambda random: random.choice(("lmi", "es", "nobody")),
}
PATHS = {
    "inputs": "/invocations",
    "prompt": "/v1/completions",
    "messages": "/v1/chat/completions",
    "input": "/v1/responses",
}
RESPONSES_FIELDS = ("temperature", "top_p", "top_k", "seed", "stop", "model", "stream")


# Bodies for the other routes that take a body.
ELSEWHERE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/tokenize", {"prompt": "a b", "add_special_tokens": True, "return_token_strs": True}),
    ("/tokenize", {"messages": [{"role": "user", "content": "a"}], "tools": [CLOCK]}),
    ("/detokenize", {"tokens": [5, 6, 7], "model": "es"}),
    ("/v1/embeddings", {"input": ["a", "b"], "model": "lmi", "dimensions": 2}),
    ("/rerank", {"query": "a", "documents": ["a", {"text": "b"}], "top_n": 1}),
    ("/score", {"text_1": "a", "text_2": ["a", "b"]}),
    ("/classify", {"input": "a"}),
    ("/pooling", {"input": "a", "encoding_format": "float"}),
    ("/v1/load_lora_adapter", {"lora_name": "new", "lora_path": "/none", "load_inplace": True}),
    ("/v1/unload_lora_adapter", {"lora_name": "nobody"}),
    ("/predictions/lmi", {"inputs": "a", "parameters": {"max_new_tokens": 2}}),
    ("/models/lmi/invoke", {"inputs": ["a"], "adapters": ["es"]}),
    ("/adapters", {"name": "nobody", "src": "/none"}),
)


def sound(random: Random) -> tuple[str, dict[str, Any]]:
    """A route, and a body that is mostly valid for it."""
    names = random.sample(list(FIELDS), random.randrange(7))
    fields = {name: FIELDS[name](random) for name in names}
    if random.random() < 0.1:
        fields |= random.choice(STRUCTURES)
    text = "".join(random.choices("abc é<>{}\n", k=random.randrange(1, 30)))
    kind = random.choice(tuple(PATHS))
    path = PATHS[kind] if random.random() < 0.7 else "/invocations"
    fields.setdefault("max_new_tokens" if kind == "inputs" else "max_tokens", 3)
    if kind == "inputs":
        beside = ("stream", "adapters")
        top: dict[str, Any] = {name: fields.pop(name) for name in beside if name in fields}
        return path, {"inputs": random.choice((text, [text, "b"])), **top, "parameters": fields}
    if kind == "prompt":
        return path, {"prompt": random.choice((text, [5, 6, 7], [[5], [6]], [text])), **fields}
    if kind == "input":
        kept = {name: value for name, value in fields.items() if name in RESPONSES_FIELDS}
        items = [{"role": "user", "content": [{"type": "input_text", "text": text}]}]
        more = random.choice(({}, {"instructions": text}, {"text": {"format": {"type": "text"}}}))
        asked = {"input": random.choice((text, items)), "max_output_tokens": 3}
        return PATHS[kind], {**asked, **more, **kept}
    content = random.choice((text, [{"type": "text", "text": text}]))
    past = PAST if random.random() < 0.2 else ()
    return path, {"messages": [{"role": "user", "content": content}, *past], **fields}


def poison(random: Random) -> Any:
    """A value of an unexpected kind."""
    match random.randrange(8):
        case 0 | 1 | 2:
            return random.choice(NUMBERS)
        case 3:
            return random.choice(TEXTS)
        case 4:
            return random.choice((None, True, False, [], {}, [[]], {"": {}}))
        case 5:
            return [random.choice(NUMBERS + TEXTS) for _ in range(random.randrange(1, 5))]
        case 6:
            return {random.choice(TEXTS): random.choice(NUMBERS) for _ in range(3)}
        case _:
            value: Any = random.choice(NUMBERS)
            for _ in range(random.choice((3, 70, 150, 300, 490))):
                value = [value] if random.random() < 0.5 else {"items": value}
            return value


def poisoned(random: Random, value: Any) -> Any:
    """`value` with a part replaced, left out or added."""
    if isinstance(value, dict) and value and random.random() < 0.8:
        name = random.choice(list(value))
        if random.random() < 0.1:
            return {**value, random.choice((*FIELDS, *TEXTS)): poison(random)}
        if random.random() < 0.1:
            return {key: it for key, it in value.items() if key != name}
        return {**value, name: poisoned(random, value[name])}
    if isinstance(value, list) and value and random.random() < 0.5:
        index = random.randrange(len(value))
        return [*value[:index], poisoned(random, value[index]), *value[index + 1 :]]
    return poison(random)


def damaged(random: Random, body: bytes) -> bytes:
    """`body` with bytes changed, left out, doubled, or cut off."""
    at = random.randrange(len(body) + 1)
    match random.randrange(4):
        case 0:
            return body[:at] + random.randbytes(random.randrange(1, 4)) + body[at + 1 :]
        case 1:
            return body[:at] + body[at + random.randrange(1, 9) :]
        case 2:
            return body[:at] + body[max(0, at - 20) :]
        case _:
            return body[:at]


def mutated(random: Random, *, everywhere: bool = False) -> tuple[str, bytes]:
    """A route and a body, which is mostly changed. `everywhere` includes all routes."""
    path, body = sound(random)
    if everywhere and random.random() < 0.25:
        path, body = random.choice(ELSEWHERE)
    for _ in range(random.choice((0, 1, 1, 1, 2, 4))):
        body = poisoned(random, body)
    raw = json.dumps(body, ensure_ascii=random.random() < 0.5).encode("utf-8", "replace")
    return path, damaged(random, raw) if random.random() < 0.2 else raw
