"""Notification of a bucket: the topics and queues that get events of its objects.

Source: PutBucketNotificationConfiguration in the S3 API reference.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

CREATED = "s3:ObjectCreated:"
ALL_CREATED = CREATED + "*"
EVENTS = (
    ALL_CREATED,
    CREATED + "Put",
    CREATED + "Copy",
    CREATED + "CompleteMultipartUpload",
)
MAX_TARGETS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationTarget:
    """A topic or queue that is notified of `events` on keys with this prefix and suffix."""

    id: str
    arn: str
    events: tuple[str, ...]
    prefix: str = ""
    suffix: str = ""

    def wants(self, event: str, key: str) -> bool:
        """Whether it is notified of `event` (``s3:ObjectCreated:Put``) on the object `key`."""
        is_named = event in self.events or ALL_CREATED in self.events
        return is_named and key.startswith(self.prefix) and key.endswith(self.suffix)


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketNotification:
    """A bucket's configuration; with `to_bus` every event goes to EventBridge, too."""

    targets: tuple[NotificationTarget, ...] = ()
    to_bus: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether there is no target."""
        return not self.targets and not self.to_bus

    def wanted(self, event: str, key: str) -> tuple[NotificationTarget, ...]:
        """The topics and queues that are notified of `event` on the object `key`."""
        return tuple(it for it in self.targets if it.wants(event, key))


def problem_of(notification: BucketNotification) -> str | None:
    """Why S3 refuses a configuration, in its words; None where it does not."""
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
