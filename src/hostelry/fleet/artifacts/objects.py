"""Client of the object store: facts, listings, ranges and parallel downloads. Calls block.

Wraps boto3. Every failure raises ArtifactError or ArtifactUnavailableError with the URI. boto3 is
imported on first use, so that an agent answers and warms an interpreter before.
"""

import hashlib
import math
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from hostelry.base.clock import monotonic_s
from hostelry.fleet.artifacts.protocol import ArtifactError, ArtifactUnavailableError

MAX_CONNECTIONS = 32
CONNECT_TIMEOUT_S = 3
READ_TIMEOUT_S = 30
MAX_LISTED = 100_000
# Errors after which the same request may succeed.
RETRYABLE_CODES = frozenset(
    {"PreconditionFailed", "RequestTimeout", "SlowDown", "412", "408", "429"}
)
STREAM_BYTES = 1024 * 1024


class ObjectFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One version of an object, pinned by `etag`. `md5` is its digest if S3 gives it."""

    bucket: str
    key: str
    size_bytes: int
    etag: str
    md5: str | None = None

    @property
    def uri(self) -> str:
        """The object's s3:// URI."""
        return f"s3://{self.bucket}/{self.key}"


def split_uri(uri: str) -> tuple[str, str]:
    """Bucket and key of ``s3://bucket/key``. Raises ArtifactError for any other form."""
    scheme, _, rest = uri.partition("://")
    bucket, _, key = rest.partition("/")
    if scheme != "s3" or not bucket:
        raise ArtifactError(f'"{uri}" is not an S3 URI of the form s3://bucket/key')
    return bucket, key


def split_prefix(uri: str) -> tuple[str, str]:
    """Bucket and key prefix of a folder's URI. The prefix ends with a slash, or is empty."""
    bucket, prefix = split_uri(uri)
    return bucket, prefix if prefix.endswith("/") or not prefix else prefix + "/"


def build_client(
    endpoint: str,
    access_key_id: str,
    secret_access_key: str,
    region: str,
    session_token: str | None = None,
) -> Any:
    """Build a boto3 client for the object store at `endpoint`, path-style."""
    import boto3
    from botocore.config import Config

    return boto3.session.Session().client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=access_key_id,
        aws_secret_access_key=secret_access_key,
        aws_session_token=session_token,
        region_name=region,
        config=Config(
            s3={"addressing_style": "path"},
            signature_version="s3v4",
            retries={"mode": "standard", "total_max_attempts": 3},
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
            max_pool_connections=MAX_CONNECTIONS,
            proxies={},
        ),
    )


class LateClient:
    """A client that is created on first use, by any thread, and again after `max_age_s`."""

    def __init__(self, make: Callable[[], Any], max_age_s: float = math.inf) -> None:
        self._make = make
        self._max_age_s = max_age_s
        self._making = threading.Lock()
        self._client: Any = None
        self._made_at = 0.0

    def __getattr__(self, name: str) -> Any:
        """The client's attribute. If creation raises, the next use tries again."""
        with self._making:
            if self._client is None or monotonic_s() - self._made_at >= self._max_age_s:
                self._client, self._made_at = self._make(), monotonic_s()
            return getattr(self._client, name)


class S3Objects:
    """Objects of one S3 endpoint. Thread-safe."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def head(self, uri: str) -> ObjectFacts:
        """The object at `uri`. Raises ArtifactError with bucket and key if it does not exist."""
        bucket, key = split_uri(uri)
        if not key:
            raise ArtifactError(f'"{uri}" names a bucket and no object in it')
        try:
            with _translate_errors(uri):
                answer = self._client.head_object(Bucket=bucket, Key=key)
        except ArtifactError as error:
            # The answer to HEAD has no body to distinguish a missing bucket from a missing object.
            self._check_bucket(bucket, uri)
            raise ArtifactError(f'{error} (bucket "{bucket}", key "{key}")') from error
        etag = answer["ETag"]
        encrypted = answer.get("ServerSideEncryption", "").startswith("aws:kms")
        return ObjectFacts(
            bucket=bucket,
            key=key,
            size_bytes=answer["ContentLength"],
            etag=etag,
            md5=None if encrypted else _find_md5(etag),
        )

    def list(self, uri: str) -> list[ObjectFacts]:
        """Every object below the prefix `uri`, sorted by key, without folder markers.

        Raises ArtifactError for a missing bucket, or more than MAX_LISTED objects.
        """
        bucket, prefix = split_prefix(uri)
        found: list[ObjectFacts] = []
        with _translate_errors(uri):
            pages = self._client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=bucket, Prefix=prefix):
                found += [_to_facts(bucket, row) for row in page.get("Contents", ())]
                if len(found) > MAX_LISTED:
                    raise ArtifactError(f"more than {MAX_LISTED} objects lie below {uri}")
        found = [facts for facts in found if not facts.key.endswith("/")]
        return sorted(found, key=lambda facts: facts.key)

    def read(self, facts: ObjectFacts, start: int, end: int) -> Iterator[bytes]:
        """The bytes from `start` up to but without `end`, of exactly this version of the object."""
        with _translate_errors(facts.uri):
            answer = self._client.get_object(
                Bucket=facts.bucket,
                Key=facts.key,
                Range=f"bytes={start}-{end - 1}",
                IfMatch=facts.etag,
            )
            body = answer["Body"]
            try:
                yield from body.iter_chunks(STREAM_BYTES)
            finally:
                body.close()

    def _check_bucket(self, bucket: str, uri: str) -> None:
        with _translate_errors(f'bucket "{bucket}" of {uri}', missing="NoSuchBucket"):
            self._client.head_bucket(Bucket=bucket)


def _to_facts(bucket: str, row: dict[str, Any]) -> ObjectFacts:
    etag = row["ETag"]
    return ObjectFacts(bucket=bucket, key=row["Key"], size_bytes=row["Size"], etag=etag)


def _find_md5(etag: str) -> str | None:
    """The MD5 that an ETag is if the object was put in one piece, otherwise None."""
    digest = etag.strip('"').lower()
    is_hex = len(digest) == 32 and all(letter in "0123456789abcdef" for letter in digest)
    return digest if is_hex else None


@contextmanager
def _translate_errors(uri: str, missing: str = "NoSuchKey") -> Iterator[None]:
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        HTTPClientError,
    )
    from urllib3.exceptions import HTTPError

    try:
        yield
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        text = f"{_get_error_name(code, missing)}: {uri}: {error}"
        if status >= 500 or code in RETRYABLE_CODES:
            raise ArtifactUnavailableError(text) from error
        raise ArtifactError(text) from error
    except (BotoCoreError, HTTPClientError, HTTPError) as error:
        raise ArtifactUnavailableError(f"the object store failed on {uri}: {error}") from error


def _get_error_name(code: str, missing: str) -> str:
    """S3's name of an error whose HEAD answer has only a number."""
    return {"404": missing, "403": "AccessDenied", "412": "PreconditionFailed"}.get(code, code)


PART_BYTES = 16 * 1024 * 1024
MAX_THREADS = 8
MAX_PART_ATTEMPTS = 3


class DownloadProgress:
    """Bytes read so far, reported to `note` at each tenth. Thread-safe."""

    def __init__(self, what: str, total_bytes: int, note: Callable[[str], None]) -> None:
        self._what = what
        self._total_bytes = total_bytes
        self._note = note
        self._read_bytes = 0
        self._tenths_noted = 0
        self._lock = threading.Lock()

    def add(self, read_bytes: int) -> None:
        """Count bytes. A failed part subtracts its bytes."""
        with self._lock:
            self._read_bytes += read_bytes
            tenths = 10 * self._read_bytes // max(1, self._total_bytes)
            noted = self._tenths_noted
            self._tenths_noted = max(noted, tenths)
            read_mib = self._read_bytes / 2**20
        if tenths > noted:
            self._note(
                f"downloading {self._what}: {10 * tenths}% "
                f"({read_mib:.1f} of {self._total_bytes / 2**20:.1f} MiB)"
            )


def download(
    objects: S3Objects,
    facts: ObjectFacts,
    path: Path,
    progress: DownloadProgress,
    check_cancelled: Callable[[], None],
) -> None:
    """Write the object to `path`. Removes the file on any failure.

    Raises ArtifactUnavailableError if the object changed meanwhile or came incomplete.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        try:
            os.truncate(descriptor, facts.size_bytes)
            _read_parts(objects, facts, descriptor, progress, check_cancelled)
        finally:
            os.close(descriptor)
        _check_digest(facts, path, check_cancelled)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _read_parts(
    objects: S3Objects,
    facts: ObjectFacts,
    descriptor: int,
    progress: DownloadProgress,
    check_cancelled: Callable[[], None],
) -> None:
    starts = range(0, facts.size_bytes, PART_BYTES)
    if not starts:
        return
    failed = threading.Event()

    def check() -> None:
        check_cancelled()
        if failed.is_set():
            raise ArtifactUnavailableError(f"another part of {facts.uri} failed")

    def read(start: int) -> None:
        try:
            _read_part(objects, facts, start, descriptor, progress, check)
        except BaseException:
            failed.set()
            raise

    with ThreadPoolExecutor(min(MAX_THREADS, len(starts)), "part") as threads:
        parts = [threads.submit(read, start) for start in starts]
    errors = [error for part in parts if (error := part.exception()) is not None]
    # The part that failed first has the cause. The others only refer to it.
    for error in sorted(errors, key=lambda it: "another part" in str(it)):
        raise error


def _read_part(
    objects: S3Objects,
    facts: ObjectFacts,
    start: int,
    descriptor: int,
    progress: DownloadProgress,
    check: Callable[[], None],
) -> None:
    end = min(start + PART_BYTES, facts.size_bytes)
    fault = ArtifactUnavailableError(facts.uri)
    for _ in range(MAX_PART_ATTEMPTS):
        position = start
        try:
            for block in objects.read(facts, start, end):
                check()
                os.pwrite(descriptor, block, position)
                position += len(block)
                progress.add(len(block))
        except ArtifactUnavailableError as error:
            fault = error
        else:
            if position == end:
                return
            fault = ArtifactUnavailableError(
                f"{facts.uri}: {position - start} of {end - start} bytes came"
            )
        progress.add(start - position)
        check()
    raise fault


def _check_digest(facts: ObjectFacts, path: Path, check_cancelled: Callable[[], None]) -> None:
    """Compare with the MD5 that S3 gave as the ETag of an object put in one piece."""
    if facts.md5 is None:
        return
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(PART_BYTES):
            check_cancelled()
            digest.update(block)
    if digest.hexdigest() != facts.md5:
        raise ArtifactUnavailableError(
            f"{facts.uri} arrived damaged: MD5 {digest.hexdigest()}, expected {facts.md5}"
        )
