"""TensorFlow: SavedModels behind TensorFlow Serving's REST schema, as AWS's container.

A model is a folder with a version folder NAME/N/saved_model.pb; the custom attributes
tfs-model-name and tfs-model-version choose one, by default the first name's highest version.
Of the model's code, input_handler and output_handler are called.
"""

from __future__ import annotations

import collections
import importlib
import importlib.util
import io
import json
import os
import re
from typing import Any

from hostelry.containers.predictive.worker import tensorflow_rest
from hostelry.containers.predictive.worker.refusal import (
    BAD_REQUEST,
    UNSUPPORTED_TYPE,
    media_type,
    refusal,
)

ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
JSON, CSV = "application/json", "text/csv"
TAKEN = (JSON, "application/jsonlines", "application/jsons", CSV)
ATTRIBUTE = re.compile(r"(tfs-[a-z\-]+)=([^,]+)")
MAX_DEPTH = 8
RequestContext = collections.namedtuple(
    "RequestContext",
    "model_name, model_version, method, rest_uri, grpc_port, channel, custom_attributes, "
    "request_content_type, accept_header, content_length",
)


class ServedModels:
    """The folders of models, those loaded, and the handlers of the model's code."""

    def __init__(self, folders: dict[str, dict[int, str]], handlers: Any) -> None:
        self._folders = folders
        self._loaded: dict[tuple[str, int], Any] = {}
        self.handlers = handlers
        wanted = os.environ.get("SAGEMAKER_TFS_DEFAULT_MODEL_NAME", "")
        self.default_name = wanted if wanted in folders else next(iter(folders))
        self.get(self.default_name, None)

    def get(self, name: str, version: str | None) -> Any:
        """A model, loaded when it is first asked for. Raises RestError for an unknown one."""
        versions = self._folders.get(name, {})
        number = max(versions, default=0)
        if version is not None:
            number = int(version) if version.isdigit() and len(version) < 20 else -1
        if number not in versions:
            known = {each: sorted(found) for each, found in self._folders.items()}
            raise tensorflow_rest.RestError(
                f"Servable not found for request: {name[:200]} {version or 'latest'}; there are "
                f"{known}"
            )
        key = (name, number)
        if key not in self._loaded:
            tensorflow = importlib.import_module("tensorflow")
            self._loaded[key] = tensorflow.saved_model.load(versions[number])
        return self._loaded[key]


class ServingResponse:
    """What output_handler gets: the part of the HTTP library's response that holds here."""

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
        folders = model_folders(model_dir)
        if not folders:
            raise ValueError(
                "the model's folder has no SavedModel in a version folder (NAME/1/saved_model.pb)"
            )
        return ServedModels(folders, handlers_of_code())

    def default_input_fn(self, input_data: Any, content_type: str, context: Any = None) -> Any:
        """The request: what describes it, its body, and its type."""
        body = input_data.encode() if isinstance(input_data, str) else bytes(input_data)
        return described(context, content_type, len(body)), body

    def default_predict_fn(self, data: Any, model: Any, context: Any = None) -> Any:
        """The answer of the model that the request names."""
        asked, body = data
        kind = media_type(asked.request_content_type)
        reads, _ = model.handlers or (None, None)
        if reads is None and kind not in TAKEN:
            raise refusal(
                UNSUPPORTED_TYPE,
                f"the content type is {asked.request_content_type[:200]!r}; it must be one of "
                f"{list(TAKEN)}, or the model's code must have input_handler",
            )
        try:
            text = read_by(reads, body, asked, kind)
            found = model.get(asked.model_name or model.default_name, asked.model_version)
            answer = ServingResponse(200, tensorflow_rest.predict(found, text))
        except tensorflow_rest.RestError as error:
            answer = ServingResponse(400, {"error": str(error)})
        return asked, answer, model.handlers

    def default_output_fn(self, prediction: Any, accept: str, context: Any = None) -> Any:
        """The answer's body and type, by output_handler where there is one."""
        asked, answer, handlers = prediction
        if handlers is not None:
            return handlers[1](answer, asked)
        if not answer.ok:
            raise refusal(BAD_REQUEST, answer.text)
        return answer.content, JSON


def read_by(reads: Any, body: bytes, asked: Any, kind: str) -> str:
    """The predict body: what input_handler gives, else the body itself. Raises RestError."""
    if asked.method not in (None, "predict"):
        raise tensorflow_rest.RestError(
            f"tfs-method is {asked.method[:50]!r}; only predict is served here"
        )
    if reads is None:
        try:
            return tensorflow_rest.as_predict_body(body.decode("utf-8"), kind)
        except UnicodeDecodeError as error:
            raise tensorflow_rest.RestError(f"the body is no UTF-8: {error}") from None
    given = reads(io.BytesIO(body), asked)
    return given.decode("utf-8") if isinstance(given, bytes) else str(given)


def handlers_of_code() -> Any:
    """input_handler and output_handler of the model's code; None without code.

    Raises ValueError for code that has other functions.
    """
    program = os.environ.get("SAGEMAKER_PROGRAM") or "inference.py"
    name = os.path.splitext(program)[0]
    if importlib.util.find_spec(name) is None:
        return None
    module = importlib.import_module(name)
    found = (getattr(module, "input_handler", None), getattr(module, "output_handler", None))
    if all(callable(each) for each in found):
        return found
    if hasattr(module, "handler"):
        raise ValueError(
            f"{program} has handler, which talks to TensorFlow Serving; here the model is in the "
            "same process: give input_handler and output_handler in its place"
        )
    raise ValueError(f"{program} must have input_handler and output_handler")


def described(context: Any, content_type: str, length: int) -> Any:
    """The request as the handlers of AWS's container see it; there is no server to call."""
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


def model_folders(model_dir: str) -> dict[str, dict[int, str]]:
    """The version folders of each model by its name and number, the names in order."""
    found: dict[str, dict[int, str]] = {}
    pending = [(model_dir, 0)]
    while pending:
        folder, depth = pending.pop()
        name, number = os.path.split(folder)
        if number.isdigit() and os.path.isfile(os.path.join(folder, "saved_model.pb")):
            model = os.path.basename(name) if name != model_dir else "model"
            found.setdefault(model, {})[int(number)] = folder
        elif depth < MAX_DEPTH:
            entries = sorted(os.scandir(folder), key=lambda it: it.name)
            pending += [(it.path, depth + 1) for it in entries if it.is_dir(follow_symlinks=False)]
    return dict(sorted(found.items()))
