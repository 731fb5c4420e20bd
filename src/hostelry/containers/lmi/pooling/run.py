"""Runs a call for vectors: tokenizes the texts, cuts or refuses long texts, computes vectors."""

import asyncio
from contextlib import aclosing

import msgspec
import numpy
from tokenizers import Encoding, Tokenizer

from hostelry.base.ids import new_request_id
from hostelry.containers.lmi.engine.backend import (
    DeadlineMissedError,
    EngineBackend,
    EngineFailedError,
)
from hostelry.containers.lmi.pooling.forms import PooledCall, PooledText, Side, Vectors
from hostelry.containers.lmi.refusal import Cause, Refusal, bad_request
from hostelry.containers.lmi.request.context import Terms
from hostelry.containers.lmi.text_codec import TextCodec
from hostelry.engine.request import FinishReason, Output, Request, SamplingParams

HINT = "shorten it, or set truncate_prompt_tokens to -1 (truncate in the form of inputs)"
NO_TOKEN = SamplingParams(max_new_tokens=0)
NO_TERMS = Terms()
SHORT_CHARACTERS = 20_000  # longer calls are tokenized in a thread, off the event loop


class PooledPrompt(msgspec.Struct, frozen=True):
    """Token ids, and the type of each. Empty types stand for zeros."""

    token_ids: tuple[int, ...]
    types: tuple[int, ...]


class TextLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of the model. With `lower_case` it reads texts in lower case only."""

    max_tokens: int
    vocab_size: int
    lower_case: bool = False


def build_prompts(call: PooledCall, tokenizer: Tokenizer, limits: TextLimits) -> list[PooledPrompt]:
    """The prompts of all texts. Raises Refusal for an empty or too long text, or unknown tokens."""
    most = _most_tokens(call, limits)
    sources = [_source(it, call, limits) for it in call.texts if not isinstance(it.text, tuple)]
    encodings = tokenizer.encode_batch(sources, add_special_tokens=call.add_special_tokens)
    read = iter(zip(sources, encodings, strict=True))
    prompts = []
    for number, each in enumerate(call.texts):
        if isinstance(each.text, tuple):
            prompt = PooledPrompt(_cut_ids(each.text, most, call.side), ())
        else:
            source, encoding = next(read)
            if most is not None and len(encoding.ids) > most:
                encoding = _shorten(source, call, tokenizer, most)
            kinds = tuple(encoding.type_ids)
            prompt = PooledPrompt(tuple(encoding.ids), kinds if any(kinds) else ())
        _check(prompt, number, limits)
        prompts.append(prompt)
    return prompts


def _most_tokens(call: PooledCall, limits: TextLimits) -> int | None:
    """The length to cut to. None if nothing is cut."""
    if call.truncate is None:
        return None
    if call.truncate > limits.max_tokens:
        raise bad_request(
            f"truncate_prompt_tokens is {call.truncate}; at most {limits.max_tokens}, the model's "
            "length (max_model_len)",
            "truncate_prompt_tokens",
        )
    return limits.max_tokens if call.truncate == -1 else call.truncate


def _source(each: PooledText, call: PooledCall, limits: TextLimits) -> str | tuple[str, str]:
    """The text or the pair to give to the tokenizer."""

    def form(text: str) -> str:
        return text.lower() if limits.lower_case else text

    text = form(f"{call.prefix}{each.text}")
    return text if each.second is None else (text, form(each.second))


def _shorten(
    source: str | tuple[str, str], call: PooledCall, tokenizer: Tokenizer, most: int
) -> Encoding:
    """The encoding cut to `most` tokens with special tokens. In a pair, the longer part is cut."""
    pair = (source,) if isinstance(source, str) else source
    parts = [tokenizer.encode(it, add_special_tokens=False) for it in pair]
    is_pair = len(parts) > 1
    added = tokenizer.num_special_tokens_to_add(is_pair) if call.add_special_tokens else 0
    room = most - added
    if room < 1:
        raise bad_request(
            f"truncate_prompt_tokens is {most}; the model's {added} special tokens leave no room",
            "truncate_prompt_tokens",
        )
    lengths = _divide_room([len(it.ids) for it in parts], room)
    for part, length in zip(parts, lengths, strict=True):
        part.truncate(length, direction=call.side)
    second = parts[1] if is_pair else None
    return tokenizer.post_process(parts[0], second, call.add_special_tokens)


def _divide_room(lengths: list[int], room: int) -> list[int]:
    """The tokens to keep of each part. In a pair, the longer part is cut first.

    Source: the strategy longest_first of Hugging Face's tokenizers, its ties included.
    """
    if len(lengths) == 1:
        return [room]
    short, long = sorted(lengths)
    long = short if short > room else max(short, room - short)
    if short + long > room:
        short = room // 2
        long = short + room % 2
    return [long, short] if lengths[0] > lengths[1] else [short, long]


def _cut_ids(ids: tuple[int, ...], most: int | None, side: Side) -> tuple[int, ...]:
    if most is None or len(ids) <= most:
        return ids
    return ids[:most] if side == "right" else ids[-most:]


def _check(prompt: PooledPrompt, number: int, limits: TextLimits) -> None:
    ids = prompt.token_ids
    if not ids:
        raise bad_request(f"text {number} is empty; send at least one token", "input")
    if len(ids) > limits.max_tokens:
        raise Refusal(
            Cause.TOO_LONG,
            f"text {number} has {len(ids)} tokens, but the model takes {limits.max_tokens} "
            f"(max_model_len); {HINT}",
            "input",
        )
    if max(ids) >= limits.vocab_size:
        raise bad_request(
            f"text {number} holds token id {max(ids)}; the model's vocabulary has "
            f"{limits.vocab_size}",
            "input",
        )


class PooledResult(msgspec.Struct, frozen=True):
    """Vectors in the order of the texts, the tokens read, and the adapters' versions."""

    vectors_BP: Vectors
    num_tokens: int
    versions: tuple[str, ...]


async def tokenize_call(
    call: PooledCall, codec: TextCodec, backend: EngineBackend
) -> list[PooledPrompt]:
    """The prompts of the call's texts. Raises Refusal."""
    facts = backend.facts
    limits = TextLimits(
        max_tokens=facts.max_model_len,
        vocab_size=facts.vocab_size,
        lower_case=facts.pooling is not None and facts.pooling.lower_case,
    )
    size = sum(len(it.text) + len(it.second or "") for it in call.texts)
    if size > SHORT_CHARACTERS:
        return await asyncio.to_thread(build_prompts, call, codec.tokenizer, limits)
    return build_prompts(call, codec.tokenizer, limits)


async def run_pooled(
    call: PooledCall, codec: TextCodec, backend: EngineBackend, terms: Terms = NO_TERMS
) -> PooledResult:
    """The vectors of all texts. Raises Refusal and the backend's errors.

    Cancelling it ends the computation of texts that are not done.
    """
    prompts = await tokenize_call(call, codec, backend)
    requests = [
        Request(
            id=new_request_id(),
            prompt_token_ids=prompt.token_ids,
            token_types=prompt.types,
            sampling=NO_TOKEN,
            adapter=adapter,
            tenant=terms.tenant,
            cache_salt=terms.salt(""),
            first_token_deadline_s=terms.first_token_deadline_s,
        )
        for prompt, adapter in zip(prompts, call.adapters, strict=True)
    ]
    outputs: dict[str, Output] = {}
    async with aclosing(backend.generate(requests)) as steps:
        async for step in steps:
            outputs.update((it.request_id, check_output(it, terms)) for it in step)
    ended = [outputs[it.id] for it in requests]
    vectors = [numpy.frombuffer(it.vector or b"", "<f4") for it in ended]
    versions = dict.fromkeys(it.adapter_content_id for it in ended if it.adapter_content_id)
    return PooledResult(
        numpy.stack(vectors).astype(numpy.float32, copy=False),
        sum(len(it.token_ids) for it in prompts),
        tuple(versions),
    )


async def first_vector(codec: TextCodec, backend: EngineBackend) -> None:
    """Compute a real vector. Raises EngineFailedError if the model cannot."""
    prompt = codec.encode("Hello", add_special_tokens=True)
    request = Request(id=new_request_id(), prompt_token_ids=prompt, sampling=NO_TOKEN)
    async with aclosing(backend.generate([request])) as steps:
        async for step in steps:
            for output in step:
                check_output(output, NO_TERMS)


def check_output(output: Output, terms: Terms) -> Output:
    """The output of a computed text. Raises the error of a text that could not be computed."""
    if output.finish_reason is FinishReason.DEADLINE:
        raise DeadlineMissedError(
            f"no vector came within {terms.first_token_deadline_s:g} s "
            "(first_token_deadline_s); the server is busy"
        )
    if output.vector is None:
        raise EngineFailedError(output.error or "the engine failed at this text")
    return output
