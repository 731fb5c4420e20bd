"""Inputs of several requests as one, and its prediction divided again. By rows."""

from __future__ import annotations

import importlib
from typing import Any


class NotBatchableError(Exception):
    """These inputs cannot be one, or the prediction has another number of rows."""


def num_rows(data: Any) -> int:
    """The rows of an input. Raises NotBatchableError for what has none."""
    shape = getattr(data, "shape", None)
    if isinstance(data, list):
        return len(data)
    if shape is None or len(shape) < 2:
        raise NotBatchableError(f"{type(data).__name__} without rows")
    return int(shape[0])


def joined(parts: list[Any]) -> Any:
    """One input of the rows of all. Raises NotBatchableError where kinds or shapes differ."""
    first = parts[0]
    if any(type(it) is not type(first) for it in parts):
        raise NotBatchableError("inputs of several types")
    if isinstance(first, list):
        return [row for it in parts for row in it]
    if any(it.shape[1:] != first.shape[1:] or it.dtype != first.dtype for it in parts):
        raise NotBatchableError("inputs of several shapes")
    if type(first).__module__ == "torch":
        return importlib.import_module("torch").cat(parts)
    if type(first).__module__.startswith("scipy.sparse"):
        return importlib.import_module("scipy.sparse").vstack(parts, format=first.format)
    return importlib.import_module("numpy").concatenate(parts)


def split(predicted: Any, rows: list[int]) -> list[Any]:
    """The prediction of each input. Raises NotBatchableError where the rows are others."""
    if isinstance(predicted, tuple) or not hasattr(predicted, "__getitem__"):
        raise NotBatchableError(f"a prediction is {type(predicted).__name__}")
    shape = getattr(predicted, "shape", None)
    found = len(predicted) if shape is None else (int(shape[0]) if len(shape) else 0)
    if found != sum(rows) or isinstance(predicted, (str, bytes, dict)):
        raise NotBatchableError(f"a prediction of {found} rows for {sum(rows)}")
    parts, start = [], 0
    for count in rows:
        parts.append(predicted[start : start + count])
        start += count
    return parts
