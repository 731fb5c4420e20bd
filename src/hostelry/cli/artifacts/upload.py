"""Uploads of files. Keys name the content, so a repeated upload sends only missing objects."""

import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hostelry.base.errors import TerminalError
from hostelry.cli.artifacts.files import THREADS, Advance, ObjectOrder, check_unchanged, pack_files
from hostelry.cli.work_reporter import WorkReporter

PART_BYTES = 16 * 1024 * 1024
OWN_BUCKET = ("BucketAlreadyOwnedByYou", "BucketAlreadyExists")


def upload(s3: Any, bucket: str, orders: Iterable[ObjectOrder], advance: Advance) -> None:
    """Send the objects. `advance` is called with the number of bytes sent.

    First removes the parts of these objects that a killed run left. Raises botocore's errors, and
    TerminalError if a file has changed since it was found, because its key names the content.
    """
    from s3transfer.manager import TransferConfig, TransferManager

    wanted = list(orders)
    settings = TransferConfig(
        multipart_threshold=PART_BYTES,
        multipart_chunksize=PART_BYTES,
        max_request_concurrency=THREADS,
    )
    # Half of the limit, because an archive may be larger than its files.
    remove_parts(s3, bucket, {it.key for it in wanted if it.num_bytes >= PART_BYTES // 2})
    with (
        tempfile.TemporaryDirectory(prefix="hostelry-upload-") as scratch,
        TransferManager(s3, settings) as transfers,
    ):
        sent = []
        for number, order in enumerate(wanted):
            path = order.files[0].path
            if order.packed:
                path = str(pack_files(order.files, Path(scratch) / f"{number}.tar.gz"))
            else:
                check_unchanged(order.files[0])
            counter = _Counter(advance, order.num_bytes / max(1, os.path.getsize(path)))
            sent.append((order, transfers.upload(path, bucket, order.key, None, [counter])))
        for order, future in sent:
            _finish(s3, bucket, order, future)


def shown_upload(
    s3: Any, bucket: str, orders: Sequence[ObjectOrder], place: str, reporter: WorkReporter
) -> None:
    """Send the objects and show the progress. The last line names `place` as their destination."""
    total = sum(it.num_bytes for it in orders)
    with reporter.count_bytes("upload", total) as advance:
        upload(s3, bucket, orders, advance)
    reporter.line(f"uploaded {total / 1e6:.1f} MB to {place}")


def _finish(s3: Any, bucket: str, order: ObjectOrder, future: Any) -> None:
    from botocore.exceptions import ClientError

    try:
        future.result()
    except ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchUpload":
            raise
        raise TerminalError(
            f"another command sends s3://{bucket}/{order.key}, too, and has removed the parts of "
            "this one: run this again once it is there"
        ) from None
    try:
        for file in order.files:
            check_unchanged(file)
    except TerminalError:
        s3.delete_object(Bucket=bucket, Key=order.key)
        raise


def remove_parts(s3: Any, bucket: str, keys: set[str]) -> None:
    """Abort the multipart uploads of these keys. Otherwise their parts would stay for ever."""
    for key in keys:
        for left in s3.list_multipart_uploads(Bucket=bucket, Prefix=key).get("Uploads", ()):
            if left["Key"] == key:
                s3.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=left["UploadId"])


def make_bucket(s3: Any, bucket: str) -> None:
    """Create the bucket if it is missing, also while another command creates it."""
    from botocore.exceptions import ClientError

    try:
        s3.head_bucket(Bucket=bucket)
    except ClientError:
        try:
            s3.create_bucket(Bucket=bucket)
        except ClientError as error:
            if error.response["Error"]["Code"] not in OWN_BUCKET:
                raise


class _Counter:
    """A subscriber of s3transfer that reports the number of sent bytes."""

    def __init__(self, advance: Advance, num_bytes_each: float) -> None:
        self._advance, self._num_bytes_each = advance, num_bytes_each

    def on_progress(self, future: Any, bytes_transferred: int, **_: Any) -> None:
        """Pass on the number of bytes. It is negative for bytes that will be sent again."""
        self._advance(bytes_transferred * self._num_bytes_each)
