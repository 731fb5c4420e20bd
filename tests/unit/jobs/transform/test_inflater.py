import gzip

import pytest
from tests.cases import case, cases

from hostelry.jobs.records.splitting import RecordError
from hostelry.jobs.transform.object_work import INFLATED_AT_ONCE_BYTES, Inflater

URI = "s3://b/in/x.gz"


def inflated(body: bytes, step: int) -> bytes:
    inflater = Inflater(URI)
    found = b"".join(
        piece
        for begin in range(0, len(body), step)
        for piece in inflater.add_bytes(body[begin : begin + step])
    )
    inflater.finish()
    return found


@pytest.mark.parametrize("step", [1, 7, 100_000])
def test_members_are_inflated_one_after_the_other(step: int) -> None:
    body = gzip.compress(b"a,b\n" * 50) + gzip.compress(b"c,d\n")
    assert inflated(body, step) == b"a,b\n" * 50 + b"c,d\n"


def test_a_bomb_comes_in_pieces_of_bounded_size() -> None:
    bomb = gzip.compress(bytes(20 * INFLATED_AT_ONCE_BYTES))
    sizes = [len(it) for it in Inflater(URI).add_bytes(bomb)]
    assert sum(sizes) == 20 * INFLATED_AT_ONCE_BYTES
    assert max(sizes) <= INFLATED_AT_ONCE_BYTES


@cases(
    "body, named",
    case("no gzip", b"plain text", "is not gzip"),
    case("cut off", gzip.compress(b"abc")[:-4], "ends early"),
    case("nothing", b"", "ends early"),
)
def test_what_is_no_gzip_is_named(body: bytes, named: str) -> None:
    with pytest.raises(RecordError, match=named):
        inflated(body, 100)
