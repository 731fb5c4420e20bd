"""Decisions of the S3 proxy from the head of a request. Pure."""

from urllib.parse import unquote
from xml.sax.saxutils import escape

import msgspec

from hostelry.http1.heads import build_answer
from hostelry.s3.head import Head

ENCRYPTION = "x-amz-server-side-encryption"
KEY_ID = "x-amz-server-side-encryption-aws-kms-key-id"
TOKEN = "x-amz-security-token"
CUSTOMERS_KEY = frozenset({"x-amz-server-side-encryption-customer-algorithm"})
PARTS = frozenset({"uploadid", "tagging", "acl", "retention", "legal-hold"})
KMS = "aws:kms"
SERVED = (KMS, "AES256")
DEFAULT_KEY = "alias/aws/s3"
# The pieces of such a body are signed, beginning with the head's signature. So the proxy cannot
# sign the head again.
SIGNED_PIECES = "STREAMING-AWS4"


class S3Refusal(Exception):  # noqa: N818 - an answer of S3's, not a failure of the proxy
    """The proxy answers a request itself, with S3's code and text."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


class Wants(msgspec.Struct, frozen=True, kw_only=True):
    """The work that a request needs besides being passed on.

    `key` is the KMS key to look up, and `adds_key` means that the request does not name it. `token`
    is the session token of temporary keys. `starts_upload` means that the request begins a
    multipart upload, to which the bucket's default encryption may apply, and `takes_default` that
    it writes an object to which it applies. `source` is the object that the request copies.
    """

    key: str = ""
    adds_key: bool = False
    token: str = ""
    starts_upload: bool = False
    takes_default: bool = False
    source: str = ""

    @property
    def nothing(self) -> bool:
        """True if the request is passed on unchanged."""
        return not (self.key or self.token or self.starts_upload)


def wants_of(head: Head) -> Wants:
    """Find the work that a request needs. Raises S3Refusal for an encryption that is not served."""
    request = head.request
    query = request.query.lower()
    if ENCRYPTION + "=" in query:
        message = f"{ENCRYPTION} is served as a header, not in the query."
        raise S3Refusal(501, "NotImplemented", message)
    values = request.headers
    method = values.get(ENCRYPTION, "")
    if method and method not in SERVED:
        message = f"The encryption method {method:.40} is not supported; use aws:kms or AES256."
        raise S3Refusal(501, "NotImplemented", message)
    names = {it.partition("=")[0] for it in query.split("&")}
    token = token_of(head)
    if token and "authorization" not in values and "x-amz-signature" not in names:
        message = (
            "With temporary keys a URL is presigned by Signature Version 4 only: "
            'Config(signature_version="s3v4").'
        )
        raise S3Refusal(501, "NotImplemented", message)
    given = values.get(KEY_ID, "")
    key = (given or DEFAULT_KEY) if method == KMS and head.method in ("PUT", "POST") else ""
    is_object = bool(unquote(request.path).lstrip("/").partition("/")[2])
    # A part takes the key of its upload.
    writes = head.method == "PUT" and is_object and not (PARTS & names)
    return Wants(
        key=key,
        adds_key=bool(key) and not given,
        token=token,
        starts_upload=head.method == "POST" and "uploads" in names and not method,
        takes_default=writes and not method and not CUSTOMERS_KEY & values.keys(),
        source=values.get("x-amz-copy-source", "") if head.method == "PUT" else "",
    )


def token_of(head: Head) -> str:
    """Find the session token in a request's header or query. Empty if it has none."""
    request = head.request
    if TOKEN in request.headers:
        return request.headers[TOKEN]
    for pair in request.query.split("&"):
        name, _, value = pair.partition("=")
        if name.lower() == TOKEN:
            return unquote(value)
    return ""


def check_can_sign(head: Head) -> None:
    """Raise S3Refusal if the body's pieces are signed, because the head cannot be signed again."""
    if head.values.get("x-amz-content-sha256", "").startswith(SIGNED_PIECES):
        raise S3Refusal(
            501,
            "NotImplemented",
            "A body that is signed in chunks needs a permanent access key, and with aws:kms the id "
            f"of the key ({DEFAULT_KEY} is the default one). Send it unchunked, or unsigned.",
        )


def error_answer(refusal: S3Refusal, request_id: str, *, has_body: bool) -> bytes:
    """Build S3's answer for a refusal. The connection closes after it."""
    body = (
        '<?xml version="1.0" encoding="UTF-8"?>\n<Error>'
        f"<Code>{escape(refusal.code)}</Code><Message>{escape(refusal.message)}</Message>"
        f"<RequestId>{request_id}</RequestId></Error>"
    ).encode()
    headers = {
        "Content-Type": "application/xml",
        "x-amz-request-id": request_id,
        "Connection": "close",
    }
    return build_answer(refusal.status, headers, body, has_body=has_body)
