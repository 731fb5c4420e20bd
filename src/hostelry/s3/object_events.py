"""Events of objects: finds them by a request's head, and notes them before the upload is answered.

Promise: an upload into a bucket with a notification configuration is answered with success only
once its event is on disk. The event stays there until control has taken it. If the process is
killed in between, the client gets no answer, or the event is reported twice. Control recognises
the second report by the event's id.
"""

import asyncio
import contextlib
import itertools
import logging
import re
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from urllib.parse import unquote

import httpx
import msgspec

from hostelry.base.clock import Clock
from hostelry.base.guards import INTERNAL_KEY_HEADER
from hostelry.base.http import whole_number
from hostelry.base.peer_http import loopback_client
from hostelry.domain.object_event import CHAIN_HEADER, CREATED, ObjectEvent
from hostelry.domain.scope import Scope
from hostelry.home.home import Credentials, UpConfig
from hostelry.s3.answers import Settle, StoreAnswer
from hostelry.s3.event_file import EventFile, EventFileError
from hostelry.s3.head import Head, query_names
from hostelry.s3.store_client import StoreClient

LOG = logging.getLogger(__name__)
PUT, COPY, COMPLETE = "Put", "Copy", "CompleteMultipartUpload"
NOTIFICATION = "notification"
# A PUT with one of these query fields changes a property of an object, or writes a part of one.
PARTS_OF_OBJECTS = frozenset(
    {
        "acl",
        "legal-hold",
        "object-lock",
        "partnumber",
        "renameobject",
        "retention",
        "tagging",
        "torrent",
        "uploadid",
    }
)
MAX_CHAIN = 999_999
MAX_OBJECT_BYTES = 5 * 1024**4


class ObjectWrite(msgspec.Struct, frozen=True, kw_only=True):
    """The object that a request writes. `size_bytes` is the size that the head states, if any.

    `target` is the request target of the object, without a query.
    """

    kind: str
    bucket: str
    key: str
    target: str
    size_bytes: int | None = None
    chain_length: int = 0


def write_of(head: Head) -> ObjectWrite | None:
    """Find the object that the request writes. None if it writes no object."""
    bucket, key = place_of(head)
    kind = _kind_of(head) if key else None
    if kind is None:
        return None
    values = head.values
    size = values.get("x-amz-decoded-content-length") or values.get("content-length", "")
    chain = values.get(CHAIN_HEADER.lower(), "")
    return ObjectWrite(
        kind=kind,
        bucket=bucket,
        key=key,
        target=head.target.partition("?")[0],
        size_bytes=whole_number(size, 0, MAX_OBJECT_BYTES) if kind == PUT else None,
        chain_length=whole_number(chain, 0, MAX_CHAIN) or 0,
    )


def place_of(head: Head) -> tuple[str, str]:
    """Find the bucket and the key in the request's path. Each may be empty."""
    bucket, _, key = unquote(head.target.partition("?")[0]).lstrip("/").partition("/")
    return bucket, key


def removed_bucket(head: Head) -> str | None:
    """Find the bucket that the request deletes. None if it deletes no bucket."""
    bucket, key = place_of(head)
    is_removal = head.method == "DELETE" and not key and not query_names(head) - {"x-id"}
    return bucket if is_removal and bucket else None


def is_notification_call(head: Head) -> bool:
    """True if the request gets or puts a bucket's notification configuration."""
    bucket, key = place_of(head)
    return bool(bucket) and not key and NOTIFICATION in query_names(head)


def _kind_of(head: Head) -> str | None:
    names = query_names(head)
    if head.method == "POST":
        return COMPLETE if "uploadid" in names else None
    if head.method != "PUT" or names & PARTS_OF_OBJECTS:
        return None
    return COPY if "x-amz-copy-source" in head.values else PUT


ETAG = re.compile(r"<ETag>([^<]*)</ETag>")
FAILED = b"<Error>"
MOST_AT_ONCE = 100
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 10.0
IDLE_S = 60.0


class ObjectEvents:
    """Notes the events of writes in `file`. `scope_of` finds the account of a bucket."""

    def __init__(
        self,
        file: EventFile,
        store: StoreClient,
        clock: Clock,
        scope_of: Callable[[str], Scope],
    ) -> None:
        self._file = file
        self._store = store
        self._clock = clock
        self._scope_of = scope_of
        self._numbers = itertools.count(1)
        self.noted = asyncio.Event()

    def watches(self, write: ObjectWrite) -> bool:
        """True if the write's bucket has a notification configuration for it."""
        notification = self._file.notification(write.bucket)
        return notification.to_bus or bool(
            notification.find_targets(CREATED + write.kind, write.key)
        )

    async def note(self, write: ObjectWrite, answer: StoreAnswer, source_address: str) -> None:
        """Make the event of a write durable. Raises EventFileError.

        A failed write has no event. The failure of a copy shows only in the answer's body.
        """
        if FAILED in answer.body:
            return
        event = await self._event(write, answer, source_address)
        if event.to_bus or event.targets:
            await asyncio.to_thread(self._file.add, event)
            self.noted.set()

    async def _event(self, write: ObjectWrite, answer: StoreAnswer, source: str) -> ObjectEvent:
        notification, now = self._file.notification(write.bucket), self._clock.now()
        size = write.size_bytes
        if size is None:
            found = await self._store.ask("HEAD", write.target)
            stated = "" if found is None else found.headers.get("content-length", "")
            size = int(stated) if stated.isdigit() else None
        in_body = ETAG.search(answer.body.decode("utf-8", "replace"))
        etag = answer.headers.get("etag") or (in_body.group(1) if in_body else "")
        return ObjectEvent(
            id=str(uuid.uuid4()),
            scope=self._scope_of(write.bucket),
            kind=write.kind,
            bucket=write.bucket,
            key=write.key,
            at=now,
            sequencer=f"{int(now * 1e6):014X}{next(self._numbers) % 65536:04X}",
            request_id=answer.headers.get("x-amz-request-id", ""),
            source_address=source,
            size_bytes=size,
            etag=etag.replace("&#34;", "").replace("&quot;", "").strip('"'),
            version_id=answer.headers.get("x-amz-version-id", ""),
            chain_length=write.chain_length,
            targets=notification.find_targets(CREATED + write.kind, write.key),
            to_bus=notification.to_bus,
        )


class EventSender:
    """Reports the events in `file` to control, oldest first, until control has taken them."""

    def __init__(
        self,
        file: EventFile,
        noted: asyncio.Event,
        clock: Clock,
        report: Callable[[Sequence[ObjectEvent]], Awaitable[bool]],
    ) -> None:
        self._file = file
        self._noted = noted
        self._clock = clock
        self._report = report

    async def run(self) -> None:
        """Report events until cancelled."""
        pause_s = FIRST_PAUSE_S
        while True:
            self._noted.clear()
            found = await asyncio.to_thread(self._file.oldest, MOST_AT_ONCE)
            if not found:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(IDLE_S):
                        await self._noted.wait()
            elif await self._sent(found):
                pause_s = FIRST_PAUSE_S
            else:
                await self._clock.sleep(pause_s)
                pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)

    async def _sent(self, found: Sequence[tuple[int, ObjectEvent]]) -> bool:
        if not await self._report([event for _, event in found]):
            return False
        try:
            await asyncio.to_thread(self._file.forget, found[-1][0])
        except EventFileError as error:
            LOG.warning("events that control has taken are reported again: %s", error)
            return False
        return True


def settling(events: ObjectEvents, write: ObjectWrite, source: str, refused: bytes) -> Settle:
    """Build the step that holds the answer to `write` until its event is durable.

    If the event cannot be noted, the client gets `refused` instead of the answer.
    """

    async def settle(answer: StoreAnswer) -> bytes | None:
        try:
            await events.note(write, answer, source)
        except EventFileError as error:
            LOG.warning("the event of %s/%s is not noted: %s", write.bucket, write.key, error)
            return refused
        return None

    return settle


def control_reporter(
    config: UpConfig,
    credentials: Credentials,
    mounts: Mapping[str, httpx.AsyncBaseTransport],
) -> Callable[[Sequence[ObjectEvent]], Awaitable[bool]]:
    """Build the function that reports events to control, by `mounts`.

    It returns True if control has taken the events, or will never be able to read them.
    """
    client = loopback_client(30.0, mounts)
    headers = {INTERNAL_KEY_HEADER: credentials.internal_key}

    async def report(events: Sequence[ObjectEvent]) -> bool:
        url = f"{config.control_url}/internal/object-events"
        try:
            answer = await client.post(url, headers=headers, content=msgspec.json.encode(events))
        except httpx.HTTPError:
            return False
        if answer.status_code == 400:
            LOG.error("control cannot read %d events: %s", len(events), answer.text)
        return answer.status_code in (204, 400)

    return report
