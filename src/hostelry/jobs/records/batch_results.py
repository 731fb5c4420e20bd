"""Lines of a batch's output and error files. PURE.

What JSON lets stand in a string and Unicode calls the end of a line is escaped, so that
`text.splitlines()` gives the lines, too.
"""

import uuid

import msgspec

from hostelry.base.json import decode

_LINE_ENDS = {
    "\u0085".encode(): rb"\u0085",
    "\u2028".encode(): rb"\u2028",
    "\u2029".encode(): rb"\u2029",
}
_NAMESPACE = uuid.UUID("6f2c1a52-5b0e-4e0a-9a43-0d9f3c1d7f10")


class _Known(msgspec.Struct):
    custom_id: str


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
    return _written(_Result(id, custom_id, response, None))


def error_line(id: str, custom_id: str, code: str, message: str) -> bytes:
    """The line of a request that was not answered."""
    return _written(_Result(id, custom_id, None, _Error(code, message)))


def answered_id(line: bytes) -> str | None:
    """The custom_id of a line that is whole; None for one that a crash cut off."""
    if not line.endswith(b"\n"):
        return None
    try:
        return decode(line, _Known).custom_id
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _written(result: _Result) -> bytes:
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
