import pytest

from hostelry.domain.transform_job import BatchStrategy
from hostelry.jobs.records.batching import Batcher
from hostelry.jobs.records.splitting import SplitRecord

SINGLE, MULTI = BatchStrategy.SINGLE_RECORD, BatchStrategy.MULTI_RECORD


@pytest.mark.parametrize(
    ("strategy", "lines", "sent"),
    [
        pytest.param(SINGLE, "a b", [(1, b"a"), (2, b"b")], id="single records have no ending"),
        pytest.param(MULTI, "a b c", [(1, b"a\nb\nc\n")], id="as many as fit"),
        pytest.param(
            MULTI, "aa bb cc", [(1, b"aa\nbb\n"), (3, b"cc\n")], id="the next payload begins"
        ),
        pytest.param(MULTI, "a bbbbbb", [(1, b"a\n"), (2, b"bbbbbb\n")], id="a large one alone"),
        pytest.param(MULTI, "", [], id="no record, no payload"),
    ],
)
def test_records_are_batched(
    strategy: BatchStrategy, lines: str, sent: list[tuple[int, bytes]]
) -> None:
    batcher = Batcher(strategy, 7)
    records = [SplitRecord(it.encode() + b"\n", it.encode()) for it in lines.split()]
    payloads = batcher.add(records) + batcher.finish()
    assert [(it.first_number, it.body) for it in payloads] == sent
