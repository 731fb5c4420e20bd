"""The fields of generating requests that LMI, vLLM, OpenAI and TGI know, and the fate of each.

A done field has an effect, or is checked. A refused field gives an error with its name, its value
and the reason, unless its value is one of `neutral`, which change nothing. An accepted field cannot
change an answer. A strict server refuses a field outside the table. Otherwise a header of the
response names the field. `docs/llm-fields.md` is made from this table.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from urllib.parse import quote

import msgspec

from hostelry.containers.lmi.refusal import Refusal, bad_request
from hostelry.containers.lmi.request.fields import SHOWN_CHARACTERS, BodyFields, show
from hostelry.containers.lmi.request.invocation import Schema


class Fate(Enum):
    """What happens to a field."""

    DONE = "done"
    REFUSED = "refused"
    ACCEPTED = "accepted"


class FieldRow(msgspec.Struct, frozen=True, kw_only=True):
    """One field.

    `places` are the places that may have the field: `prompt` and `messages` bodies, the top level
    of an `inputs` body and its `parameters`. `known_by` names the APIs that know it: O OpenAI,
    V vLLM, L LMI, T TGI, H transformers' generate, which LMI's other handlers call. A name with a
    dot is a member of an object.
    """

    name: str
    places: tuple[str, ...]
    known_by: str
    fate: Fate
    reason: str
    neutral: tuple[object, ...] = ()


PROMPT, MESSAGES, INPUTS, PARAMETERS = "prompt", "messages", "inputs", "parameters"
OPENAI = (PROMPT, MESSAGES)
SAMPLED = (PROMPT, MESSAGES, PARAMETERS)
NOT_CHATS = (PROMPT, PARAMETERS)
EVERYWHERE = (PROMPT, MESSAGES, INPUTS)


def done(names: str, places: tuple[str, ...], known_by: str, reason: str) -> tuple[FieldRow, ...]:
    """Rows of fields that have an effect, or are checked."""
    return tuple(
        FieldRow(name=name, places=places, known_by=known_by, fate=Fate.DONE, reason=reason)
        for name in names.split()
    )


def accepted(
    names: str, places: tuple[str, ...], known_by: str, reason: str
) -> tuple[FieldRow, ...]:
    """Rows of fields that cannot change an answer."""
    return tuple(
        FieldRow(name=name, places=places, known_by=known_by, fate=Fate.ACCEPTED, reason=reason)
        for name in names.split()
    )


def refused(
    names: str, places: tuple[str, ...], known_by: str, reason: str, *neutral: object
) -> tuple[FieldRow, ...]:
    """Rows of fields of which only the `neutral` values are accepted."""
    return tuple(
        FieldRow(
            name=name,
            places=places,
            known_by=known_by,
            fate=Fate.REFUSED,
            reason=reason,
            neutral=neutral,
        )
        for name in names.split()
    )


NO_LEGACY_TOOLS = "the older form of tools and tool_choice, which take its place"
ONLY_IN_CHATS = "only a chat's reasoning has a budget. Send messages"
TEXT_ONLY = "this server reads and writes text"
ONE_ENGINE = "prefill and decoding are in one engine here"
NOT_A_PROCESSOR = "this engine has no such processor of logits"
NO_PROBABILITY = "it does not change how tokens are chosen"

ROWS: tuple[FieldRow, ...] = (
    # The prompt and its model
    *done("prompt", (PROMPT,), "OV", "a text, token ids, or a list of either"),
    *done(
        "messages",
        (MESSAGES,),
        "OVLT",
        "rendered with the chat template. May have images if the model reads them",
    ),
    *done("inputs", (INPUTS,), "LT", "a text or a list of texts"),
    *done("parameters", (INPUTS,), "LT", "an object with the fields below"),
    *done("model", EVERYWHERE, "OVLT", "the base model or an adapter. Others give 404"),
    *done("adapters adapter", EVERYWHERE, "L", "the adapter of each input"),
    *done("adapter_id", (PARAMETERS,), "T", "the adapter, as `adapters`"),
    *done("stream", (*EVERYWHERE, PARAMETERS), "OVLT", "whether the response is a stream"),
    *done("stream_options", OPENAI, "OVT", "needs `stream`"),
    *done("stream_options.include_usage", OPENAI, "OVT", "a last chunk with the token counts"),
    *done("stream_options.continuous_usage_stats", OPENAI, "V", "token counts in each chunk"),
    *accepted(
        "stream_options.include_obfuscation", OPENAI, "O", "padding of events, which is never added"
    ),
    *done("output_formatter", (PARAMETERS,), "L", "the form of the response"),
    *done("details", (PARAMETERS,), "LT", "details of tokens in the response"),
    *done("return_full_text", (PARAMETERS,), "LT", "the prompt before the answer"),
    *done("echo", OPENAI, "OV", "the prompt, or a chat's last message, before the answer"),
    *done("truncate", (PARAMETERS,), "LT", "keeps the last tokens of the prompt"),
    *done("truncate_prompt_tokens", SAMPLED, "V", "keeps this many tokens. -1: the model's length"),
    *done("truncation_side", SAMPLED, "V", "`left` keeps the last tokens, `right` the first"),
    *done("add_special_tokens", SAMPLED, "V", "the tokenizer's own tokens around the prompt"),
    # Chats
    *done("add_generation_prompt", (MESSAGES,), "V", "given to the chat template"),
    *done("continue_final_message", (MESSAGES,), "V", "the answer continues the last message"),
    *done("chat_template_kwargs", (MESSAGES,), "V", "variables of the chat template"),
    *done("documents", (MESSAGES,), "V", "given to the chat template"),
    *done("chat_template", (MESSAGES,), "V", "with `option.trust_request_chat_template` alone"),
    *done("return_prompt_text", (MESSAGES,), "V", "`prompt_text` in the response"),
    *done("reasoning_effort", (MESSAGES,), "OV", "given to the chat template"),
    *done("thinking_token_budget", (MESSAGES,), "V", "the most tokens of reasoning"),
    *refused("thinking_token_budget", NOT_CHATS, "V", ONLY_IN_CHATS, -1),
    *done("include_reasoning", (MESSAGES,), "V", "false leaves the reasoning out"),
    *done("tools", (MESSAGES,), "OVLT", "functions that the answer may call"),
    *done("tool_choice", (MESSAGES,), "OVLT", "none, auto, required or one function"),
    *done("parallel_tool_calls", (MESSAGES,), "OV", "false: one call at most"),
    *refused("functions", (MESSAGES,), "OVLT", NO_LEGACY_TOOLS, []),
    *refused("function_call", (MESSAGES,), "OVLT", NO_LEGACY_TOOLS, "none", "auto"),
    *refused("tool_prompt", (MESSAGES,), "T", "the chat template introduces the tools"),
    *refused("guideline", (MESSAGES,), "T", "put it into the messages"),
    # Length and ends
    *done("max_tokens", SAMPLED, "OVLT", "the most tokens of an answer"),
    *done("max_completion_tokens", (MESSAGES,), "OV", "the most tokens of an answer"),
    *done("max_new_tokens", (PARAMETERS,), "LT", "the most tokens of an answer"),
    *done("min_tokens min_new_tokens", SAMPLED, "VL", "the fewest tokens before an end"),
    *done("stop", SAMPLED, "OVLT", "texts that end the answer"),
    *done("stop_sequences", SAMPLED, "LT", "as `stop`"),
    *done("include_stop_str_in_output", SAMPLED, "VL", "whether the stop string is shown"),
    *done("stop_token_ids", SAMPLED, "VL", "tokens that end the answer"),
    *done("ignore_eos", SAMPLED, "V", "the model's end tokens do not end the answer"),
    *done("ignore_eos_token", SAMPLED, "L", "as `ignore_eos`"),
    *done("repetition_detection", SAMPLED, "V", "ends an answer that repeats itself"),
    # The choice of tokens
    *done("do_sample", (PARAMETERS,), "LTH", "false is greedy"),
    *done("temperature top_p", SAMPLED, "OVLTH", "sampling"),
    *done("top_k", SAMPLED, "VLTH", "sampling. 0 and -1 turn it off"),
    *done("min_p", SAMPLED, "VLH", "sampling"),
    *done("seed", SAMPLED, "OVLT", "the same seed gives the same answer"),
    *done("presence_penalty frequency_penalty", SAMPLED, "OVLT", "penalties"),
    *done("repetition_penalty", SAMPLED, "VLTH", "a penalty"),
    *done("no_repeat_ngram_size", SAMPLED, "H", "no sequence of N tokens comes twice"),
    *done("logit_bias", SAMPLED, "OV", "added to the logits of tokens"),
    *done("allowed_token_ids", SAMPLED, "V", "no other token is chosen"),
    *done("bad_words", SAMPLED, "V", "words that are never completed"),
    *refused("typical_p", SAMPLED, "TH", NOT_A_PROCESSOR, 1),
    *refused("watermark", SAMPLED, "T", NOT_A_PROCESSOR, False),
    *refused("watermarking", SAMPLED, "V", NOT_A_PROCESSOR, False),
    *refused("vllm_xargs", SAMPLED, "V", "no extension reads it here", {}),
    *refused("logits_processors", SAMPLED, "V", "code of a request is never run", []),
    *refused(
        "bad_words_ids bad_sequences force_words_ids suppress_tokens begin_suppress_tokens",
        SAMPLED,
        "LH",
        "use bad_words, allowed_token_ids or logit_bias",
        [],
    ),
    *refused(
        "penalty_alpha diversity_penalty epsilon_cutoff eta_cutoff encoder_no_repeat_ngram_size",
        SAMPLED,
        "H",
        NOT_A_PROCESSOR,
        0,
    ),
    *refused("encoder_repetition_penalty", SAMPLED, "H", NOT_A_PROCESSOR, 1),
    *refused(
        "exponential_decay_length_penalty forced_bos_token_id forced_eos_token_id "
        "sequence_bias guidance_scale negative_prompt_ids constraints",
        SAMPLED,
        "H",
        NOT_A_PROCESSOR,
    ),
    *refused("eos_token_id", SAMPLED, "H", "use stop_token_ids"),
    *refused("max_length", SAMPLED, "LH", "it counts the prompt too. Use max_new_tokens"),
    *refused("min_length", SAMPLED, "LH", "it counts the prompt too. Use min_new_tokens", 0, 1),
    *refused("max_time", SAMPLED, "H", "use option.predict_timeout"),
    *accepted("pad_token_id use_cache renormalize_logits", SAMPLED, "H", NO_PROBABILITY),
    # Several sequences
    *done("n", SAMPLED, "OVL", "sequences per prompt. Refused for greedy answers"),
    *done("best_of", SAMPLED, "OLT", "the likeliest of N sequences"),
    *done("num_beams", SAMPLED, "LH", "a beam search with N beams"),
    *done("beam_width", SAMPLED, "L", "as `num_beams`"),
    *done("use_beam_search", SAMPLED, "V", "a beam search, with `n` beams"),
    *done("length_penalty early_stopping", SAMPLED, "VLH", "for a beam search"),
    *refused("num_beam_groups", SAMPLED, "H", "groups of beams are not searched", 1),
    # Log-probabilities and token ids
    *done("logprobs", SAMPLED, "OVL", "of each token. 0: without alternatives"),
    *done("top_logprobs", (MESSAGES,), "OV", "alternatives of each token"),
    *done("top_n_tokens", (PARAMETERS,), "LT", "alternatives of each token"),
    *done("decoder_input_details", (PARAMETERS,), "LT", "log-probabilities of the prompt"),
    *done("prompt_logprobs", SAMPLED, "VL", "log-probabilities of the prompt"),
    *refused("logprob_token_ids", SAMPLED, "V", "use logprobs"),
    *done("return_token_ids", OPENAI, "V", "the ids of prompt and answer in the response"),
    *done("return_tokens_as_token_ids", OPENAI, "V", "tokens of logprobs as `token_id:7`"),
    *done("request_id", OPENAI, "V", "in the response's `id`"),
    # The text
    *done("skip_special_tokens", SAMPLED, "VL", "whether control tokens are shown"),
    *done(
        "spaces_between_special_tokens",
        SAMPLED,
        "VL",
        "false is refused where control tokens are shown",
    ),
    *refused("suffix", (PROMPT,), "OV", "no text is filled in before a suffix", ""),
    *refused("prompt_embeds", OPENAI, "V", "prompts are texts or token ids"),
    # Structured output
    *done("response_format", SAMPLED, "OVL", "structured output"),
    *done("response_format.type", SAMPLED, "OV", "text, json_object or json_schema"),
    *done("response_format.json_schema", SAMPLED, "OV", "an object with the schema"),
    *done("structured_outputs", SAMPLED, "V", "structured output"),
    *done(
        "structured_outputs.json structured_outputs.json_object structured_outputs.regex "
        "structured_outputs.choice structured_outputs.grammar",
        SAMPLED,
        "V",
        "structured output",
    ),
    *refused(
        "structured_outputs.disable_any_whitespace "
        "structured_outputs.disable_additional_properties",
        SAMPLED,
        "V",
        "structured output knows no such setting",
        False,
    ),
    *refused(
        "structured_outputs.whitespace_pattern structured_outputs.structural_tag",
        SAMPLED,
        "V",
        "structured output knows no such setting",
    ),
    *done("guided_json guided_regex guided_grammar guided_choice", SAMPLED, "VL", "as above"),
    *done("grammar", SAMPLED, "T", "TGI's structured output"),
    *refused(
        "guided_whitespace_pattern structural_tag",
        SAMPLED,
        "V",
        "structured output knows no such setting",
    ),
    *accepted("guided_decoding_backend", SAMPLED, "VL", "there is one backend"),
    # The service
    *accepted(
        "user metadata safety_identifier service_tier prompt_cache_key prompt_cache_retention "
        "prompt_cache_options session_id",
        (*OPENAI, INPUTS),
        "OV",
        "about the caller or the service, not the answer",
    ),
    *accepted("prediction", (MESSAGES,), "O", "it can only make answers faster"),
    *refused("priority", SAMPLED, "V", "tenants' weights decide the order", 0),
    *done("cache_salt", SAMPLED, "V", "cached prefixes are shared with the same salt only"),
    *refused("store", (MESSAGES,), "O", "no response is stored", False),
    *refused("modalities", (MESSAGES,), "O", TEXT_ONLY, ["text"]),
    *refused("audio web_search_options moderation", (MESSAGES,), "O", TEXT_ONLY),
    *refused("verbosity", (MESSAGES,), "O", "no model here reads it", "medium"),
    *refused("media_io_kwargs mm_processor_kwargs", OPENAI, "V", TEXT_ONLY, {}),
    *refused("kv_transfer_params ec_transfer_params", OPENAI, "V", ONE_ENGINE, {}),
    *refused("cached_prompt", (PARAMETERS,), "L", "prefixes are cached without it"),
    *refused("requestType", EVERYWHERE, "L", "it goes without prompt, inputs and messages"),
    *accepted("stream_interval", OPENAI, "V", "each token is a chunk"),
    *accepted(
        "return_token_offsets return_mm_kwargs routed_experts_prompt_start",
        OPENAI,
        "V",
        "nothing of it is in a response of these routes",
    ),
)


def by_place(rows: tuple[FieldRow, ...] = ROWS) -> Mapping[str, Mapping[str, FieldRow]]:
    """The rows of each place, by name. Raises ValueError for a name that is there twice."""
    found: dict[str, dict[str, FieldRow]] = {}
    for row in rows:
        for place in row.places:
            if row.name in found.setdefault(place, {}):
                raise ValueError(f"{row.name} has two rows for {place}")
            found[place][row.name] = row
    return found


TABLE = by_place()


IGNORED_HEADER = "x-hostelry-ignored-fields"
MAX_NAMED = 20  # fields in the header
# Place -> names of the objects whose members have rows.
OBJECTS: Mapping[str, frozenset[str]] = {
    place: frozenset(name.split(".")[0] for name in rows if "." in name)
    for place, rows in TABLE.items()
}


def ignored_fields(schema: Schema, body: BodyFields, *, strict: bool) -> tuple[str, ...]:
    """The names in `body` that are outside the table, in its order.

    Raises Refusal for a field that is refused, and if `strict` for a field outside the table. Empty
    for a schema without a table, whose parser refuses unknown fields itself.
    """
    if schema.value not in TABLE:
        return ()
    names = list(outside(schema.value, "", body))
    if schema is Schema.INPUTS and PARAMETERS in body:
        names += outside(PARAMETERS, "", body.members(PARAMETERS))
    if names and strict:
        raise unknown_field(schema, names[0])
    return tuple(names)


def outside(place: str, prefix: str, fields: BodyFields) -> Iterable[str]:
    """The names of `fields` that have no row in `place`. Raises Refusal for a refused field."""
    rows = TABLE[place]
    for name in fields.names():
        row = rows.get(prefix + name)
        if row is None:
            yield prefix + name
        elif row.fate is Fate.REFUSED:
            check_neutral(row, fields.raw(name))
        if not prefix and name in OBJECTS[place] and isinstance(fields.raw(name), dict):
            yield from outside(place, f"{name}.", fields.members(name))


def check_neutral(row: FieldRow, value: object) -> None:
    """Raise Refusal unless `value` is one of the row's neutral values."""
    if not any(value == each for each in row.neutral):
        raise bad_request(f"{row.name} is {show(value)}: {row.reason}; leave it out", row.name)


def unknown_field(schema: Schema, name: str) -> Refusal:
    """The refusal of a field outside the table, with names that are close to it."""
    place = PARAMETERS if schema is Schema.INPUTS else schema.value
    cut = name[:SHOWN_CHARACTERS]
    hint = ""
    if schema is Schema.INPUTS and name in TABLE[PARAMETERS]:
        hint = "; put it into parameters"
    elif close := difflib.get_close_matches(cut, [*TABLE[place], *TABLE[schema.value]], 3):
        hint = f"; did you mean {' or '.join(dict.fromkeys(close))}?"
    where = f"a body with {schema.value}" if place != PARAMETERS else f"{INPUTS} or {PARAMETERS}"
    return bad_request(f"{show(name)} is no field of {where} that this server knows{hint}", cut)


def ignored_header(names: Sequence[str]) -> dict[str, str]:
    """The response header that names ignored fields, percent-encoded. Empty without names."""
    if not names:
        return {}
    shown_names = [quote(name[:SHOWN_CHARACTERS], safe="") for name in names[:MAX_NAMED]]
    more = [f"and {len(names) - MAX_NAMED} more"] if len(names) > MAX_NAMED else []
    return {IGNORED_HEADER: ", ".join([*shown_names, *more])}
