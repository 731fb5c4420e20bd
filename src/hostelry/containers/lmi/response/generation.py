"""Runs an invocation: tokenize, check the length, generate, detokenize."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from itertools import accumulate

import msgspec
from msgspec.structs import replace

from hostelry.base.ids import new_request_id
from hostelry.containers.lmi.engine.backend import (
    DeadlineMissedError,
    EngineBackend,
    EngineFailedError,
    GenerationRefusedError,
    ModelFacts,
)
from hostelry.containers.lmi.refusal import Cause, Refusal, bad_request
from hostelry.containers.lmi.request.context import Terms
from hostelry.containers.lmi.request.invocation import (
    Invocation,
    Prompt,
    PromptText,
    Truncation,
)
from hostelry.containers.lmi.response.generated import GeneratedSequence, Piece, SequenceText
from hostelry.containers.lmi.text_codec import TextCodec
from hostelry.engine.request import FinishReason, Output, PromptLogprobs, Request
from hostelry.engine.sampling.beams import best, fan_out
from hostelry.engine.text import IncrementalDetokenizer

MAX_PROMPT_LOGPROBS = 500_000  # of all prompts of a request, alternatives included
LONG_PROMPT_CHARACTERS = 20_000  # longer texts are tokenized in a thread, off the event loop
NO_TERMS = Terms()


class RunningSequence(msgspec.Struct, kw_only=True):
    """One sequence of a response: its request, and its text so far."""

    index: int
    request: Request
    text: SequenceText
    generated: GeneratedSequence


async def prepare(
    invocation: Invocation, codec: TextCodec, facts: ModelFacts, terms: Terms = NO_TERMS
) -> list[RunningSequence]:
    """The sequences of `invocation`, tokenized and checked against the model. Raises Refusal."""
    characters = sum(len(it.text) for it in invocation.prompts if isinstance(it, PromptText))
    if characters > LONG_PROMPT_CHARACTERS:
        sequences = await asyncio.to_thread(prepare_now, invocation, codec, facts)
    else:
        sequences = prepare_now(invocation, codec, facts)
    check_scores(sequences)
    for each in sequences:
        each.request = replace(
            each.request,
            tenant=terms.tenant,
            cache_salt=terms.salt(each.request.cache_salt),
            first_token_deadline_s=terms.first_token_deadline_s,
        )
    return sequences


def prepare_now(
    invocation: Invocation, codec: TextCodec, facts: ModelFacts
) -> list[RunningSequence]:
    """The sequences without terms, computed in the calling thread."""
    words = bad_word_tokens(invocation.bad_words, codec)
    if words:
        sampling = replace(invocation.sampling, bad_words=words)
        invocation = replace(invocation, sampling=sampling)
    return [
        sequence
        for number, prompt in enumerate(invocation.prompts)
        for sequence in build_sequences(number, prompt, invocation, codec, facts)
    ]


def build_sequences(
    number: int, prompt: Prompt, invocation: Invocation, codec: TextCodec, facts: ModelFacts
) -> list[RunningSequence]:
    """The sequences of one prompt."""
    if invocation.images:
        check_beside_images(invocation)
    token_ids = prompt_token_ids(prompt, codec)
    whole = token_ids
    if invocation.truncation is not None:
        fitting = facts.max_model_len - (invocation.max_new_tokens or 1)
        token_ids = truncate_tokens(token_ids, invocation.truncation, max(fitting, 1))
    is_whole = len(token_ids) == len(whole)
    check_prompt(token_ids, facts)
    room = facts.max_model_len - len(token_ids)
    most = invocation.max_new_tokens
    sampling = replace(
        invocation.sampling,
        max_new_tokens=room if most is None else min(most, room),
        num_logprobs=num_logprobs(invocation),
    )
    encoded = prompt if isinstance(prompt, PromptText) and is_whole else None
    text = codec.decode(token_ids, skip_special_tokens=False) if encoded is None else encoded.text
    scores = invocation.form.scores
    scored: list[PromptLogprobs] = []
    offsets = prompt_offsets(encoded, token_ids, codec) if scores.is_echoed else ()
    request = Request(
        id=new_request_id(),
        prompt_token_ids=token_ids,
        sampling=sampling,
        adapter=invocation.adapters[number],
        cache_salt=invocation.cache_salt,
        num_prompt_logprobs=scores.num_top,
        images=tuple(it.data for it in invocation.images),
    )
    count = invocation.sequences.generated
    return [
        RunningSequence(
            index=number * count + position,
            request=each,
            text=SequenceText(codec, token_ids, invocation.texts),
            generated=GeneratedSequence(
                prompt_text=text,
                prompt_token_ids=token_ids,
                seed=each.sampling.seed,
                shares_prompt=position > 0,
                prompt_offsets=offsets,
                prompt_logprobs=scored,
            ),
        )
        for position, each in enumerate(fan_out(request, count))
    ]


def check_beside_images(invocation: Invocation) -> None:
    """Raise Refusal for options that read the prompt's tokens, because images change the tokens."""
    asked = {
        "truncation": invocation.truncation is not None,
        "log-probabilities of the prompt": invocation.form.scores.num_top is not None,
        "beam search": invocation.beams is not None,
    }
    for what, is_asked in asked.items():
        if is_asked:
            raise bad_request(f"{what} is not done with images; leave it out", "messages")


def bad_word_tokens(words: Sequence[str], codec: TextCodec) -> tuple[tuple[int, ...], ...]:
    """The tokens of each word, and of each word after a space if only the first token differs.

    So a word is found at the beginning of a text and inside the text, as with vLLM.
    """
    found: list[tuple[int, ...]] = []
    for word in words:
        plain = codec.encode(word.lstrip(), add_special_tokens=False)
        spaced = codec.encode(" " + word.lstrip(), add_special_tokens=False)
        if not plain:
            raise bad_request(f"bad_words has {word[:80]!r}, which has no token", "bad_words")
        found.append(plain)
        if spaced and spaced[0] != plain[0] and len(spaced) == len(plain):
            found.append(spaced)
    return tuple(found)


def truncate_tokens(token_ids: tuple[int, ...], by: Truncation, most: int) -> tuple[int, ...]:
    """The kept tokens of a prompt. `most` leaves room for the answer."""
    count = most if by.tokens is None else by.tokens
    return token_ids[:count] if by.keep_first else token_ids[-count:]


def prompt_offsets(
    prompt: PromptText | None, token_ids: Sequence[int], codec: TextCodec
) -> tuple[int, ...]:
    """The place at which the text of each token begins in the prompt's text, in characters.

    Without a `prompt` the text comes from the tokens.
    """
    if prompt is not None:
        return codec.offsets(prompt.text, add_special_tokens=prompt.add_special_tokens)
    detokenizer = IncrementalDetokenizer(lambda ids: codec.decode(ids, skip_special_tokens=False))
    pieces = [detokenizer.push(token_id) for token_id in token_ids]
    return tuple(accumulate((len(piece) for piece in pieces[:-1]), initial=0))


def check_scores(sequences: Sequence[RunningSequence]) -> None:
    """Raise Refusal for prompts whose log-probabilities are too many for one response."""
    count = sum(
        len(each.request.prompt_token_ids) * (1 + each.request.num_prompt_logprobs)
        for each in sequences
        if each.request.num_prompt_logprobs is not None
    )
    if count > MAX_PROMPT_LOGPROBS:
        raise bad_request(
            f"the prompts have {count} log-probabilities, alternatives included; at most "
            f"{MAX_PROMPT_LOGPROBS} in one request: send fewer prompts or ask for fewer "
            "alternatives",
            "prompt_logprobs",
        )


def num_logprobs(invocation: Invocation) -> int | None:
    """Number of alternatives in the outputs. Choosing the best sequences needs logprobs (0)."""
    asked = invocation.sampling.num_logprobs
    selects = invocation.sequences.generated > invocation.sequences.returned
    return 0 if asked is None and selects else asked


def returned_sequences(
    invocation: Invocation, generated: Sequence[GeneratedSequence]
) -> list[GeneratedSequence]:
    """The sequences of the response, grouped by prompt: the likeliest generated sequences."""
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


Pieces = list[tuple[RunningSequence, Piece]]


async def run(
    sequences: Sequence[RunningSequence],
    backend: EngineBackend,
    took: Callable[[Pieces], None] | None = None,
) -> AsyncGenerator[Pieces]:
    """Each step's pieces. A sequence whose stop string is complete is aborted in the engine.

    `took` sees the pieces first.

    Raises the backend's errors, and EngineFailedError when the engine reports a failure of one
    sequence.
    """
    by_id = {each.request.id: each for each in sequences}
    async with aclosing(backend.generate([each.request for each in sequences])) as steps:
        async for outputs in steps:
            for step in split_steps(outputs):
                pieces: Pieces = []
                for output in step:
                    sequence = by_id[output.request_id]
                    if output.prompt_logprobs is not None:
                        sequence.generated.prompt_logprobs.append(output.prompt_logprobs)
                    elif sequence.generated.finish_reason is None:
                        pieces.append((sequence, await take(sequence, output, backend)))
                if pieces and took is not None:
                    took(pieces)
                if pieces:
                    yield pieces


def split_steps(outputs: Sequence[Output]) -> Iterator[Sequence[Output]]:
    """Parts with at most one output per request, because forms count by a sequence's state."""
    step: list[Output] = []
    seen: set[str] = set()
    for output in outputs:
        if output.request_id in seen:
            yield step
            step, seen = [], set()
        step.append(output)
        seen.add(output.request_id)
    yield step


async def take(sequence: RunningSequence, output: Output, backend: EngineBackend) -> Piece:
    """The piece that `output` adds to `sequence`."""
    if output.finish_reason is FinishReason.ERROR:
        raise EngineFailedError(output.error or "the engine failed at this request")
    if output.finish_reason is FinishReason.REFUSED:
        raise GenerationRefusedError(output.error or "no token may come next")
    if output.finish_reason is FinishReason.DEADLINE:
        raise DeadlineMissedError(
            "no first token came within first_token_deadline_s, "
            f"{sequence.request.first_token_deadline_s:g}; the server is busy"
        )
    if output.queued_s is not None:
        sequence.generated.queued_s = output.queued_s
        sequence.generated.num_cached_tokens = output.num_cached_tokens or 0
        sequence.generated.num_expanded_tokens = output.num_prompt_tokens
    if output.finish_reason:
        sequence.generated.adapter_version = output.adapter_content_id
    piece = sequence.text.push(output)
    sequence.generated.pieces.append(piece)
    if piece.finish_reason and not output.finish_reason:
        await backend.abort([output.request_id])
    return piece
