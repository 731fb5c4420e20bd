"""The value that `handle` returns, as a message."""

import json
from typing import Any

from hostelry.containers.code.messages import Replied
from hostelry.containers.lmi.code.djl_python.outputs import EncodedChunk, Output

DEFAULT_ERROR = 424


def whole_reply(call: int, output: Any) -> Replied:
    """The reply by an `Output`. Raises TypeError for any other value."""
    if output is None:
        return Replied(call, is_nothing=True)
    if not isinstance(output, Output):
        raise TypeError(
            f"handle returned {type(output).__name__}; it must return an Output, a generator of "
            "them, or None"
        )
    headers = {str(name): str(value) for name, value in output.get_properties().items()}
    content = output.content.get("data")
    if content is None and not output.content.is_empty():
        content = output.content.value_at(0)
    if isinstance(content, EncodedChunk):
        return chunk_reply(call, content, headers)
    body = bytes(content or b"")
    if output.code != 200 and not body:
        body = json.dumps({"code": output.code, "message": output.message}).encode()
    return Replied(call, body, output.code, headers)


def chunk_reply(call: int, chunk: EncodedChunk, headers: dict[str, str]) -> Replied:
    """The reply by the members of `Output.binary_encode`: data, last, code and error."""
    members = chunk.members
    is_last = str(members.get("last", True)).lower() == "true"
    error = members.get("error")
    status = int(members.get("code") or (DEFAULT_ERROR if error else 200))
    if error:
        body = bytes_of(json.dumps({"code": status, "error": str(error)}, ensure_ascii=False))
        return Replied(call, body, status, headers, is_last=True)
    return Replied(call, bytes_of(str(members.get("data", ""))), status, headers, is_last=is_last)


def item_reply(call: int, item: Any) -> Replied:
    """The reply by an item of a stream: an `Output`, text, bytes, or a value of JSON."""
    if isinstance(item, Output):
        return whole_reply(call, item)
    if isinstance(item, str):
        return Replied(call, bytes_of(item))
    if isinstance(item, bytes | bytearray):
        return Replied(call, bytes(item))
    return Replied(call, bytes_of(json.dumps(item, ensure_ascii=False)))


def bytes_of(text: str) -> bytes:
    """The text in UTF-8, which has no half of a surrogate pair: that is escaped as JSON does it."""
    return text.encode(errors="backslashreplace")
