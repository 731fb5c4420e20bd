"""The sample payload of a job: the files of a .tar.gz as requests. PURE.

The archive is a client's. Its sizes are checked before it is unpacked into memory, and nothing is
written.
"""

import io
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import PurePosixPath

import msgspec

from hostelry.base.errors import HostelryError
from hostelry.domain.recommendation_job import SamplePayload

MB = 1024 * 1024
MAX_ARCHIVE_BYTES = 64 * MB
MAX_UNPACKED_BYTES = 128 * MB
MAX_FILES = 1_000
GZIP = 16 + zlib.MAX_WBITS
TYPES = {
    ".csv": "text/csv",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".json": "application/json",
    ".jsonl": "application/jsonlines",
    ".libsvm": "text/libsvm",
    ".npy": "application/x-npy",
    ".png": "image/png",
    ".recordio": "application/x-recordio-protobuf",
    ".txt": "text/plain",
}


class SampleError(HostelryError):
    """The sample payload cannot be used. The message says why."""


class SampleRequest(msgspec.Struct, frozen=True):
    """The body of a request, and its content type."""

    body: bytes
    content_type: str


def read_samples(archive: bytes, payload: SamplePayload) -> tuple[SampleRequest, ...]:
    """The requests of an archive, in its order. Raises SampleError."""
    unpacked = _inflate(archive, payload.uri)
    try:
        with tarfile.open(fileobj=io.BytesIO(unpacked), mode="r:") as files:
            found = _read_files(files, payload)
    except (tarfile.TarError, ValueError, OverflowError, EOFError, OSError) as error:
        raise SampleError(f"{payload.uri} is not a .tar.gz of request bodies: {error}") from error
    if not found:
        raise SampleError(f"{payload.uri} has no file; put the body of a request into it.")
    return found


def choose_content_type(name: str, supported: Sequence[str]) -> str:
    """The type that the file's name stands for, if it is supported, else the first type."""
    suffix = PurePosixPath(name).suffix.lower()
    guessed = TYPES.get(suffix)
    for one in supported:
        if one.partition(";")[0].strip().lower() == guessed:
            return one
    return supported[0]


def _inflate(archive: bytes, uri: str) -> bytes:
    stream = zlib.decompressobj(GZIP)
    try:
        unpacked = stream.decompress(archive, MAX_UNPACKED_BYTES + 1)
    except zlib.error as error:
        raise SampleError(f"{uri} is not gzip: {error}") from error
    if len(unpacked) > MAX_UNPACKED_BYTES:
        raise SampleError(f"{uri} has more than {MAX_UNPACKED_BYTES} bytes of files, the limit.")
    if not stream.eof:
        raise SampleError(f"{uri} is not whole: its gzip data ends early.")
    return unpacked


def _read_files(files: tarfile.TarFile, payload: SamplePayload) -> tuple[SampleRequest, ...]:
    found: list[SampleRequest] = []
    num_bytes = 0
    for member in files:
        # Files such as ._row.csv are attributes that some archivers add.
        if not member.isreg() or PurePosixPath(member.name).name.startswith("."):
            continue
        num_bytes += member.size
        if num_bytes > MAX_UNPACKED_BYTES or len(found) >= MAX_FILES:
            raise SampleError(
                f"{payload.uri} has more than {MAX_FILES} files or {MAX_UNPACKED_BYTES} bytes."
            )
        body = files.extractfile(member)
        assert body is not None, "a regular file has a body"
        content_type = choose_content_type(member.name, payload.content_types)
        found.append(SampleRequest(body.read(), content_type))
    return tuple(found)
