"""Bytes of a streamed response, step by step, in each schema."""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from hostelry.containers.lmi.refusal import (
    EXCEPTION_NAMES,
    OPENAI_TYPES,
    Cause,
    Refusal,
    StatusCodes,
    Surface,
    get_status,
)
from hostelry.containers.lmi.response.generated import GeneratedSequence, Piece
from hostelry.containers.lmi.response.generation import RunningSequence

JSON = "application/json"
JSONLINES = "application/jsonlines"
SSE = "text/event-stream"
EVENT_ENDS = {JSONLINES: b"\n", SSE: b"\n\n"}

Pieces = Sequence[tuple[RunningSequence, Piece]]
# Causes reported in the front end's form on every surface but OpenAI's.
FRONT_END_CAUSES = frozenset(
    {
        Cause.TOO_LARGE, Cause.QUEUE_FULL, Cause.QUOTA, Cause.DEADLINE, Cause.NOT_READY,
        Cause.TIMEOUT, Cause.NOT_FOUND,
    }
)  # fmt: skip


class StreamForm(Protocol):
    """Chunks of one response's stream."""

    @property
    def content_type(self) -> str:
        """The stream's media type."""
        ...

    def opening(self, sequences: Sequence[GeneratedSequence]) -> bytes:
        """The bytes before the first step."""
        ...

    def step(self, sequences: Sequence[GeneratedSequence], pieces: Pieces) -> bytes:
        """The bytes of one step."""
        ...

    def closing(self, sequences: Sequence[GeneratedSequence]) -> bytes:
        """The bytes after the last step."""
        ...

    def broken(self, sequences: Sequence[GeneratedSequence], status: int, message: str) -> bytes:
        """The bytes that end a stream after an error."""
        ...


def frame_values(values: Sequence[Any], sse: bool) -> bytes:
    """JSON values as server-sent events or as lines."""
    before, after = (b"data: ", b"\n\n") if sse else (b"", b"\n")
    return b"".join(before + msgspec.json.encode(value) + after for value in values)


def error_answer(
    refusal: Refusal, message: str, surface: Surface, codes: StatusCodes
) -> tuple[int, Any]:
    """Status and JSON body for `refusal`. `message` is the text for the caller."""
    status = get_status(refusal.cause, surface, codes)
    usual = get_status(refusal.cause, surface, StatusCodes())
    if surface is Surface.OPENAI or refusal.cause is Cause.UNKNOWN_MODEL:
        return status, openai_error(status, message, refusal.param, usual)
    if surface is Surface.FRONT_END or refusal.cause in FRONT_END_CAUSES:
        return status, front_end_error(status, message, usual)
    if refusal.cause is Cause.ENGINE:
        return status, {
            "code": status,
            "message": "Inference Engine Failure",
            "error": message,
        }
    if surface is Surface.LEGACY:
        return status, legacy_error(status, message)
    prefix = "Input parsing failed: " if refusal.cause is Cause.BAD_REQUEST else ""
    return status, {"code": status, "error": prefix + message}


def front_end_error(status: int, message: str, usual: int = 500) -> dict[str, Any]:
    """The form of errors outside the handlers. `usual` is the status if no other is configured."""
    name = EXCEPTION_NAMES.get(status) or EXCEPTION_NAMES.get(usual, "InternalServerException")
    return {"code": status, "type": name, "message": message}


def openai_error(
    status: int, message: str, param: str | None = None, usual: int = 500
) -> dict[str, Any]:
    """OpenAI's form, which its clients turn into exceptions. `usual` as for the front end."""
    kind = OPENAI_TYPES.get(status) or OPENAI_TYPES.get(usual, "InternalServerError")
    return {"error": {"message": message, "type": kind, "param": param, "code": status}}


def legacy_error(status: int, message: str) -> dict[str, Any]:
    """The rolling batch's form: a response without text."""
    return {
        "generated_text": None,
        "error": message,
        "code": status,
        "details": {"finish_reason": "error"},
    }
