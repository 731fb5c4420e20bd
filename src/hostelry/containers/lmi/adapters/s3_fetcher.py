"""Fetcher of adapters from S3: a prefix with an adapter's files, or an archive of such files."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from hostelry.base.archive import ArchiveLimits, unpack
from hostelry.base.files import UnsafeFilesError
from hostelry.engine.lora.errors import AdapterError

ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors", "adapter_model.bin")
CODE_FILE = "model.py"
CHECKPOINT = "checkpoint-"
MAX_MEMBERS = 10_000
MAX_BYTES = 8 << 30
BLOCK_BYTES = 1 << 20
ARCHIVES = (".tar.gz", ".tgz")
CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 20
ATTEMPTS = 3
ABSENT = ("404", "NoSuchKey", "AccessDenied")  # S3 denies a missing key if listing is denied, too


def unpack_adapter(archive: Path, into: Path, *, max_bytes: int) -> None:
    """Write the files of the one adapter in a .tar.gz into `into`, at its top.

    They may lie in a folder of the archive. Folders of checkpoints in this folder are left out.
    Nothing else is written, and no more than `max_bytes` are unpacked. base.archive lists the
    refused members. Raises AdapterError.
    """
    limits = ArchiveLimits(
        max_members=MAX_MEMBERS,
        max_total_bytes=max_bytes,
        max_member_bytes=max_bytes,
        max_ratio=float("inf"),  # a new adapter has weights of zeros, which are not a bomb
        gzip_only=True,
    )
    unpacked = into / ".unpacked"

    def takes(name: str) -> bool:
        if PurePosixPath(name).name == CODE_FILE:
            raise remote_code("the archive")
        return PurePosixPath(name).name in ADAPTER_FILES

    try:
        unpack(archive, unpacked, limits, takes=takes)
        files = [it for it in unpacked.rglob("*") if it.is_file()]
        folder = _one_adapter({it.parent.relative_to(unpacked) for it in files})
        for file in files:
            if file.parent == unpacked / folder:
                file.rename(into / file.name)
    except UnsafeFilesError as error:
        raise AdapterError(str(error)) from error
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)


def _one_adapter(folders: set[Path]) -> Path:
    """The folder that contains all others as folders of checkpoints. Raises AdapterError."""
    in_order = sorted(folders)
    if in_order and all(
        folder.match(f"{CHECKPOINT}*") and folder.parent == in_order[0] for folder in in_order[1:]
    ):
        return in_order[0]
    where = ", ".join(sorted(str(it) for it in folders)) or "none"
    raise AdapterError(f"the archive must hold one adapter; folders with files of one: {where}")


def remote_code(place: str) -> AdapterError:
    """The error of a remote adapter that brings its own code."""
    return AdapterError(
        f"{place} holds {CODE_FILE}; an adapter's code runs from a folder of this machine only. "
        "Register the folder, or remove the file"
    )


def new_client() -> Any:
    """A client of S3 by boto3's own configuration sources, with timeouts."""
    limits = Config(
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=READ_TIMEOUT_S,
        retries={"mode": "standard", "max_attempts": ATTEMPTS},
    )
    return boto3.client("s3", config=limits)


class S3Fetcher:
    """Fetches `s3://bucket/prefix` and `s3://bucket/key.tar.gz`, at most `max_bytes`.

    Of a prefix only the files of an adapter are fetched.
    """

    def __init__(self, client: Any, max_bytes: int = MAX_BYTES) -> None:
        self._client = client
        self._max_bytes = max_bytes

    def fetch(self, uri: str, into: Path) -> None:
        """Copy the adapter's files into `into`. Raises AdapterError with URI and cause."""
        bucket, key = parse_s3_uri(uri)
        with translate_errors(uri):
            if key.endswith(ARCHIVES):
                self._fetch_archive(bucket, key, into)
            else:
                self._fetch_prefix(bucket, key, into)

    def _fetch_archive(self, bucket: str, key: str, into: Path) -> None:
        packed = into / ".packed"
        try:
            self._download(bucket, key, packed, self._max_bytes)
            unpack_adapter(packed, into, max_bytes=self._max_bytes)
        finally:
            packed.unlink(missing_ok=True)

    def _fetch_prefix(self, bucket: str, key: str, into: Path) -> None:
        prefix = f"{key.rstrip('/')}/" if key else ""
        left = self._max_bytes
        if self._exists(bucket, prefix + CODE_FILE):
            raise remote_code(f"the prefix {prefix!r}")
        found = []
        for name in ADAPTER_FILES:
            try:
                left -= self._download(bucket, prefix + name, into / name, left)
            except ClientError as error:
                if error.response.get("Error", {}).get("Code") not in ("404", "NoSuchKey"):
                    raise
            else:
                found.append(name)
        if not found:
            raise AdapterError(f"there is none of {', '.join(ADAPTER_FILES)} under {prefix!r}")

    def _exists(self, bucket: str, key: str) -> bool:
        try:
            self._client.get_object(Bucket=bucket, Key=key)["Body"].close()
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") not in ABSENT:
                raise
            return False
        return True

    def _download(self, bucket: str, key: str, path: Path, most: int) -> int:
        """Copy one object. Returns its size in bytes. Raises AdapterError above `most` bytes."""
        answer = self._client.get_object(Bucket=bucket, Key=key)
        num_bytes = 0
        body = answer["Body"]
        with body, path.open("wb") as file:
            while block := body.read(BLOCK_BYTES):
                num_bytes += len(block)
                if num_bytes > most:
                    raise AdapterError(f"{key!r} has more than the {most} bytes that may be taken")
                file.write(block)
        return num_bytes


def parse_s3_uri(uri: str) -> tuple[str, str]:
    """Bucket and key, the key perhaps empty. Raises AdapterError."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    if not bucket or not uri.startswith("s3://"):
        raise AdapterError(f"{uri!r} is not of the form s3://bucket/prefix or s3://bucket/x.tar.gz")
    return bucket, key


@contextmanager
def translate_errors(uri: str) -> Iterator[None]:
    """Turn S3's errors into AdapterError with the URI."""
    try:
        yield
    except ClientError as error:
        answer = error.response.get("Error", {})
        reason = f"{answer.get('Code', 'error')}: {answer.get('Message', error)}"
        raise AdapterError(f"S3 does not give {uri}: {reason}") from error
    except BotoCoreError as error:
        raise AdapterError(f"S3 does not give {uri}: {error}") from error
    except AdapterError as error:
        raise AdapterError(f"{uri}: {error}") from error
