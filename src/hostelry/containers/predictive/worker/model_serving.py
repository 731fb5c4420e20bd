"""A loaded model and its functions, found and called by AWS's sagemaker-inference.

If the model's code lacks a function, the framework's default is used.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from typing import Any

from hostelry.containers.predictive.worker import aws_modules, bodies, defaults
from hostelry.containers.predictive.worker.bodies import media_type, refusal

SYSTEM_PREFIXES = ("", "/usr", "/usr/local")  # prefixes of Python that a container also has
PROGRAM = "SAGEMAKER_PROGRAM"
ACCEPT = "SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT"
DEFAULT_PROGRAM = "inference.py"
MAX_ERROR_CHARACTERS = 2000
ACCEPT_ANY = ("", "*/*")


class RequestProcessor:
    """The headers of a request and the status of its response."""

    def __init__(self, headers: dict[str, str]) -> None:
        self._headers = headers
        self.status = 200
        self.phrase: str | None = None
        self.response_headers: dict[str, str] = {}

    def get_request_properties(self) -> dict[str, str]:
        """The headers as the client sent them."""
        return self._headers

    def get_request_property(self, key: str) -> str | None:
        """A header by its name, in any case. None if it is missing."""
        lowered = {name.lower(): value for name, value in self._headers.items()}
        return lowered.get(key.lower())

    def report_status(self, code: int, reason_phrase: str | None = None) -> None:
        """Set the response's status."""
        self.status, self.phrase = code, reason_phrase

    def add_response_property(self, key: str, value: str) -> None:
        """Set a header of the response."""
        self.response_headers[key] = value


class ModelContext:
    """The `context` of a model's functions: the part of multi-model-server's that applies here.

    `begin` starts each request.
    """

    def __init__(self, model_name: str, model_dir: str, gpu_id: int | None = None) -> None:
        self.model_name = model_name
        self.manifest: dict[str, Any] = {}
        self.metrics = None
        self.system_properties = {"model_dir": model_dir, "gpu_id": gpu_id, "batch_size": 1}
        self.request_processor: list[RequestProcessor] = [RequestProcessor({})]

    def begin(self, headers: dict[str, str]) -> RequestProcessor:
        """Start a request with these headers."""
        self.request_processor = [RequestProcessor(headers)]
        return self.request_processor[0]

    def get_request_id(self, idx: int = 0) -> str:
        """The request's id, or an empty text."""
        return self.request_processor[idx].get_request_property("x-request-id") or ""

    def get_request_header(self, idx: int, key: str) -> str | None:
        """A header of the request. None if it is missing."""
        return self.request_processor[idx].get_request_property(key)

    def get_all_request_header(self, idx: int) -> dict[str, str]:
        """All headers of the request."""
        return self.request_processor[idx].get_request_properties()

    def set_response_content_type(self, idx: int, value: str) -> None:
        """Set the response's content type."""
        self.set_response_header(idx, "Content-Type", value)

    def set_response_header(self, idx: int, key: str, value: str) -> None:
        """Set a header of the response."""
        self.request_processor[idx].add_response_property(key, value)

    def set_response_status(self, code: int = 200, phrase: str = "", idx: int = 0) -> None:
        """Set the response's status."""
        self.request_processor[idx].report_status(code, phrase)

    def set_all_response_status(self, code: int = 200, phrase: str = "") -> None:
        """Set the response's status, like `set_response_status`."""
        self.set_response_status(code, phrase)


class NotBatchableError(Exception):
    """The inputs cannot be batched, or the prediction has another number of rows."""


def count_rows(data: Any) -> int:
    """The number of rows of an input. Raises NotBatchableError if it has none."""
    shape = getattr(data, "shape", None)
    if isinstance(data, list):
        return len(data)
    if shape is None or len(shape) < 2:
        raise NotBatchableError(f"{type(data).__name__} without rows")
    return int(shape[0])


def join_inputs(parts: list[Any]) -> Any:
    """One input with the rows of all. Raises NotBatchableError if types or shapes differ."""
    first = parts[0]
    if any(type(part) is not type(first) for part in parts):
        raise NotBatchableError("inputs of several types")
    if isinstance(first, list):
        return [row for part in parts for row in part]
    if any(part.shape[1:] != first.shape[1:] or part.dtype != first.dtype for part in parts):
        raise NotBatchableError("inputs of several shapes")
    if type(first).__module__ == "torch":
        return importlib.import_module("torch").cat(parts)
    if type(first).__module__.startswith("scipy.sparse"):
        return importlib.import_module("scipy.sparse").vstack(parts, format=first.format)
    return importlib.import_module("numpy").concatenate(parts)


def split_prediction(prediction: Any, rows: list[int]) -> list[Any]:
    """The prediction of each input. Raises NotBatchableError if the number of rows differs."""
    if isinstance(prediction, tuple) or not hasattr(prediction, "__getitem__"):
        raise NotBatchableError(f"a prediction is {type(prediction).__name__}")
    shape = getattr(prediction, "shape", None)
    num_rows = len(prediction) if shape is None else (int(shape[0]) if len(shape) else 0)
    if num_rows != sum(rows) or isinstance(prediction, (str, bytes, dict)):
        raise NotBatchableError(f"a prediction of {num_rows} rows for {sum(rows)}")
    parts, start = [], 0
    for count in rows:
        parts.append(prediction[start : start + count])
        start += count
    return parts


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
        """The head of the reply's message."""
        return {
            "status": self.status,
            "content_type": self.content_type,
            "headers": self.headers,
            "length": len(self.body),
        }


class ModelServing:
    """One model. Call `load`, then `invoke`.

    `model_dir` has the model's files, `code_dir` its code, which may be missing. `framework` names
    the default functions.
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
        self._steps: Any = None  # input_fn, predict_fn and output_fn, or None with transform_fn

    def load(self) -> str | None:
        """Load the code and the model. Returns the reason if that fails, else None."""
        try:
            bodies.install_codecs()
            aws_modules.install()
            self._errors = importlib.import_module("sagemaker_inference.errors")
            transformers = importlib.import_module("sagemaker_inference.transformer")
            self._find_code()
            handler = defaults.build_handler(self._framework)
            self._transformer = transformers.Transformer(default_inference_handler=handler)
            self._transformer.validate_and_initialize(
                model_dir=self._model_dir, context=self._context
            )
            transformer = self._transformer
            self._default_accept = transformer._environment.default_accept
            if transformer._model_fn == handler.default_model_fn:
                self._default_parameters = getattr(handler, "execution_parameters", None)
                if ACCEPT not in os.environ:
                    self._default_accept = getattr(handler, "default_accept", self._default_accept)
            if transformer._transform_fn == transformer._default_transform_fn:
                functions = (transformer._input_fn, transformer._predict_fn, transformer._output_fn)
                self._steps = functions
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a model's code may raise anything
            print(traceback.format_exc(), file=sys.stderr, flush=True)
            return self._describe(error)
        return None

    def _find_code(self) -> None:
        """Put the model's code first on the path. Raises ValueError if the program is missing."""
        if os.path.isdir(self._code_dir):
            sys.path.insert(0, self._code_dir)
        program = os.environ.get(PROGRAM, "")
        # The toolkit silently uses the default functions for code that it cannot import.
        if program and (os.path.basename(program) != program or not program.endswith(".py")):
            raise ValueError(
                f"{PROGRAM} is {program}; it must be a file NAME.py, in no folder of the code"
            )
        if program and not os.path.isfile(os.path.join(self._code_dir, program)):
            raise ValueError(
                f"{PROGRAM} is {program}, which is not in the model's code; put it into code/ of "
                "the archive, or into SAGEMAKER_SUBMIT_DIRECTORY"
            )

    def get_execution_parameters(self) -> dict[str, Any]:
        """The message with the result of execution_parameters_fn, or the framework's default."""
        name = os.path.splitext(os.environ.get(PROGRAM) or DEFAULT_PROGRAM)[0]
        function = getattr(sys.modules.get(name), "execution_parameters_fn", None)
        if not callable(function):
            return {"parameters": self._default_parameters and dict(self._default_parameters)}
        try:
            return {"parameters": json.loads(json.dumps(function()))}
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a model's code may raise anything
            return {"failed": f"execution_parameters_fn: {self._describe(error)}"}

    def invoke(self, requests: list[tuple[dict[str, str], bytes]]) -> list[ModelReply]:
        """The replies in the order of the requests, by one prediction if they can be batched."""
        if len(requests) > 1 and self._steps is not None:
            replies = self._invoke_batch(requests)
            if replies is not None:
                return replies
        return [self._reply(headers, body) for headers, body in requests]

    def _invoke_batch(
        self, requests: list[tuple[dict[str, str], bytes]]
    ) -> list[ModelReply] | None:
        """The replies by one prediction. None if that is impossible or fails for any request."""
        read, predict, write = self._steps
        try:
            parts = []
            for headers, body in requests:
                self._context.begin(headers)
                content_type, accept, data = self._read_request(headers, body)
                parts.append((headers, accept, self._run(read, data, content_type)))
            rows = [count_rows(data) for _, _, data in parts]
            joined = join_inputs([data for _, _, data in parts])
            prediction = self._run(predict, joined, self._transformer._model)
            replies = []
            split = split_prediction(prediction, rows)
            for (headers, accept, _), part in zip(parts, split):  # noqa: B905 - of Python 3.10
                processor = self._context.begin(headers)
                result = self._run(write, part, accept)
                replies.append(self._build_reply(processor, result, accept))
        except (Exception, SystemExit):  # noqa: BLE001 - the single requests then report it
            return None
        return replies

    def _reply(self, headers: dict[str, str], body: bytes) -> ModelReply:
        processor = self._context.begin(headers)
        try:
            content_type, accept, data = self._read_request(headers, body)
            result = self._call_functions(content_type, accept, data)
            return self._build_reply(processor, result, accept)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a model's code may raise anything
            print(traceback.format_exc(), file=sys.stderr, flush=True)
            return self._error_reply(error)

    def _call_functions(self, content_type: str, accept: str, data: Any) -> Any:
        """The functions' result for a request. Raises the refusal with 406 like AWS's images."""
        model = self._transformer._model
        if self._steps is None:
            transform = self._transformer._transform_fn
            return self._run(transform, model, data, content_type, accept)
        read, predict, write = self._steps
        prediction = self._run(predict, self._run(read, data, content_type), model)
        try:
            return self._run(write, prediction, accept)
        except self._errors.UnsupportedFormatError as error:
            raise refusal(bodies.NOT_ACCEPTABLE, self._describe(error)) from error

    def _build_reply(self, processor: RequestProcessor, result: Any, accept: str) -> ModelReply:
        """The reply for an output function's result and the values set in the context."""
        response, kind = result if isinstance(result, tuple) else (result, accept)
        if hasattr(response, "get_data") and hasattr(response, "status_code"):
            return convert_flask_response(response)
        kind = processor.response_headers.pop("Content-Type", None) or str(kind)
        return ModelReply(processor.status, to_bytes(response), kind, processor.response_headers)

    def _read_request(self, headers: dict[str, str], body: bytes) -> tuple[str, str, Any]:
        """The content type, the accepted type, and the body, as text if its type is text."""
        utils: Any = importlib.import_module("sagemaker_inference.utils")
        types: Any = importlib.import_module("sagemaker_inference.content_types")
        content_type = utils.retrieve_content_type_header(headers) or types.JSON
        accept = headers.get("Accept") or ""
        if accept in ACCEPT_ANY:
            accept = self._default_accept
        is_text = media_type(content_type) in types.UTF8_TYPES
        return content_type, accept, bodies.decode_text(body, content_type) if is_text else body

    def _run(self, function: Any, *arguments: Any) -> Any:
        return self._transformer._run_handler_function(function, *arguments)

    def _error_reply(self, error: BaseException) -> ModelReply:
        status = 500
        if isinstance(error, self._errors.UnsupportedFormatError):
            status = 415
        elif isinstance(error, self._errors.BaseInferenceToolkitError):
            status = int(error.status_code)
        return ModelReply(status, self._describe(error).encode(), "text/plain; charset=utf-8")

    def _describe(self, error: BaseException) -> str:
        """The error's type, message and line in the model's code, without the machine's paths."""
        kind = type(error).__name__
        message = getattr(error, "message", None) or str(error)
        text = f"{kind}: {' '.join(str(message).split())}" if message else kind
        if kind == "GenericInferenceToolkitError":  # the message is enough
            text = " ".join(str(message).split())
        folders = [self._code_dir, self._model_dir, sys.prefix, sys.base_prefix]
        return strip_folders(text, folders)[:MAX_ERROR_CHARACTERS] + self._describe_place(error)

    def _describe_place(self, error: BaseException) -> str:
        place = ""
        code_dir = self._code_dir.rstrip("/") + "/"
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename.startswith(code_dir):
                name = frame.filename[len(code_dir) :]
                place = f" ({name} line {frame.lineno} in {frame.name})"
        return place


def convert_flask_response(response: Any) -> ModelReply:
    """The reply for a Flask response, which functions of AWS's older images return."""
    headers = {str(name): str(value) for name, value in dict(response.headers).items()}
    content_type = str(response.content_type or "application/octet-stream")
    return ModelReply(int(response.status_code), response.get_data(), content_type, headers)


def strip_folders(text: str, folders: list[str]) -> str:
    """The text with paths below these folders made relative. Paths of the system stay."""
    for folder in folders:
        if folder.rstrip("/") not in SYSTEM_PREFIXES:
            text = text.replace(folder.rstrip("/") + "/", "")
    return text


def to_bytes(response: Any) -> bytes:
    """The response of an output function as bytes. Raises TypeError if it has another type."""
    if isinstance(response, (bytes, bytearray, memoryview)):
        return bytes(response)
    if isinstance(response, str):
        return response.encode("utf-8", "backslashreplace")  # escapes half a surrogate pair
    raise TypeError(
        f"the answer is {type(response).__name__}; output_fn and transform_fn must give bytes or "
        "text, or a pair of that and its content type"
    )
