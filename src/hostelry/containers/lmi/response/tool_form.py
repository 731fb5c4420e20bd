"""Tool calls and reasoning in OpenAI's chat messages, whole and as deltas of a stream."""

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Any

from hostelry.containers.lmi.tools.deltas import (
    CallArguments,
    CallEnd,
    CallName,
    ContentText,
    Delta,
    ReasoningText,
)
from hostelry.containers.lmi.tools.reading import AnswerReading, ReadAnswer

ID_LETTERS = 24


def call_ids(reading: AnswerReading, response_id: str, index: int) -> Callable[[int], str]:
    """The ids of the calls of one choice, by their number: made of the response's own."""

    def call_id(number: int) -> str:
        digest = blake2b(f"{response_id}/{index}/{number}".encode()).hexdigest()
        if reading.call_id_length is not None:
            return digest[: reading.call_id_length]
        return f"call_{digest[:ID_LETTERS]}"

    return call_id


def message_members(answer: ReadAnswer, call_id: Callable[[int], str]) -> dict[str, Any]:
    """The members of a whole message; its content is null where it has calls or reasoning only."""
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
    """Reasoning under its name in vLLM, the older and the newer."""
    return {"reasoning_content": text, "reasoning": text}
