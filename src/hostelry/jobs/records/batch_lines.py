"""Lines of a batch's files: requests in the input, results in the output and error files. PURE.

an invalid line of the input                        code of the error
-------------------------------------------------   -----------------------------------------------
not a JSON object, or larger than the limit         invalid_json_line
custom_id is missing                                missing_required_parameter
custom_id is not a text of 1 to 512 characters      invalid_custom_id
an earlier line has the same custom_id              duplicate_custom_id
method is not POST                                  invalid_method
url is not the batch's endpoint                     url_mismatch
body is not an object with a model                  invalid_request
body asks for a stream                              invalid_request
the file has no line                                empty_file
the file has more lines than the limit              too_many_tasks

Empty lines are skipped. Source: OpenAI API reference, Batch, and the guide's list of errors.
"""

import uuid
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from hostelry.base.json import decode
from hostelry.domain.llm_batch import LineFault, TokenUsage

MAX_LINES = 50_000
MAX_FILE_BYTES = 200 * 1024 * 1024
MAX_CUSTOM_ID_CHARS = 512
MAX_FAULTS = 100  # faults that are reported
ENDPOINTS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")


class BatchLine(NamedTuple):
    """A request in the input: its line number, from 1, its place in bytes, and its model."""

    number: int
    offset: int
    length: int
    custom_id: str
    model: str


class _Body(msgspec.Struct):
    model: str
    stream: bool | None = None


class _Line(msgspec.Struct):
    custom_id: Any = None
    method: Any = None
    url: Any = None
    body: msgspec.Raw = msgspec.Raw()


class LineFaultError(Exception):
    """A line is not a valid request of the batch."""

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.param = param


class LineCheck:
    """Checks the lines of an input file in order. `endpoint` is the batch's."""

    def __init__(self, endpoint: str, max_line_bytes: int, max_lines: int = MAX_LINES) -> None:
        self._endpoint = endpoint
        self._max_line_bytes = max_line_bytes
        self._max_lines = max_lines
        self._first_with: dict[str, int] = {}
        self._number = 0
        self._offset = 0
        self.lines: list[BatchLine] = []
        self.num_faults = 0
        self._faults: list[LineFault] = []

    @property
    def is_full(self) -> bool:
        """True if there are more lines than a batch may have. Then no further line matters."""
        return len(self.lines) + self.num_faults > self._max_lines

    def add(self, line: bytes, cut_bytes: int = 0) -> None:
        """Check the next line, with its end. A line that is too long lacks its last `cut_bytes`."""
        self._number += 1
        offset, self._offset = self._offset, self._offset + len(line) + cut_bytes
        if not line.strip():
            return
        try:
            custom_id, model = self._check(line)
        except LineFaultError as error:
            self._fault(error.code, str(error), error.param, self._number)
            return
        self._first_with[custom_id] = self._number
        self.lines.append(BatchLine(self._number, offset, len(line), custom_id, model))

    def list_faults(self) -> Sequence[LineFault]:
        """List the faults of all added lines. Beyond `MAX_FAULTS` only their number is reported."""
        if self.is_full:
            message = f"The file has more than {self._max_lines} requests, the limit of a batch."
            return [LineFault(code="too_many_tasks", message=message)]
        if not self.lines and not self.num_faults:
            return [LineFault(code="empty_file", message="The file has no request.")]
        left = self.num_faults - len(self._faults)
        more = f"{left} more lines are wrong, {self.num_faults} in all."
        rest = [LineFault(code="more_errors", message=more)] if left else []
        return [*self._faults, *rest]

    def _fault(self, code: str, message: str, param: str | None, line: int) -> None:
        self.num_faults += 1
        if len(self._faults) < MAX_FAULTS:
            self._faults.append(LineFault(code=code, message=message, param=param, line=line))

    def _check(self, raw: bytes) -> tuple[str, str]:
        """Return the custom_id and model of a line. Raises LineFaultError."""
        if len(raw) > self._max_line_bytes:
            raise LineFaultError(
                "invalid_json_line", f"The line is larger than {self._max_line_bytes} bytes."
            )
        line = _decode_line(raw)
        custom_id = self._check_custom_id(line.custom_id)
        if line.method != "POST":
            raise LineFaultError(
                "invalid_method", f"method must be POST, not {_shorten(line.method)}.", "method"
            )
        if line.url != self._endpoint:
            raise LineFaultError(
                "url_mismatch",
                f"url must be the batch's endpoint, {self._endpoint}, not {_shorten(line.url)}.",
                "url",
            )
        return custom_id, _decode_model(line.body)

    def _check_custom_id(self, value: Any) -> str:
        if value is None:
            raise LineFaultError("missing_required_parameter", "custom_id is missing.", "custom_id")
        if not isinstance(value, str) or not 0 < len(value) <= MAX_CUSTOM_ID_CHARS:
            raise LineFaultError(
                "invalid_custom_id",
                f"custom_id must be a text of 1 to {MAX_CUSTOM_ID_CHARS} characters.",
                "custom_id",
            )
        first = self._first_with.get(value)
        if first is not None:
            raise LineFaultError(
                "duplicate_custom_id",
                f"custom_id {_shorten(value)} is that of line {first}, too.",
                "custom_id",
            )
        return value


def get_request_body(raw: bytes) -> bytes:
    """Return the body of a checked line, byte for byte."""
    return bytes(_decode_line(raw).body)


def _decode_line(raw: bytes) -> _Line:
    try:
        return decode(raw, _Line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise LineFaultError(
            "invalid_json_line", f"The line is not a JSON object: {error}."
        ) from None


def _decode_model(body: msgspec.Raw) -> str:
    if not bytes(body):
        raise LineFaultError("invalid_request", "body is missing.", "body")
    try:
        found = decode(bytes(body), _Body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise LineFaultError(
            "invalid_request",
            f"body must be a JSON object whose `model` is a string: {error}.",
            "body.model",
        ) from None
    if found.stream:
        raise LineFaultError(
            "invalid_request", "A batch has no streams: leave `stream` out.", "body.stream"
        )
    return found.model


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


# Escaped in results, because `text.splitlines()` takes these characters for line ends.
_LINE_ENDS = {
    "\u0085".encode(): rb"\u0085",
    "\u2028".encode(): rb"\u2028",
    "\u2029".encode(): rb"\u2029",
}
_NAMESPACE = uuid.UUID("6f2c1a52-5b0e-4e0a-9a43-0d9f3c1d7f10")


class _Details(msgspec.Struct):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    """Token counts of any endpoint. Responses have other names than completions."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    prompt_tokens_details: _Details | None = None
    input_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None
    output_tokens_details: _Details | None = None


class _Answer(msgspec.Struct):
    usage: _Usage | None = None


class _KnownResponse(msgspec.Struct):
    body: msgspec.Raw


class _Known(msgspec.Struct):
    custom_id: str
    response: _KnownResponse | None = None


class _Response(msgspec.Struct):
    status_code: int
    request_id: str
    body: msgspec.Raw


class _Error(msgspec.Struct):
    code: str
    message: str


class _Result(msgspec.Struct):
    id: str
    custom_id: str
    response: _Response | None
    error: _Error | None


def build_result_id(batch_id: str, number: int) -> str:
    """Build the id of the request in line `number`. Repeats have the same id."""
    return f"batch_req_{uuid.uuid5(_NAMESPACE, f'{batch_id} {number}').hex}"


def build_answer_line(id: str, custom_id: str, status: int, request_id: str, body: bytes) -> bytes:
    """Build the line of an answered request. A body that is not JSON becomes a string."""
    response = _Response(status, request_id, msgspec.Raw(_one_line(body)))
    return _encode(_Result(id, custom_id, response, None))


def build_error_line(id: str, custom_id: str, code: str, message: str) -> bytes:
    """Build the line of a request without an answer."""
    return _encode(_Result(id, custom_id, None, _Error(code, message)))


def parse_result(line: bytes) -> tuple[str, TokenUsage] | None:
    """Parse the custom_id and tokens of a result. None if a crash cut the line off."""
    if not line.endswith(b"\n"):
        return None
    try:
        found = decode(line, _Known)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    body = b"" if found.response is None else bytes(found.response.body)
    return found.custom_id, parse_usage(body)


def read_results(lines: Iterable[bytes]) -> tuple[dict[str, TokenUsage], int]:
    """Read results up to an incomplete line. Returns tokens by custom_id, and the bytes read."""
    found: dict[str, TokenUsage] = {}
    num_bytes = 0
    for line in lines:
        result = parse_result(line)
        if result is None:
            break
        custom_id, usage = result
        found[custom_id] = usage
        num_bytes += len(line)
    return found, num_bytes


def parse_usage(body: bytes) -> TokenUsage:
    """Parse the tokens that an answer reports. All zero if it does not."""
    try:
        usage = decode(body, _Answer).usage or _Usage()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return TokenUsage()
    of_input = usage.prompt_tokens_details or usage.input_tokens_details or _Details()
    of_output = usage.completion_tokens_details or usage.output_tokens_details or _Details()
    return TokenUsage(
        input=usage.prompt_tokens or usage.input_tokens,
        output=usage.completion_tokens or usage.output_tokens,
        cached=of_input.cached_tokens or 0,
        reasoning=of_output.reasoning_tokens or 0,
    )


def _encode(result: _Result) -> bytes:
    line = msgspec.json.encode(result)
    for end, escaped in _LINE_ENDS.items():
        line = line.replace(end, escaped)
    return line + b"\n"


def _one_line(body: bytes) -> bytes:
    """Return `body` as JSON without line breaks."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return msgspec.json.encode(body.decode("utf-8", "replace"))
    return body if b"\n" not in body and b"\r" not in body else msgspec.json.encode(value)
