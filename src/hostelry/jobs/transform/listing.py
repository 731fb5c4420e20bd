"""Objects of a transform job: listed into its rows, and named in manifests of data capture."""

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime

from hostelry.domain.transform_job import TransformCapture, TransformInputKind, TransformJob
from hostelry.jobs.objects.object_store import ObjectStore, OutputSettings
from hostelry.jobs.records.errors import RecordError
from hostelry.jobs.records.object_keys import (
    MAX_MANIFEST_BYTES,
    SUFFIX,
    InputObject,
    manifest_objects,
    relative_key,
)
from hostelry.jobs.transform.object_rows import NumberedObject, ObjectRows, row_key

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
    await asyncio.to_thread(rows.listed, key, job.created_at)


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
    objects = manifest_objects(body, job.input.uri)
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
                relative_key(job.input.uri, bucket, listed.key),
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
    while found := await asyncio.to_thread(rows.done, row_key(job), last):
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
