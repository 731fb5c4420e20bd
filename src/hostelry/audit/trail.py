"""The audit trail of control: takes records, keeps them in order, and removes old ones.

| event | records |
| --- | --- |
| kill -9 of control | all that were acknowledged stay |
| power cut | files may lose the last 0.2 s, PostgreSQL loses nothing |
| the disk is full | calls that change something are refused before they begin |
|  | other calls are done. A later record has the number of those without a record |
"""

import contextlib
import logging
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from hostelry.audit.acts import AuditEntry, build_act_event, read_act
from hostelry.audit.chain import (
    MAX_LINE_BYTES,
    ChainHead,
    NewRecord,
    SealedFile,
    StoredLine,
    TrailAnchor,
    TrailLine,
    add_record,
)
from hostelry.audit.lookup import FoundPage, TrailFilter, find_page
from hostelry.audit.record import OWN_SOURCE, TrailEvent, build_service_event
from hostelry.audit.rows import TrailMarks
from hostelry.base.clock import Clock, monotonic_s
from hostelry.base.errors import HostelryError
from hostelry.base.ids import new_uuid

LOG = logging.getLogger(__name__)
RETRY_S = 1.0
NOTE_S = 2.0  # between two notes of the head in the store
TRIM_S = 60.0
MAX_TRIMS = 50
DAY_S = 86_400.0
LOST, REMOVED, CUT = "AuditRecordsLost", "AuditRecordsRemoved", "AuditRecordsMissing"
OMITTED = {"omitted": True, "reason": "The record would be larger than its limit."}


class TrailReader(Protocol):
    """Reads a trail's records."""

    def read_forwards(self) -> Iterator[tuple[str, list[bytes]]]:
        """The lines, oldest first, in parts with the name of the file or table."""
        ...

    def read_backwards(
        self, before: int | None = None, sources: frozenset[str] = frozenset()
    ) -> Iterator[TrailLine]:
        """The records, newest first, with lower numbers than `before`.

        With `sources` parts without a record of these sources may be left out.
        """
        ...


class TrailWriter(Protocol):
    """Keeps a trail's records. `head` is the newest record.

    Between two calls of `flush` are at least `pause_s`.
    """

    head: ChainHead
    pause_s: float

    @property
    def reader(self) -> TrailReader:
        """Reads the same records."""
        ...

    def append(self, lines: Sequence[StoredLine]) -> None:
        """Take records. Raises OSError if that is impossible. Then none is taken."""
        ...

    def wait(self, number: int) -> None:
        """Return once a record survives a kill. Raises OSError."""
        ...

    def flush(self) -> ChainHead:
        """Make records durable. Returns the newest of them. Raises OSError."""
        ...

    def find_trouble(self) -> str | None:
        """Why no call may change anything now. None if it may."""
        ...

    def choose_old(self, max_bytes: int, before_at: float) -> list[SealedFile]:
        """The oldest parts beyond `max_bytes` or from before `before_at`."""
        ...

    def remove(self, chosen: Sequence[SealedFile]) -> None:
        """Remove parts."""
        ...

    def close(self) -> None:
        """Flush and close."""
        ...


class NotedHeads(Protocol):
    """The newest record as it is noted apart from the records."""

    def read_head(self) -> ChainHead | None:
        """The last noted head, or None. A head that is not signed does not count."""
        ...

    def note_head(self, head: ChainHead) -> None:
        """Note the newest durable record."""
        ...


class TrailLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Retention: days, and bytes of all records."""

    days: int = 90
    max_bytes: int = 1024 * 1024 * 1024


class AuditTrail:
    """The trail of one control process. Thread-safe. `start` and `close` it.

    Args:
        writer: keeps the records.
        marks: the anchor, in the store.
        heads: the heads that are noted. None: `marks` has them.
        key: signs records.
        owner: account and region of the platform.
        clock: dates the trail's own records.
        limits: the retention.
    """

    def __init__(
        self,
        writer: TrailWriter,
        marks: TrailMarks,
        key: bytes,
        owner: tuple[str, str],
        clock: Clock,
        limits: TrailLimits | None = None,
        heads: NotedHeads | None = None,
    ) -> None:
        self.owner = owner
        self._writer = writer
        self._marks = marks
        self._heads = heads or marks
        self._key = key
        self._clock = clock
        self._limits = limits or TrailLimits()
        self._lock = threading.Lock()
        self._num_lost = 0
        self._dirty = threading.Event()
        self._stopping = threading.Event()
        self._noted = ChainHead()
        self._noted_s = self._trimmed_s = -math.inf
        self._thread = threading.Thread(target=self._keep_up, name="audit", daemon=True)
        self._encode = msgspec.json.Encoder().encode
        self._head = writer.head
        self._continue()

    @property
    def head(self) -> ChainHead:
        """The newest record."""
        return self._head

    def start(self) -> None:
        """Begin to flush, to note heads and to remove old records."""
        self._thread.start()

    def close(self) -> None:
        """Flush, note the head and close."""
        self._stopping.set()
        self._dirty.set()
        if self._thread.is_alive():
            self._thread.join(10.0)
        with contextlib.suppress(OSError, HostelryError):
            self._noted_s = -math.inf
            self._flush()
        self._writer.close()

    def find_trouble(self) -> str | None:
        """Why no call may change anything now, because no record of it can be kept."""
        return self._writer.find_trouble()

    def record(self, event: TrailEvent, at: float, *, waits: bool = True) -> None:
        """Keep a record. It survives a kill afterwards, unless the caller does not wait.

        Raises OSError if it cannot be kept.
        """
        self.record_all([(event, at)], waits=waits)

    def record_all(self, events: Sequence[tuple[TrailEvent, float]], *, waits: bool = True) -> None:
        """Keep records in this order, all or none. Raises OSError."""
        records = [self._build_record(event, at) for event, at in events]
        with self._lock:
            if self._num_lost:
                records.insert(0, self._build_lost_record())
            last = self._append(records)
            self._num_lost = 0
        if not self._dirty.is_set():
            self._dirty.set()
        if waits:
            self._writer.wait(last)

    def try_to_record(self, event: TrailEvent, at: float, *, waits: bool = True) -> bool:
        """Keep a record, or count it as lost if that is impossible. A later record says so."""
        try:
            self.record(event, at, waits=waits)
        except OSError:
            self.count_lost(1)
            return False
        return True

    def count_lost(self, number: int) -> None:
        """Count records that could not be kept. The next record that can be kept has the number."""
        with self._lock:
            self._num_lost += number

    def append(self, entry: AuditEntry) -> None:
        """Keep the record of an act. Raises OSError if it cannot be kept."""
        self.record(build_act_event(entry, self.owner, new_uuid()), entry.at)

    def newest(self, limit: int, endpoint: str | None = None) -> list[AuditEntry]:
        """At most `limit` acts on one endpoint, or on all endpoints, newest first."""
        found: list[AuditEntry] = []
        for line in self._writer.reader.read_backwards(None, frozenset({OWN_SOURCE})):
            act = read_act(bytes(line.event), line.at) if line.source == OWN_SOURCE else None
            if act is not None and endpoint in (None, act.endpoint):
                found.append(act)
            if len(found) >= limit:
                break
        return found

    def find(
        self,
        wanted: TrailFilter,
        limit: int,
        before: int | None = None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> FoundPage:
        """At most `limit` records, newest first, older than the record `before`."""
        lines = self._writer.reader.read_backwards(before, wanted.sources)
        return find_page(lines, wanted, limit, is_over)

    def _append(self, records: Sequence[NewRecord]) -> int:
        """Chain records, and write them. Returns the number of the last one."""
        head, lines = self._head, list[StoredLine]()
        for record in records:
            lines.append(add_record(self._key, head, record))
            head = lines[-1].head
        self._writer.append(lines)
        self._head = head
        return head.number

    def _build_record(self, event: TrailEvent, at: float) -> NewRecord:
        try:
            encoded = self._encode(event)
        except (UnicodeEncodeError, TypeError):  # half a character, in a text that a client made up
            encoded = b""
        if not encoded or len(encoded) > MAX_LINE_BYTES:
            parameters = None if event.request_parameters is None else OMITTED
            answered = None if event.response_elements is None else OMITTED
            encoded = self._encode(
                msgspec.structs.replace(
                    event,
                    request_parameters=parameters,
                    response_elements=answered,
                    resources=(),
                    error_message=ascii(event.error_message)[:1024],
                    user_agent=ascii(event.user_agent)[:1024],
                )
            )
        return NewRecord(
            at=at,
            account=event.recipient_account_id,
            region=event.aws_region,
            source=event.event_source,
            event=encoded,
        )

    def _build_own_record(self, name: str, details: Mapping[str, Any]) -> NewRecord:
        at = self._clock.now()
        account, region = self.owner
        event = build_service_event(name, at, account, region, new_uuid(), details)
        return self._build_record(event, at)

    def _build_lost_record(self) -> NewRecord:
        return self._build_own_record(LOST, {"count": self._num_lost})

    def _continue(self) -> None:
        """Continue behind the noted head. A trail that ends before it was cut, and says so."""
        noted = self._heads.read_head()
        if noted is None or noted.number <= self._head.number:
            return
        first, last = self._head.number + 1, noted.number
        LOG.error("the audit log lacks the records %d to %d, which it had", first, last)
        self._head = noted
        with contextlib.suppress(OSError):
            self._append([self._build_own_record(CUT, {"first": first, "last": last})])

    def _keep_up(self) -> None:
        has_trouble = False
        while not self._stopping.is_set():
            self._dirty.wait(self._get_pause_s())
            self._dirty.clear()
            try:
                self._flush()
                self._trim()
            except (OSError, HostelryError) as error:
                if not has_trouble:
                    LOG.warning("the audit log cannot be flushed or noted: %s", error)
                has_trouble = True
                self._dirty.set()
            else:
                has_trouble = False
            self._stopping.wait(self._writer.pause_s or (RETRY_S if has_trouble else 0.0))

    def _get_pause_s(self) -> float:
        return TRIM_S if self._noted == self._head else NOTE_S

    def _flush(self) -> None:
        durable = self._writer.flush()
        now_s = monotonic_s()
        if durable != self._noted and now_s - self._noted_s >= NOTE_S:
            self._heads.note_head(durable)
            self._noted, self._noted_s = durable, now_s

    def _trim(self) -> None:
        now_s = monotonic_s()
        if now_s - self._trimmed_s < TRIM_S:
            return
        self._trimmed_s = now_s
        for _ in range(MAX_TRIMS):
            if not self.trim(self._limits):
                return

    def trim(self, limits: TrailLimits) -> bool:
        """Remove the oldest records beyond `limits`. A record says which. False if nothing is due.

        The anchor, by which the rest can be verified, is noted before.
        """
        now = self._clock.now()
        chosen = self._writer.choose_old(limits.max_bytes, now - limits.days * DAY_S)
        if not chosen:
            return False
        last, size = chosen[-1].head, sum(it.num_bytes for it in chosen)
        reason = f"older than {limits.days} days, or beyond {limits.max_bytes} bytes"
        details = {"first": chosen[0].first, "last": last.number, "bytes": size, "reason": reason}
        with self._lock:
            self._append([self._build_own_record(REMOVED, details)])
        self._marks.note_anchor(TrailAnchor(head=last, removed_at=now, reason=reason))
        self._writer.remove(chosen)
        return True
