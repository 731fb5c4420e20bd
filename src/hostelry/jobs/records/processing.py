"""DataProcessing: records are filtered before they are sent, answers are joined and filtered.

type                     a unit                  joined with its answer
----------------------   ---------------------   ------------------------------------------------
text/csv                 a row: an array         the row's columns, then the answer's columns
application/jsonlines    a line                  an object gets SageMakerOutput, any other value
application/json         the record              becomes {SageMakerInput, SageMakerOutput}

An empty line is skipped. Filters are in a subset of JSONPath:

path              selects                        result
---------------   ----------------------------   ----------------------
$                 the value                      the value
.name ['name']    a member                       its value
['a','b']         members                        an object of them
.* [*]            all members or elements        an array
[n]               an element, from the end < 0   the element
[n,m] [a:b]       elements                       an array

Missing members and indexes outside of an array are errors. Source: "Associate Prediction Results
with Input Records", SageMaker developer guide.
"""

import csv
import io
import json
import re
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from hostelry.domain.transform_job import TransformProcessing
from hostelry.domain.transform_rules import CSV, JSON_PATH
from hostelry.domain.transform_rules import STEP as STEP_PATTERN
from hostelry.jobs.records.splitting import Payload, RecordError

STEPS = re.compile(STEP_PATTERN)
QUOTED = re.compile(r"'([^']+)'")


class Members(msgspec.Struct, frozen=True):
    """Selects members by name. Without names it selects all of an object or array."""

    names: tuple[str, ...]


class Elements(msgspec.Struct, frozen=True):
    """Selects elements by index, or by a range (first, end)."""

    indexes: tuple[int | tuple[int | None, int | None], ...]


Step = Members | Elements


class JsonPath(msgspec.Struct, frozen=True):
    """A parsed path."""

    text: str
    steps: tuple[Step, ...]

    @property
    def is_whole(self) -> bool:
        """True if the path selects the value itself."""
        return not self.steps

    def select(self, value: Any) -> Any:
        """Select from `value`. Raises RecordError if the value does not match the path."""
        nodes, is_one = [value], True
        for step in self.steps:
            nodes = [found for node in nodes for found in self._find_nodes(step, node)]
            is_one = is_one and _is_one(step)
        return nodes[0] if is_one else nodes

    def _find_nodes(self, step: Step, node: Any) -> Sequence[Any]:
        if isinstance(step, Elements):
            return self._elements(step, node)
        if not step.names:
            if isinstance(node, dict):
                return list(node.values())
            if isinstance(node, list):
                return node
            raise RecordError(f"{self.text}: a {_kind(node)} has no members.")
        if not isinstance(node, dict):
            raise RecordError(f'{self.text}: a {_kind(node)} has no member "{step.names[0]}".')
        missing = [it for it in step.names if it not in node]
        if missing:
            raise RecordError(f'{self.text}: there is no member "{missing[0]}".')
        if len(step.names) == 1:
            return [node[step.names[0]]]
        return [{name: node[name] for name in step.names}]

    def _elements(self, step: Elements, node: Any) -> list[Any]:
        if not isinstance(node, list):
            raise RecordError(f"{self.text}: a {_kind(node)} has no elements.")
        found: list[Any] = []
        for index in step.indexes:
            if isinstance(index, tuple):
                for bound in index:
                    self._check(bound is None or -len(node) <= bound <= len(node), bound, node)
                found += node[slice(*index)]
            else:
                self._check(-len(node) <= index < len(node), index, node)
                found.append(node[index])
        return found

    def _check(self, is_inside: bool, index: int | None, node: list[Any]) -> None:
        if not is_inside:
            raise RecordError(f"{self.text}: index {index} is outside of {len(node)} elements.")


def parse_path(text: str) -> JsonPath:
    """Parse a path. Raises RecordError if it is not in the subset."""
    if JSON_PATH.fullmatch(text) is None:
        raise RecordError(f'"{text}" is not a JSONPath that is read here.')
    return JsonPath(text, tuple(_step(it.group()) for it in STEPS.finditer(text, 1)))


def _step(text: str) -> Step:
    if text in (".*", "[*]"):
        return Members(())
    if text.startswith("."):
        return Members((text[1:],))
    if "'" in text:
        return Members(tuple(QUOTED.findall(text)))
    return Elements(tuple(_index(it) for it in text[1:-1].split(",")))


def _index(text: str) -> int | tuple[int | None, int | None]:
    first, colon, end = text.partition(":")
    if not colon:
        return int(text)
    return _parse_bound(first), _parse_bound(end)


def _parse_bound(text: str) -> int | None:
    return int(text) if text.strip() else None


def _is_one(step: Step) -> bool:
    if isinstance(step, Members):
        return bool(step.names)
    return len(step.indexes) == 1 and not isinstance(step.indexes[0], tuple)


def _kind(value: Any) -> str:
    names = {dict: "JSON object", list: "JSON array", str: "string", bool: "boolean"}
    return names.get(type(value), "null" if value is None else "number")


csv.field_size_limit(sys.maxsize)  # a field may be a document, which MaxPayloadInMB limits

JSON = "application/json"
OUTPUT, INPUT = "SageMakerOutput", "SageMakerInput"
INFERENCE_ID, INFERENCE_TIME = "SageMakerInferenceId", "SageMakerInferenceTime"


class InferenceMark(msgspec.Struct, frozen=True):
    """An answer's id and time, which are added to the output."""

    id: str
    time: str


class RecordProcessing:
    """Processes the records of one job.

    Args:
        processing: filters and join.
        content_type: the type of input and output.
        marks: True if answers get an id.
    """

    def __init__(self, processing: TransformProcessing, content_type: str, marks: bool) -> None:
        self._media_type = content_type.partition(";")[0].strip().lower()
        self._input: JsonPath = parse_path(processing.input_filter)
        self._output: JsonPath = parse_path(processing.output_filter)
        self._joins = processing.joins_input
        self._marks = marks

    @property
    def changes_answers(self) -> bool:
        """True if answers are parsed."""
        return self._joins or self._marks or not self._output.is_whole

    def build_body(self, payload: Payload) -> bytes:
        """Build the body to send for `payload`. Raises RecordError."""
        if self._input.is_whole:
            return payload.body
        first = payload.first_number
        values = [
            self._value(it, f"Record {number}")
            for number, it in enumerate(self._split_units(payload), first)
        ]
        return b"\n".join([self._text(self._input.select(it)) for it in values])

    def count_units(self, payload: Payload) -> int:
        """Count the answers that a payload must have."""
        return len(self._split_units(payload))

    def build_output(self, payload: Payload, answer: bytes, marks: list[InferenceMark]) -> bytes:
        """Build the output for `payload` from its answer. Raises RecordError."""
        units = self._split_units(payload)
        is_one = self._media_type == JSON and len(units) == 1
        answers = [answer] if is_one else self._lines(answer)
        first = payload.first_number
        if len(answers) != len(units):
            raise RecordError(
                f"The model gave {len(answers)} answers to {len(units)} records, the first of them"
                f" record {first}; DataProcessing needs one answer for each record, each on a line"
                " of its own."
            )
        found = []
        for number, (unit, one) in enumerate(zip(units, answers, strict=True)):
            value = self._value(one, f"The answer to record {first + number}")
            if self._joins:
                joined = self._join(self._value(unit, f"Record {first + number}"), value)
            else:
                joined = value
            chosen = self._output.select(joined)
            if self._marks:
                chosen = self._add_mark(chosen, marks[number])
            found.append(self._text(chosen))
        return b"\n".join(found)

    def _split_units(self, payload: Payload) -> list[bytes]:
        if self._media_type == JSON:
            return [it.content for it in payload.records]
        return [line for it in payload.records for line in self._lines(it.content)]

    def _lines(self, body: bytes) -> list[bytes]:
        lines = split_body_lines(body)
        # An empty line of CSV is a row whose only column is empty.
        return lines if self._media_type == CSV else [it for it in lines if it.strip()]

    def _value(self, text: bytes, name: str) -> Any:
        try:
            return _row(text) if self._media_type == CSV else _json_value(text)
        except (ValueError, RecursionError, csv.Error) as error:
            shown = text[:80].decode(errors="replace")
            raise RecordError(f"{name} is not {self._media_type}: {error}: {shown}") from error

    def _text(self, value: Any) -> bytes:
        if self._media_type == CSV:
            return _row_text(value if isinstance(value, list) else [value])
        return _json_text(value)

    def _join(self, given: Any, answer: Any) -> Any:
        if self._media_type == CSV:
            return given + answer
        if isinstance(given, dict):
            return {**given, OUTPUT: answer}
        return {INPUT: given, OUTPUT: answer}

    def _add_mark(self, value: Any, mark: InferenceMark) -> Any:
        if self._media_type == CSV:
            return [*(value if isinstance(value, list) else [value]), mark.id, mark.time]
        fields = value if isinstance(value, dict) else {OUTPUT: value}
        return {**fields, INFERENCE_ID: mark.id, INFERENCE_TIME: mark.time}


def split_body_lines(body: bytes) -> list[bytes]:
    """Split `body` into lines without their endings."""
    lines = [it.removesuffix(b"\r") for it in body.split(b"\n")]
    return lines[:-1] if lines[-1] == b"" and len(lines) > 1 else lines


def _row(text: bytes) -> list[str]:
    try:
        rows = list(csv.reader([text.decode("utf-8-sig")], strict=True))
    except csv.Error as error:
        if text.count(b'"') % 2:
            raise ValueError(f"{error} (SplitType Line cuts inside quotes as well)") from error
        raise
    return rows[0] if rows else []


def _row_text(row: list[Any]) -> bytes:
    made = io.StringIO()
    csv.writer(made, lineterminator="").writerow(row)
    return made.getvalue().encode()


class NumberText(msgspec.Struct, frozen=True):
    """The text of a JSON number that a double would change."""

    text: str


def _number(text: str) -> float | NumberText:
    number = float(text)
    return number if repr(number) == text else NumberText(text)


def _json_value(text: bytes) -> Any:
    return json.loads(text, parse_float=_number)


def _json_text(value: Any) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except TypeError:  # of a NumberText
        try:
            text = _exact_text(value)
        except RecursionError as error:
            raise RecordError("A record has too many levels.") from error
    # UTF-8 cannot encode half of a surrogate pair, which JSON escapes like this.
    return text.encode(errors="backslashreplace")


def _exact_text(value: Any) -> str:
    if isinstance(value, NumberText):
        return value.text
    if isinstance(value, dict):
        fields = [f"{_exact_text(name)}:{_exact_text(it)}" for name, it in value.items()]
        return "{" + ",".join(fields) + "}"
    if isinstance(value, list):
        return "[" + ",".join([_exact_text(it) for it in value]) + "]"
    return json.dumps(value, ensure_ascii=False)
