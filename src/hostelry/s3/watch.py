"""Watched buckets: their notification configurations, and the writes whose answers are held."""

from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import quote

import httpx
import msgspec

from hostelry.base.clock import Clock
from hostelry.base.guards import INTERNAL_KEY_HEADER
from hostelry.base.ids import new_request_id
from hostelry.base.peer_http import loopback_client
from hostelry.domain.object_event import BucketNotification, TargetCheck
from hostelry.domain.scope import Scope
from hostelry.events.object_message import trial_text
from hostelry.home.home import Credentials, UpConfig
from hostelry.http1.heads import build_answer
from hostelry.s3.admission import S3Refusal, error_answer
from hostelry.s3.answers import Settle, StoreAnswer
from hostelry.s3.event_file import EventFile, EventFileError
from hostelry.s3.head import Head
from hostelry.s3.notification_xml import notification_xml, read_notification
from hostelry.s3.object_events import ObjectEvents, place_of, removed_bucket, settling, write_of
from hostelry.s3.passage import Passage, check_hash
from hostelry.s3.store_client import StoreClient

MAX_BODY_BYTES = 1024 * 1024
NOT_NOTED = S3Refusal(
    503,
    "SlowDown",
    "The object is written, but its event cannot be noted now, so that the upload does not count;"
    " try again.",
)


class Watch:
    """Answers calls on notification configurations, and holds the answers to watched writes.

    It asks control by `mounts`.
    """

    def __init__(
        self,
        config: UpConfig,
        credentials: Credentials,
        passage: Passage,
        store: StoreClient,
        file: EventFile,
        clock: Clock,
        mounts: Mapping[str, httpx.AsyncBaseTransport],
    ) -> None:
        self._url = f"{config.control_url}/internal/object-events/targets"
        self._headers = {INTERNAL_KEY_HEADER: credentials.internal_key}
        self._region = credentials.region
        self._passage = passage
        self._store = store
        self._file = file
        self._clock = clock
        self._client = loopback_client(10.0, mounts)
        self.events = ObjectEvents(file, store, clock, self._find_scope)

    def settle_of(self, head: Head, source_address: str) -> Settle | None:
        """Find the step that the answer to a request is held for. None if it is not held."""
        write, bucket = write_of(head), removed_bucket(head)
        if write is not None and self.events.watches(write):
            refused = error_answer(NOT_NOTED, new_request_id(), has_body=True)
            return settling(self.events, write, source_address, refused)
        if bucket is not None and not self._file.notification(bucket).is_empty:
            return self._forgetting(bucket)
        return None

    def _find_scope(self, bucket: str) -> Scope:
        return Scope(self._passage.permits.find_owner(bucket), self._region)

    async def answer(
        self, head: Head, source_ip: str, read_body: Callable[[], Awaitable[bytes]]
    ) -> bytes:
        """Answer a call on a notification configuration. Raises S3Refusal.

        The body is read only if the client's signature is valid.
        """
        self._passage.check_permitted(head, source_ip)
        body = await read_body()
        check_hash(head, body)
        bucket, _ = place_of(head)
        found = await self._store.ask("HEAD", f"/{quote(bucket, safe='')}")
        if found is None or found.status_code >= 500:
            raise S3Refusal(503, "ServiceUnavailable", "The object store is restarting; try again.")
        if found.status_code != 200:
            raise S3Refusal(404, "NoSuchBucket", "The specified bucket does not exist")
        if head.method == "GET":
            return build_xml_answer(notification_xml(self._file.notification(bucket)))
        if head.method != "PUT":
            raise S3Refusal(
                405, "MethodNotAllowed", f"{head.method} is not allowed on a notification."
            )
        notification = read_notification(body)
        if head.values.get("x-amz-skip-destination-validation", "").lower() != "true":
            await self._check_targets(bucket, notification)
        try:
            self._file.configure(bucket, notification)
        except EventFileError as error:
            raise S3Refusal(503, "SlowDown", f"It cannot be kept now: {error}.") from None
        return build_xml_answer(b"")

    async def _check_targets(self, bucket: str, notification: BucketNotification) -> None:
        """Raise S3Refusal if a topic or queue is missing. Otherwise each gets a test message."""
        if not notification.targets:
            return
        asked = TargetCheck(
            scope=self._find_scope(bucket),
            arns=tuple(it.arn for it in notification.targets),
            message=trial_text(bucket, new_request_id(), self._clock.now()),
        )
        try:
            answer = await self._client.post(
                self._url, headers=self._headers, content=msgspec.json.encode(asked)
            )
            answer.raise_for_status()
        except httpx.HTTPError:
            raise S3Refusal(
                503, "ServiceUnavailable", "Topics and queues cannot be looked up now; try again."
            ) from None
        missing = answer.json()["missing"]
        if missing:
            raise S3Refusal(
                400,
                "InvalidArgument",
                "Unable to validate the following destination configurations: there is no"
                f" {', '.join(missing)}.",
            )

    def _forgetting(self, bucket: str) -> Settle:
        async def settle(_: StoreAnswer) -> bytes | None:
            self._file.configure(bucket, BucketNotification())
            return None

        return settle


def build_xml_answer(body: bytes) -> bytes:
    """Build a 200 answer of S3 with `body`, which is XML or empty."""
    headers = {"Content-Type": "application/xml", "x-amz-request-id": new_request_id()}
    return build_answer(200, headers, body)
