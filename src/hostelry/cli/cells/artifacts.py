"""The objects that an endpoint needs in the object store of its new cell."""

from collections.abc import Iterator
from typing import Any

import typer
from s3transfer.manager import TransferManager

from hostelry.cli.artifacts.upload import make_bucket

# Members of a document whose objects are read by copies; others name places to write to.
READ_BY_COPIES = frozenset(
    {
        "ModelDataUrl", "ArtifactUrl", "S3Uri", "OPTION_MODEL_ID", "HF_MODEL_ID",
        "SAGEMAKER_SUBMIT_DIRECTORY",
    }
)  # fmt: skip
SCHEME = "s3://"
BLOCK_BYTES = 8 * 1024 * 1024


def uris_in(document: Any, member: str = "", *, in_adapters: bool = False) -> Iterator[str]:
    """The ``s3://`` URIs of a document that copies read."""
    if isinstance(document, dict):
        for name, value in document.items():
            yield from uris_in(value, name, in_adapters=member == "Adapters")
    elif isinstance(document, list):
        for value in document:
            yield from uris_in(value, member, in_adapters=in_adapters)
    elif (member in READ_BY_COPIES or in_adapters) and str(document).startswith(SCHEME):
        yield str(document)


def buckets_in(document: Any) -> Iterator[str]:
    """The buckets that a document names anywhere."""
    if isinstance(document, dict):
        for value in document.values():
            yield from buckets_in(value)
    elif isinstance(document, list):
        for value in document:
            yield from buckets_in(value)
    elif isinstance(document, str) and document.startswith(SCHEME):
        yield document.removeprefix(SCHEME).partition("/")[0]


def copy_artifacts(document: Any, source: Any, target: Any) -> int:
    """Copy what copies read from one object store to another; the number of objects sent.

    An object that is there with the same size and digest is left alone. Objects of a bucket of
    another name are as they were; every bucket that is named is made.
    """
    for bucket in dict.fromkeys(buckets_in(document)):
        make_bucket(target, bucket)
    number = 0
    for uri in dict.fromkeys(uris_in(document)):
        bucket, _, prefix = uri.removeprefix(SCHEME).partition("/")
        for key, size, digest in objects_below(source, bucket, prefix):
            if (size, digest) in there(target, bucket, key):
                continue
            body = source.get_object(Bucket=bucket, Key=key)["Body"]
            with TransferManager(target) as transfers:
                transfers.upload(body, bucket, key).result()
            typer.echo(f"copied s3://{bucket}/{key} ({size} bytes)", err=True)
            number += 1
    return number


def objects_below(s3: Any, bucket: str, prefix: str) -> Iterator[tuple[str, int, str]]:
    """Key, size and digest of the object of this key, or of those of this folder."""
    folder = f"{prefix.rstrip('/')}/" if prefix else ""
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        for row in page.get("Contents", ()):
            if row["Key"] == prefix or row["Key"].startswith(folder):
                yield row["Key"], row["Size"], row["ETag"]


def there(s3: Any, bucket: str, key: str) -> list[tuple[int, str]]:
    """Size and digest of an object, where there is one."""
    listed = s3.list_objects_v2(Bucket=bucket, Prefix=key, MaxKeys=1).get("Contents", ())
    return [(row["Size"], row["ETag"]) for row in listed if row["Key"] == key]
