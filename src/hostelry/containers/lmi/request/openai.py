"""Parsers of OpenAI's completion and chat completion requests."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from hostelry.containers.lmi.refusal import bad_request
from hostelry.containers.lmi.request.adapter_choice import choose_by_model
from hostelry.containers.lmi.request.answer_plan import plan_answer
from hostelry.containers.lmi.request.chat_fields import parse_chat_fields
from hostelry.containers.lmi.request.context import ParseContext
from hostelry.containers.lmi.request.fields import BodyFields, is_token_id, show
from hostelry.containers.lmi.request.images import KINDS as IMAGE_KINDS
from hostelry.containers.lmi.request.images import NO_IMAGES, ChatImages, as_parts, join_texts
from hostelry.containers.lmi.request.inputs import (
    MAX_INPUTS,
    completion_scores,
    completion_tokens,
    prompt_logprobs,
)
from hostelry.containers.lmi.request.invocation import (
    AnswerForm,
    Invocation,
    Prompt,
    PromptScores,
    PromptText,
    Schema,
)
from hostelry.containers.lmi.request.sampling import (
    check_lengths,
    parse_bad_words,
    parse_cache_salt,
    parse_sampling,
    parse_sequences,
    parse_temperature,
    parse_texts,
    parse_truncation,
)
from hostelry.containers.lmi.request.tool_fields import parse_past_calls, parse_tool_use

DEFAULT_COMPLETION_TOKENS = 16
MAX_OPENAI_TEMPERATURE = 2
MAX_MESSAGES = 10_000
MAX_ID_CHARACTERS = 256
# Types of parts that are text, and the member with the text. Clients send answers back as parts.
TEXT_KINDS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
THINKING, SEALED_THINKING = "thinking", "redacted_thinking"


def parse_completion(body: BodyFields, context: ParseContext) -> Invocation:
    """The invocation of a body with `prompt`. Raises Refusal."""
    prompts = parse_prompt(body.raw("prompt"), body.flag("add_special_tokens", True))
    return openai_invocation(
        body,
        context,
        schema=Schema.COMPLETION,
        prompts=prompts,
        max_tokens=None,
        top=body.integer("logprobs", 0, context.max_logprobs),
    )


def parse_chat(body: BodyFields, context: ParseContext) -> Invocation:
    """The invocation of a body with `messages`. Raises Refusal."""
    if context.chat is None:
        raise bad_request(
            "the model has no chat template; set option.chat_template or send inputs or a prompt",
            "messages",
        )
    conventions = context.conventions
    images = ChatImages(context.images)
    messages = parse_messages(body.raw("messages"), images, null_content=conventions.null_content)
    tools = parse_tool_use(body)
    fields = parse_chat_fields(
        body, context.template_variables, trust_template=context.trust_chat_template
    )
    shown_messages = as_parts(messages) if context.images.most else messages
    text = context.chat.render(shown_messages, replace(fields, tools=tools.shown or None))
    plan = plan_answer(body, tools, conventions, text, fields.template)
    max_tokens = body.integer("max_completion_tokens", 1) or body.integer("max_tokens", 1)
    max_tokens = max_tokens or context.defaults.max_new_tokens
    invocation = openai_invocation(
        body,
        context,
        schema=Schema.CHAT,
        prompts=(PromptText(text, body.flag("add_special_tokens")),),
        max_tokens=max_tokens,
        top=chat_logprobs(body, context.max_logprobs),
    )
    last = messages[-1]
    role = "assistant" if fields.add_generation_prompt else last["role"]
    echoes = body.flag("echo") and last["role"] == role
    form = replace(
        invocation.form,
        role=role,
        echoed=join_texts(last["content"]) if echoes else "",
        prompt_text=body.flag("return_prompt_text"),
        reading=plan.reading,
    )
    return replace(
        invocation,
        form=form,
        texts=plan.texts(invocation.texts),
        sampling=plan.sampling(invocation.sampling),
        images=tuple(images.sources),
        ignored_fields=() if plan.shows_tools else ("tools",),
    )


def openai_invocation(
    body: BodyFields,
    context: ParseContext,
    *,
    schema: Schema,
    prompts: tuple[Prompt, ...],
    max_tokens: int | None,
    top: int | None,
) -> Invocation:
    """The invocation, by the members that both OpenAI schemas have."""
    adapter = choose_by_model(context.caller, body, context.served, context.registered)
    sampling = parse_sampling(
        body,
        temperature=parse_temperature(body, context.defaults.temperature, MAX_OPENAI_TEMPERATURE),
        num_logprobs=top,
        seed=context.fresh_seed,
        defaults=context.defaults,
    )
    stream = body.flag("stream", context.caller.streaming_api)
    sequences = parse_sequences(
        body, num_prompts=len(prompts), stream=stream, greedy=not sampling.temperature
    )
    if schema is Schema.COMPLETION:
        scores = completion_scores(
            body,
            top=top,
            most=context.max_logprobs,
            stream=stream,
            num_sequences=sequences.generated,
        )
        max_tokens = completion_tokens(body, scores, DEFAULT_COMPLETION_TOKENS)
    else:
        scores = PromptScores(
            reported=prompt_logprobs(body, most=context.max_logprobs, stream=stream)
        )
    check_lengths(sampling, max_tokens)
    options = stream_options(body, stream)
    include_usage = options.flag("include_usage")
    return Invocation(
        prompts=prompts,
        adapters=(adapter,) * len(prompts),
        max_new_tokens=context.defaults.bound(max_tokens),
        sampling=sampling,
        texts=parse_texts(body),
        stream=stream,
        truncation=parse_truncation(body),
        bad_words=parse_bad_words(body),
        cache_salt=parse_cache_salt(body),
        sequences=sequences,
        form=AnswerForm(
            schema=schema,
            model=context.caller.model or answered_model(adapter, context),
            full_text=body.flag("echo"),
            include_usage=include_usage,
            continuous_usage=options.flag("continuous_usage_stats") and include_usage,
            token_ids=body.flag("return_token_ids"),
            tokens_as_ids=body.flag("return_tokens_as_token_ids"),
            request_id=request_id(body),
            num_top_tokens=top,
            num_sequences=sequences.returned,
            scores=scores,
        ),
    )


def stream_options(body: BodyFields, stream: bool) -> BodyFields:
    """The members of `stream_options`, which only a stream has. Raises Refusal."""
    if not stream and "stream_options" in body:
        raise bad_request(
            "stream_options can only be given with stream true; leave it out", "stream_options"
        )
    return body.members("stream_options")


def request_id(body: BodyFields) -> str | None:
    """The request's own id, printable because the response repeats it."""
    given = body.text("request_id")
    if given is not None and not (0 < len(given) <= MAX_ID_CHARACTERS and given.isprintable()):
        raise bad_request(
            f"request_id is {show(given)}; it must be 1 to {MAX_ID_CHARACTERS} printable "
            "characters",
            "request_id",
        )
    return given


def answered_model(adapter: str | None, context: ParseContext) -> str:
    """The model's name in the response. An adapter has its alias, if the caller gave an alias."""
    if adapter is not None and adapter == context.caller.adapter:
        return context.caller.alias or adapter
    return adapter or context.model_name


def chat_logprobs(body: BodyFields, most: int) -> int | None:
    """Number of alternatives reported with each token, up to `most`. None for no logprobs."""
    top = body.integer("top_logprobs", 0, most)
    if body.flag("logprobs"):
        return top or 0
    if top:
        raise bad_request(f"top_logprobs is {top}, which needs logprobs true", "top_logprobs")
    return None


def parse_prompt(value: object, add_special_tokens: bool) -> tuple[Prompt, ...]:
    """A text, token ids, or a list of either. Texts get the tokenizer's special tokens if asked."""
    if isinstance(value, str):
        return (PromptText(value, add_special_tokens),)
    if not isinstance(value, list) or not len(value) > 0:
        raise bad_request(
            f"prompt is {show(value)}; it must be a string, a list of strings, or token ids",
            "prompt",
        )
    if all(is_token_id(each) for each in value):
        return (tuple(value),)
    if len(value) > MAX_INPUTS:
        raise bad_request(f"prompt has {len(value)} members; at most {MAX_INPUTS}", "prompt")
    return tuple(one_prompt(each, add_special_tokens) for each in value)


def one_prompt(value: object, add_special_tokens: bool) -> Prompt:
    """A member of a list of prompts."""
    if isinstance(value, str):
        return PromptText(value, add_special_tokens)
    if isinstance(value, list) and value and all(is_token_id(each) for each in value):
        return tuple(value)
    raise bad_request(
        f"prompt holds {show(value)}; its members must be strings or lists of token ids",
        "prompt",
    )


def parse_messages(
    value: object, images: ChatImages, *, null_content: bool = False
) -> list[dict[str, Any]]:
    """Messages whose contents are texts, or parts if there are images, which `images` collects.

    Other members are kept for the template. With `null_content` a message with calls and no content
    has null, else an empty text.
    """
    if not isinstance(value, list) or not 0 < len(value) <= MAX_MESSAGES:
        raise bad_request(
            f"messages is {show(value)}; it must be a list of 1 to {MAX_MESSAGES} messages",
            "messages",
        )
    return [
        parse_message(each, f"messages[{number}]", images, null_content)
        for number, each in enumerate(value)
    ]


def parse_message(
    value: object, where: str, images: ChatImages, null_content: bool
) -> dict[str, Any]:
    """One message. Parts that are all texts become one string. Unknown parts are refused."""
    message = BodyFields(value, where)
    role = message.text("role")
    if not role:
        raise bad_request(f"{where} has no role", where)
    message.refuse("function_call", (), "the history has calls in tool_calls")
    members = message.as_dict()
    if message.raw("tool_calls"):
        members["tool_calls"] = parse_past_calls(message.raw("tool_calls"), where)
    if "reasoning" in message:
        members.setdefault("reasoning_content", message.raw("reasoning"))
    content = message.raw("content")
    if isinstance(content, list):
        if role == "assistant":
            thoughts, content = thinking_parts(content, where)
            if thoughts:
                members.setdefault("reasoning_content", thoughts)
        parts = [content_part(part, where, images) for part in content]
        is_text = all(it["type"] == "text" for it in parts)
        content = join_texts(parts) if is_text else parts
    if content is None and not (null_content and message.raw("tool_calls")):
        content = ""
    if not isinstance(content, str | list | None):
        raise bad_request(
            f"{where}.content is {show(content)}; it must be a string or a list of parts",
            where,
        )
    return {**members, "role": role, "content": content}


def thinking_parts(parts: Sequence[object], where: str) -> tuple[str, list[object]]:
    """The reasoning in an assistant's parts, and the other parts.

    Sealed reasoning, which only its own provider can read, is left out.
    """
    thoughts, others = [], []
    for value in parts:
        kind = value.get("type") if isinstance(value, dict) else None
        if kind not in (THINKING, SEALED_THINKING):
            others.append(value)
        elif kind == THINKING:
            thoughts.append(thinking_text(BodyFields(value, f"{where}.content"), where))
    return "".join(thoughts), others


def thinking_text(part: BodyFields, where: str) -> str:
    """The text of a part of reasoning, which is given as a text or as a list of text parts."""
    given = part.raw(THINKING)
    if isinstance(given, list):
        return "".join(content_part(it, where, ChatImages(NO_IMAGES))["text"] for it in given)
    return part.text(THINKING) or ""


def content_part(value: object, where: str, images: ChatImages) -> dict[str, Any]:
    """One content part for the template. Raises Refusal for a type that is not read."""
    if isinstance(value, str):
        return {"type": "text", "text": value}
    part = BodyFields(value, f"{where}.content")
    kind = part.text("type") or ("image_url" if "image_url" in part else "text")
    if kind in IMAGE_KINDS:
        return images.take(part, where)
    if kind not in TEXT_KINDS:
        raise bad_request(
            f"{where} has a content part of type {show(kind)}; read are {', '.join(TEXT_KINDS)}, "
            "thinking of the assistant and, by models that can, images",
            where,
        )
    return {"type": "text", "text": part.text(TEXT_KINDS[kind]) or ""}
