"""Runs a call: tokenize, check, compute, in the order of its texts."""

import asyncio
from contextlib import aclosing
from dataclasses import dataclass

import numpy

from hostelry.base.ids import new_request_id
from hostelry.containers.lmi.engine.backend import (
    DeadlineMissedError,
    EngineBackend,
    EngineFailedError,
)
from hostelry.containers.lmi.pooling.call import PooledCall, Vectors
from hostelry.containers.lmi.pooling.tokens import PooledPrompt, TextLimits, prompts_of
from hostelry.containers.lmi.request.terms import Terms
from hostelry.containers.lmi.text_codec import TextCodec
from hostelry.engine.request import FinishReason, Output, Request, SamplingParams

NO_TOKEN = SamplingParams(max_new_tokens=0)
NO_TERMS = Terms()
SHORT_CHARACTERS = 20_000  # longer calls are tokenized in a thread, off the event loop


@dataclass(frozen=True, slots=True)
class PooledResult:
    """Vectors in the order of the texts, the tokens read, and the adapters' versions."""

    vectors_BP: Vectors
    num_tokens: int
    versions: tuple[str, ...]


async def tokenized(
    call: PooledCall, codec: TextCodec, backend: EngineBackend
) -> list[PooledPrompt]:
    """The prompts of the call's texts; raises Refusal."""
    facts = backend.facts
    limits = TextLimits(
        max_tokens=facts.max_model_len,
        vocab_size=facts.vocab_size,
        lower_case=facts.pooling is not None and facts.pooling.lower_case,
    )
    size = sum(len(it.text) + len(it.second or "") for it in call.texts)
    if size > SHORT_CHARACTERS:
        return await asyncio.to_thread(prompts_of, call, codec.tokenizer, limits)
    return prompts_of(call, codec.tokenizer, limits)


async def run_pooled(
    call: PooledCall, codec: TextCodec, backend: EngineBackend, terms: Terms = NO_TERMS
) -> PooledResult:
    """The vectors of all texts. Raises Refusal and the backend's errors.

    Cancelling it ends the computation of texts that are not done.
    """
    prompts = await tokenized(call, codec, backend)
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
            outputs.update((it.request_id, checked(it, terms)) for it in step)
    ended = [outputs[it.id] for it in requests]
    vectors = [numpy.frombuffer(it.vector or b"", "<f4") for it in ended]
    versions = dict.fromkeys(it.adapter_content_id for it in ended if it.adapter_content_id)
    return PooledResult(
        numpy.stack(vectors).astype(numpy.float32, copy=False),
        sum(len(it.token_ids) for it in prompts),
        tuple(versions),
    )


async def first_vector(codec: TextCodec, backend: EngineBackend) -> None:
    """Compute a real vector. Raises EngineFailedError where the model cannot."""
    prompt = codec.encode("Hello", add_special_tokens=True)
    request = Request(id=new_request_id(), prompt_token_ids=prompt, sampling=NO_TOKEN)
    async with aclosing(backend.generate([request])) as steps:
        async for step in steps:
            for output in step:
                checked(output, NO_TERMS)


def checked(output: Output, terms: Terms) -> Output:
    """The output of a text that was computed; raises the error of one that was not."""
    if output.finish_reason is FinishReason.DEADLINE:
        raise DeadlineMissedError(
            f"no vector came within {terms.first_token_deadline_s:g} s "
            "(first_token_deadline_s); the server is busy"
        )
    if output.vector is None:
        raise EngineFailedError(output.error or "the engine failed at this text")
    return output
