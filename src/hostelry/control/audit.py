"""The audit log, in a file or a database: who requested which act, when, and the outcome.

The file ``audit.jsonl`` has one JSON object per line. A full file is renamed to ``audit.1.jsonl``
and replaces the earlier one, so the log has a limited size. Unreadable lines, for example after a
power cut, are skipped.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import sqlalchemy as sa
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hostelry.base.clock import Clock
from hostelry.base.files import write_whole
from hostelry.base.http import whole_number
from hostelry.base.json import decode
from hostelry.base.json_response import JsonResponse
from hostelry.store.database import Database
from hostelry.store.protocol import StoreUnavailable
from hostelry.store.tables import OPAQUE_TEXT

LOG = logging.getLogger(__name__)
MAX_FILE_BYTES = 4 * 1024 * 1024
MAX_CHARS = 512  # of each text of an entry


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's act. `at` is in seconds since the epoch.

    `who` is a user of the command line or a session of the console. `endpoint` is empty if the act
    is not about an endpoint. `outcome` is "accepted" or the reason why the act was not done.
    """

    at: float
    who: str
    act: str
    target: str
    outcome: str
    endpoint: str = ""
    account: str = ""
    region: str = ""


class AuditLog:
    """The log in the file `path`. Entries are durable once `append` has returned."""

    def __init__(self, path: Path, max_file_bytes: int = MAX_FILE_BYTES) -> None:
        self._path = path
        self._before = path.with_name(f"{path.stem}.1{path.suffix}")
        self._max_file_bytes = max_file_bytes
        self._lock = threading.Lock()

    def append(self, entry: AuditEntry) -> None:
        """Add `entry` at the end. Raises OSError if the disk refuses it."""
        line = msgspec.json.encode(entry) + b"\n"
        with self._lock:
            self._make_room(len(line))
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            with os.fdopen(os.open(self._path, flags, 0o600), "ab") as file:
                # A kill during a write can leave half a line, which must end before the next line.
                file.write(line if _ends_whole(self._path) else b"\n" + line)
                file.flush()
                os.fsync(file.fileno())

    def newest(self, limit: int, endpoint: str | None = None) -> list[AuditEntry]:
        """At most `limit` entries of one endpoint, or of all endpoints, newest first."""
        with self._lock:
            lines = [*_lines(self._before), *_lines(self._path)]
        found: list[AuditEntry] = []
        for entry in _entries(reversed(lines)):
            if len(found) >= limit:
                break
            if endpoint is None or entry.endpoint == endpoint:
                found.append(entry)
        return found

    def replace(self, newest: Sequence[AuditEntry]) -> None:
        """Replace all entries by these entries, newest first, as far as they fit."""
        files: list[list[bytes]] = [[], []]  # the current file, and the older file
        left_bytes, present = self._max_file_bytes, 0
        for entry in newest:
            line = msgspec.json.encode(entry) + b"\n"
            if len(line) > left_bytes:
                left_bytes, present = self._max_file_bytes, present + 1
            if present == len(files):
                break
            left_bytes -= len(line)
            files[present].append(line)
        with self._lock:
            for path, lines in zip((self._path, self._before), files, strict=True):
                write_whole(path, b"".join(reversed(lines)))

    def _make_room(self, size_bytes: int) -> None:
        try:
            present_bytes = self._path.stat().st_size
        except FileNotFoundError:
            return
        if present_bytes + size_bytes > self._max_file_bytes:
            self._path.replace(self._before)


def _ends_whole(path: Path) -> bool:
    """Whether the file is empty or ends with a whole line."""
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return True
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().splitlines()
    except FileNotFoundError:
        return []


def _entries(lines: Iterable[bytes]) -> Iterator[AuditEntry]:
    for line in lines:
        try:
            yield decode(line, AuditEntry)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue


METADATA = sa.MetaData()
AUDIT = sa.Table(
    "audit_entry",
    METADATA,
    # SQLite assigns row numbers only if the type is INTEGER.
    sa.Column(
        "number",
        sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
        primary_key=True,
        autoincrement=True,
    ),
    sa.Column("endpoint", OPAQUE_TEXT, nullable=False),
    sa.Column("entry", sa.LargeBinary, nullable=False),
    sa.Index("audit_entry_endpoint", "endpoint", "number"),
)
KEPT = 2 * MAX_FILE_BYTES // 256  # entries of about 256 bytes
TRIM_AT = 1000  # entries beyond `KEPT`, which are removed together


class AuditRows:
    """The log in `database`. Entries survive the loss of this host once `append` has returned."""

    def __init__(self, database: Database, kept: int = KEPT, trim_at: int = TRIM_AT) -> None:
        self._database = database
        self._kept, self._trim_at = kept, trim_at
        database.create(METADATA)

    def append(self, entry: AuditEntry) -> None:
        """Add `entry` at the end. Raises OSError if the database refuses it."""
        row = {"endpoint": entry.endpoint, "entry": msgspec.json.encode(entry)}
        number = AUDIT.c.number
        try:
            with self._database.write() as connection:
                added = connection.execute(sa.insert(AUDIT).returning(number), row).scalar_one()
                if added % self._trim_at == 0:
                    connection.execute(sa.delete(AUDIT).where(number <= added - self._kept))
        except StoreUnavailable as error:
            raise OSError(str(error)) from error

    def newest(self, limit: int, endpoint: str | None = None) -> list[AuditEntry]:
        """At most `limit` entries of one endpoint, or of all endpoints, newest first."""
        query = sa.select(AUDIT.c.entry).order_by(AUDIT.c.number.desc()).limit(limit)
        if endpoint is not None:
            query = query.where(AUDIT.c.endpoint == endpoint)
        with self._database.read() as connection:
            return [decode(row.entry, AuditEntry) for row in connection.execute(query)]


MAX_ENTRIES = 1000
DEFAULT_ENTRIES = 100
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_CHARS)]
OptionalText = Annotated[str, msgspec.Meta(max_length=MAX_CHARS)]


class NewAuditEntry(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An entry as another process reports it. Control adds the time."""

    who: Text
    act: Text
    target: Text
    outcome: Text
    endpoint: OptionalText = ""
    account: OptionalText = ""
    region: OptionalText = ""


class AuditRoutes:
    """Handlers that add to the audit log and read it."""

    def __init__(self, log: AuditLog | AuditRows, clock: Clock) -> None:
        self._log = log
        self._clock = clock

    def routes(self) -> tuple[Route, ...]:
        """The routes."""
        return (
            Route("/internal/audit", self.add, methods=["POST"]),
            Route("/internal/audit", self.newest, methods=["GET"]),
        )

    async def add(self, request: Request) -> Response:
        """Answer 204 once the entry is on disk, 400 for an invalid body, 507 for a full disk."""
        try:
            new = decode(await request.body(), NewAuditEntry)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return JsonResponse({"error": f"no audit entry: {error}"}, 400)
        entry = AuditEntry(at=self._clock.now(), **msgspec.structs.asdict(new))
        try:
            await asyncio.to_thread(self._log.append, entry)
        except OSError as error:
            LOG.warning("the audit log cannot be written: %s", error)
            return JsonResponse({"error": f"the audit log cannot be written: {error}"}, 507)
        return Response(status_code=204)

    async def newest(self, request: Request) -> Response:
        """Return at most `limit` entries, newest first, of one `endpoint` or of all."""
        asked = request.query_params.get("limit", str(DEFAULT_ENTRIES))
        limit = whole_number(asked, 1, MAX_ENTRIES)
        if limit is None:
            return JsonResponse({"error": f"limit is {asked!r}, not 1 to {MAX_ENTRIES}"}, 400)
        endpoint = request.query_params.get("endpoint")
        found = await asyncio.to_thread(self._log.newest, limit, endpoint)
        return JsonResponse({"entries": found})
