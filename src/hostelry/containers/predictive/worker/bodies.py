"""Bodies of requests and answers: content types, charsets, lines, and codecs beyond the toolkit's.

AWS's sagemaker-inference decodes .npy files with pickle, so that a request could run code. Here
pickles are rejected. The toolkit knows content types only in lower case and without parameters.
Here `text/csv; charset=utf-8` is `text/csv`, also for a model's code that calls the toolkit.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
import sys
from collections.abc import Callable
from typing import Any

from hostelry.containers.predictive.worker import recordio

csv.field_size_limit(sys.maxsize)  # the limit of the body also limits a cell

JSON, JSON_LINES, CSV = "application/json", "application/jsonlines", "text/csv"
NPY, RECORDIO = "application/x-npy", "application/x-recordio-protobuf"
LIBSVM, X_LIBSVM = "text/libsvm", "text/x-libsvm"
CHARSETS = ("utf-8", "utf8", "us-ascii", "iso-8859-1", "latin1", "windows-1252", "utf-16")
BAD_REQUEST, NOT_ACCEPTABLE, UNSUPPORTED_TYPE = 400, 406, 415
# Decoders and frameworks raise these for a body that does not have its content type.
BODY_ERRORS = (ValueError, TypeError, KeyError, IndexError, OverflowError)
MAX_SHOWN = 80


def refusal(status: int, message: str) -> Exception:
    """An error that the toolkit's transformer answers with this status."""
    errors = importlib.import_module("sagemaker_inference.errors")
    error = errors.GenericInferenceToolkitError(status, message)
    assert isinstance(error, Exception), "the toolkit's errors are exceptions"
    return error


def unsupported_type(content_type: Any, known: str) -> Exception:
    """The refusal with 415 for a content type that is not `known`."""
    shown = str(content_type)[:200]
    return refusal(UNSUPPORTED_TYPE, f"the content type is {shown!r}; it must be {known}")


def media_type(header: str | None) -> str:
    """The type of a Content-Type or Accept header, without parameters, in lower case."""
    return (header or "").split(";")[0].strip().lower()


def choose_accepted(accept: str, known: tuple[str, ...], status: int = NOT_ACCEPTABLE) -> str:
    """The first type of an Accept header that is in `known`. Raises the refusal with `status`."""
    for part in accept.split(","):
        kind = media_type(part)
        if kind in known:
            return kind
        if kind == "*/*":
            return known[0]
    raise refusal(status, f"Accept is {accept[:200]!r}; it must be one of {list(known)}")


def parse_accept(accept: str) -> list[str]:
    """The media types of an Accept header, with JSON for a wildcard."""
    kinds = [media_type(part) for part in accept.split(",")]
    return [JSON if kind in ("*/*", "application/*") else kind for kind in kinds]


def decode_text(body: bytes, content_type: str) -> str:
    """The text of a body in the header's charset (default UTF-8), without a byte order mark.

    Raises the refusal with 415 if the charset is not in `CHARSETS`, and with 400 if the body is
    not valid in it.
    """
    parameters = [part.partition("=") for part in content_type.split(";")[1:]]
    named = [value for name, _, value in parameters if name.strip().lower() == "charset"]
    charset = named[0].strip().strip("\"'").lower() if named else "utf-8"
    if charset not in CHARSETS:
        known = ", ".join(CHARSETS)
        raise refusal(
            UNSUPPORTED_TYPE, f"the charset is {charset[:MAX_SHOWN]!r}; it must be of {known}"
        )
    try:
        text = body.decode(charset)
    except UnicodeDecodeError as error:
        raise refusal(BAD_REQUEST, f"the body is not text in {charset}: {error}") from None
    return text[1:] if text.startswith("\ufeff") else text


def to_text(body: Any) -> str:
    """The body as text. Raises UnicodeDecodeError."""
    return body if isinstance(body, str) else bytes(body).decode("utf-8")


def read_lines(text: str, read: Callable[[str], Any]) -> list[Any]:
    """The result of `read` for each line that is not blank. Raises ValueError with the line."""
    return [
        read_line(number, line, read)
        for number, line in enumerate(text.split("\n"), 1)
        if line.strip()
    ]


def read_line(number: int, line: str, read: Callable[[str], Any]) -> Any:
    """The result of `read` for the line. Raises ValueError with its number."""
    try:
        return read(line)
    except BODY_ERRORS as error:
        raise ValueError(f"line {number}: {error}") from None


def read_rows(lines: list[str], separator: str = ",") -> list[list[float]]:
    """The numbers of each line. Raises ValueError with the line."""
    rows: list[list[float]] = []
    for number, line in enumerate(lines, 1):
        rows.append(read_line(number, line, lambda text: read_numbers(text, separator)))
        if len(rows[-1]) != len(rows[0]):
            raise ValueError(
                f"its lines have different numbers of fields: line {number} has {len(rows[-1])}, "
                f"line 1 has {len(rows[0])}"
            )
    return rows


def read_numbers(line: str, separator: str) -> list[float]:
    """The numbers of a line, NaN for an empty field. Raises ValueError with the field."""
    numbers = []
    for at, field in enumerate(line.split(separator), 1):
        try:
            numbers.append(float(field.strip().strip('"') or "nan"))
        except ValueError:
            shown = field.strip()[:MAX_SHOWN]
            raise ValueError(f"field {at} is {shown!r}, which is not a number") from None
    return numbers


def read_features(line: str) -> list[tuple[int, float]]:
    """The indices and values of a line ``[label] index:value ...`` of libsvm.

    Raises ValueError with the field.
    """
    features = []
    for at, field in enumerate(line.split(), 1):
        index, colon, value = field.partition(":")
        if not colon:
            continue
        try:
            features.append((int(index), float(value)))
        except ValueError:
            shown = field[:MAX_SHOWN]
            raise ValueError(f"field {at} is {shown!r}, which is not index:value") from None
    return features


def to_sparse_matrix(features: list[list[tuple[int, float]]], min_columns: int = 0) -> Any:
    """The CSR matrix of the rows' indices and values."""
    cells = [(row, *pair) for row, pairs in enumerate(features) for pair in pairs]
    rows, columns, values = zip(*cells) if cells else ((), (), ())  # noqa: B905 - of Python 3.10
    sparse = importlib.import_module("scipy.sparse")
    shape = (len(features), max(max(columns, default=-1) + 1, min_columns))
    return sparse.csr_matrix((values, (rows, columns)), shape=shape)


def decode_npy(body: bytes) -> Any:
    """The array of a .npy file. Raises ValueError for an array of Python objects."""
    return importlib.import_module("numpy").load(io.BytesIO(body), allow_pickle=False)


def decode_json_lines(text: str) -> Any:
    """An array of the lines, each a JSON value."""
    return importlib.import_module("numpy").array(read_lines(text, json.loads))


def encode_json_lines(values: Any) -> str:
    """One line per value."""
    rows = values.tolist() if hasattr(values, "tolist") else values
    return "".join(json.dumps(row) + "\n" for row in rows)


def decode_libsvm(text: str) -> Any:
    """A sparse matrix of the lines ``[label] index:value ...``, with the indices unchanged."""
    return to_sparse_matrix(read_lines(text, read_features))


def install_codecs() -> None:
    """Add the codecs to the tables of sagemaker-inference, which a model's functions also use."""
    decoders: Any = importlib.import_module("sagemaker_inference.decoder")
    encoders: Any = importlib.import_module("sagemaker_inference.encoder")
    types: Any = importlib.import_module("sagemaker_inference.content_types")
    utils: Any = importlib.import_module("sagemaker_inference.utils")
    decoders._decoder_map = ByMediaType(
        {
            **decoders._decoder_map,
            NPY: decode_npy,
            JSON_LINES: decode_json_lines,
            RECORDIO: recordio.decode_features,
            **dict.fromkeys((LIBSVM, X_LIBSVM), decode_libsvm),
        }
    )
    encoders._encoder_map = ByMediaType({**encoders._encoder_map, JSON_LINES: encode_json_lines})
    utils.parse_accept = parse_accept
    encoders.SUPPORTED_CONTENT_TYPES = set(encoders._encoder_map)
    types.UTF8_TYPES = list(dict.fromkeys([*types.UTF8_TYPES, JSON_LINES, LIBSVM, X_LIBSVM]))


class ByMediaType(dict):  # type: ignore[type-arg] # Python 3.8 has no dict[str, Any]
    """Functions by content type. Parameters and case of the type do not matter."""

    def __missing__(self, content_type: str) -> Any:
        kind = media_type(content_type)
        if kind == content_type:
            raise KeyError(content_type)
        return self[kind]
