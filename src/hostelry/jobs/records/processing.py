"""DataProcessing: records filtered before they are sent, answers joined and filtered after.

type                     a unit                  joined with its answer
----------------------   ---------------------   ------------------------------------------------
text/csv                 a row: an array         the row's columns, then the answer's
application/jsonlines    a line                  an object: + SageMakerOutput; any other value:
application/json         the record              {SageMakerInput, SageMakerOutput}

Source: "Associate Prediction Results with Input Records", SageMaker developer guide.
"""

import csv
import io
import json
from dataclasses import dataclass
from typing import Any

from hostelry.domain.transform_job import TransformProcessing
from hostelry.domain.transform_rules import CSV
from hostelry.jobs.records.batching import Payload
from hostelry.jobs.records.errors import RecordError
from hostelry.jobs.records.json_path import JsonPath, parse_path

JSON = "application/json"
OUTPUT, INPUT = "SageMakerOutput", "SageMakerInput"
INFERENCE_ID, INFERENCE_TIME = "SageMakerInferenceId", "SageMakerInferenceTime"


@dataclass(frozen=True, slots=True)
class InferenceMark:
    """An answer's id and the time that goes with it, added to the output."""

    id: str
    time: str


class RecordProcessing:
    """Processes the records of one job.

    Args:
        processing: filters and join.
        content_type: of input and output.
        marks: whether answers get an id.
    """

    def __init__(self, processing: TransformProcessing, content_type: str, marks: bool) -> None:
        self._media_type = content_type.partition(";")[0].strip().lower()
        self._input: JsonPath = parse_path(processing.input_filter)
        self._output: JsonPath = parse_path(processing.output_filter)
        self._joins = processing.joins_input
        self._marks = marks

    @property
    def changes_answers(self) -> bool:
        """Whether answers are read."""
        return self._joins or self._marks or not self._output.is_whole

    def sent(self, payload: Payload) -> bytes:
        """What is sent for `payload`; raises RecordError."""
        if self._input.is_whole:
            return payload.body
        return b"\n".join(
            [self._text(self._input.select(self._value(it))) for it in self._units_of(payload)]
        )

    def num_units(self, payload: Payload) -> int:
        """The answers that a payload must have."""
        return len(self._units_of(payload))

    def kept(self, payload: Payload, answer: bytes, marks: list[InferenceMark]) -> bytes:
        """What is kept of the answer to `payload`; raises RecordError."""
        units = self._units_of(payload)
        is_one = self._media_type == JSON and len(units) == 1
        answers = [answer] if is_one else lines_of(answer)
        if len(answers) != len(units):
            raise RecordError(
                f"The model gave {len(answers)} answers to {len(units)} records; DataProcessing"
                " needs one answer for each record, each on a line of its own."
            )
        found = []
        for number, (unit, one) in enumerate(zip(units, answers, strict=True)):
            value = self._value(one)
            joined = self._joined(self._value(unit), value) if self._joins else value
            chosen = self._output.select(joined)
            if self._marks:
                chosen = self._marked(chosen, marks[number])
            found.append(self._text(chosen))
        return b"\n".join(found)

    def _units_of(self, payload: Payload) -> list[bytes]:
        if self._media_type == JSON:
            return [it.content for it in payload.records]
        return [line for it in payload.records for line in lines_of(it.content)]

    def _value(self, text: bytes) -> Any:
        try:
            return _row(text) if self._media_type == CSV else json.loads(text)
        except (ValueError, RecursionError, csv.Error) as error:
            raise RecordError(f"{text[:80]!r} is not {self._media_type}: {error}") from error

    def _text(self, value: Any) -> bytes:
        if self._media_type == CSV:
            return _row_text(value if isinstance(value, list) else [value])
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()

    def _joined(self, given: Any, answer: Any) -> Any:
        if self._media_type == CSV:
            return given + answer
        if isinstance(given, dict):
            return {**given, OUTPUT: answer}
        return {INPUT: given, OUTPUT: answer}

    def _marked(self, value: Any, mark: InferenceMark) -> Any:
        if self._media_type == CSV:
            return [*(value if isinstance(value, list) else [value]), mark.id, mark.time]
        fields = value if isinstance(value, dict) else {OUTPUT: value}
        return {**fields, INFERENCE_ID: mark.id, INFERENCE_TIME: mark.time}


def lines_of(body: bytes) -> list[bytes]:
    """The lines of `body` without their endings."""
    lines = [it.removesuffix(b"\r") for it in body.split(b"\n")]
    return lines[:-1] if lines[-1] == b"" and len(lines) > 1 else lines


def _row(text: bytes) -> list[str]:
    rows = list(csv.reader([text.decode("utf-8")], strict=True))
    return rows[0] if rows else []


def _row_text(row: list[Any]) -> bytes:
    made = io.StringIO()
    csv.writer(made, lineterminator="").writerow(row)
    return made.getvalue().encode()
