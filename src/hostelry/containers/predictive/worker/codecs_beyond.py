"""Content types beyond those of sagemaker-inference, and its unsafe one made safe.

AWS's decoder of .npy reads pickles, which are code, from requests; here they are refused. AWS's
tables know a type without parameters and in lower case alone; here `text/csv; charset=utf-8` is
`text/csv` to the default functions, and to code that uses the toolkit's decoder and encoder.
"""

from __future__ import annotations

import importlib
import io
import json
from typing import Any

from hostelry.containers.predictive.worker import lines, recordio
from hostelry.containers.predictive.worker.refusal import media_type

JSON_LINES, RECORDIO = "application/jsonlines", "application/x-recordio-protobuf"
LIBSVM = ("text/libsvm", "text/x-libsvm")


def install() -> None:
    """Enter them into the tables of sagemaker-inference, which functions of models use as well."""
    decoders: Any = importlib.import_module("sagemaker_inference.decoder")
    encoders: Any = importlib.import_module("sagemaker_inference.encoder")
    types: Any = importlib.import_module("sagemaker_inference.content_types")
    utils: Any = importlib.import_module("sagemaker_inference.utils")
    decoders._decoder_map = ByMediaType(
        {
            **decoders._decoder_map,
            types.NPY: from_npy,
            JSON_LINES: from_json_lines,
            RECORDIO: recordio.features_of,
            **dict.fromkeys(LIBSVM, from_libsvm),
        }
    )
    encoders._encoder_map = ByMediaType({**encoders._encoder_map, JSON_LINES: to_json_lines})
    utils.parse_accept = lambda accept: accepted_types(accept, types.JSON)
    encoders.SUPPORTED_CONTENT_TYPES = set(encoders._encoder_map)
    types.UTF8_TYPES = list(dict.fromkeys([*types.UTF8_TYPES, JSON_LINES, *LIBSVM]))


class ByMediaType(dict):  # type: ignore[type-arg] # Python 3.8 has no dict[str, Any]
    """Functions by content type, whose parameters and case do not matter."""

    def __missing__(self, content_type: str) -> Any:
        kind = media_type(content_type)
        if kind == content_type:
            raise KeyError(content_type)
        return self[kind]


def accepted_types(accept: str, for_any: str) -> list[str]:
    """The media types of an Accept header; `for_any` in place of one that leaves the choice."""
    found = [media_type(each) for each in accept.split(",")]
    return [for_any if each in ("*/*", "application/*") else each for each in found]


def from_npy(body: bytes) -> Any:
    """The array of a .npy file; one of Python objects is refused."""
    numpy = importlib.import_module("numpy")
    return numpy.load(io.BytesIO(body), allow_pickle=False)


def from_json_lines(text: str) -> Any:
    """An array of the lines, each a JSON value."""
    numpy = importlib.import_module("numpy")
    return numpy.array(lines.of_lines(text, json.loads))


def to_json_lines(values: Any) -> str:
    """A line for each value."""
    rows = values.tolist() if hasattr(values, "tolist") else values
    return "".join(json.dumps(row) + "\n" for row in rows)


def from_libsvm(text: str) -> Any:
    """A sparse matrix of the lines ``[label] index:value ...``; indices as they are written."""
    found = lines.of_lines(text, lines.features_of)
    pairs = [(row, *pair) for row, each in enumerate(found) for pair in each]
    rows, columns, values = zip(*pairs) if pairs else ((), (), ())  # noqa: B905 - of Python 3.10
    sparse = importlib.import_module("scipy.sparse")
    shape = (len(found), max(columns, default=-1) + 1)
    return sparse.csr_matrix((values, (rows, columns)), shape=shape)
