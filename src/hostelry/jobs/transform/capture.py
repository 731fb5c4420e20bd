"""Data capture of a job: manifests of the objects that it read and wrote."""

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime

from hostelry.domain.transform_job import TransformCapture, TransformJob
from hostelry.jobs.objects.object_store import ObjectStore, OutputSettings
from hostelry.jobs.records.object_keys import SUFFIX
from hostelry.jobs.transform.object_rows import NumberedObject, ObjectRows, row_key


async def write_manifests(job: TransformJob, store: ObjectStore, rows: ObjectRows) -> None:
    """Write the manifests of a job that captures, the same ones again; raises ObjectError."""
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
