"""Responses in OpenAI's completion and chat completion schemas, as JSON values."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import accumulate
from typing import Any

import msgspec
from msgspec.structs import replace

from hostelry.containers.lmi.request.invocation import AnswerForm, Schema
from hostelry.containers.lmi.response.forms import (
    JSONLINES,
    SSE,
    Pieces,
    frame_values,
    openai_error,
)
from hostelry.containers.lmi.response.generated import GeneratedSequence, Piece, ScoredToken
from hostelry.containers.lmi.response.generation import RunningSequence
from hostelry.containers.lmi.response.lmi_form import lmi_finish, openai_finish
from hostelry.containers.lmi.tools.deltas import (
    CallArguments,
    CallEnd,
    CallName,
    ContentText,
    Delta,
    ReasoningText,
)
from hostelry.containers.lmi.tools.reading import (
    AnswerReading,
    ReadAnswer,
    ReadingState,
    read_whole,
)
from hostelry.engine.request import FinishReason, TokenLogprob

TokenText = Callable[[int], str]
ID_LETTERS = 24
EXAMPLE = "example"


def scored_piece(piece: Piece) -> ScoredToken:
    """A generated token in the form of a prompt's token."""
    return ScoredToken(token_id=piece.token_id or 0, logprob=piece.logprob, top=piece.top_logprobs)


def completion_logprobs(
    tokens: Sequence[ScoredToken], offsets: Sequence[int], num_top: int, token_text: TokenText
) -> dict[str, Any]:
    """OpenAI's form of a completion. Each token is among its own alternatives.

    `offsets` are the places at which the tokens' texts begin in the text.
    """
    return {
        "tokens": [token_text(it.token_id) for it in tokens],
        "token_logprobs": [it.logprob for it in tokens],
        "top_logprobs": [_alternatives(it, num_top, token_text) for it in tokens],
        "text_offset": list(offsets),
    }


def _alternatives(
    token: ScoredToken, num_top: int, token_text: TokenText
) -> dict[str, float] | None:
    """Texts and logprobs, likeliest first. If tokens have the same text, the likeliest counts."""
    if token.logprob is None:
        return None
    found: dict[str, float] = {}
    for each in token.top[:num_top]:
        found.setdefault(token_text(each.token_id), each.logprob)
    found.setdefault(token_text(token.token_id), token.logprob)
    return found


def chat_logprobs(
    tokens: Iterable[ScoredToken], num_top: int, token_text: TokenText
) -> list[dict[str, Any]]:
    """OpenAI's form of a chat's `content`."""

    def entry(token_id: int, logprob: float | None) -> dict[str, Any]:
        text = token_text(token_id)
        return {"token": text, "logprob": logprob, "bytes": list(text.encode())}

    return [
        {
            **entry(token.token_id, token.logprob),
            "top_logprobs": [entry(top.token_id, top.logprob) for top in token.top[:num_top]],
        }
        for token in tokens
    ]


def prompt_logprobs(
    sequence: GeneratedSequence, num_top: int, token_text: TokenText
) -> list[dict[str, Any] | None]:
    """Each token of the prompt in vLLM's form: its own score and the likeliest, by token id."""
    return [_rank_token(token, num_top, token_text) for token in sequence.scored_prompt]


def _rank_token(token: ScoredToken, num_top: int, token_text: TokenText) -> dict[str, Any] | None:
    if token.logprob is None:
        return None
    own = TokenLogprob(token_id=token.token_id, logprob=token.logprob)
    ranked = [(token.rank, own), *enumerate(token.top[:num_top], start=1)]
    found: dict[str, Any] = {}
    for rank, each in ranked:
        value = {
            "logprob": each.logprob,
            "rank": rank,
            "decoded_token": token_text(each.token_id),
        }
        found.setdefault(str(each.token_id), value)
    return found


def call_ids(reading: AnswerReading, response_id: str, index: int) -> Callable[[int], str]:
    """The ids of the calls of one choice, by their number. They are made from the response's id."""

    def call_id(number: int) -> str:
        digest = blake2b(f"{response_id}/{index}/{number}".encode()).hexdigest()
        if reading.call_id_length is not None:
            return digest[: reading.call_id_length]
        return f"call_{digest[:ID_LETTERS]}"

    return call_id


def message_members(answer: ReadAnswer, call_id: Callable[[int], str]) -> dict[str, Any]:
    """The members of a whole message. Its content is null if it has only calls or reasoning."""
    only = bool(answer.calls) or answer.reasoning is not None
    content = answer.content if answer.content is not None or only else ""
    members: dict[str, Any] = {"content": content}
    if answer.reasoning is not None:
        members |= reasoning_members(answer.reasoning)
    if answer.calls:
        members["tool_calls"] = [
            {
                "id": call_id(number),
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for number, call in enumerate(answer.calls)
        ]
    return members


def delta_members(
    deltas: Sequence[Delta], num_calls: int, call_id: Callable[[int], str]
) -> Iterator[dict[str, Any]]:
    """The delta of each chunk, after `num_calls` calls."""
    number = num_calls - 1
    for delta in deltas:
        match delta:
            case ContentText():
                yield {"content": delta.text}
            case ReasoningText():
                yield reasoning_members(delta.text)
            case CallName():
                number += 1
                function = {"name": delta.name, "arguments": ""}
                call = {"index": number, "id": call_id(number), "type": "function"}
                yield {"tool_calls": [{**call, "function": function}]}
            case CallArguments():
                more = {"arguments": delta.text}
                yield {"tool_calls": [{"index": number, "function": more}]}
            case CallEnd():
                pass


def reasoning_members(text: str) -> dict[str, Any]:
    """Reasoning under vLLM's older and newer names."""
    return {"reasoning_content": text, "reasoning": text}


class OpenAIForm(msgspec.Struct, frozen=True, kw_only=True):
    """Form of one response. `id` and `created` (seconds since the epoch) are in every chunk.

    With `lmi_names` finish reasons have LMI's names, as in its rolling batch.
    """

    form: AnswerForm
    id: str
    created: int
    token_text: Callable[[int], str]
    lmi_names: bool = False

    @property
    def _chat(self) -> bool:
        return self.form.schema is Schema.CHAT

    @property
    def shows_tokens(self) -> bool:
        """True if a token without text has a chunk."""
        return self.form.num_top_tokens is not None or self.form.token_ids

    def whole(
        self, sequences: Sequence[GeneratedSequence], generated: Sequence[GeneratedSequence] = ()
    ) -> dict[str, Any]:
        """The body of a response that is not streamed. Usage counts all that were `generated`."""
        kind = "chat.completion" if self._chat else "text_completion"
        choices = [self._choice(index, each) for index, each in enumerate(sequences)]
        whole = {**self._head(kind), "choices": choices, "usage": usage(generated or sequences)}
        first = sequences[0]
        asked = (
            {**self._build_prompt_members(first), **self._prompt_logprobs(first)}
            if self._chat
            else {}
        )
        return {**whole, **asked}

    def opening(self, sequences: Sequence[GeneratedSequence]) -> list[dict[str, Any]]:
        """The chunks before the first token."""
        if self._chat:
            role = {"delta": {"role": self.form.role, "content": self.form.echoed}}
            return [
                {**self._chunk(index, role, None, each, 0), **self._build_prompt_members(each)}
                for index, each in enumerate(sequences)
            ]
        text = self.form.full_text and not self.form.scores.is_echoed
        if not (text or self.form.token_ids):
            return []
        return [
            self._chunk(
                index,
                {"text": each.prompt_text * text, **self._build_prompt_members(each)},
                None,
                each,
                0,
            )
            for index, each in enumerate(sequences)
        ]

    def chunk(self, index: int, piece: Piece, sequence: GeneratedSequence) -> dict[str, Any]:
        """One chunk of a stream."""
        content: dict[str, Any] = (
            {"delta": {"content": piece.text}} if self._chat else {"text": piece.text}
        )
        if self.form.num_top_tokens is not None:
            offset = len(sequence.text) - len(piece.text)
            content["logprobs"] = self._logprobs([piece], sequence, offset=offset)
        if self.form.scores.is_echoed and piece is sequence.pieces[0]:
            content["text"] = self._prefix(sequence) + piece.text
        if self.form.token_ids:
            content["token_ids"] = [] if piece.token_id is None else [piece.token_id]
        return self._chunk(index, content, self._finish(piece), sequence, sequence.num_tokens)

    @property
    def has_bare_texts(self) -> bool:
        """True if only the text differs between the chunks before a sequence's last chunk."""
        form = self.form
        varies = self.shows_tokens or form.continuous_usage or form.scores.is_echoed
        return form.reading is None and not varies

    def read_chunks(
        self,
        running: RunningSequence,
        piece: Piece,
        deltas: Sequence[Delta],
        num_calls: int,
        *,
        has_calls: bool,
    ) -> list[dict[str, Any]]:
        """The chunks of one token's `deltas`, after `num_calls` calls. The last has the finish."""
        reading, index, sequence = self.form.reading, running.index, running.generated
        assert reading is not None
        found = list(delta_members(deltas, num_calls, call_ids(reading, self.id, index)))
        if piece.finish_reason or (not found and self.shows_tokens):
            found.append({})
        contents: list[dict[str, Any]] = [{"delta": each} for each in found]
        if contents and self.form.num_top_tokens is not None:
            contents[0]["logprobs"] = self._logprobs([piece], sequence, offset=0)
        if contents and self.form.token_ids:
            contents[0]["token_ids"] = [] if piece.token_id is None else [piece.token_id]
        num_tokens = sequence.num_tokens
        chunks = [self._chunk(index, each, None, sequence, num_tokens) for each in contents]
        if piece.finish_reason:
            finish = self._finish(piece, has_calls=has_calls)
            chunks[-1]["choices"][0]["finish_reason"] = finish
        return chunks

    def closing(self, sequences: Sequence[GeneratedSequence]) -> list[dict[str, Any]]:
        """The chunks after the last token."""
        if not self.form.include_usage:
            return []
        return [{**self._head(self._chunk_kind), "choices": [], "usage": usage(sequences)}]

    @property
    def _chunk_kind(self) -> str:
        return "chat.completion.chunk" if self._chat else "text_completion"

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.form.model}

    def _chunk(
        self,
        index: int,
        content: dict[str, Any],
        finish: str | None,
        sequence: GeneratedSequence,
        num_tokens: int,
    ) -> dict[str, Any]:
        choice = {"index": index, **content, "finish_reason": finish}
        chunk = {**self._head(self._chunk_kind), "choices": [choice]}
        if self.form.continuous_usage:
            return {**chunk, "usage": counts(sequence.num_prompt_tokens, num_tokens)}
        return {**chunk, "usage": None} if self.form.include_usage else chunk

    def _build_prompt_members(self, sequence: GeneratedSequence) -> dict[str, Any]:
        """The prompt's tokens and text, if the request asks for them."""
        asked: dict[str, Any] = {}
        if self.form.token_ids:
            asked["prompt_token_ids"] = sequence.prompt_token_ids
        if self.form.prompt_text:
            asked["prompt_text"] = sequence.prompt_text
        return asked

    def _choice(self, index: int, sequence: GeneratedSequence) -> dict[str, Any]:
        content: dict[str, Any]
        has_calls = False
        if self.form.reading is not None:
            answer = read_whole(self.form.reading, sequence.text)
            has_calls = bool(answer.calls)
            if self.form.echoed:
                answer.content = self.form.echoed + (answer.content or "")
            members = message_members(answer, call_ids(self.form.reading, self.id, index))
            content = {"message": {"role": self.form.role, **members}}
        elif self._chat:
            text = self.form.echoed + sequence.text
            content = {"message": {"role": self.form.role, "content": text}}
        else:
            content = {"text": self._prefix(sequence) + sequence.text}
            content |= {**self._prompt_logprobs(sequence), **self._build_prompt_members(sequence)}
        if self.form.token_ids:
            content["token_ids"] = sequence.token_ids
        last = sequence.pieces[-1] if sequence.pieces else None
        finish = self._finish(last, has_calls=has_calls) if last else None
        logprobs = self._logprobs(sequence.pieces, sequence, offset=0)
        return {"index": index, **content, "logprobs": logprobs, "finish_reason": finish}

    def _prompt_logprobs(self, sequence: GeneratedSequence) -> dict[str, Any]:
        """The member that vLLM adds to a completion's choice, or to a chat's response."""
        num_top = self.form.scores.reported
        if num_top is None:
            return {}
        return {"prompt_logprobs": prompt_logprobs(sequence, num_top, self.token_text)}

    def _finish(self, piece: Piece, *, has_calls: bool = False) -> str | None:
        """The finish reason. As with OpenAI, it is "stop" after a call that the request named."""
        reading = self.form.reading
        ended = piece.finish_reason in (FinishReason.EOS, FinishReason.STOP)
        if has_calls and ended and not (reading and reading.named_choice):
            return "tool_calls"
        name = lmi_finish if self.lmi_names else openai_finish
        return name(piece.finish_reason)

    def _logprobs(
        self, pieces: Sequence[Piece], sequence: GeneratedSequence, *, offset: int
    ) -> dict[str, Any] | None:
        """The logprobs of some tokens. Their text begins at `offset` in the answer."""
        num_top = self.form.num_top_tokens
        if num_top is None:
            return None
        tokens = [piece for piece in pieces if piece.token_id is not None]
        scored = [scored_piece(piece) for piece in tokens]
        if self._chat:
            return {"content": chat_logprobs(scored, num_top, self.token_text)}
        offset += len(self._prefix(sequence))
        offsets = list(accumulate((len(piece.text) for piece in tokens[:-1]), initial=offset))
        offsets = offsets[: len(tokens)]
        if self.form.scores.is_echoed and (not pieces or pieces[0] is sequence.pieces[0]):
            scored = [*sequence.scored_prompt, *scored]
            offsets = [*sequence.prompt_offsets, *offsets]
        return completion_logprobs(scored, offsets, num_top, self.token_text)

    def _prefix(self, sequence: GeneratedSequence) -> str:
        return sequence.prompt_text if self.form.full_text and not self._chat else ""


def usage(sequences: Sequence[GeneratedSequence]) -> dict[str, int]:
    """Token counts over all sequences of a response."""
    prompt = sum(each.num_prompt_tokens for each in sequences if not each.shares_prompt)
    completion = sum(each.num_tokens for each in sequences)
    return counts(prompt, completion)


def counts(prompt: int, completion: int) -> dict[str, int]:
    """Token counts in OpenAI's form."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


class OpenAIStream(msgspec.Struct, frozen=True):
    """OpenAI's chunks: server-sent events on the /v1 routes, bare lines on /invocations.

    `states` are the states of reading each choice for calls and reasoning, `frames` the bytes
    before and after the text in the chunks of each choice.
    """

    form: OpenAIForm
    sse: bool
    states: dict[int, ReadingState] = msgspec.field(default_factory=dict)
    frames: dict[int, tuple[bytes, bytes]] = msgspec.field(default_factory=dict)

    @property
    def content_type(self) -> str:
        """By the route."""
        return SSE if self.sse else JSONLINES

    def opening(self, sequences: Sequence[GeneratedSequence]) -> bytes:
        """The assistant's role, or the repeated prompt."""
        return frame_values(self.form.opening(sequences), self.sse)

    def step(self, sequences: Sequence[GeneratedSequence], pieces: Pieces) -> bytes:
        """A chunk per token. Tokens without text yet are left out unless they carry more."""
        reading = self.form.form.reading
        if reading is not None:
            return frame_values(
                [chunk for it in pieces for chunk in self._read(reading, *it)], self.sse
            )
        return b"".join(
            self._write(running, piece)
            for running, piece in pieces
            if piece.text or piece.finish_reason or self.form.shows_tokens
        )

    def _write(self, running: RunningSequence, piece: Piece) -> bytes:
        """The chunk of one token: its text between bytes that are the same in all its chunks."""
        index, sequence = running.index, running.generated
        if piece.finish_reason is not None or not self.form.has_bare_texts:
            return frame_values([self.form.chunk(index, piece, sequence)], self.sse)
        if index not in self.frames:
            example = self.form.chunk(index, replace(piece, text=EXAMPLE), sequence)
            before, _, after = frame_values([example], self.sse).rpartition(EXAMPLE.encode())
            self.frames[index] = before[:-1], after[1:]  # without the quotes of the text
        before, after = self.frames[index]
        return before + msgspec.json.encode(piece.text) + after

    def _read(
        self, reading: AnswerReading, running: RunningSequence, piece: Piece
    ) -> list[dict[str, Any]]:
        """The chunks of one token, by the text so far."""
        state = self.states.get(running.index) or reading.start()
        num_calls = state.num_calls
        state, deltas = reading.feed(state, piece.text)
        if piece.finish_reason:
            state, last = reading.finish(state)
            deltas += last
        self.states[running.index] = state
        has_calls = state.num_calls > 0
        return self.form.read_chunks(running, piece, deltas, num_calls, has_calls=has_calls)

    def closing(self, sequences: Sequence[GeneratedSequence]) -> bytes:
        """Usage if requested, and the end mark of server-sent events."""
        return frame_values(self.form.closing(sequences), self.sse) + self._end

    def broken(self, sequences: Sequence[GeneratedSequence], status: int, message: str) -> bytes:
        """OpenAI's error object as the last event."""
        return frame_values([openai_error(status, message)], self.sse) + self._end

    @property
    def _end(self) -> bytes:
        return b"data: [DONE]\n\n" if self.sse else b""
