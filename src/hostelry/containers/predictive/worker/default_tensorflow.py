"""Default functions of TensorFlow: SavedModels behind TensorFlow Serving's REST schema.

As in AWS's container, a model is a folder with a version folder NAME/N/saved_model.pb. The custom
attributes tfs-model-name and tfs-model-version choose the model. The default is the first name's
highest version. Of the model's code, input_handler and output_handler are called.

    {"instances": [...]}  one row each         {"predictions": [...]}
    {"inputs": ...}       one tensor per name  {"outputs": ...}

`signature_name` chooses the signature. {"b64": "..."} is a string of bytes.
Source: https://www.tensorflow.org/tfx/serving/api_rest (predict API).
"""

from __future__ import annotations

import base64
import binascii
import collections
import importlib
import importlib.util
import io
import json
import os
import re
from typing import Any

from hostelry.containers.predictive.worker.bodies import (
    BAD_REQUEST,
    CSV,
    JSON,
    JSON_LINES,
    media_type,
    read_lines,
    refusal,
    unsupported_type,
)

ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
CONTENT_TYPES = (JSON, JSON_LINES, "application/jsons", CSV)
ATTRIBUTE = re.compile(r"(tfs-[a-z\-]+)=([^,]+)")
DEFAULT_SIGNATURE = "serving_default"
MAX_DEPTH = 8
RequestContext = collections.namedtuple(
    "RequestContext",
    "model_name, model_version, method, rest_uri, grpc_port, channel, custom_attributes, "
    "request_content_type, accept_header, content_length",
)


class RestError(Exception):
    """The request cannot be answered. The message is for the client."""


class ServedModels:
    """The models by name and version, loaded when they are first used, and the code's handlers."""

    def __init__(self, folders: dict[str, dict[int, str]], handlers: Any) -> None:
        self._folders = folders
        self._loaded: dict[tuple[str, int], Any] = {}
        self.handlers = handlers
        wanted = os.environ.get("SAGEMAKER_TFS_DEFAULT_MODEL_NAME", "")
        self.default_name = wanted if wanted in folders else next(iter(folders))
        self.get(self.default_name, None)

    def get(self, name: str, version: str | None) -> Any:
        """The model of a name and version (None: the highest). Raises RestError if unknown."""
        versions = self._folders.get(name, {})
        number = max(versions, default=0)
        if version is not None:
            number = int(version) if version.isdigit() and len(version) < 20 else -1
        if number not in versions:
            known = {each: sorted(numbers) for each, numbers in self._folders.items()}
            raise RestError(
                f"Servable not found for request: {name[:200]} {version or 'latest'}; there are "
                f"{known}"
            )
        key = (name, number)
        if key not in self._loaded:
            tensorflow = importlib.import_module("tensorflow")
            self._loaded[key] = tensorflow.saved_model.load(versions[number])
        return self._loaded[key]


class ServingResponse:
    """The response for output_handler, with the applicable part of the HTTP library's class."""

    def __init__(self, status_code: int, value: dict[str, Any]) -> None:
        self.status_code = status_code
        self.headers = {"Content-Type": JSON}
        self.content = json.dumps(value).encode()
        self.text = self.content.decode()
        self.ok = status_code < 400

    def json(self) -> Any:
        """The value."""
        return json.loads(self.text)


class TensorFlowHandler:
    """The functions of TensorFlow models."""

    def default_model_fn(self, model_dir: str, context: Any = None) -> ServedModels:
        """The SavedModels of the folder."""
        folders = find_models(model_dir)
        if not folders:
            raise ValueError(
                "the model's folder has no SavedModel in a version folder (NAME/1/saved_model.pb)"
            )
        return ServedModels(folders, find_handlers())

    def default_input_fn(self, input_data: Any, content_type: str, context: Any = None) -> Any:
        """The request's description and its body."""
        body = input_data.encode() if isinstance(input_data, str) else bytes(input_data)
        return describe_request(context, content_type, len(body)), body

    def default_predict_fn(self, data: Any, model: Any, context: Any = None) -> Any:
        """The answer of the requested model."""
        request, body = data
        kind = media_type(request.request_content_type)
        read, _ = model.handlers or (None, None)
        if read is None and kind not in CONTENT_TYPES:
            known = f"one of {list(CONTENT_TYPES)}, or the model's code must have input_handler"
            raise unsupported_type(request.request_content_type, known)
        try:
            text = read_body(read, body, request, kind)
            chosen = model.get(request.model_name or model.default_name, request.model_version)
            answer = ServingResponse(200, predict(chosen, text))
        except RestError as error:
            answer = ServingResponse(400, {"error": str(error)})
        return request, answer, model.handlers

    def default_output_fn(self, prediction: Any, accept: str, context: Any = None) -> Any:
        """The answer's body and type, by output_handler if there is one."""
        request, answer, handlers = prediction
        if handlers is not None:
            return handlers[1](answer, request)
        if not answer.ok:
            raise refusal(BAD_REQUEST, answer.text)
        return answer.content, JSON


def read_body(read: Any, body: bytes, request: Any, kind: str) -> str:
    """The predict body: the result of input_handler (`read`), or the body. Raises RestError."""
    if request.method not in (None, "predict"):
        raise RestError(f"tfs-method is {request.method[:50]!r}; only predict is served here")
    if read is None:
        try:
            return to_predict_body(body.decode("utf-8"), kind)
        except UnicodeDecodeError as error:
            raise RestError(f"the body is no UTF-8: {error}") from None
    text = read(io.BytesIO(body), request)
    return text.decode("utf-8") if isinstance(text, bytes) else str(text)


def find_handlers() -> Any:
    """input_handler and output_handler of the model's code. None without code.

    Raises ValueError if the code has only other functions.
    """
    program = os.environ.get("SAGEMAKER_PROGRAM") or "inference.py"
    name = os.path.splitext(program)[0]
    if importlib.util.find_spec(name) is None:
        return None
    module = importlib.import_module(name)
    handlers = (getattr(module, "input_handler", None), getattr(module, "output_handler", None))
    if all(callable(handler) for handler in handlers):
        return handlers
    if hasattr(module, "handler"):
        raise ValueError(
            f"{program} has handler, which talks to TensorFlow Serving; here the model is in the "
            "same process: give input_handler and output_handler in its place"
        )
    raise ValueError(f"{program} must have input_handler and output_handler")


def describe_request(context: Any, content_type: str, length: int) -> Any:
    """The request as the handlers of AWS's container see it, without a server to call."""
    headers = context.get_all_request_header(0) if context is not None else {}
    lowered = {name.lower(): value for name, value in headers.items()}
    attributes = lowered.get(ATTRIBUTES.lower())
    chosen = dict(ATTRIBUTE.findall(attributes or ""))
    return RequestContext(
        model_name=chosen.get("tfs-model-name"),
        model_version=chosen.get("tfs-model-version"),
        method=chosen.get("tfs-method"),
        rest_uri=None,
        grpc_port=None,
        channel=None,
        custom_attributes=attributes,
        request_content_type=content_type or JSON,
        accept_header=lowered.get("accept") or JSON,
        content_length=length,
    )


def find_models(model_dir: str) -> dict[str, dict[int, str]]:
    """The version folders by model name and version, in order of the names."""
    models: dict[str, dict[int, str]] = {}
    pending = [(model_dir, 0)]
    while pending:
        folder, depth = pending.pop()
        name, number = os.path.split(folder)
        if number.isdigit() and os.path.isfile(os.path.join(folder, "saved_model.pb")):
            model = os.path.basename(name) if name != model_dir else "model"
            models.setdefault(model, {})[int(number)] = folder
        elif depth < MAX_DEPTH:
            entries = sorted(os.scandir(folder), key=lambda it: it.name)
            pending += [(it.path, depth + 1) for it in entries if it.is_dir(follow_symlinks=False)]
    return dict(sorted(models.items()))


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
    values = (
        read_instances(body["instances"], specs) if by_row else read_inputs(body["inputs"], specs)
    )
    outputs = run_signature(signature, values, specs)
    if not by_row:
        lists = {key: to_json_value(value, key) for key, value in outputs.items()}
        return {"outputs": unwrap_single(lists)}
    columns = [to_json_value(value, key) for key, value in outputs.items()]
    if any(not isinstance(column, list) for column in columns):
        raise RestError("the model's answer has no rows; ask with 'inputs' in place of 'instances'")
    names = list(outputs)
    rows = [dict(zip(names, row)) for row in zip(*columns)]  # noqa: B905 - of Python 3.10
    return {"predictions": [unwrap_single(row) for row in rows]}


def unwrap_single(values: dict[str, Any]) -> Any:
    """The value if there is only one, otherwise all values."""
    return next(iter(values.values())) if len(values) == 1 else values


def read_instances(instances: Any, specs: dict[str, Any]) -> dict[str, Any]:
    """The inputs by name. The rows are objects, or values if there is one input."""
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


def read_inputs(inputs: Any, specs: dict[str, Any]) -> dict[str, Any]:
    """The inputs by name. `inputs` is an object, or the value if there is one input."""
    if isinstance(inputs, dict) and set(inputs) == set(specs):
        return inputs
    if len(specs) == 1 and (not isinstance(inputs, dict) or set(inputs) == {"b64"}):
        return {next(iter(specs)): inputs}
    raise RestError(f"'inputs' must be an object with {sorted(specs)}")


def run_signature(signature: Any, values: dict[str, Any], specs: dict[str, Any]) -> dict[str, Any]:
    """The outputs by name."""
    tensorflow = importlib.import_module("tensorflow")
    try:
        tensors = {
            name: tensorflow.constant(decode_base64(value), dtype=specs[name].dtype)
            for name, value in values.items()
        }
        check_shapes(tensors, specs)
        outputs: dict[str, Any] = signature(**tensors)
    except (ValueError, TypeError, tensorflow.errors.OpError) as error:
        message = " ".join(str(getattr(error, "message", None) or error).split())
        raise RestError(f"the model cannot take the body: {message[:1000]}") from None
    return dict(sorted(outputs.items()))


def check_shapes(tensors: dict[str, Any], specs: dict[str, Any]) -> None:
    """Raise ValueError if an input's shape does not fit the signature."""
    for name, tensor in tensors.items():
        if not specs[name].shape.is_compatible_with(tensor.shape):
            raise ValueError(f"{name} has the shape {tensor.shape}, not {specs[name].shape}")


def decode_base64(value: Any) -> Any:
    """The value with bytes in place of each {"b64": "..."}. Raises ValueError."""
    if isinstance(value, list):
        return [decode_base64(item) for item in value]
    if isinstance(value, dict):
        if set(value) != {"b64"} or not isinstance(value["b64"], str):
            raise ValueError(f"an object with {sorted(value)[:5]} is no value of a tensor")
        try:
            return base64.b64decode(value["b64"], validate=True)
        except binascii.Error as error:
            raise ValueError(f"b64: {error}") from None
    return value


def to_json_value(tensor: Any, name: str) -> Any:
    """The tensor as JSON values. Bytes are text, or {"b64": "..."} if `name` ends with _bytes."""
    return encode_bytes(tensor.numpy().tolist(), name.endswith("_bytes"))


def encode_bytes(value: Any, is_bytes: bool) -> Any:
    """The value with text, or with `is_bytes` with base64, in place of each string of bytes."""
    if isinstance(value, list):
        return [encode_bytes(item, is_bytes) for item in value]
    if not isinstance(value, bytes):
        return value
    if is_bytes:
        return {"b64": base64.b64encode(value).decode()}
    return value.decode("utf-8", "replace")


def to_predict_body(text: str, kind: str) -> str:
    """The predict body for AWS's other bodies: JSON values, lines of JSON, csv."""
    lines = text.replace("\r\n", "\n").split("\n")
    if kind == "text/csv":
        return json.dumps({"instances": [read_csv_row(line) for line in lines if line]})
    try:
        body = json.loads(text)
    except ValueError as error:
        if sum(1 for line in lines if line.strip()) < 2:
            raise RestError(f"JSON Parse error: {error}") from None
        try:
            return json.dumps({"instances": read_lines("\n".join(lines), json.loads)})
        except ValueError as in_line:
            raise RestError(f"JSON Parse error: {in_line}") from None
    if isinstance(body, dict) and set(body) & {"instances", "inputs", "examples"}:
        return text
    rows = body if isinstance(body, list) and body and isinstance(body[0], list) else [body]
    return json.dumps({"instances": rows})


def read_csv_row(line: str) -> Any:
    """The fields as numbers, or as texts if a field is not a number. A single field is a value."""
    fields = [each.strip() for each in line.split(",")]
    try:
        values: list[Any] = [float(each) for each in fields]
    except ValueError:
        values = [each.strip('"') for each in fields]
    return values if len(values) > 1 else values[0]
