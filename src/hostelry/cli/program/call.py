"""Recognise AWS calls on the wire: service, operation and result. Pure."""

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
from msgspec.structs import replace

AWS_HOST = re.compile(r"(^|\.)(amazonaws\.com(\.cn)?|api\.aws)$")
S3_HOST = re.compile(r"(^|\.)s3([.-]|$)")
# The scope of a signature, in a header or in the query of a presigned URL.
SCOPE = re.compile(
    r"[^/\s](?:/|%2F)\d{8}(?:/|%2F)[^/%\s]+(?:/|%2F)([a-z0-9-]+)(?:/|%2F)aws4_request"
)
# Signing name -> boto3's name of the service.
BOTO3_NAMES = {"monitoring": "cloudwatch"}
RUNTIME_OPERATIONS = {
    "invocations": "InvokeEndpoint",
    "invocations-response-stream": "InvokeEndpointWithResponseStream",
    "async-invocations": "InvokeEndpointAsync",
}
# Method and marker in the query -> operation, first for objects, then for buckets.
OBJECT_OPERATIONS = (
    ("PUT", "partNumber", "UploadPart"),
    ("PUT", "tagging", "PutObjectTagging"),
    ("PUT", "", "PutObject"),
    ("GET", "uploadId", "ListParts"),
    ("GET", "tagging", "GetObjectTagging"),
    ("GET", "", "GetObject"),
    ("HEAD", "", "HeadObject"),
    ("DELETE", "uploadId", "AbortMultipartUpload"),
    ("DELETE", "", "DeleteObject"),
    ("POST", "uploads", "CreateMultipartUpload"),
    ("POST", "uploadId", "CompleteMultipartUpload"),
)
BUCKET_OPERATIONS = (
    ("GET", "location", "GetBucketLocation"),
    ("GET", "uploads", "ListMultipartUploads"),
    ("GET", "encryption", "GetBucketEncryption"),
    ("GET", "policy", "GetBucketPolicy"),
    ("GET", "list-type", "ListObjectsV2"),
    ("GET", "", "ListObjects"),
    ("PUT", "encryption", "PutBucketEncryption"),
    ("PUT", "policy", "PutBucketPolicy"),
    ("PUT", "", "CreateBucket"),
    ("HEAD", "", "HeadBucket"),
    ("DELETE", "", "DeleteBucket"),
    ("POST", "delete", "DeleteObjects"),
)
UNKNOWN_CODES = frozenset(
    {"UnknownOperationException", "UnknownOperation", "InvalidAction", "NotImplemented"}
)
NOT_SUPPORTED = "is not supported by this version"
MAX_ROWS = 500  # a program calls some dozens of operations
MAX_MESSAGE = 300


class Verdict(StrEnum):
    """The result of a call, by its answer.

    | answer | verdict |
    | --- | --- |
    | a status below 400 | OK |
    | a code of `UNKNOWN_CODES` | UNSERVED |
    | an error which says that a field is not supported | REFUSED |
    | any other error | FAILED |
    """

    OK = "ok"
    FAILED = "error"
    REFUSED = "refused field"
    UNSERVED = "not served"


class SeenCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call that a program made.

    `host` is the called host if it is one of AWS's own. `error` and `message` come from an error
    answer. `at` is the time of the end, in epoch seconds.
    """

    service: str
    operation: str
    status: int
    error: str = ""
    message: str = ""
    host: str = ""
    at: float = 0.0

    @property
    def verdict(self) -> Verdict:
        """The result of the call."""
        if self.status < 400:
            return Verdict.OK
        if self.error in UNKNOWN_CODES:
            return Verdict.UNSERVED
        return Verdict.REFUSED if NOT_SUPPORTED in self.message else Verdict.FAILED


class SeenRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a request that identify its operation. `body` is the beginning of the body."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""


def is_aws(host: str) -> bool:
    """Whether `host` is one of AWS's own."""
    return bool(AWS_HOST.search(host.lower().partition(":")[0]))


def is_s3(host: str) -> bool:
    """Whether an AWS host is one of S3's."""
    return bool(S3_HOST.search(host.lower()))


def get_operation(request: SeenRequest) -> tuple[str, str]:
    """Service and operation of a request, or method and path if it names no operation."""
    signed = SCOPE.search(request.headers.get("authorization", "")) or SCOPE.search(request.target)
    service = BOTO3_NAMES.get(signed[1], signed[1]) if signed else ""
    path, query = urlsplit(request.target).path, urlsplit(request.target).query
    header = request.headers.get("x-amz-target", "")
    if header:
        return service or header.rpartition(".")[0], header.rpartition(".")[2]
    if path.startswith("/service/"):
        return service or path.split("/")[2], path.rpartition("/")[2]
    if path.startswith("/endpoints/"):
        unknown = f"{request.method} {path}"
        return "sagemaker-runtime", RUNTIME_OPERATIONS.get(path.rpartition("/")[2], unknown)
    if service == "s3":
        return "s3", s3_operation(request.method, path, query, request.headers)
    form = request.body.decode(errors="replace") if request.method == "POST" else query
    action = parse_qs(form).get("Action", [""])[0]
    return service or "unsigned", action or f"{request.method} {path}"


def s3_operation(method: str, path: str, query: str, headers: Mapping[str, str]) -> str:
    """The operation of an S3 request with the bucket in its path."""
    bucket, _, key = path.strip("/").partition("/")
    if not bucket:
        return "ListBuckets"
    if key and method == "PUT" and "x-amz-copy-source" in headers:
        return "CopyObject"
    given = parse_qs(query, keep_blank_values=True)
    for of, marker, operation in OBJECT_OPERATIONS if key else BUCKET_OPERATIONS:
        if of == method and (not marker or marker in given):
            return operation
    return f"{method} {'object' if key else 'bucket'}"


def parse_error(status: int, headers: Mapping[str, str], body: bytes) -> tuple[str, str]:
    """Code and message of an error answer in any of AWS's protocols. `body` is its beginning."""
    text = body.decode(errors="replace")
    code = headers.get("x-amzn-errortype", "").partition(":")[0]
    if not code:
        found = re.search(r'"__type"\s*:\s*"(?:[^"#]*#)?([^"]+)"|<Code>([^<]+)</Code>', text)
        code = (found[1] or found[2]) if found else str(status)
    text_found = re.search(
        r'"[mM]essage"\s*:\s*"((?:[^"\\]|\\.)*)"|<Message>([^<]*)</Message>', text
    )
    return code, (text_found[1] or text_found[2] or "") if text_found else ""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one operation with the same result. `message` is the first one's."""

    service: str
    operation: str
    verdict: Verdict
    error: str
    host: str
    count: int
    message: str


class CallReport(msgspec.Struct):
    """The calls so far, by operation and result. Beyond `MAX_ROWS` rows calls are only counted."""

    _rows: dict[tuple[str, ...], Row] = msgspec.field(default_factory=dict)
    uncounted: int = 0

    def add(self, call: SeenCall) -> None:
        """Count a call."""
        key = (call.service, call.operation, call.verdict, call.error, call.host)
        row = self._rows.get(key)
        if row is not None:
            self._rows[key] = replace(row, count=row.count + 1)
        elif len(self._rows) >= MAX_ROWS:
            self.uncounted += 1
        else:
            self._rows[key] = Row(
                service=call.service[:MAX_MESSAGE],
                operation=call.operation[:MAX_MESSAGE],
                verdict=call.verdict,
                error=call.error[:MAX_MESSAGE],
                host=call.host[:MAX_MESSAGE],
                count=1,
                message=call.message[:MAX_MESSAGE],
            )

    @property
    def rows(self) -> list[Row]:
        """All rows, by service and operation."""
        return sorted(self._rows.values(), key=lambda it: (it.service, it.operation, it.error))

    @property
    def unserved(self) -> list[Row]:
        """Operations and fields that are not served."""
        bad = (Verdict.UNSERVED, Verdict.REFUSED)
        return [row for row in self.rows if row.verdict in bad]

    @property
    def strays(self) -> list[Row]:
        """Failed calls to AWS's own hosts."""
        return [row for row in self.rows if row.host and row.verdict is not Verdict.OK]

    def to_json(self) -> dict[str, Any]:
        """The report for JSON output."""
        return {
            "calls": [as_json(row) for row in self.rows],
            "unserved": [as_json(row) for row in self.unserved],
            "uncounted": self.uncounted,
        }


def as_json(row: Row) -> dict[str, Any]:
    """A row for JSON output."""
    shown = {
        "service": row.service,
        "operation": row.operation,
        "result": str(row.verdict),
        "error": row.error,
        "count": row.count,
        "message": row.message,
        "aws_host": row.host,
    }
    return {name: value for name, value in shown.items() if value != ""}


def report_lines(report: CallReport) -> Iterator[str]:
    """The report as text: a table, the calls that are not served, and the verdict."""
    rows = report.rows
    if not rows:
        yield "no AWS call was made"
        return
    names = [f"{row.service}:{row.operation}" for row in rows]
    width = max(len(name) for name in names)
    for name, row in zip(names, rows, strict=True):
        result = row.verdict if not row.error else f"{row.verdict} {row.error}"
        where = f"  (called {row.host})" if row.host else ""
        yield f"{name:<{width}}  {row.count:>5}  {result}{where}"
    if report.uncounted:
        yield f"... and {report.uncounted} calls of further operations"
    for row in report.unserved:
        yield f"not served: {row.service}:{row.operation}: {row.message or row.error}"
    yield verdict_line(report)


def verdict_line(report: CallReport) -> str:
    """The verdict on one line."""
    total = sum(row.count for row in report.rows) + report.uncounted
    bad = sum(row.count for row in report.unserved)
    if bad:
        return f"{bad} of {total} AWS calls need what this hostelry does not serve"
    return f"{total} AWS calls, all of them served"


def stray_lines(report: CallReport) -> Iterator[str]:
    """A line for each failed call to an AWS host. Such calls have not left this machine."""
    for row in report.strays:
        yield (
            f"{row.host} {row.service}:{row.operation} ({row.count}): answered here with"
            f" {row.error or 'an error'}; nothing was sent to AWS"
        )
