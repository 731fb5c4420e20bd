from tests.cases import case, cases

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


@cases(
    "status, body, expected",
    case("no object", 404, answer("NoSuchKey"), ObjectMissingError),
    case("no bucket", 404, answer("NoSuchBucket"), NoSuchBucketError),
    case("404 without a code", 404, b"", ObjectMissingError),
    case("no permission", 403, answer("AccessDenied"), ObjectDeniedError),
    case("another version", 412, answer("PreconditionFailed"), ObjectChangedError),
    case("busy", 503, answer("SlowDown"), ObjectStoreDownError),
    case("an error that is not S3's", 500, b"<html>", ObjectStoreDownError),
    case("a late body", 400, answer("RequestTimeout"), ObjectStoreDownError),
    case("no such KMS key", 400, answer("KMS.NotFoundException"), ObjectError),
)
def test_the_error_of_an_answer(status: int, body: bytes, expected: type[ObjectError]) -> None:
    error = build_refusal(status, body, "reading s3://b/k")
    assert type(error) is expected
    assert str(error).startswith(f"reading s3://b/k: the object store answered {status}")
