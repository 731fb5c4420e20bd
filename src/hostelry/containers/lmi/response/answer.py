"""From an invocation to generated text: tokenize, check the length, run, detokenize."""

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
from hostelry.containers.lmi.response.generated import Generated, Piece
from hostelry.containers.lmi.response.sequence_text import SequenceText
from hostelry.containers.lmi.text_codec import TextCodec
from hostelry.engine.request import FinishReason, Output, Request
from hostelry.engine.sampling.fan_out import best, fan_out

LONG_PROMPT_CHARACTERS = 20_000  # longer texts are tokenized beside the event loop
NO_TERMS = Terms()


@dataclass(slots=True, kw_only=True)
class Running:
    """One sequence of an answer: its request, its text so far."""

    index: int
    request: Request
    text: SequenceText
    generated: Generated


async def prepare(
    invocation: Invocation, codec: TextCodec, facts: ModelFacts, terms: Terms = NO_TERMS
) -> list[Running]:
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


def prepare_now(invocation: Invocation, codec: TextCodec, facts: ModelFacts) -> list[Running]:
    """The sequences, in the calling thread, on no terms."""
    return [
        sequence
        for number, prompt in enumerate(invocation.prompts)
        for sequence in of_prompt(number, prompt, invocation, codec, facts)
    ]


def of_prompt(
    number: int, prompt: Prompt, invocation: Invocation, codec: TextCodec, facts: ModelFacts
) -> list[Running]:
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
    made = invocation.sequences.made
    return [
        Running(
            index=number * made + position,
            request=request,
            text=SequenceText(codec, token_ids, invocation.texts),
            generated=Generated(
                prompt_text=text,
                prompt_token_ids=token_ids,
                seed=request.sampling.seed,
                shares_prompt=position > 0,
            ),
        )
        for position, request in enumerate(fan_out(first, made))
    ]


def num_logprobs(invocation: Invocation) -> int | None:
    """How many alternatives the engine reports; choosing the best needs at least logprobs."""
    asked = invocation.sampling.num_logprobs
    chooses = invocation.sequences.made > invocation.sequences.told
    return 0 if asked is None and chooses else asked


def told(invocation: Invocation, generated: Sequence[Generated]) -> list[Generated]:
    """The sequences that the answer tells, those of one prompt after each other."""
    counts = invocation.sequences
    if counts.made == counts.told:
        return list(generated)
    chosen: list[Generated] = []
    for start in range(0, len(generated), counts.made):
        group = generated[start : start + counts.made]
        chosen += [group[each] for each in best([it.logprobs for it in group], counts.told)]
    return chosen


def prompt_token_ids(prompt: Prompt, codec: TextCodec) -> tuple[int, ...]:
    """The ids of a prompt."""
    if isinstance(prompt, PromptText):
        return codec.encode(prompt.text, add_special_tokens=prompt.add_special_tokens)
    return prompt


def check_prompt(token_ids: tuple[int, ...], facts: ModelFacts) -> None:
    """Refuse a prompt that is empty, too long, or not of this model's tokens."""
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
    sequences: Sequence[Running], backend: EngineBackend
) -> AsyncGenerator[list[tuple[Running, Piece]]]:
    """Each step's pieces; a sequence whose stop string is complete is aborted in the engine.

    Raises what the backend raises, and EngineFailedError when the engine reports a failure of one
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


async def take(sequence: Running, output: Output, backend: EngineBackend) -> Piece:
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
