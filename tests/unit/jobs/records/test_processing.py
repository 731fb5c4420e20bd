from dataclasses import replace

import pytest

from hostelry.domain.transform_job import TransformProcessing
from hostelry.jobs.records.batching import Payload
from hostelry.jobs.records.errors import RecordError
from hostelry.jobs.records.processing import InferenceMark, RecordProcessing
from hostelry.jobs.records.splitting import SplitRecord

CSV, JSON, LINES = "text/csv", "application/json", "application/jsonlines"
MARK = InferenceMark("id-1", "2026-11-23T00:00:00Z")


def payload(*contents: bytes) -> Payload:
    return Payload(tuple(SplitRecord(it + b"\n", it) for it in contents), 1, True)


def processing(
    kind: str, in_: str = "$", out: str = "$", joins: bool = True, marks: bool = False
) -> RecordProcessing:
    given = TransformProcessing(input_filter=in_, output_filter=out, joins_input=joins)
    return RecordProcessing(given, kind, marks)


@pytest.mark.parametrize(
    ("kind", "path", "records", "sent"),
    [
        pytest.param(CSV, "$[1:]", [b"id,1,2", b"x,3,4"], b"1,2\n3,4", id="without the id column"),
        pytest.param(CSV, "$[0]", [b'"a,b",2'], b'"a,b"', id="quotes stay where they are needed"),
        pytest.param(JSON, "$.features", [b'{"id":1,"features":[1,2]}'], b"[1,2]", id="a member"),
        pytest.param(LINES, "$['a']", [b'{"a":1}', b'{"a":2}'], b"1\n2", id="lines of JSON"),
        pytest.param(CSV, "$", [b"a, b"], b"a, b\n", id="all of it is not rewritten"),
        pytest.param(
            CSV, "$[1]", [b"1," + b"x" * 200_000], b"x" * 200_000, id="a document as a field"
        ),
        pytest.param(CSV, "$[0]", [b"\xef\xbb\xbf1,2"], b"1", id="after a byte order mark"),
        pytest.param(
            LINES, "$.a", [b'{"a":[1e400,-0.0,1E5,0.10]}'], b"[1e400,-0.0,1E5,0.10]", id="numbers"
        ),
        pytest.param(LINES, "$.a", [b'{"a":"\\ud800"}'], b'"\\ud800"', id="half a surrogate pair"),
        pytest.param(LINES, "$.a", [b'{"a":1}', b" "], b"1", id="an empty line"),
    ],
)
def test_records_are_filtered_before_they_are_sent(
    kind: str, path: str, records: list[bytes], sent: bytes
) -> None:
    assert processing(kind, path).sent(payload(*records)) == sent


@pytest.mark.parametrize(
    ("made", "records", "answer", "kept"),
    [
        pytest.param(
            processing(CSV), [b"1,2", b"3,4"], b"0.5\n0.7\n", b"1,2,0.5\n3,4,0.7", id="columns"
        ),
        pytest.param(
            processing(CSV, out="$[0,-1]"), [b"7,8,9"], b"0.5", b"7,0.5", id="id and result"
        ),
        pytest.param(
            processing(JSON),
            [b'{"a":1}'],
            b'{"p":\n 2}',
            b'{"a":1,"SageMakerOutput":{"p":2}}',
            id="an object gains SageMakerOutput",
        ),
        pytest.param(
            processing(LINES),
            [b"[1]"],
            b"2",
            b'{"SageMakerInput":[1],"SageMakerOutput":2}',
            id="any other value becomes a member",
        ),
        pytest.param(
            processing(LINES),
            [b'{"t":1e400,"u":12345678901234567890123}'],
            b'{"v":0.1000000000000000055}',
            b'{"t":1e400,"u":12345678901234567890123,'
            b'"SageMakerOutput":{"v":0.1000000000000000055}}',
            id="numbers stay as they are written",
        ),
        pytest.param(
            processing(LINES),
            [b'{"t":1}', b""],
            b"2\n\n",
            b'{"t":1,"SageMakerOutput":2}',
            id="an empty line is no record",
        ),
        pytest.param(processing(CSV), [b"", b"3"], b"0.5\n0.7\n", b"0.5\n3,0.7", id="an empty row"),
        pytest.param(
            processing(CSV, joins=False, marks=True),
            [b"1"],
            b"0.5",
            b"0.5,id-1,2026-11-23T00:00:00Z",
            id="inference id and time as columns",
        ),
        pytest.param(
            processing(JSON, joins=False, marks=True),
            [b"1"],
            b"0.5",
            b'{"SageMakerOutput":0.5,"SageMakerInferenceId":"id-1",'
            b'"SageMakerInferenceTime":"2026-11-23T00:00:00Z"}',
            id="inference id and time as members",
        ),
    ],
)
def test_answers_are_joined_with_their_records(
    made: RecordProcessing, records: list[bytes], answer: bytes, kept: bytes
) -> None:
    assert made.kept(payload(*records), answer, [MARK]) == kept


@pytest.mark.parametrize(
    ("made", "answer", "named"),
    [
        pytest.param(
            processing(CSV), b"1\n2\n3\n", "3 answers to 2 records", id="too many answers"
        ),
        pytest.param(processing(CSV), b"1,2", "1 answers to 2 records", id="answers on one line"),
        pytest.param(processing(CSV, out="$[5]"), b"1\n2", "index 5", id="no such column"),
        pytest.param(
            processing(LINES),
            b"{\n}",
            "to record 7 is not application/jsonlines: .*: {",
            id="no JSON",
        ),
        pytest.param(
            processing(CSV), b'1\n"2\n', "to record 8 is not text/csv: .*quotes", id="a cut row"
        ),
    ],
)
def test_answers_that_fit_no_record_are_named(
    made: RecordProcessing, answer: bytes, named: str
) -> None:
    with pytest.raises(RecordError, match=named):
        made.kept(replace(payload(b"1", b"2"), first_number=7), answer, [])
