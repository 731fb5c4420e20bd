"""Responses of asynchronous handlers, whole and in chunks."""

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

from hostelry.containers.lmi.code.djl_python.outputs import Output


def create_non_stream_output(
    data: str | Mapping[str, Any],
    properties: Mapping[str, Any] | None = None,
    error: str | None = None,
    code: int | None = None,
) -> Output:
    """A whole response in JSON."""
    output = create_chunk(data, True, "application/json", error, code)
    for name, value in (properties or {}).items():
        output.add_property(name, value)
    return output


def create_stream_chunk_output(
    data: str | Mapping[str, Any],
    last_chunk: bool,
    error: str | None = None,
    code: int | None = None,
) -> Output:
    """A line of a streamed response."""
    return create_chunk(data, last_chunk, "application/jsonlines", error, code)


def create_chunk(
    data: str | Mapping[str, Any],
    last_chunk: bool,
    content_type: str,
    error: str | None,
    code: int | None,
) -> Output:
    """A response, or a part of it, that ends in a new line."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    members: dict[str, Any] = {"data": text + "\n", "last": last_chunk}
    if error:
        members["error"] = error
    if code:
        members["code"] = code
    output = Output().add_property("Content-Type", content_type)
    return output.add(Output.binary_encode(members))


async def handle_streaming_response(
    response: AsyncGenerator[Any, None],
    stream_output_formatter: Callable[..., Any],
    accumulate_chunks: bool = False,
    **kwargs: Any,
) -> AsyncGenerator[Output, None]:
    """Each item of `response` as a chunk. The formatter returns its text and whether it is last.

    With `accumulate_chunks` the formatter gets and returns the history of items, too.
    """
    history: list[Any] = []
    async for item in response:
        if accumulate_chunks:
            data, last, history = stream_output_formatter(item, history=history, **kwargs)
        else:
            data, last = stream_output_formatter(item, **kwargs)
        yield create_stream_chunk_output(data, last)
        if last:
            return
