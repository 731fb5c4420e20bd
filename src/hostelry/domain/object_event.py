"""Event of an object that was written through the S3 port, as the S3 port reports it to control."""

from dataclasses import dataclass

from hostelry.domain.bucket_notification import NotificationTarget
from hostelry.domain.scope import Scope

CHAIN_HEADER = "X-Hostelry-Chain-Length"
"""Says with an object how many jobs in a row, each started by the one before, led to it."""
MAX_CHAIN_LENGTH = 3
"""An object that so many jobs in a row led to starts no further one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectEvent:
    """An object was written: `kind` is Put, Copy or CompleteMultipartUpload.

    `at` is in seconds since the epoch; `sequencer` orders the events of a key. `chain_length` is
    the number of jobs that led to the object, each started by the output of the one before.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetCheck:
    """Topics and queues that a bucket is to notify, and a first message to each."""

    scope: Scope
    arns: tuple[str, ...]
    message: str
