"""The names of sagemaker-containers 2 that inference scripts use; see aws_modules.py.

AWS's images of scikit-learn and XGBoost serve by it. Each function here is one of its modules.
"""

from __future__ import annotations

import csv
import importlib
import io
import os
import sys
from typing import Any

from hostelry.containers.predictive.worker import recordio
from hostelry.containers.predictive.worker.refusal import media_type

csv.field_size_limit(sys.maxsize)  # the body's limit bounds a cell

CSV, JSON = "text/csv", "application/json"
CHARACTER_BYTES, MAX_ARRAY_BYTES = 4, 1 << 30  # of an array of texts
MODEL_FOLDER, ACCEPT = "SM_MODEL_DIR", "SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT"


class ClientError(Exception):
    """An error of the client or of the model's code."""


class ScriptResponse:
    """An answer of output_fn or transform_fn, as Flask's: body, status, content type, headers."""

    default_mimetype = JSON

    def __init__(
        self,
        response: Any = None,
        accept: Any = None,
        status: Any = 200,
        headers: Any = None,
        mimetype: str | None = None,
        direct_passthrough: bool = False,
    ) -> None:
        del accept, direct_passthrough  # as in AWS's: without effect
        parts = [response] if isinstance(response, (str, bytes, bytearray)) else response or ()
        self.data = b"".join(it.encode() if isinstance(it, str) else bytes(it) for it in parts)
        self.status_code = int(str(getattr(status, "value", status)).split()[0])
        self.headers = dict(headers or {})
        self.mimetype = mimetype or self.default_mimetype
        is_text = self.mimetype.startswith("text/") and "charset" not in self.mimetype
        self.content_type = f"{self.mimetype}; charset=utf-8" if is_text else self.mimetype

    def get_data(self, as_text: bool = False) -> Any:
        """The body."""
        return self.data.decode() if as_text else self.data


class ServingEnv:
    """The settings of this server, under the names of AWS's."""

    def __init__(self) -> None:
        program = os.environ.get("SAGEMAKER_PROGRAM", "inference.py")
        self.user_entry_point = program
        self.module_name = os.path.splitext(program)[0]
        self.module_dir = os.environ.get("SAGEMAKER_SUBMIT_DIRECTORY", "/opt/ml/model/code")
        self.model_dir = os.environ.get(MODEL_FOLDER, "/opt/ml/model")
        self.default_accept = os.environ.get(ACCEPT, JSON)
        self.model_server_workers = int(os.environ.get("SAGEMAKER_MODEL_SERVER_WORKERS", "1"))
        self.model_server_timeout = int(os.environ.get("SAGEMAKER_MODEL_SERVER_TIMEOUT", "60"))


def content_types() -> dict[str, Any]:
    """sagemaker_containers.beta.framework.content_types."""
    return {
        "JSON": JSON,
        "CSV": CSV,
        "OCTET_STREAM": "application/octet-stream",
        "ANY": "*/*",
        "NPY": "application/x-npy",
        "UTF8_TYPES": [JSON, CSV],
    }


def encoders() -> dict[str, Any]:
    """sagemaker_containers.beta.framework.encoders."""
    decoder: Any = importlib.import_module("sagemaker_inference.decoder")
    encoder: Any = importlib.import_module("sagemaker_inference.encoder")
    npy = decoder._decoder_map["application/x-npy"]  # the one that reads no pickles
    return {
        "decode": decode,
        "encode": encode,
        "csv_to_numpy": csv_to_numpy,
        "array_to_csv": array_to_csv,
        "npy_to_numpy": npy,
        "json_to_numpy": decoder._json_to_numpy,
        "array_to_json": encoder._array_to_json,
        "array_to_npy": encoder._array_to_npy,
        "array_to_recordio_protobuf": recordio.features_body,
    }


def env() -> dict[str, Any]:
    """sagemaker_containers.beta.framework.env."""
    return {"ServingEnv": ServingEnv, "model_dir": ServingEnv().model_dir}


def errors() -> dict[str, Any]:
    """sagemaker_containers.beta.framework.errors."""
    known: Any = importlib.import_module("sagemaker_inference.errors")
    return {"ClientError": ClientError, "UnsupportedFormatError": known.UnsupportedFormatError}


def transformer() -> dict[str, Any]:
    """sagemaker_containers.beta.framework.transformer."""
    return {
        "default_input_fn": decode,
        "default_output_fn": lambda prediction, accept: ScriptResponse(
            encode(prediction, accept), mimetype=accept
        ),
    }


def worker() -> dict[str, Any]:
    """sagemaker_containers.beta.framework.worker."""
    return {"Response": ScriptResponse}


def decode(obj: Any, content_type: str) -> Any:
    """The array of a body of this type. Raises UnsupportedFormatError."""
    if media_type(content_type) == CSV:
        return csv_to_numpy(obj)
    return importlib.import_module("sagemaker_inference.decoder").decode(obj, content_type)


def encode(array_like: Any, content_type: str) -> Any:
    """The values as a body of this type. Raises UnsupportedFormatError."""
    if media_type(content_type) == CSV:
        return array_to_csv(array_like)
    return importlib.import_module("sagemaker_inference.encoder").encode(array_like, content_type)


def csv_to_numpy(string_like: Any, dtype: Any = None) -> Any:
    """The array of csv; with one row or column it has one dimension, otherwise two.

    Raises ClientError for bad csv, and for values that are not of the `dtype`.
    """
    numpy = importlib.import_module("numpy")
    text = string_like if isinstance(string_like, str) else bytes(string_like).decode()
    try:
        rows = list(csv.reader(io.StringIO(text), strict=True))
        longest = max((len(cell) for row in rows for cell in row), default=0)
        num_bytes = CHARACTER_BYTES * longest * sum(map(len, rows))
        if num_bytes > MAX_ARRAY_BYTES:  # each cell of the array has room for the longest one
            raise ClientError(
                f"the csv has a cell of {longest} characters, which makes an array of {num_bytes} "
                f"bytes; at most {MAX_ARRAY_BYTES}"
            )
        array = numpy.array(rows).squeeze()
    except (csv.Error, ValueError) as error:
        raise ClientError(f"the csv cannot be read: {error}") from None
    try:
        return array.astype(float if dtype is None else dtype)
    except ValueError as error:
        if dtype is None:
            return array
        raise ClientError(f"the csv has a value that is not {dtype}: {error}") from None


def array_to_csv(array_like: Any) -> str:
    """A line for each row; values of one dimension are rows."""
    values = importlib.import_module("numpy").array(array_like)
    rows = (values.reshape(-1, 1) if values.ndim < 2 else values).tolist()
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
