"""Keys of a transform job: the objects of its manifest, and the objects of its output."""

import json
from typing import Any

import msgspec

from hostelry.jobs.records.splitting import RecordError

SUFFIX = ".out"
MAX_MANIFEST_BYTES = 64 * 1024 * 1024


class InputObject(msgspec.Struct, frozen=True):
    """An object to read. `relative` is its key below the folder of the job's input."""

    uri: str
    relative: str
    size_bytes: int | None = None


def get_folder_uri(uri: str) -> str:
    """Return a URI up to the last slash of its key: ``s3://b/in/x`` gives ``s3://b/in/``."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    folder, slash, _ = key.rpartition("/")
    return f"s3://{bucket}/{folder}{slash}"


def get_relative_key(input_uri: str, bucket: str, key: str) -> str:
    """Return the part of an object's key that its output keeps.

    `input_uri` is the prefix of the job's input. ``s3://b/in`` and ``s3://b/in/`` give ``sub/x``
    for ``in/sub/x``, and ``s3://b/in/a`` gives ``a1`` for ``in/a1``.
    """
    prefix = input_uri.removeprefix(f"s3://{bucket}").removeprefix("/")
    if key.startswith(prefix + "/"):
        return key[len(prefix) + 1 :]
    return f"s3://{bucket}/{key}".removeprefix(get_folder_uri(input_uri))


def get_output_uri(path: str, relative: str) -> str:
    """Return the URI of an object's output."""
    return f"{path.rstrip('/')}/{relative.lstrip('/')}{SUFFIX}"


def parse_manifest(body: bytes, uri: str) -> list[InputObject]:
    """List the objects of a manifest, ``[{"prefix": "s3://..."}, "key", ...]``."""
    try:
        entries = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"The manifest {uri} is not JSON: {error}") from error
    prefix = _prefix(entries, uri)
    found = []
    for number, entry in enumerate(entries[1:], 2):
        if not isinstance(entry, str) or not entry:
            raise RecordError(f"Entry {number} of the manifest {uri} is not the key of an object.")
        found.append(InputObject(prefix + entry, entry))
    if not found:
        raise RecordError(f"The manifest {uri} names no object.")
    return found


def _prefix(entries: Any, uri: str) -> str:
    head = entries[0] if isinstance(entries, list) and entries else None
    prefix = head.get("prefix") if isinstance(head, dict) else None
    if not isinstance(prefix, str) or not prefix.startswith("s3://"):
        raise RecordError(
            f'The manifest {uri} does not begin with {{"prefix": "s3://bucket/..."}} in an array.'
        )
    return prefix
