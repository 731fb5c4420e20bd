"""Digests and uploads of files: content by its key, so that a repeat sends what is missing."""

import gzip
import hashlib
import os
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hostelry.base.errors import TerminalError
from hostelry.cli.deploy.deployment import ObjectOrder
from hostelry.cli.deploy.found import FoundFile

BLOCK_BYTES = 4 * 1024 * 1024
THREADS = 4
PART_BYTES = 16 * 1024 * 1024
Advance = Callable[[int], None]


def digests_of(files: Iterable[FoundFile], advance: Advance) -> dict[str, str]:
    """SHA-256 of each file by its path; `advance` is given bytes as they are read."""
    paths = sorted({it.path for it in files if it.path})
    with ThreadPoolExecutor(THREADS) as threads:
        return dict(zip(paths, threads.map(lambda it: sha256_of(it, advance), paths), strict=True))


def sha256_of(path: str, advance: Advance) -> str:
    """The SHA-256 of a file, in hex."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb", buffering=0) as file:
            while block := file.read(BLOCK_BYTES):
                digest.update(block)
                advance(len(block))
    except OSError as error:
        raise TerminalError(f"{path} cannot be read: {error.strerror}") from None
    return digest.hexdigest()


def upload(s3: Any, bucket: str, orders: Iterable[ObjectOrder], advance: Advance) -> None:
    """Send the objects; `advance` is given bytes as they are sent.

    Parts that a killed run left of them are removed first. A key names its content, so a file that
    changed since its digest was made is refused.
    """
    from s3transfer.manager import TransferConfig, TransferManager

    wanted = list(orders)
    settings = TransferConfig(
        multipart_threshold=PART_BYTES,
        multipart_chunksize=PART_BYTES,
        max_request_concurrency=THREADS,
    )
    remove_parts(s3, bucket, {it.key for it in wanted})
    with (
        tempfile.TemporaryDirectory(prefix="hostelry-deploy-") as scratch,
        TransferManager(s3, settings) as transfers,
    ):
        sent = []
        for number, order in enumerate(wanted):
            path = order.files[0].path
            if order.packed:
                path = str(packed(order, Path(scratch) / f"{number}.tar.gz"))
            elif os.path.getsize(path) != order.size_bytes:
                raise TerminalError(f"{path} has changed meanwhile: run the command again")
            counter = _Counter((lambda _: None) if order.packed else advance)
            sent.append((order, transfers.upload(path, bucket, order.key, None, [counter])))
        for order, future in sent:
            future.result()
            if order.packed:
                advance(order.num_bytes)


def remove_parts(s3: Any, bucket: str, keys: set[str]) -> None:
    """Abort the multipart uploads of these keys, whose parts take room and end nowhere."""
    for key in keys:
        for left in s3.list_multipart_uploads(Bucket=bucket, Prefix=key).get("Uploads", ()):
            if left["Key"] == key:
                s3.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=left["UploadId"])


def packed(order: ObjectOrder, path: Path) -> Path:
    """A .tar.gz of the order's files, the same bytes for the same content."""
    with (
        path.open("wb") as file,
        gzip.GzipFile(fileobj=file, mode="wb", compresslevel=1, mtime=0, filename="") as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for found in order.files:
            member = tarfile.TarInfo(found.name)
            member.size = found.size_bytes
            with open(found.path, "rb") as source:
                archive.addfile(member, source)
    return path


class _Counter:
    """A subscriber of s3transfer that passes on how many bytes were sent."""

    def __init__(self, advance: Advance) -> None:
        self._advance = advance

    def on_queued(self, future: Any, **_: Any) -> None:
        """Nothing to do."""

    def on_progress(self, future: Any, bytes_transferred: int, **_: Any) -> None:
        """Bytes were sent, or, negative, will be sent again."""
        self._advance(bytes_transferred)

    def on_done(self, future: Any, **_: Any) -> None:
        """Nothing to do."""
