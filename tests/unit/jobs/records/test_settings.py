from dataclasses import replace

import pytest
from tests.unit.jobs.transform_jobs import JOB

from hostelry.domain.transform_job import BatchStrategy
from hostelry.jobs.records.settings import MB, payload_settings

SINGLE, MULTI = BatchStrategy.SINGLE_RECORD, BatchStrategy.MULTI_RECORD
REPLY = b'{"MaxConcurrentTransforms": 4, "BatchStrategy": "SINGLE_RECORD", "MaxPayloadInMB": 3}'


@pytest.mark.parametrize(
    ("given", "answer", "expected"),
    [
        pytest.param({}, None, (1, MULTI, 6), id="the defaults"),
        pytest.param({}, REPLY, (4, SINGLE, 3), id="what the container says"),
        pytest.param(
            {"max_concurrent": 2, "strategy": MULTI, "max_payload_mb": 5},
            REPLY,
            (2, MULTI, 5),
            id="what the request says",
        ),
        pytest.param({"max_payload_mb": 0}, None, (1, MULTI, 100), id="no limit is 100 MB"),
        pytest.param({"max_payload_mb": 40}, REPLY, (2, SINGLE, 40), id="100 MB in flight at most"),
        pytest.param({}, b"not found", (1, MULTI, 6), id="an answer that is no JSON"),
        pytest.param(
            {}, b'{"MaxConcurrentTransforms": true, "MaxPayloadInMB": 500, "BatchStrategy": 1}',
            (1, MULTI, 6), id="values outside of their limits",
        ),
    ],
)  # fmt: skip
def test_the_request_comes_before_the_container_before_defaults(
    given: dict[str, object], answer: bytes | None, expected: tuple[int, BatchStrategy, int]
) -> None:
    found = payload_settings(replace(JOB, **given), answer)  # type: ignore[arg-type]
    payload_mb = found.max_payload_bytes // MB
    assert (found.max_concurrent, found.strategy, payload_mb) == expected
