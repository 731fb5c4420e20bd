"""Runs an invocation: tokenize, check the length, generate, detokenize."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from hostelry.base.ids import new_request_id
from hostelry.containers.lmi.engine.backend import (
    DeadlineMissedError,
    EngineBackend,
    EngineFailedError,
    ModelFacts,
)
from hostelry.containers.lmi.refusal import Cause, Refusal, bad_request
from hostelry.containers.lmi.request.invocation import Invocation, Prompt, PromptText
from hostelry.containers.lmi.request.terms import Terms
from hostelry.containers.lmi.response.generated import GeneratedSequence, Piece
from hostelry.containers.lmi.response.sequence_text import SequenceText
from hostelry.containers.lmi.text_codec import TextCodec
from hostelry.engine.request import FinishReason, Output, Request
from hostelry.engine.sampling.fan_out import best, fan_out

LONG_PROMPT_CHARACTERS = 20_000  # longer texts are tokenized in a thread, off the event loop
NO_TERMS = Terms()


@dataclass(slots=True, kw_only=True)
class RunningSequence:
    """One sequence of a response: its request, and its text so far."""

    index: int
    request: Request
    text: SequenceText
    generated: GeneratedSequence


async def prepare(
    invocation: Invocation, codec: TextCodec, facts: ModelFacts, terms: Terms = NO_TERMS
) -> list[RunningSequence]:
    """The sequences of `invocation`, tokenized and checked against the model; raises Refusal."""
    characters = sum(len(it.text) for it in invocation.prompts if isinstance(it, PromptText))
    if characters > LONG_PROMPT_CHARACTERS:
        sequences = await asyncio.to_thread(prepare_now, invocation, codec, facts)
    else:
        sequences = prepare_now(invocation, codec, facts)
    for each in sequences:
        each.request = replace(
            each.request,
            tenant=terms.tenant,
            first_token_deadline_s=terms.first_token_deadline_s,
        )
    return sequences


def prepare_now(
    invocation: Invocation, codec: TextCodec, facts: ModelFacts
) -> list[RunningSequence]:
    """The sequences without terms, computed in the calling thread."""
    return [
        sequence
        for number, prompt in enumerate(invocation.prompts)
        for sequence in of_prompt(number, prompt, invocation, codec, facts)
    ]


def of_prompt(
    number: int, prompt: Prompt, invocation: Invocation, codec: TextCodec, facts: ModelFacts
) -> list[RunningSequence]:
    """The sequences of one prompt."""
    token_ids = prompt_token_ids(prompt, codec)
    if invocation.truncate:
        token_ids = token_ids[-invocation.truncate :]
    check_prompt(token_ids, facts)
    room = facts.max_model_len - len(token_ids)
    sampling = replace(
        invocation.sampling,
        max_new_tokens=min(invocation.max_new_tokens or room, room),
        num_logprobs=num_logprobs(invocation),
    )
    text = prompt.text if isinstance(prompt, PromptText) else None
    if text is None:
        text = codec.decode(token_ids, skip_special_tokens=False)
    first = Request(
        id=new_request_id(),
        prompt_token_ids=token_ids,
        sampling=sampling,
        adapter=invocation.adapters[number],
    )
    count = invocation.sequences.generated
    return [
        RunningSequence(
            index=number * count + position,
            request=request,
            text=SequenceText(codec, token_ids, invocation.texts),
            generated=GeneratedSequence(
                prompt_text=text,
                prompt_token_ids=token_ids,
                seed=request.sampling.seed,
                shares_prompt=position > 0,
            ),
        )
        for position, request in enumerate(fan_out(first, count))
    ]


def num_logprobs(invocation: Invocation) -> int | None:
    """Number of alternatives in the outputs; choosing the best needs at least logprobs (0)."""
    asked = invocation.sampling.num_logprobs
    selects = invocation.sequences.generated > invocation.sequences.returned
    return 0 if asked is None and selects else asked


def returned_sequences(
    invocation: Invocation, generated: Sequence[GeneratedSequence]
) -> list[GeneratedSequence]:
    """The sequences of the response, grouped by prompt: the likeliest of those generated."""
    counts = invocation.sequences
    if counts.generated == counts.returned:
        return list(generated)
    chosen: list[GeneratedSequence] = []
    for start in range(0, len(generated), counts.generated):
        group = generated[start : start + counts.generated]
        chosen += [group[each] for each in best([it.logprobs for it in group], counts.returned)]
    return chosen


def prompt_token_ids(prompt: Prompt, codec: TextCodec) -> tuple[int, ...]:
    """The ids of a prompt."""
    if isinstance(prompt, PromptText):
        return codec.encode(prompt.text, add_special_tokens=prompt.add_special_tokens)
    return prompt


def check_prompt(token_ids: tuple[int, ...], facts: ModelFacts) -> None:
    """Raise Refusal for a prompt that is empty, too long, or has unknown token ids."""
    if not token_ids:
        raise bad_request("the prompt is empty; send at least one token", "prompt")
    if len(token_ids) >= facts.max_model_len:
        raise Refusal(
            Cause.TOO_LONG,
            f"the prompt has {len(token_ids)} tokens, but prompt and answer together have at most "
            f"{facts.max_model_len} (max_model_len); shorten the prompt or set truncate",
            "prompt",
        )
    if max(token_ids) >= facts.vocab_size:
        raise bad_request(
            f"prompt holds token id {max(token_ids)}; the model's vocabulary has "
            f"{facts.vocab_size}",
            "prompt",
        )


async def run(
    sequences: Sequence[RunningSequence], backend: EngineBackend
) -> AsyncGenerator[list[tuple[RunningSequence, Piece]]]:
    """Each step's pieces; a sequence whose stop string is complete is aborted in the engine.

    Raises the backend's errors, and EngineFailedError when the engine reports a failure of one
    sequence.
    """
    by_id = {each.request.id: each for each in sequences}
    async with aclosing(backend.generate([each.request for each in sequences])) as steps:
        async for outputs in steps:
            pieces = []
            for output in outputs:
                sequence = by_id[output.request_id]
                if sequence.generated.finish_reason is None:
                    pieces.append((sequence, await take(sequence, output, backend)))
            yield pieces


async def take(sequence: RunningSequence, output: Output, backend: EngineBackend) -> Piece:
    """The piece that `output` adds to `sequence`."""
    if output.finish_reason is FinishReason.ERROR:
        raise EngineFailedError(output.error or "the engine failed at this request")
    if output.finish_reason is FinishReason.DEADLINE:
        raise DeadlineMissedError(
            "no first token came within first_token_deadline_s, "
            f"{sequence.request.first_token_deadline_s:g}; the server is busy"
        )
    if output.finish_reason:
        sequence.generated.adapter_version = output.adapter_content_id
    piece = sequence.text.push(output)
    sequence.generated.pieces.append(piece)
    if piece.finish_reason and not output.finish_reason:
        await backend.abort([output.request_id])
    return piece
