"""Content types beyond those of sagemaker-inference, and its unsafe one made safe.

AWS's decoder of .npy reads pickles, which are code, from requests; here they are refused.
"""

from __future__ import annotations

import importlib
import io
import json
from typing import Any

from hostelry.containers.predictive.worker import recordio

JSON_LINES, RECORDIO = "application/jsonlines", "application/x-recordio-protobuf"
LIBSVM = ("text/libsvm", "text/x-libsvm")


def install() -> None:
    """Enter them into the tables of sagemaker-inference, which functions of models use as well."""
    decoders: Any = importlib.import_module("sagemaker_inference.decoder")
    encoders: Any = importlib.import_module("sagemaker_inference.encoder")
    types: Any = importlib.import_module("sagemaker_inference.content_types")
    decoders._decoder_map.update(
        {
            types.NPY: from_npy,
            JSON_LINES: from_json_lines,
            RECORDIO: recordio.features_of,
            **dict.fromkeys(LIBSVM, from_libsvm),
        }
    )
    encoders._encoder_map[JSON_LINES] = to_json_lines
    encoders.SUPPORTED_CONTENT_TYPES = set(encoders._encoder_map)
    types.UTF8_TYPES = list(dict.fromkeys([*types.UTF8_TYPES, JSON_LINES, *LIBSVM]))


def from_npy(body: bytes) -> Any:
    """The array of a .npy file; one of Python objects is refused."""
    numpy = importlib.import_module("numpy")
    return numpy.load(io.BytesIO(body), allow_pickle=False)


def from_json_lines(text: str) -> Any:
    """An array of the lines, each a JSON value."""
    numpy = importlib.import_module("numpy")
    return numpy.array([json.loads(line) for line in text.split("\n") if line.strip()])


def to_json_lines(values: Any) -> str:
    """A line for each value."""
    rows = values.tolist() if hasattr(values, "tolist") else values
    return "".join(json.dumps(row) + "\n" for row in rows)


def from_libsvm(text: str) -> Any:
    """A sparse matrix of the lines ``[label] index:value ...``; indices as they are written."""
    sparse = importlib.import_module("scipy.sparse")
    rows, columns, values = [], [], []
    lines = [line.split() for line in text.split("\n") if line.strip()]
    for row, fields in enumerate(lines):
        pairs = fields[1:] if fields and ":" not in fields[0] else fields
        for pair in pairs:
            index, _, value = pair.partition(":")
            rows.append(row)
            columns.append(int(index))
            values.append(float(value))
    shape = (len(lines), max(columns, default=-1) + 1)
    return sparse.csr_matrix((values, (rows, columns)), shape=shape)
