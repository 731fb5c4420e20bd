"""The names of AWS's XGBoost container that inference scripts use; see aws_modules.py."""

from __future__ import annotations

import importlib
import json
from typing import Any

from hostelry.containers.predictive.worker import default_xgboost
from hostelry.containers.predictive.worker.refusal import media_type


class UserError(Exception):
    """An error of the client or of the model's code."""


class AlgorithmError(Exception):
    """An error of the algorithm."""


def content_types() -> dict[str, Any]:
    """sagemaker_xgboost_container.constants.xgb_content_types."""
    return {
        "LIBSVM": default_xgboost.LIBSVM,
        "X_LIBSVM": default_xgboost.X_LIBSVM,
        "X_PARQUET": "application/x-parquet",
        "X_RECORDIO_PROTOBUF": default_xgboost.RECORDIO,
    }


def exceptions() -> dict[str, Any]:
    """sagemaker_algorithm_toolkit.exceptions."""
    return {"UserError": UserError, "AlgorithmError": AlgorithmError}


def encoder() -> dict[str, Any]:
    """sagemaker_xgboost_container.encoder."""
    return {
        "csv_to_dmatrix": csv_to_dmatrix,
        "libsvm_to_dmatrix": libsvm_to_dmatrix,
        "recordio_protobuf_to_dmatrix": recordio_protobuf_to_dmatrix,
        "decode": decode,
        "json_to_jsonlines": json_to_jsonlines,
    }


def csv_to_dmatrix(input: Any, dtype: Any = None) -> Any:
    """The DMatrix of csv, whose separator the first line shows."""
    rows = default_xgboost.from_csv(input)
    return matrix(rows if dtype is None else rows.astype(dtype))


def libsvm_to_dmatrix(string_like: Any) -> Any:
    """The DMatrix of libsvm."""
    return matrix(default_xgboost.from_libsvm(string_like))


def recordio_protobuf_to_dmatrix(string_like: Any) -> Any:
    """The DMatrix of records."""
    return matrix(default_xgboost.from_recordio(string_like))


def decode(obj: Any, content_type: str) -> Any:
    """The DMatrix of a body of this type. Raises UnsupportedFormatError."""
    kind = default_xgboost.NAMES.get(media_type(content_type))
    if kind is None:
        errors = importlib.import_module("sagemaker_inference.errors")
        raise errors.UnsupportedFormatError(content_type)
    return matrix(default_xgboost.READERS[kind](obj))


def json_to_jsonlines(json_data: Any) -> bytes:
    """A line for each value of the one list in a JSON object. Raises ValueError."""
    found = json_data if isinstance(json_data, dict) else json.loads(json_data)
    if len(found) != 1:
        raise ValueError(f"the JSON must have one key; it has {len(found)}")
    (values,) = found.values()
    return "".join(json.dumps(each) + "\n" for each in values).encode()


def matrix(rows: Any) -> Any:
    """The rows as a DMatrix."""
    return importlib.import_module("xgboost").DMatrix(rows)
