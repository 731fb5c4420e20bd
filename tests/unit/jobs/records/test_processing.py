import pytest
from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.domain.transform_job import TransformProcessing
from hostelry.jobs.records.processing import InferenceMark, RecordProcessing
from hostelry.jobs.records.splitting import Payload, RecordError, SplitRecord

CSV, JSON, LINES = "text/csv", "application/json", "application/jsonlines"
MARK = InferenceMark("id-1", "2026-11-23T00:00:00Z")


def payload(*contents: bytes) -> Payload:
    return Payload(tuple(SplitRecord(it + b"\n", it) for it in contents), 1, True)


def processing(
    kind: str, in_: str = "$", out: str = "$", joins: bool = True, marks: bool = False
) -> RecordProcessing:
    given = TransformProcessing(input_filter=in_, output_filter=out, joins_input=joins)
    return RecordProcessing(given, kind, marks)


@cases(
    "kind, path, records, sent",
    case("without the id column", CSV, "$[1:]", [b"id,1,2", b"x,3,4"], b"1,2\n3,4"),
    case("quotes stay where they are needed", CSV, "$[0]", [b'"a,b",2'], b'"a,b"'),
    case("a member", JSON, "$.features", [b'{"id":1,"features":[1,2]}'], b"[1,2]"),
    case("lines of JSON", LINES, "$['a']", [b'{"a":1}', b'{"a":2}'], b"1\n2"),
    case("all of it is not rewritten", CSV, "$", [b"a, b"], b"a, b\n"),
    case("a document as a field", CSV, "$[1]", [b"1," + b"x" * 200_000], b"x" * 200_000),
    case("after a byte order mark", CSV, "$[0]", [b"\xef\xbb\xbf1,2"], b"1"),
    case("numbers", LINES, "$.a", [b'{"a":[1e400,-0.0,1E5,0.10]}'], b"[1e400,-0.0,1E5,0.10]"),
    case("half a surrogate pair", LINES, "$.a", [b'{"a":"\\ud800"}'], b'"\\ud800"'),
    case("an empty line", LINES, "$.a", [b'{"a":1}', b" "], b"1"),
)
def test_records_are_filtered_before_they_are_sent(
    kind: str, path: str, records: list[bytes], sent: bytes
) -> None:
    assert processing(kind, path).build_body(payload(*records)) == sent


@cases(
    "made, records, answer, kept",
    case("columns", processing(CSV), [b"1,2", b"3,4"], b"0.5\n0.7\n", b"1,2,0.5\n3,4,0.7"),
    case("id and result", processing(CSV, out="$[0,-1]"), [b"7,8,9"], b"0.5", b"7,0.5"),
    case(
        "an object gains SageMakerOutput",
        processing(JSON),
        [b'{"a":1}'],
        b'{"p":\n 2}',
        b'{"a":1,"SageMakerOutput":{"p":2}}',
    ),
    case(
        "any other value becomes a member",
        processing(LINES),
        [b"[1]"],
        b"2",
        b'{"SageMakerInput":[1],"SageMakerOutput":2}',
    ),
    case(
        "numbers stay as they are written",
        processing(LINES),
        [b'{"t":1e400,"u":12345678901234567890123}'],
        b'{"v":0.1000000000000000055}',
        b'{"t":1e400,"u":12345678901234567890123,"SageMakerOutput":{"v":0.1000000000000000055}}',
    ),
    case(
        "an empty line is no record",
        processing(LINES),
        [b'{"t":1}', b""],
        b"2\n\n",
        b'{"t":1,"SageMakerOutput":2}',
    ),
    case("an empty row", processing(CSV), [b"", b"3"], b"0.5\n0.7\n", b"0.5\n3,0.7"),
    case(
        "inference id and time as columns",
        processing(CSV, joins=False, marks=True),
        [b"1"],
        b"0.5",
        b"0.5,id-1,2026-11-23T00:00:00Z",
    ),
    case(
        "inference id and time as members",
        processing(JSON, joins=False, marks=True),
        [b"1"],
        b"0.5",
        b'{"SageMakerOutput":0.5,"SageMakerInferenceId":"id-1",'
        b'"SageMakerInferenceTime":"2026-11-23T00:00:00Z"}',
    ),
)
def test_answers_are_joined_with_their_records(
    made: RecordProcessing, records: list[bytes], answer: bytes, kept: bytes
) -> None:
    assert made.build_output(payload(*records), answer, [MARK]) == kept


@cases(
    "made, answer, named",
    case("too many answers", processing(CSV), b"1\n2\n3\n", "3 answers to 2 records"),
    case("answers on one line", processing(CSV), b"1,2", "1 answers to 2 records"),
    case("no such column", processing(CSV, out="$[5]"), b"1\n2", "index 5"),
    case("no JSON", processing(LINES), b"{\n}", "to record 7 is not application/jsonlines: .*: {"),
    case("a cut row", processing(CSV), b'1\n"2\n', "to record 8 is not text/csv: .*quotes"),
)
def test_answers_that_fit_no_record_are_named(
    made: RecordProcessing, answer: bytes, named: str
) -> None:
    with pytest.raises(RecordError, match=named):
        made.build_output(replace(payload(b"1", b"2"), first_number=7), answer, [])
