"""A loaded model and its functions, found and called by AWS's sagemaker-inference.

Without a function in the model's own code, the framework's default takes its place.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from typing import Any

from hostelry.containers.predictive.worker import aws_modules, batches, codecs_beyond, defaults
from hostelry.containers.predictive.worker.model_context import ModelContext, RequestProcessor
from hostelry.containers.predictive.worker.refusal import (
    NOT_ACCEPTABLE,
    media_type,
    refusal,
    text_of,
)

OF_THE_SYSTEM = ("", "/usr", "/usr/local")  # prefixes of Python that a container has, too
PROGRAM = "SAGEMAKER_PROGRAM"
ACCEPT = "SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT"
DEFAULT_PROGRAM = "inference.py"
MAX_ERROR_CHARACTERS = 2000
ACCEPT_ANY = ("", "*/*")


class ModelReply:
    """The answer to one request."""

    def __init__(
        self, status: int, body: bytes, content_type: str, headers: dict[str, str] | None = None
    ) -> None:
        self.status = status
        self.body = body
        self.content_type = content_type
        self.headers = headers or {}

    def head(self) -> dict[str, Any]:
        """What goes before its body."""
        return {
            "status": self.status,
            "content_type": self.content_type,
            "headers": self.headers,
            "length": len(self.body),
        }


class ModelServing:
    """One model: `load` it, then `invoke`.

    `model_dir` has its files, `code_dir` its code (there may be none); `framework` is the name of
    the defaults.
    """

    def __init__(self, model_dir: str, code_dir: str, framework: str) -> None:
        self._model_dir = model_dir
        self._code_dir = code_dir
        self._framework = framework
        self._context = ModelContext(framework, model_dir)
        self._transformer: Any = None
        self._errors: Any = None
        self._default_accept = ""
        self._default_parameters: Any = None
        self._steps: Any = None  # input, predict and output function, unless transform_fn is one

    def load(self) -> str | None:
        """Load the code and the model; why it cannot be done, None once it is."""
        try:
            codecs_beyond.install()
            aws_modules.install()
            self._errors = importlib.import_module("sagemaker_inference.errors")
            transformers = importlib.import_module("sagemaker_inference.transformer")
            self._find_code()
            handler = defaults.handler_of(self._framework)
            self._transformer = transformers.Transformer(default_inference_handler=handler)
            self._transformer.validate_and_initialize(
                model_dir=self._model_dir, context=self._context
            )
            found = self._transformer
            self._default_accept = found._environment.default_accept
            if found._model_fn == handler.default_model_fn:
                self._default_parameters = getattr(handler, "execution_parameters", None)
                if ACCEPT not in os.environ:
                    self._default_accept = getattr(handler, "default_accept", self._default_accept)
            if found._transform_fn == found._default_transform_fn:
                self._steps = (found._input_fn, found._predict_fn, found._output_fn)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a model's code may raise anything
            print(traceback.format_exc(), file=sys.stderr, flush=True)
            return self._described(error)
        return None

    def _find_code(self) -> None:
        """Put the model's code first on the path. Raises ValueError where it is not there."""
        if os.path.isdir(self._code_dir):
            sys.path.insert(0, self._code_dir)
        program = os.environ.get(PROGRAM, "")
        # The toolkit takes the default functions, without a word, for what it cannot import.
        if program and (os.path.basename(program) != program or not program.endswith(".py")):
            raise ValueError(
                f"{PROGRAM} is {program}; it must be a file NAME.py, in no folder of the code"
            )
        if program and not os.path.isfile(os.path.join(self._code_dir, program)):
            raise ValueError(
                f"{PROGRAM} is {program}, which is not in the model's code; put it into code/ of "
                "the archive, or into SAGEMAKER_SUBMIT_DIRECTORY"
            )

    def execution_parameters(self) -> dict[str, Any]:
        """The message of what execution_parameters_fn of the model's code gives, or the default."""
        name = os.path.splitext(os.environ.get(PROGRAM) or DEFAULT_PROGRAM)[0]
        function = getattr(sys.modules.get(name), "execution_parameters_fn", None)
        if not callable(function):
            return {"parameters": self._default_parameters and dict(self._default_parameters)}
        try:
            return {"parameters": json.loads(json.dumps(function()))}
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a model's code may raise anything
            return {"failed": f"execution_parameters_fn: {self._described(error)}"}

    def invoke(self, requests: list[tuple[dict[str, str], bytes]]) -> list[ModelReply]:
        """The reply to each request, in their order; several are predicted together if they can."""
        if len(requests) > 1 and self._steps is not None:
            replies = self._together(requests)
            if replies is not None:
                return replies
        return [self._reply(headers, body) for headers, body in requests]

    def _together(self, requests: list[tuple[dict[str, str], bytes]]) -> list[ModelReply] | None:
        """The replies by one prediction; None where it cannot be one, or fails for any of them."""
        read, predict, write = self._steps
        try:
            parts = []
            for headers, body in requests:
                self._context.begin(headers)
                content_type, accept, data = self._request(headers, body)
                parts.append((headers, accept, self._run(read, data, content_type)))
            rows = [batches.num_rows(data) for _, _, data in parts]
            joined = batches.joined([data for _, _, data in parts])
            predicted = self._run(predict, joined, self._transformer._model)
            replies = []
            divided = batches.split(predicted, rows)
            for (headers, accept, _), part in zip(parts, divided):  # noqa: B905 - of Python 3.10
                processor = self._context.begin(headers)
                result = self._run(write, part, accept)
                replies.append(self._written(processor, result, accept))
        except (Exception, SystemExit):  # noqa: BLE001 - each one alone then says what is wrong
            return None
        return replies

    def _reply(self, headers: dict[str, str], body: bytes) -> ModelReply:
        processor = self._context.begin(headers)
        try:
            content_type, accept, data = self._request(headers, body)
            return self._written(processor, self._answer(content_type, accept, data), accept)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a model's code may raise anything
            print(traceback.format_exc(), file=sys.stderr, flush=True)
            return self._error_reply(error)

    def _answer(self, content_type: str, accept: str, data: Any) -> Any:
        """What the functions give for a request. Raises the refusal with 406 as AWS's images."""
        model = self._transformer._model
        if self._steps is None:
            transform = self._transformer._transform_fn
            return self._run(transform, model, data, content_type, accept)
        read, predict, write = self._steps
        predicted = self._run(predict, self._run(read, data, content_type), model)
        try:
            return self._run(write, predicted, accept)
        except self._errors.UnsupportedFormatError as error:
            raise refusal(NOT_ACCEPTABLE, self._described(error)) from error

    def _written(self, processor: RequestProcessor, result: Any, accept: str) -> ModelReply:
        """The reply of what an output function gave, and of what was set in the context."""
        response, kind = result if isinstance(result, tuple) else (result, accept)
        if hasattr(response, "get_data") and hasattr(response, "status_code"):
            return reply_of_flask(response)
        kind = processor.response_headers.pop("Content-Type", None) or str(kind)
        return ModelReply(processor.status, as_bytes(response), kind, processor.response_headers)

    def _request(self, headers: dict[str, str], body: bytes) -> tuple[str, str, Any]:
        """The content type, the type to answer in, and the body, as text where the type is text."""
        utils: Any = importlib.import_module("sagemaker_inference.utils")
        types: Any = importlib.import_module("sagemaker_inference.content_types")
        content_type = utils.retrieve_content_type_header(headers) or types.JSON
        accept = headers.get("Accept") or ""
        if accept in ACCEPT_ANY:
            accept = self._default_accept
        is_text = media_type(content_type) in types.UTF8_TYPES
        return content_type, accept, text_of(body, content_type) if is_text else body

    def _run(self, function: Any, *arguments: Any) -> Any:
        return self._transformer._run_handler_function(function, *arguments)

    def _error_reply(self, error: BaseException) -> ModelReply:
        status = 500
        if isinstance(error, self._errors.UnsupportedFormatError):
            status = 415
        elif isinstance(error, self._errors.BaseInferenceToolkitError):
            status = int(error.status_code)
        return ModelReply(status, self._described(error).encode(), "text/plain; charset=utf-8")

    def _described(self, error: BaseException) -> str:
        """The error, its message and the line of the model's code; no path of the machine."""
        kind = type(error).__name__
        message = getattr(error, "message", None) or str(error)
        text = f"{kind}: {' '.join(str(message).split())}" if message else kind
        if kind == "GenericInferenceToolkitError":  # its message says what is wrong
            text = " ".join(str(message).split())
        folders = [self._code_dir, self._model_dir, sys.prefix, sys.base_prefix]
        return without_folders(text, folders)[:MAX_ERROR_CHARACTERS] + self._place(error)

    def _place(self, error: BaseException) -> str:
        found = ""
        code_dir = self._code_dir.rstrip("/") + "/"
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename.startswith(code_dir):
                name = frame.filename[len(code_dir) :]
                found = f" ({name} line {frame.lineno} in {frame.name})"
        return found


def reply_of_flask(response: Any) -> ModelReply:
    """The reply of a Flask response, which functions of AWS's older images give."""
    headers = {str(name): str(value) for name, value in dict(response.headers).items()}
    content_type = str(response.content_type or "application/octet-stream")
    return ModelReply(int(response.status_code), response.get_data(), content_type, headers)


def without_folders(text: str, folders: list[str]) -> str:
    """The text with the paths below these folders from there on; those of the system stay."""
    for folder in folders:
        if folder.rstrip("/") not in OF_THE_SYSTEM:
            text = text.replace(folder.rstrip("/") + "/", "")
    return text


def as_bytes(response: Any) -> bytes:
    """The response of an output function as bytes. Raises TypeError for anything else."""
    if isinstance(response, (bytes, bytearray, memoryview)):
        return bytes(response)
    if isinstance(response, str):
        return response.encode("utf-8", "backslashreplace")  # of half a surrogate pair its escape
    raise TypeError(
        f"the answer is {type(response).__name__}; output_fn and transform_fn must give bytes or "
        "text, or a pair of that and its content type"
    )
