"""Events of objects written through the S3 port, and a bucket's notification configuration."""

import itertools
from collections.abc import Sequence

import msgspec

from hostelry.domain.scope import Scope

# A bucket's notification configuration: the topics and queues that get events of its objects.
#
# Source: PutBucketNotificationConfiguration in the S3 API reference.


CREATED = "s3:ObjectCreated:"
ALL_CREATED = CREATED + "*"
EVENTS = (
    ALL_CREATED,
    CREATED + "Put",
    CREATED + "Copy",
    CREATED + "CompleteMultipartUpload",
)
MAX_TARGETS = 100


class NotificationTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A topic or queue that is notified of `events` on keys with this prefix and suffix."""

    id: str
    arn: str
    events: tuple[str, ...]
    prefix: str = ""
    suffix: str = ""

    def wants(self, event: str, key: str) -> bool:
        """Whether it gets `event` (``s3:ObjectCreated:Put``) on the object `key`."""
        is_named = event in self.events or ALL_CREATED in self.events
        return is_named and key.startswith(self.prefix) and key.endswith(self.suffix)


class BucketNotification(msgspec.Struct, frozen=True, kw_only=True):
    """A bucket's configuration. With `to_bus` every event goes to EventBridge, too."""

    targets: tuple[NotificationTarget, ...] = ()
    to_bus: bool = False

    @property
    def is_empty(self) -> bool:
        """True if it has no target."""
        return not self.targets and not self.to_bus

    def find_targets(self, event: str, key: str) -> tuple[NotificationTarget, ...]:
        """The topics and queues that get `event` on the object `key`."""
        return tuple(it for it in self.targets if it.wants(event, key))


def find_problem(notification: BucketNotification) -> str | None:
    """Say why S3 refuses a configuration, in S3's words. None if it is valid."""
    targets = notification.targets
    if len(targets) > MAX_TARGETS:
        return f"A bucket has at most {MAX_TARGETS} notification configurations."
    ids = [it.id for it in targets]
    if len(set(ids)) != len(ids):
        return "Configuration ids must be unique in a bucket."
    if any(_overlap(*pair) for pair in itertools.combinations(targets, 2)):
        return (
            "Configuration is ambiguously defined. Cannot have overlapping suffixes in two rules if"
            " the prefixes are overlapping for the same event type."
        )
    return None


def _overlap(one: NotificationTarget, other: NotificationTarget) -> bool:
    return (
        _share_event(one.events, other.events)
        and (one.prefix.startswith(other.prefix) or other.prefix.startswith(one.prefix))
        and (one.suffix.endswith(other.suffix) or other.suffix.endswith(one.suffix))
    )


def _share_event(one: Sequence[str], other: Sequence[str]) -> bool:
    return ALL_CREATED in (*one, *other) or not set(one).isdisjoint(other)


CHAIN_HEADER = "X-Hostelry-Chain-Length"
"""Says with an object how many jobs in a row, each started by the one before, led to it."""
MAX_CHAIN_LENGTH = 3
"""An object that so many jobs in a row led to starts no further one."""


class ObjectEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A written object. `kind` is Put, Copy or CompleteMultipartUpload.

    `at` is in seconds since the epoch. `sequencer` orders the events of a key. `chain_length` is
    the number of jobs that led to the object. Each was started by the output of the job before.
    """

    id: str
    scope: Scope
    kind: str
    bucket: str
    key: str
    at: float
    sequencer: str
    request_id: str
    source_address: str
    size_bytes: int | None = None
    etag: str = ""
    version_id: str = ""
    chain_length: int = 0
    targets: tuple[NotificationTarget, ...] = ()
    to_bus: bool = False


class TargetCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The topics and queues in a bucket's new configuration, each with a test message."""

    scope: Scope
    arns: tuple[str, ...]
    message: str
