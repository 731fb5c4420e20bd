"""A response as a handler returns it."""

import datetime
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from hostelry.containers.lmi.code.djl_python.pair_list import PairList


class EncodedChunk(bytearray):
    """The bytes of `binary_encode`, with the members that they were made of."""

    def __init__(self, members: Mapping[str, Any]) -> None:
        super().__init__(json.dumps(dict(members), default=str).encode())
        self.members = dict(members)


class Output:
    """Status, headers (`properties`) and content of a response."""

    def __init__(self, code: int = 200, message: str = "OK") -> None:
        self.code = code
        self.message = message
        self.properties: dict[str, Any] = {}
        self.content = PairList()
        self.stream_content: Iterator[Any] | None = None
        self.stream_output_formatter: Callable[[Any], Any] | None = None

    def set_code(self, code: int) -> "Output":
        """Set the status."""
        self.code = code
        return self

    def set_message(self, message: str) -> "Output":
        """Set the message."""
        self.message = message
        return self

    def error(
        self, error: str, code: int = 424, message: str = "invoke handler failure"
    ) -> "Output":
        """Make this an error response."""
        self.code = code
        self.message = message
        self.add_property("content-type", "application/json")
        self.add_as_json({"code": code, "message": message, "error": error})
        return self

    def add_property(self, key: str, val: Any) -> "Output":
        """Set a header."""
        self.properties[key] = val
        return self

    def get_properties(self) -> dict[str, Any]:
        """Every header."""
        return self.properties

    def get_property(self, key: str) -> Any:
        """One header. None if absent."""
        return self.properties.get(key)

    def add(self, value: Any, key: str | None = None, batch_index: int | None = None) -> "Output":
        """Append content: text, bytes, or a value that is written as JSON."""
        name = None if key is None else str(key)
        if batch_index is not None:
            name = f"batch_{batch_index}.{name or ''}"
        if isinstance(value, str):
            value = bytearray(value.encode("utf-8"))
        elif isinstance(value, bytes):
            value = bytearray(value)
        elif not isinstance(value, bytearray):
            value = self._encode_json(value)
        self.content.add(key=name, value=value)
        return self

    def add_as_json(
        self, val: Any, key: str | None = None, batch_index: int | None = None
    ) -> "Output":
        """Append a value as JSON."""
        return self.add(self._encode_json(val), key, batch_index)

    def add_as_string(
        self, val: str, key: str | None = None, batch_index: int | None = None
    ) -> "Output":
        """Append text."""
        return self.add(val, key, batch_index)

    def add_as_npz(
        self, np_list: Sequence[Any], key: str | None = None, batch_index: int | None = None
    ) -> "Output":
        """Append arrays in numpy's format."""
        import numpy as np

        written = io.BytesIO()
        np.savez(written, *np_list)
        return self.add(written.getvalue(), key, batch_index)

    def add_stream_content(
        self,
        stream_content: Iterator[Any],
        output_formatter: Callable[[Any], Any] | None = lambda texts: {"outputs": texts},
    ) -> "Output":
        """Give the response as a stream, each item through `output_formatter`."""
        self.stream_content = stream_content
        self.stream_output_formatter = output_formatter
        return self

    @staticmethod
    def binary_encode(data: Mapping[str, Any]) -> EncodedChunk:
        """The content of an asynchronous response: data, last, code, error."""
        return EncodedChunk(data)

    @staticmethod
    def _encode_json(value: Any) -> bytearray:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=plain, indent=2)
        return bytearray(text.encode("utf-8", "backslashreplace"))


def plain(value: Any) -> Any:
    """Dates and numbers of other libraries as JSON has them. Raises TypeError."""
    if isinstance(value, datetime.datetime):
        return str(value)
    if hasattr(value, "tolist"):  # numpy's arrays and numbers
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not a value of JSON")
