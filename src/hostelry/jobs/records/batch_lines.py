"""Lines of a batch's input file: which are requests, and what is wrong with the others. PURE.

a line                                              code
-------------------------------------------------   -----------------------
no JSON object, or one over the limit of a line     invalid_json_line
no custom_id, or one that is no text or too long    missing_required_parameter, invalid_custom_id
a custom_id that an earlier line has                duplicate_custom_id
a method other than POST                            invalid_method
a url other than the batch's endpoint               url_mismatch
no body, or one that is no object with a model      invalid_request
a body that asks for a stream                       invalid_request
no line at all; more lines than the limit           empty_file; too_many_tasks

Empty lines are no requests. Source: OpenAI API reference, Batch; the guide's list of errors.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from hostelry.base.json import decode
from hostelry.domain.llm_batch import LineFault

MAX_LINES = 50_000
MAX_FILE_BYTES = 200 * 1024 * 1024
MAX_CUSTOM_ID_CHARS = 512
MAX_FAULTS = 100  # that are reported
ENDPOINTS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")


class BatchLine(NamedTuple):
    """A request: its place in the file, its number there from 1, and the model that it is for."""

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
    """A line is no request of this batch."""

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.param = param


class LineCheck:
    """Looks at a file's lines in order, for a batch of requests to `endpoint`."""

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
        """Whether there are more lines than a batch may have: no other needs to be looked at."""
        return len(self.lines) + self.num_faults > self._max_lines

    def add(self, line: bytes, cut_bytes: int = 0) -> None:
        """The next line, with its end; of one that is too long, without its last `cut_bytes`."""
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

    def faults(self) -> Sequence[LineFault]:
        """What is wrong, once every line was added; at most `MAX_FAULTS`, then their number."""
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
        """custom_id and model; raises LineFaultError."""
        if len(raw) > self._max_line_bytes:
            raise LineFaultError(
                "invalid_json_line", f"The line is larger than {self._max_line_bytes} bytes."
            )
        line = _decode_line(raw)
        custom_id = self._custom_id(line.custom_id)
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

    def _custom_id(self, value: Any) -> str:
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


def request_body(raw: bytes) -> bytes:
    """The body of the request that a checked line is, as it is written there."""
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
