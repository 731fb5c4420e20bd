"""TensorFlow Serving's REST schema over a SavedModel: a predict body in, its answer out.

    {"instances": [...]}  a row each           {"predictions": [...]}
    {"inputs": ...}       a tensor a name      {"outputs": ...}

`signature_name` chooses the signature; {"b64": "..."} is a string of bytes.
Source: https://www.tensorflow.org/tfx/serving/api_rest (predict API).
"""

from __future__ import annotations

import base64
import binascii
import importlib
import json
from typing import Any

from hostelry.containers.predictive.worker.lines import of_lines

DEFAULT_SIGNATURE = "serving_default"


class RestError(Exception):
    """The request cannot be answered; the message is for the client."""


def predict(model: Any, text: str) -> dict[str, Any]:
    """The answer to a predict body. Raises RestError."""
    try:
        body = json.loads(text)
    except ValueError as error:
        raise RestError(f"JSON Parse error: {error}") from None
    if not isinstance(body, dict) or ("instances" in body) == ("inputs" in body):
        raise RestError("the body must be an object with either 'instances' or 'inputs'")
    name = body.get("signature_name") or DEFAULT_SIGNATURE
    signature = model.signatures.get(name) if isinstance(name, str) else None
    if signature is None:
        raise RestError(
            f'Serving signature name: "{str(name)[:200]}" not found in signature def; it must be '
            f"one of {sorted(model.signatures)}"
        )
    specs = signature.structured_input_signature[1]
    by_row = "instances" in body
    values = columns_of(body["instances"], specs) if by_row else named(body["inputs"], specs)
    outputs = computed(signature, values, specs)
    if not by_row:
        lists = {key: plain(value, key) for key, value in outputs.items()}
        return {"outputs": only_or_all(lists)}
    rows = [plain(value, key) for key, value in outputs.items()]
    if any(not isinstance(each, list) for each in rows):
        raise RestError("the model's answer has no rows; ask with 'inputs' in place of 'instances'")
    names = list(outputs)
    found = [dict(zip(names, each)) for each in zip(*rows)]  # noqa: B905 - of Python 3.10
    return {"predictions": [only_or_all(each) for each in found]}


def only_or_all(found: dict[str, Any]) -> Any:
    """The only value, or the object of all."""
    return next(iter(found.values())) if len(found) == 1 else found


def columns_of(instances: Any, specs: dict[str, Any]) -> dict[str, Any]:
    """The inputs by name, of rows that are objects or, for one input, values."""
    if not isinstance(instances, list) or not instances:
        raise RestError("'instances' must be a list with at least one row")
    if len(specs) == 1:
        name = next(iter(specs))
        if not all(isinstance(row, dict) and name in row for row in instances):
            return {name: instances}
    for row in instances:
        if not isinstance(row, dict) or set(row) != set(specs):
            raise RestError(f"each row of 'instances' must be an object with {sorted(specs)}")
    return {name: [row[name] for row in instances] for name in specs}


def named(inputs: Any, specs: dict[str, Any]) -> dict[str, Any]:
    """The inputs by name, of an object or, for one input, its value."""
    if isinstance(inputs, dict) and set(inputs) == set(specs):
        return inputs
    if len(specs) == 1 and (not isinstance(inputs, dict) or set(inputs) == {"b64"}):
        return {next(iter(specs)): inputs}
    raise RestError(f"'inputs' must be an object with {sorted(specs)}")


def computed(signature: Any, values: dict[str, Any], specs: dict[str, Any]) -> dict[str, Any]:
    """The outputs by name."""
    tensorflow = importlib.import_module("tensorflow")
    try:
        tensors = {
            name: tensorflow.constant(with_bytes(value), dtype=specs[name].dtype)
            for name, value in values.items()
        }
        check_shapes(tensors, specs)
        found: dict[str, Any] = signature(**tensors)
    except (ValueError, TypeError, tensorflow.errors.OpError) as error:
        message = " ".join(str(getattr(error, "message", None) or error).split())
        raise RestError(f"the model cannot take the body: {message[:1000]}") from None
    return dict(sorted(found.items()))


def check_shapes(tensors: dict[str, Any], specs: dict[str, Any]) -> None:
    """Raise ValueError where an input has another shape than the signature's."""
    for name, tensor in tensors.items():
        if not specs[name].shape.is_compatible_with(tensor.shape):
            raise ValueError(f"{name} has the shape {tensor.shape}, not {specs[name].shape}")


def with_bytes(value: Any) -> Any:
    """The value with bytes in place of each {"b64": "..."}. Raises ValueError."""
    if isinstance(value, list):
        return [with_bytes(each) for each in value]
    if isinstance(value, dict):
        if set(value) != {"b64"} or not isinstance(value["b64"], str):
            raise ValueError(f"an object with {sorted(value)[:5]} is no value of a tensor")
        try:
            return base64.b64decode(value["b64"], validate=True)
        except binascii.Error as error:
            raise ValueError(f"b64: {error}") from None
    return value


def plain(tensor: Any, name: str) -> Any:
    """A tensor as JSON's values; bytes as text, or as {"b64": "..."} where the name says bytes."""
    return as_text(tensor.numpy().tolist(), name.endswith("_bytes"))


def as_text(value: Any, is_bytes: bool) -> Any:
    """The value with text in place of each string of bytes."""
    if isinstance(value, list):
        return [as_text(each, is_bytes) for each in value]
    if not isinstance(value, bytes):
        return value
    if is_bytes:
        return {"b64": base64.b64encode(value).decode()}
    return value.decode("utf-8", "replace")


def as_predict_body(text: str, kind: str) -> str:
    """The predict body of what AWS's container takes besides: JSON values, lines of them, csv."""
    lines = text.replace("\r\n", "\n").split("\n")
    if kind == "text/csv":
        return json.dumps({"instances": [csv_row(line) for line in lines if line]})
    try:
        body = json.loads(text)
    except ValueError as error:
        if sum(1 for line in lines if line.strip()) < 2:
            raise RestError(f"JSON Parse error: {error}") from None
        try:
            return json.dumps({"instances": of_lines("\n".join(lines), json.loads)})
        except ValueError as in_line:
            raise RestError(f"JSON Parse error: {in_line}") from None
    if isinstance(body, dict) and set(body) & {"instances", "inputs", "examples"}:
        return text
    rows = body if isinstance(body, list) and body and isinstance(body[0], list) else [body]
    return json.dumps({"instances": rows})


def csv_row(line: str) -> Any:
    """A row of numbers, or of text where one is none; one field is a bare value."""
    fields = [each.strip() for each in line.split(",")]
    try:
        values: list[Any] = [float(each) for each in fields]
    except ValueError:
        values = [each.strip('"') for each in fields]
    return values if len(values) > 1 else values[0]
