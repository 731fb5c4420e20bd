"""Parsers of OpenAI's completion and chat completion requests."""

from typing import Any

from hostelry.containers.lmi.refusal import bad_request
from hostelry.containers.lmi.request.adapter_choice import choose_by_model
from hostelry.containers.lmi.request.context import ParseContext
from hostelry.containers.lmi.request.fields import BodyFields, is_token_id, shown
from hostelry.containers.lmi.request.inputs import MAX_INPUTS
from hostelry.containers.lmi.request.invocation import (
    AnswerForm,
    Invocation,
    Prompt,
    PromptScores,
    PromptText,
    Schema,
)
from hostelry.containers.lmi.request.prompt_scores import (
    completion_scores,
    completion_tokens,
    prompt_logprobs,
)
from hostelry.containers.lmi.request.sampling import (
    NOT_IN_THIS_VERSION,
    parse_sampling,
    parse_sequences,
    parse_temperature,
    parse_texts,
    refuse_unsupported,
)

DEFAULT_COMPLETION_TOKENS = 16
MAX_OPENAI_TEMPERATURE = 2
MAX_MESSAGES = 10_000


def parse_completion(body: BodyFields, context: ParseContext) -> Invocation:
    """The invocation of a body with `prompt`; raises Refusal."""
    prompts = parse_prompt(body.raw("prompt"))
    return openai_invocation(
        body,
        context,
        schema=Schema.COMPLETION,
        prompts=prompts,
        max_tokens=None,
        top=body.integer("logprobs", 0, context.max_logprobs),
    )


def parse_chat(body: BodyFields, context: ParseContext) -> Invocation:
    """The invocation of a body with `messages`; raises Refusal."""
    for name in ("tools", "functions"):
        body.refuse(name, ([],), "tool calls are " + NOT_IN_THIS_VERSION)
    body.refuse("tool_choice", ("none", "auto"), "tool calls are " + NOT_IN_THIS_VERSION)
    body.refuse("continue_final_message", (False,), NOT_IN_THIS_VERSION)
    if context.chat is None:
        raise bad_request(
            "the model has no chat template; set option.chat_template or send inputs or a prompt",
            "messages",
        )
    messages = parse_messages(body.raw("messages"))
    text = context.chat.render(
        messages, add_generation_prompt=body.flag("add_generation_prompt", True)
    )
    max_tokens = body.integer("max_completion_tokens", 1) or body.integer("max_tokens", 1)
    max_tokens = max_tokens or context.defaults.max_new_tokens
    return openai_invocation(
        body,
        context,
        schema=Schema.CHAT,
        prompts=(PromptText(text, add_special_tokens=False),),
        max_tokens=max_tokens,
        top=chat_logprobs(body, context.max_logprobs),
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
    refuse_unsupported(body)
    adapter = choose_by_model(context.caller, body, context.served, context.registered)
    options = body.members("stream_options")
    sampling = parse_sampling(
        body,
        temperature=parse_temperature(body, context.defaults.temperature, MAX_OPENAI_TEMPERATURE),
        num_logprobs=top,
        seed=context.fresh_seed,
        defaults=context.defaults,
    )
    stream = body.flag("stream", context.caller.streaming_api)
    sequences = parse_sequences(body, num_prompts=len(prompts), stream=stream)
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
    return Invocation(
        prompts=prompts,
        adapters=(adapter,) * len(prompts),
        max_new_tokens=context.defaults.bounded(max_tokens),
        sampling=sampling,
        texts=parse_texts(body),
        stream=stream,
        truncate=body.integer("truncate_prompt_tokens", 1),
        sequences=sequences,
        form=AnswerForm(
            schema=schema,
            model=context.caller.model or answered_model(adapter, context),
            full_text=body.flag("echo"),
            include_usage=options.flag("include_usage"),
            num_top_tokens=top,
            num_sequences=sequences.returned,
            scores=scores,
        ),
    )


def answered_model(adapter: str | None, context: ParseContext) -> str:
    """The model's name in the response: of an adapter its alias, where the caller gave one."""
    if adapter is not None and adapter == context.caller.adapter:
        return context.caller.alias or adapter
    return adapter or context.model_name


def chat_logprobs(body: BodyFields, most: int) -> int | None:
    """Number of alternatives reported with each token, up to `most`; None for no logprobs."""
    top = body.integer("top_logprobs", 0, most)
    if body.flag("logprobs"):
        return top or 0
    if top:
        raise bad_request(f"top_logprobs is {top}, which needs logprobs true", "top_logprobs")
    return None


def parse_prompt(value: object) -> tuple[Prompt, ...]:
    """A text, token ids, or a list of either."""
    if isinstance(value, str):
        return (PromptText(value),)
    if not isinstance(value, list) or not len(value) > 0:
        raise bad_request(
            f"prompt is {shown(value)}; it must be a string, a list of strings, or token ids",
            "prompt",
        )
    if all(is_token_id(each) for each in value):
        return (tuple(value),)
    if len(value) > MAX_INPUTS:
        raise bad_request(f"prompt has {len(value)} members; at most {MAX_INPUTS}", "prompt")
    return tuple(one_prompt(each) for each in value)


def one_prompt(value: object) -> Prompt:
    """A member of a list of prompts."""
    if isinstance(value, str):
        return PromptText(value)
    if isinstance(value, list) and value and all(is_token_id(each) for each in value):
        return tuple(value)
    raise bad_request(
        f"prompt holds {shown(value)}; its members must be strings or lists of token ids", "prompt"
    )


def parse_messages(value: object) -> list[dict[str, Any]]:
    """Messages with plain text contents; other members are kept for the template."""
    if not isinstance(value, list) or not 0 < len(value) <= MAX_MESSAGES:
        raise bad_request(
            f"messages is {shown(value)}; it must be a list of 1 to {MAX_MESSAGES} messages",
            "messages",
        )
    return [parse_message(each, f"messages[{number}]") for number, each in enumerate(value)]


def parse_message(value: object, where: str) -> dict[str, Any]:
    """One message; text parts become one string, other parts are refused."""
    message = BodyFields(value, where)
    role = message.text("role")
    if not role:
        raise bad_request(f"{where} has no role", where)
    message.refuse("tool_calls", ([],), "tool calls are " + NOT_IN_THIS_VERSION)
    content = message.raw("content")
    if isinstance(content, list):
        content = "".join(text_part(part, where) for part in content)
    if content is None:
        content = ""
    if not isinstance(content, str):
        raise bad_request(
            f"{where}.content is {shown(content)}; it must be a string or a list of parts", where
        )
    return {**({} if not isinstance(value, dict) else value), "role": role, "content": content}


def text_part(value: object, where: str) -> str:
    """The text of one content part; a part of any other type is refused."""
    part = BodyFields(value, f"{where}.content")
    kind = part.text("type") or "text"
    if kind != "text":
        raise bad_request(
            f"{where} has a content part of type {shown(kind)}; this model reads text only", where
        )
    return part.text("text") or ""
