from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.jobs.transform_jobs import JOB

from hostelry.domain.transform_job import BatchStrategy
from hostelry.jobs.copy_parameters import MB, choose_payload_settings

SINGLE, MULTI = BatchStrategy.SINGLE_RECORD, BatchStrategy.MULTI_RECORD
REPLY = b'{"MaxConcurrentTransforms": 4, "BatchStrategy": "SINGLE_RECORD", "MaxPayloadInMB": 3}'


@cases(
    "given, answer, expected",
    case("the defaults", {}, None, (1, MULTI, 6)),
    case("what the container says", {}, REPLY, (4, SINGLE, 3)),
    case("what the request says", {"max_concurrent": 2, "strategy": MULTI, "max_payload_mb": 5},
        REPLY, (2, MULTI, 5)),
    case("no limit is 100 MB", {"max_payload_mb": 0}, None, (1, MULTI, 100)),
    case("100 MB in flight at most", {"max_payload_mb": 40}, REPLY, (2, SINGLE, 40)),
    case("an answer that is no JSON", {}, b"not found", (1, MULTI, 6)),
    case("values outside of their limits", {},
        b'{"MaxConcurrentTransforms": true, "MaxPayloadInMB": 500, "BatchStrategy": 1}',
        (1, MULTI, 6)),
)  # fmt: skip
def test_the_request_comes_before_the_container_before_defaults(
    given: dict[str, object], answer: bytes | None, expected: tuple[int, BatchStrategy, int]
) -> None:
    found = choose_payload_settings(replace(JOB, **given), answer)
    payload_mb = found.max_payload_bytes // MB
    assert (found.max_concurrent, found.strategy, payload_mb) == expected
