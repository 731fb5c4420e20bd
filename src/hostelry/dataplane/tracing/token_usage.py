"""Numbers of tokens in the end of an LLM's answer."""

import re
from typing import Any

import msgspec

from hostelry.base.json import decode

INPUT_FIELDS = ("prompt_tokens", "input_tokens")
OUTPUT_FIELDS = ("completion_tokens", "output_tokens")
TOKEN_FIELDS = (
    "prompt_tokens", "completion_tokens", "input_tokens", "output_tokens", "total_tokens",
)  # fmt: skip
MAX_TOKENS = 1 << 40  # an answer with more reports nonsense
_FIELD = b'"usage"'
_USAGE = re.compile(rb'"usage"\s*:\s*(\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})')


def parse_token_usage(tail: bytes) -> dict[str, int] | None:
    """Find the numbers of tokens in the end of an LLM's answer. None if it has none."""
    found = _USAGE.findall(tail) if _FIELD in tail else ()
    if not found:
        return None
    try:
        usage = decode(found[-1], dict[str, Any])
    except msgspec.DecodeError:
        return None
    return {name: usage[name] for name in TOKEN_FIELDS if type(usage.get(name)) is int} or None


def count_tokens(tail: bytes) -> tuple[int, int] | None:
    """The tokens of the prompt and of the answer. None if the answer does not report them."""
    usage = parse_token_usage(tail)
    if usage is None:
        return None
    num_in, num_out = (
        next((usage[name] for name in names if name in usage), 0)
        for names in (INPUT_FIELDS, OUTPUT_FIELDS)
    )
    is_possible = all(0 <= it <= MAX_TOKENS for it in (num_in, num_out))
    return (num_in, num_out) if is_possible else None
