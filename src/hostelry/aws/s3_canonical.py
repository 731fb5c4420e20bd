"""Parts of a request that S3 signatures cover in a way of their own. Pure."""

from urllib.parse import quote, unquote_to_bytes

from hostelry.base.http import HttpRequest

UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"


def s3_stated_hash(request: HttpRequest) -> str | None:
    """What the head says of the body: a hash, or how it is signed; None where nothing."""
    if "authorization" in request.headers:
        return request.headers.get("x-amz-content-sha256")
    return request.headers.get("x-amz-content-sha256", UNSIGNED_PAYLOAD)


def s3_path(path: str) -> str:
    """The path as S3 signs it: each byte that is not plain is percent-encoded once."""
    return quote(unquote_to_bytes(path), safe="/~")
