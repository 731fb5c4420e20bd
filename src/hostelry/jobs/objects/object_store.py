"""Client of the object store on the event loop.

It uses the gateway's HTTP client and not boto3 in threads, so that objects stream with the flow
control of the connection, and a small object costs only its two messages.
"""

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from types import MappingProxyType
from urllib.parse import urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import msgspec

from hostelry.aws.s3_signing import OwnKey, object_target, signed_request_head
from hostelry.base.errors import HostelryError
from hostelry.domain.object_event import CHAIN_HEADER
from hostelry.http1.reply import Reply, UpstreamError
from hostelry.http1.upstream import Timeouts, UpstreamPool

# ObjectError                     the same request will fail again
# ├── ObjectMissingError          the object is missing
# ├── NoSuchBucketError           the bucket is missing
# ├── ObjectDeniedError           the platform's keys lack the permission
# ├── ObjectChangedError          the object has another version now
# └── ObjectStoreDownError        the store failed, or does not answer. It may succeed later
#
# answer of the store                          error
# ------------------------------------------   ------------------------------------------
# NoSuchBucket                                 NoSuchBucketError
# NoSuchKey, any other 404                     ObjectMissingError
# 412                                          ObjectChangedError
# 403                                          ObjectDeniedError
# 408, 429, 5xx, SlowDown, RequestTimeout      ObjectStoreDownError
# any other                                    ObjectError
CODE = re.compile(rb"<Code>([^<]{1,100})</Code>")
MESSAGE = re.compile(rb"<Message>([^<]{1,500})</Message>")
TRANSIENT = frozenset({"SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable"})


class ObjectError(HostelryError):
    """The object cannot be read or written."""


class ObjectMissingError(ObjectError):
    """The object is missing."""


class NoSuchBucketError(ObjectError):
    """The bucket is missing."""


class ObjectDeniedError(ObjectError):
    """The object store refuses the platform's keys."""


class ObjectChangedError(ObjectError):
    """The object is no longer the version that was being read."""


class ObjectStoreDownError(ObjectError):
    """The object store failed or could not be reached. The same request may succeed later."""


def build_refusal(status: int, body: bytes, what: str) -> ObjectError:
    """Build the error for an answer that is not 2xx. `what` is the call and its object's URI."""
    code, reason = _find_text(CODE, body), _find_text(MESSAGE, body)
    text = f"{what}: the object store answered {status} {code} {reason}".rstrip()
    if code == "NoSuchBucket":
        return NoSuchBucketError(text)
    if status == 404:
        return ObjectMissingError(text)
    if status == 412:
        return ObjectChangedError(text)
    if status in (408, 429) or status >= 500 or code in TRANSIENT:
        return ObjectStoreDownError(text)
    return ObjectDeniedError(text) if status == 403 else ObjectError(text)


def _find_text(pattern: "re.Pattern[bytes]", body: bytes) -> str:
    found = pattern.search(body)
    return "" if found is None else found.group(1).decode("utf-8", "replace")


class ListedObject(msgspec.Struct, frozen=True):
    """An object's key and size."""

    key: str
    size_bytes: int


class ListedPage(msgspec.Struct, frozen=True):
    """A page of objects by key. `after` asks for the next page. None on the last page."""

    objects: tuple[ListedObject, ...]
    after: str | None


def read_page(answer: bytes, what: str) -> ListedPage:
    """Parse a page. Raises ObjectStoreDownError, which names the call `what`, if it is invalid."""
    try:
        root = ElementTree.fromstring(answer)  # expat limits entities
        found = tuple(
            ListedObject(_text(child, "Key"), int(_text(child, "Size")))
            for child in root
            if child.tag.endswith("Contents")
        )
        after = _text(root, "NextContinuationToken")
    except (ElementTree.ParseError, ValueError) as error:
        raise ObjectStoreDownError(f"{what}: the answer cannot be read: {error}") from error
    return ListedPage(found, after or None)


def _text(parent: ElementTree.Element, name: str) -> str:
    for child in parent:
        if child.tag.rpartition("}")[2] == name:
            return child.text or ""
    return ""


PART_BYTES = 8 * 1024 * 1024
MAX_ERROR_BYTES = 64 * 1024
MAX_LIST_BYTES = 16 * 1024 * 1024  # for a page of 1,000 objects
HASH_IN_THREAD_BYTES = 256 * 1024
MAX_RESUMES = 5
PUT_PAUSES_S = (0.1, 0.5, 1.0)
CALL_TIMEOUTS = Timeouts(total_s=60.0, connect_s=3.0)
# An object is read as fast as a copy takes it. Attempts have their own limit.
STREAM_TIMEOUTS = Timeouts(total_s=4 * 3600.0, connect_s=3.0, first_byte_s=30.0)
UPLOAD_ID = re.compile(rb"<UploadId>([^<]+)</UploadId>")
KMS = "aws:kms"
BUCKET_KNOWN_S = 30.0  # until the existence of a bucket is checked again
MAX_BUCKETS = 1000


class OutputSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Metadata of an output object."""

    content_type: str | None = None
    kms_key_id: str | None = None
    chain_length: int = 0

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the request that makes the object."""
        found = {"Content-Type": self.content_type or "application/octet-stream"}
        if self.kms_key_id is not None:
            found["X-Amz-Server-Side-Encryption"] = KMS
            found["X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id"] = self.kms_key_id
        return {**found, **self.chain}

    @property
    def chain(self) -> dict[str, str]:
        """The header that limits chains of jobs which start each other."""
        return {CHAIN_HEADER: str(self.chain_length)} if self.chain_length else {}


def split_object_uri(uri: str) -> tuple[str, str]:
    """Split ``s3://bucket/key`` into bucket and key. Raises ObjectError if the URI is invalid."""
    scheme, _, rest = uri.partition("://")
    bucket, _, key = rest.partition("/")
    if scheme != "s3" or not bucket or not key:
        raise ObjectError(f'"{uri}" is not the URI of an object, s3://bucket/key')
    return bucket, key


class StoredObject:
    """One version of an object, open for reading. `close` must be called once."""

    def __init__(self, store: "ObjectStore", uri: str, reply: Reply) -> None:
        headers = reply.headers
        self.uri = uri
        self.size_bytes = int(headers.get("content-length", "0"))
        self.content_type = headers.get("content-type")
        self._etag = headers.get("etag", "")
        self._store = store
        self._reply = reply

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the object's bytes. Replaces a broken connection, if the version is unchanged."""
        position = resumes = 0
        while position < self.size_bytes:
            try:
                while (chunk := await self._reply.next_chunk()) is not None:
                    position += len(chunk)
                    resumes = 0
                    yield chunk
            except UpstreamError as error:
                resumes += 1
                if resumes > MAX_RESUMES:
                    raise ObjectStoreDownError(
                        f"reading {self.uri} broke off at byte {position}: {error}"
                    ) from error
                self._reply.close()
                pinned = {"If-Match": self._etag} if self._etag else {}
                self._reply = await self._store.get(
                    self.uri, {"Range": f"bytes={position}-", **pinned}, 206
                )

    async def whole(self) -> bytes:
        """Read all bytes of a small object."""
        return b"".join([chunk async for chunk in self.chunks()])

    def close(self) -> None:
        """Stop reading."""
        self._reply.close()


class ObjectStore:
    """Objects of one S3 endpoint. Used by one event loop. Methods raise ObjectError.

    Args:
        url: the endpoint's. Objects are addressed path-style.
        key: signs requests.
        pool: connections.
        now: seconds since the epoch.
        account: in whose name objects are read and written. Empty: the key's own.
    """

    def __init__(
        self,
        url: str,
        key: OwnKey,
        pool: UpstreamPool,
        now: Callable[[], float],
        account: str = "",
    ) -> None:
        parts = urlsplit(url)
        self._address = f"{parts.scheme}://{parts.netloc}"
        self._host = parts.netloc
        self._base = parts.path.rstrip("/")
        self._key = key
        self._pool = pool
        self._now = now
        self._url = url
        self._behalf = {"X-Hostelry-For": account} if account else {}
        self._by_account: dict[str, ObjectStore] = {}
        self._seen: dict[str, float] = {}  # when each bucket was last seen

    def acting_for(self, account: str) -> "ObjectStore":
        """The store in the name of an account, which reaches the buckets of this account only."""
        found = self._by_account.get(account)
        if found is None:
            found = ObjectStore(self._url, self._key, self._pool, self._now, account)
            if len(self._by_account) >= MAX_BUCKETS:
                self._by_account.clear()
            self._by_account[account] = found
        return found

    async def open(self, uri: str) -> StoredObject:
        """Open an object for reading."""
        return StoredObject(self, uri, await self.get(uri, {}, 200))

    async def get(self, uri: str, headers: Mapping[str, str], expected: int) -> Reply:
        """Send a GET, and return the answer before its body. Its status must be `expected`."""
        bucket, key = split_object_uri(uri)
        reply = await self._send("GET", object_target(bucket, key), headers, b"", STREAM_TIMEOUTS)
        if reply.status == expected:
            return reply
        try:
            body = await reply.body(MAX_ERROR_BYTES)
        except UpstreamError as error:
            raise ObjectStoreDownError(f"reading {uri}: {error}") from error
        finally:
            reply.close()
        raise build_refusal(reply.status, body, f"reading {uri}")

    async def put(self, uri: str, body: bytes, settings: OutputSettings) -> None:
        """Write an object in one call. It becomes visible whole or not at all."""
        await self._check_bucket(uri)
        await self.call("PUT", uri, (), body, settings.headers)

    async def begin_upload(self, uri: str, settings: OutputSettings) -> "PartedUpload":
        """Begin an object of many parts, which becomes visible at `complete`."""
        headers = settings.headers
        await self._check_bucket(uri)
        _, answer = await self.call("POST", uri, (("uploads", ""),), b"", headers)
        found = UPLOAD_ID.search(answer)
        if found is None:
            raise ObjectError(f"writing {uri}: the object store gave no upload id")
        return PartedUpload(self, uri, found.group(1).decode(), settings.chain)

    async def list_page(self, bucket: str, prefix: str, after: str | None) -> ListedPage:
        """List a page of the objects below `prefix`. `after` comes from the page before it."""
        query = [("list-type", "2"), ("prefix", prefix)]
        if after is not None:
            query.append(("continuation-token", after))
        target = object_target(bucket, "", query)
        what = f"listing s3://{bucket}/{prefix}"
        _, answer = await self._call_with_retries("GET", target, {}, b"", what, MAX_LIST_BYTES)
        return read_page(answer, what)

    async def call(
        self,
        method: str,
        uri: str,
        query: Sequence[tuple[str, str]],
        body: bytes,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> tuple[Mapping[str, str], bytes]:
        """Make a call that writes an object, and return headers and body of the answer."""
        bucket, key = split_object_uri(uri)
        target = object_target(bucket, key, query)
        return await self._call_with_retries(method, target, headers, body, f"writing {uri}")

    async def _check_bucket(self, uri: str) -> None:
        """Raise NoSuchBucketError if the bucket is missing. The embedded store would create it."""
        bucket, _ = split_object_uri(uri)
        now = self._now()
        if 0.0 <= now - self._seen.get(bucket, 0.0) < BUCKET_KNOWN_S:
            return
        target = object_target(bucket, "", (("location", ""),))
        await self._call_with_retries("GET", target, {}, b"", f"writing {uri}")
        if len(self._seen) >= MAX_BUCKETS:
            self._seen.clear()
        self._seen[bucket] = now

    async def _call_with_retries(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes,
        what: str,
        most_bytes: int = MAX_ERROR_BYTES,
    ) -> tuple[Mapping[str, str], bytes]:
        """Make a call, and repeat it after failures of the store. All calls may be repeated."""
        for pause_s in (*PUT_PAUSES_S, None):
            try:
                reply = await self._send(method, target, headers, body, CALL_TIMEOUTS)
                return await self._answer(reply, what, most_bytes)
            except ObjectStoreDownError:
                if pause_s is None:
                    raise
                await asyncio.sleep(pause_s)
        raise AssertionError("the last attempt returns or raises")

    async def _answer(
        self, reply: Reply, what: str, most_bytes: int
    ) -> tuple[Mapping[str, str], bytes]:
        try:
            answer = await reply.body(most_bytes)
        except UpstreamError as error:
            raise ObjectStoreDownError(f"{what}: {error}") from error
        finally:
            reply.close()
        # The answer to completing an upload has status 200, and may have a failure in its body.
        if not 200 <= reply.status < 300 or b"<Error>" in answer:
            status = 500 if 200 <= reply.status < 300 else reply.status
            raise build_refusal(status, answer, what)
        return reply.headers, answer

    async def _send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes,
        timeouts: Timeouts,
    ) -> Reply:
        stated = {"Host": self._host, **self._behalf, **headers}
        if method != "GET":
            stated["Content-Length"] = str(len(body))
            stated["X-Amz-Content-SHA256"] = await compute_sha256(body)
        head = signed_request_head(method, self._base + target, stated, self._key, self._now())
        try:
            return await self._pool.send(self._address, (head, body), timeouts)
        except UpstreamError as error:
            raise ObjectStoreDownError(f"{method} {target}: {error}") from error


class PartedUpload:
    """An unfinished object of many parts. Ends with `complete` or `abort`."""

    def __init__(
        self, store: ObjectStore, uri: str, upload_id: str, headers: Mapping[str, str]
    ) -> None:
        self._store = store
        self._headers = headers
        self._uri = uri
        self._id = upload_id
        self._etags: list[str] = []

    async def part(self, body: bytes) -> None:
        """Add the next part. Raises ObjectError."""
        query = (("partNumber", str(len(self._etags) + 1)), ("uploadId", self._id))
        headers, _ = await self._store.call("PUT", self._uri, query, body)
        self._etags.append(headers.get("etag", ""))

    async def complete(self) -> None:
        """Make the object visible. Raises ObjectError."""
        parts = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{escape(etag)}</ETag></Part>"
            for number, etag in enumerate(self._etags, 1)
        )
        body = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        query = (("uploadId", self._id),)
        await self._store.call("POST", self._uri, query, body, self._headers)

    async def abort(self) -> None:
        """Drop the written parts. Raises ObjectError."""
        await self._store.call("DELETE", self._uri, (("uploadId", self._id),), b"")


async def compute_sha256(body: bytes) -> str:
    """Compute the body's SHA-256 in hexadecimal, in a thread if it is large."""
    if len(body) < HASH_IN_THREAD_BYTES:
        return hashlib.sha256(body).hexdigest()
    digest = await asyncio.to_thread(hashlib.sha256, body)
    return digest.hexdigest()
