from tests.cases import case, cases

from hostelry.domain.transform_job import BatchStrategy
from hostelry.jobs.records.splitting import Batcher, SplitRecord

SINGLE, MULTI = BatchStrategy.SINGLE_RECORD, BatchStrategy.MULTI_RECORD


@cases(
    "strategy, lines, sent",
    case("single records have no ending", SINGLE, "a b", [(1, b"a"), (2, b"b")]),
    case("as many as fit", MULTI, "a b c", [(1, b"a\nb\nc\n")]),
    case("the next payload begins", MULTI, "aa bb cc", [(1, b"aa\nbb\n"), (3, b"cc\n")]),
    case("a large one alone", MULTI, "a bbbbbb", [(1, b"a\n"), (2, b"bbbbbb\n")]),
    case("no record, no payload", MULTI, "", []),
)
def test_records_are_batched(
    strategy: BatchStrategy, lines: str, sent: list[tuple[int, bytes]]
) -> None:
    batcher = Batcher(strategy, 7)
    records = [SplitRecord(it.encode() + b"\n", it.encode()) for it in lines.split()]
    payloads = batcher.add(records) + batcher.finish()
    assert [(it.first_number, it.body) for it in payloads] == sent
