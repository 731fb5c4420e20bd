"""Records and trails for tests."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from hostelry.audit.chain import ChainHead, NewRecord, StoredLine, add_record, derive_key
from hostelry.audit.file_writer import TrailFiles
from hostelry.audit.record import AuditedCall, AuditedCaller, TrailEvent, build_call_event
from hostelry.audit.rows import TrailMarks
from hostelry.audit.trail import AuditTrail, TrailWriter
from hostelry.base.clock import Clock, ManualClock
from hostelry.store.sqlite import SqliteFile

KEY = derive_key("internal key")
OWNER = ("111122223333", "us-east-1")
OTHER = ("444455556666", "us-east-1")


def root(account: str) -> AuditedCaller:
    """The root of an account."""
    return AuditedCaller(
        kind="Root",
        account=account,
        arn=f"arn:aws:iam::{account}:root",
        principal_id=account,
        access_key_id="AKIAEXAMPLE",
    )


def call_event(
    number: int = 1,
    operation: str = "DescribeEndpoint",
    owner: tuple[str, str] = OWNER,
    **facts: object,
) -> TrailEvent:
    """The record of a call."""
    given = {
        "at": float(number),
        "caller": root(owner[0]),
        "account": owner[0],
        "region": owner[1],
        "service": "sagemaker",
        "operation": operation,
        "request_id": f"request-{number}",
        "event_id": f"event-{number}",
        **facts,
    }
    return build_call_event(AuditedCall(**given))  # type: ignore[arg-type] # by name


def chain(count: int, head: ChainHead | None = None, key: bytes = KEY) -> list[StoredLine]:
    """Records with following numbers."""
    lines: list[StoredLine] = []
    head = head or ChainHead()
    for number in range(count):
        at = float(head.number + 1)
        event = b'{"eventName":"Made%d"}' % (head.number + 1)
        record = NewRecord(at=at, account=OWNER[0], region=OWNER[1], source="s", event=event)
        lines.append(add_record(key, head, record))
        head = lines[number].head
    return lines


class FailingFiles(TrailFiles):
    """Files that take no record while `is_full`."""

    is_full = False

    def append(self, lines: Sequence[StoredLine]) -> None:
        if self.is_full:
            raise OSError("no space left")
        super().append(lines)


@contextmanager
def opened_trail(
    folder: Path, clock: Clock | None = None, writer: TrailWriter | None = None
) -> Iterator[AuditTrail]:
    """A trail in files of `folder`, without its thread."""
    database = SqliteFile(folder / "state.db")
    kept = writer or TrailFiles(folder / "audit", KEY)
    with closing(database):
        trail = AuditTrail(kept, TrailMarks(database, KEY), KEY, OWNER, clock or ManualClock())
        with closing(trail):
            yield trail
