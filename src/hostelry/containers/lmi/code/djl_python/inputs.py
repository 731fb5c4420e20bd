"""A request as a handler gets it."""

import csv
import io
import json
import sys
from typing import Any

from hostelry.containers.lmi.code.djl_python.pair_list import PairList

csv.field_size_limit(sys.maxsize)  # the body's limit bounds a cell


def parse_table(text: str) -> io.StringIO:
    """A CSV text for a reader, without its byte order mark."""
    return io.StringIO(text.removeprefix("\ufeff"), newline="")


class Input:
    """Headers and options as properties, the body and the query as content.

    A request at a time: `get_batches` is the request itself.
    """

    def __init__(self) -> None:
        self.function_name: str | None = None
        self.properties: dict[str, str] = {}
        self.content = PairList()

    def is_batch(self) -> bool:
        """False, because an input is always a single request."""
        return False

    def get_batch_size(self) -> int:
        """The number of requests."""
        return 1

    def get_batches(self) -> list["Input"]:
        """This request alone."""
        return [self]

    def get_function_name(self) -> str | None:
        """The handler's name."""
        return self.function_name

    def get_properties(self) -> dict[str, str]:
        """Headers of the request. Options of the model in the first, empty call."""
        return self.properties

    def get_property(self, key: str) -> str | None:
        """One property, in any case of letters."""
        wanted = key.lower()
        return next((it for name, it in self.properties.items() if name.lower() == wanted), None)

    def get_content(self) -> PairList:
        """The body, and the parameters of the query."""
        return self.content

    def contains_key(self, key: str) -> bool:
        """True if there is content of that name."""
        return self.content.get(key) is not None

    def is_empty(self) -> bool:
        """True if this is the first call, without a request."""
        return self.content.is_empty()

    def get_as_bytes(self, key: str | None = None) -> Any:
        """The body, or the content under `key`. Raises KeyError."""
        if self.content.is_empty():
            return None
        if key:
            found = self.content.get(key)
            if found is None:
                raise KeyError(f"requested data for key:{key} is not found!")
            return found
        found = self.content.get("data")
        return self.content.value_at(0) if found is None else found

    def get_as_string(self, key: str | None = None) -> str:
        """The content as UTF-8 text."""
        return bytes(self.get_as_bytes(key)).decode("utf-8")

    def get_as_json(self, key: str | None = None) -> Any:
        """The content as JSON."""
        return json.loads(self.get_as_string(key))

    def get_as_csv(self, key: str | None = None) -> list[dict[str | Any, str | Any]]:
        """The rows of a table with a header."""
        return list(csv.DictReader(parse_table(self.get_as_string(key))))

    def get_as_image(self, key: str | None = None) -> Any:
        """The content as an image of PIL, if PIL is installed."""
        from PIL import Image

        return Image.open(io.BytesIO(self.get_as_bytes(key)))

    def get_as_npz(self, key: str | None = None) -> list[Any]:
        """The arrays of a file in numpy's format."""
        import numpy as np

        arrays = np.load(io.BytesIO(self.get_as_bytes(key)), allow_pickle=False)
        return [arrays[name] for name in arrays.files]

    def get_data(self, key: str | None = None) -> Any:
        """The content by its type."""
        kind = (self.get_property("content-type") or "").lower()
        if kind == "tensor/npz":
            return self.get_as_npz(key)
        if kind.startswith("application/json"):
            return self.get_as_json(key)
        if kind.startswith("text/"):
            return self.get_as_string(key)
        if kind.startswith("image/"):
            return self.get_as_image(key)
        return self.get_as_bytes(key)
