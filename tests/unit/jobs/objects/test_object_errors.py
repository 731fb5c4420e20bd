import pytest

from hostelry.jobs.objects.object_store import (
    NoSuchBucketError,
    ObjectChangedError,
    ObjectDeniedError,
    ObjectError,
    ObjectMissingError,
    ObjectStoreDownError,
    build_refusal,
)


def answer(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>why</Message></Error>".encode()


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        pytest.param(404, answer("NoSuchKey"), ObjectMissingError, id="no object"),
        pytest.param(404, answer("NoSuchBucket"), NoSuchBucketError, id="no bucket"),
        pytest.param(404, b"", ObjectMissingError, id="404 without a code"),
        pytest.param(403, answer("AccessDenied"), ObjectDeniedError, id="no permission"),
        pytest.param(412, answer("PreconditionFailed"), ObjectChangedError, id="another version"),
        pytest.param(503, answer("SlowDown"), ObjectStoreDownError, id="busy"),
        pytest.param(500, b"<html>", ObjectStoreDownError, id="an error that is not S3's"),
        pytest.param(400, answer("RequestTimeout"), ObjectStoreDownError, id="a late body"),
        pytest.param(400, answer("KMS.NotFoundException"), ObjectError, id="no such KMS key"),
    ],
)
def test_the_error_of_an_answer(status: int, body: bytes, expected: type[ObjectError]) -> None:
    error = build_refusal(status, body, "reading s3://b/k")
    assert type(error) is expected
    assert str(error).startswith(f"reading s3://b/k: the object store answered {status}")
