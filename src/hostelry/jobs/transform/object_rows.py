"""The objects of transform jobs: rows, listings, and manifests of data capture.

A row goes from `waiting` to `done` or `failed` once its output is written, or has failed. After a
kill between the output and its row, the object is done again, with the same key and content.
"""

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
import sqlalchemy as sa

from hostelry.domain.transform_job import TransformCapture, TransformInputKind, TransformJob
from hostelry.jobs.objects.object_store import ObjectStore, OutputSettings
from hostelry.jobs.queue.tables import METADATA
from hostelry.jobs.records.object_keys import (
    MAX_MANIFEST_BYTES,
    SUFFIX,
    InputObject,
    get_relative_key,
    parse_manifest,
)
from hostelry.jobs.records.splitting import RecordError
from hostelry.store.database import Database

WAITING, DONE, FAILED = "waiting", "done", "failed"
AT_ONCE = 500

LISTED = sa.Table(
    "transform_listed",
    METADATA,
    sa.Column("job", sa.Text, primary_key=True),
    sa.Column("created_at", sa.Float, nullable=False),
)
OBJECTS = sa.Table(
    "transform_object",
    METADATA,
    sa.Column("job", sa.Text, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("uri", sa.Text, nullable=False),
    sa.Column("relative", sa.Text, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("records", sa.BigInteger, nullable=False),
    sa.Column("reason", sa.Text),
    sa.Index("transform_object_state", "job", "state", "number"),
)


class NumberedObject(msgspec.Struct, frozen=True):
    """An object of a job. `number` is its place in the list, from 1."""

    number: int
    uri: str
    relative: str
    size_bytes: int


class ObjectTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums of a job. `first_failed` is the reason of the first failed object."""

    objects: int
    ended: int
    failed: int
    records: int
    bytes: int
    bytes_total: int
    first_failed: str | None


class ObjectRows:
    """The rows of all jobs. Calls block."""

    def __init__(self, database: Database) -> None:
        self._database = database
        database.create(METADATA)

    def is_listed(self, job: str) -> bool:
        """True if all objects of the job are in the file."""
        with self._database.read() as connection:
            return (
                connection.execute(sa.select(LISTED).where(LISTED.c.job == job)).first() is not None
            )

    def forget(self, job: str) -> None:
        """Drop the job's rows."""
        with self._database.write() as connection:
            connection.execute(sa.delete(OBJECTS).where(OBJECTS.c.job == job))
            connection.execute(sa.delete(LISTED).where(LISTED.c.job == job))

    def add(self, job: str, first_number: int, objects: Sequence[InputObject]) -> None:
        """Add objects of an unfinished list."""
        rows = [
            {
                "job": job,
                "number": number,
                "uri": it.uri,
                "relative": it.relative,
                "size_bytes": it.size_bytes or 0,
                "state": WAITING,
                "records": 0,
            }
            for number, it in enumerate(objects, first_number)
        ]
        with self._database.write() as connection:
            connection.execute(sa.insert(OBJECTS), rows)

    def mark_listed(self, job: str, created_at: float) -> None:
        """Mark the list as whole."""
        with self._database.write() as connection:
            connection.execute(sa.insert(LISTED), {"job": job, "created_at": created_at})

    def list_waiting(self, job: str, after: int) -> list[NumberedObject]:
        """List the next waiting objects, whose numbers are above `after`."""
        return self._list_state(job, WAITING, after)

    def list_done(self, job: str, after: int) -> list[NumberedObject]:
        """List the next finished objects, whose numbers are above `after`."""
        return self._list_state(job, DONE, after)

    def _list_state(self, job: str, state: str, after: int) -> list[NumberedObject]:
        chosen = (
            sa.select(OBJECTS.c.number, OBJECTS.c.uri, OBJECTS.c.relative, OBJECTS.c.size_bytes)
            .where(OBJECTS.c.job == job, OBJECTS.c.state == state, OBJECTS.c.number > after)
            .order_by(OBJECTS.c.number)
            .limit(AT_ONCE)
        )
        with self._database.read() as connection:
            return [NumberedObject(*row) for row in connection.execute(chosen)]

    def mark_ended(self, job: str, number: int, records: int, reason: str | None) -> None:
        """Mark an object as done, or as failed for `reason`."""
        state = DONE if reason is None else FAILED
        with self._database.write() as connection:
            connection.execute(
                sa.update(OBJECTS)
                .where(OBJECTS.c.job == job, OBJECTS.c.number == number)
                .values(state=state, records=records, reason=reason)
            )

    def sum_up(self, job: str) -> ObjectTotals:
        """Sum up the objects of a job."""
        size, records = _sum(OBJECTS.c.size_bytes), _sum(OBJECTS.c.records)
        grouped = (
            sa.select(OBJECTS.c.state, sa.func.count(), size, records)
            .where(OBJECTS.c.job == job)
            .group_by(OBJECTS.c.state)
        )
        first = (
            sa.select(OBJECTS.c.reason)
            .where(OBJECTS.c.job == job, OBJECTS.c.state == FAILED)
            .order_by(OBJECTS.c.number)
            .limit(1)
        )
        with self._database.read() as connection:
            by_state = {row[0]: row for row in connection.execute(grouped)}
            failed = connection.execute(first).first()
        ended = [row for state, row in by_state.items() if state != WAITING]
        return ObjectTotals(
            objects=sum(row[1] for row in by_state.values()),
            ended=sum(row[1] for row in ended),
            failed=by_state[FAILED][1] if FAILED in by_state else 0,
            records=sum(row[3] for row in ended),
            bytes=sum(row[2] for row in ended),
            bytes_total=sum(row[2] for row in by_state.values()),
            first_failed=None if failed is None else failed[0],
        )

    def list_jobs(self) -> list[str]:
        """List the jobs that have rows."""
        with self._database.read() as connection:
            found = connection.execute(sa.select(OBJECTS.c.job).distinct())
            return [row[0] for row in found]


def _sum(column: sa.Column[int]) -> sa.ColumnElement[int]:
    """Build a sum as an integer, because PostgreSQL's sum is a decimal number."""
    return sa.cast(sa.func.sum(column), sa.BigInteger)


def row_key(job: TransformJob) -> str:
    """Build the name of a job in the rows. A deleted and recreated job gets another name."""
    return f"{job.arn}@{job.created_at!r}"


ROWS_AT_ONCE = 1000


async def list_objects(job: TransformJob, store: ObjectStore, rows: ObjectRows) -> None:
    """List the job's objects, unless that is done already. Raises ObjectError, RecordError."""
    key = row_key(job)
    if await asyncio.to_thread(rows.is_listed, key):
        return
    await asyncio.to_thread(rows.forget, key)  # the rows of an unfinished list
    if job.input.kind is TransformInputKind.MANIFEST:
        await _read_manifest(job, store, rows)
    else:
        await _list_prefix(job, store, rows)
    await asyncio.to_thread(rows.mark_listed, key, job.created_at)


async def _read_manifest(job: TransformJob, store: ObjectStore, rows: ObjectRows) -> None:
    stored = await store.open(job.input.uri)
    try:
        if stored.size_bytes > MAX_MANIFEST_BYTES:
            raise RecordError(
                f"The manifest {job.input.uri} has {stored.size_bytes} bytes; the limit is"
                f" {MAX_MANIFEST_BYTES}."
            )
        body = await stored.whole()
    finally:
        stored.close()
    objects = parse_manifest(body, job.input.uri)
    for begin in range(0, len(objects), ROWS_AT_ONCE):
        page = objects[begin : begin + ROWS_AT_ONCE]
        await asyncio.to_thread(rows.add, row_key(job), begin + 1, page)


async def _list_prefix(job: TransformJob, store: ObjectStore, rows: ObjectRows) -> None:
    bucket, _, prefix = job.input.uri.removeprefix("s3://").partition("/")
    number, after = 1, None
    while True:
        page = await store.list_page(bucket, prefix, after)
        found = [
            InputObject(
                f"s3://{bucket}/{listed.key}",
                get_relative_key(job.input.uri, bucket, listed.key),
                listed.size_bytes,
            )
            for listed in page.objects
            if not listed.key.endswith("/")  # a folder's marker
        ]
        if found:
            await asyncio.to_thread(rows.add, row_key(job), number, found)
        number, after = number + len(found), page.after
        if after is None:
            break
    if number == 1:
        raise RecordError(f"There is no object whose key begins with that of {job.input.uri}.")


async def write_manifests(job: TransformJob, store: ObjectStore, rows: ObjectRows) -> None:
    """Write the manifests of a job that captures. A repeat writes the same. Raises ObjectError."""
    if job.capture is None:
        return
    last, page = 0, 1
    while found := await asyncio.to_thread(rows.list_done, row_key(job), last):
        await _write_page(job, job.capture, store, found, page)
        last, page = found[-1].number, page + 1


async def _write_page(
    job: TransformJob,
    capture: TransformCapture,
    store: ObjectStore,
    found: Sequence[NumberedObject],
    page: int,
) -> None:
    settings = OutputSettings(
        content_type="application/json",
        kms_key_id=capture.kms_key_id,
        chain_length=job.chain_length,
    )
    bucket = found[0].uri.removeprefix("s3://").partition("/")[0]
    read_from, wrote_to = f"s3://{bucket}/", f"{job.output.path.rstrip('/')}/"
    manifests = {
        "input": [{"prefix": read_from}, *(it.uri.removeprefix(read_from) for it in found)],
        "output": [{"prefix": wrote_to}, *(it.relative + SUFFIX for it in found)],
    }
    hour = datetime.fromtimestamp(job.created_at, UTC).strftime("%Y/%m/%d/%H")
    for kind, manifest in manifests.items():
        uri = f"{capture.uri.rstrip('/')}/{kind}/{hour}/{job.name}-{page:05}.json"
        await store.put(uri, json.dumps(manifest).encode(), settings)
