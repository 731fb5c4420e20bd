"""Lines of a batch's output and error files. PURE.

What JSON lets stand in a string and Unicode calls the end of a line is escaped, so that
`text.splitlines()` gives the lines, too.
"""

import uuid

import msgspec

from hostelry.base.json import decode
from hostelry.domain.llm_batch import TokenUsage

_LINE_ENDS = {
    "\u0085".encode(): rb"\u0085",
    "\u2028".encode(): rb"\u2028",
    "\u2029".encode(): rb"\u2029",
}
_NAMESPACE = uuid.UUID("6f2c1a52-5b0e-4e0a-9a43-0d9f3c1d7f10")


class _Details(msgspec.Struct):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    """Of completions and chats, embeddings, or responses, which have names of their own."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    prompt_tokens_details: _Details | None = None
    input_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None
    output_tokens_details: _Details | None = None


class _Answer(msgspec.Struct):
    usage: _Usage | None = None


class _KnownResponse(msgspec.Struct):
    body: msgspec.Raw


class _Known(msgspec.Struct):
    custom_id: str
    response: _KnownResponse | None = None


class _Response(msgspec.Struct):
    status_code: int
    request_id: str
    body: msgspec.Raw


class _Error(msgspec.Struct):
    code: str
    message: str


class _Result(msgspec.Struct):
    id: str
    custom_id: str
    response: _Response | None
    error: _Error | None


def result_id(batch_id: str, number: int) -> str:
    """The id of the request in line `number`: the same one where it is sent again."""
    return f"batch_req_{uuid.uuid5(_NAMESPACE, f'{batch_id} {number}').hex}"


def answer_line(id: str, custom_id: str, status: int, request_id: str, body: bytes) -> bytes:
    """The line of a request that was answered; a body that is no JSON becomes a text."""
    response = _Response(status, request_id, msgspec.Raw(_one_line(body)))
    return _encode(_Result(id, custom_id, response, None))


def error_line(id: str, custom_id: str, code: str, message: str) -> bytes:
    """The line of a request that was not answered."""
    return _encode(_Result(id, custom_id, None, _Error(code, message)))


def known_result(line: bytes) -> tuple[str, TokenUsage] | None:
    """custom_id and tokens of a line that is whole; None for one that a crash cut off."""
    if not line.endswith(b"\n"):
        return None
    try:
        found = decode(line, _Known)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    body = b"" if found.response is None else bytes(found.response.body)
    return found.custom_id, parse_usage(body)


def parse_usage(body: bytes) -> TokenUsage:
    """The tokens that an answer reports; none where it does not."""
    try:
        usage = decode(body, _Answer).usage or _Usage()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return TokenUsage()
    of_input = usage.prompt_tokens_details or usage.input_tokens_details or _Details()
    of_output = usage.completion_tokens_details or usage.output_tokens_details or _Details()
    return TokenUsage(
        input=usage.prompt_tokens or usage.input_tokens,
        output=usage.completion_tokens or usage.output_tokens,
        cached=of_input.cached_tokens or 0,
        reasoning=of_output.reasoning_tokens or 0,
    )


def _encode(result: _Result) -> bytes:
    line = msgspec.json.encode(result)
    for end, escaped in _LINE_ENDS.items():
        line = line.replace(end, escaped)
    return line + b"\n"


def _one_line(body: bytes) -> bytes:
    """`body` as JSON without line breaks."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return msgspec.json.encode(body.decode("utf-8", "replace"))
    return body if b"\n" not in body and b"\r" not in body else msgspec.json.encode(value)
