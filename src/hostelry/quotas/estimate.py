"""Tokens that a call may use, estimated before its answer, and its use after the answer."""

from typing import Any

import msgspec

from hostelry.base.json import decode

BYTES_PER_TOKEN = 4
DEFAULT_GENERATED = 256  # for a request without a limit
MAX_TOKENS = 1 << 40
EVENT = b"data:"


class _Parameters(msgspec.Struct):
    max_new_tokens: Any = None
    max_tokens: Any = None


class _LlmRequest(msgspec.Struct):
    """The fields of a request that limit its answer, in all forms that models take."""

    max_tokens: Any = None
    max_completion_tokens: Any = None
    max_output_tokens: Any = None
    max_new_tokens: Any = None
    n: Any = None
    parameters: _Parameters | None = None


class Tokens(msgspec.Struct, frozen=True):
    """Tokens of a prompt and of an answer."""

    prompt: int = 0
    generated: int = 0


NO_TOKENS = Tokens()


def estimate_tokens(body: bytes) -> Tokens:
    """Estimate the tokens of a request: a fourth of its bytes, and the answer's maximum length."""
    prompt = -(-len(body) // BYTES_PER_TOKEN)
    try:
        asked = decode(body, _LlmRequest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Tokens(prompt, DEFAULT_GENERATED)
    inner = asked.parameters or _Parameters()
    limits = (
        asked.max_completion_tokens,
        asked.max_tokens,
        asked.max_output_tokens,
        asked.max_new_tokens,
        inner.max_new_tokens,
        inner.max_tokens,
    )
    generated = next((it for it in map(_read_count, limits) if it), DEFAULT_GENERATED)
    return Tokens(prompt, min(generated * (_read_count(asked.n) or 1), MAX_TOKENS))


def estimate_answer(bytes_in: int, bytes_out: int, num_events: int) -> Tokens:
    """Estimate the use of a call whose answer reports no numbers of tokens.

    A stream has about one token in each event. Other answers have a token in four bytes.
    """
    if not bytes_out:
        return NO_TOKENS
    generated = num_events or -(-bytes_out // BYTES_PER_TOKEN)
    return Tokens(-(-bytes_in // BYTES_PER_TOKEN), generated)


def _read_count(value: object) -> int:
    """A number of tokens that a client gave, or 0 if it is not one."""
    is_count = type(value) is int and 0 < value <= MAX_TOKENS
    return value if is_count and isinstance(value, int) else 0
