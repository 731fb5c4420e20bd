"""Looks at a source that is not on this machine: an S3 prefix or archive, a model of the hub."""

import tarfile
from typing import Any

import httpx
from botocore.exceptions import ClientError

from hostelry.base.errors import TerminalError
from hostelry.base.json import decode
from hostelry.cli.artifacts.folder import MAX_FILES, hub_folder
from hostelry.cli.artifacts.object_order import FoundFile
from hostelry.cli.deploy.found import (
    HEAD_BYTES,
    TEXT_BYTES,
    TEXT_NAMES,
    Found,
    Origin,
    is_model_name,
)
from hostelry.cli.deploy.look import MAX_HEADS, deployed, look_at_folder, read_archive

HUB_TIMEOUT_S = 20.0
MAX_ARCHIVE_BYTES = 512 * 1024 * 1024  # of a packed archive that is read for its names


def look_at_prefix(s3: Any, uri: str) -> Found:
    """What is below a prefix; `s3` is a client of the platform's object store."""
    bucket, prefix = uri.removeprefix("s3://").split("/", 1)
    files: list[FoundFile] = []
    for item in listed(s3, bucket, prefix, uri):
        name = item["Key"].removeprefix(prefix)
        if name and not name.endswith("/"):
            files.append(FoundFile(name=name, size_bytes=item["Size"], etag=item["ETag"]))
    if not files:
        raise TerminalError(f"there is no object below {uri}")
    heads = [it for it in files if is_model_name(it.name)][:MAX_HEADS]
    return Found(
        given=uri,
        place=Origin.PREFIX,
        files=tuple(files),
        heads={it.name: first_bytes(s3, bucket, prefix + it.name, HEAD_BYTES) for it in heads},
        texts={
            name: first_bytes(s3, bucket, prefix + name, TEXT_BYTES).decode(errors="replace")
            for name in [it.name for it in files if it.size_bytes <= TEXT_BYTES]
            if name in TEXT_NAMES
        },
        uri=uri,
    )


def look_at_object(s3: Any, uri: str) -> Found:
    """What is in an archive; it is read as a stream and kept nowhere."""
    bucket, key = uri.removeprefix("s3://").split("/", 1)
    try:
        answer = s3.get_object(Bucket=bucket, Key=key)
    except ClientError as error:
        raise TerminalError(f"{uri} cannot be read: {error}") from None
    if answer["ContentLength"] > MAX_ARCHIVE_BYTES:
        raise TerminalError(
            f"{uri} has {answer['ContentLength'] / 1e9:.1f} GB, too much to look into: say what it "
            "is with --as"
        )
    try:
        with answer["Body"] as body, tarfile.open(fileobj=body, mode="r|gz") as archive:
            found = read_archive(archive, uri)
    except (tarfile.TarError, OSError, EOFError) as error:
        raise TerminalError(f"{uri} is no .tar.gz that can be read: {error}") from None
    return Found(
        given=uri,
        place=Origin.OBJECT,
        files=found.files,
        heads=found.heads,
        texts=found.texts,
        uri=uri,
        revision=answer["ETag"],
    )


def look_at_hub(model_id: str) -> Found:
    """A model of the hub: the cached folder where there is one, else its files' names and sizes."""
    from huggingface_hub import constants
    from huggingface_hub.utils._headers import build_hf_headers

    folder = hub_folder(model_id)
    if folder is not None:
        return look_at_folder(folder, model_id)
    # Its own client tries an address that does not answer for half a minute.
    hub = httpx.Client(
        base_url=constants.ENDPOINT,
        headers=build_hf_headers(),
        timeout=HUB_TIMEOUT_S,
        follow_redirects=True,
    )
    try:
        with hub:
            answer = hub.get(f"/api/models/{model_id}", params={"blobs": "true"})
            shown = decode(answer.raise_for_status().content, dict[str, Any])
            files = [
                FoundFile(name=file["rfilename"], size_bytes=file.get("size") or 0)
                for file in shown["siblings"]
            ]
            texts = {
                name: hub.get(f"/{model_id}/resolve/{shown['sha']}/{name}").raise_for_status().text
                for name in ("config.json", "tokenizer_config.json")
                if any(it.name == name for it in files)
            }
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        raise TerminalError(
            f"{model_id} is not in the cache of the hub's models here, and {constants.ENDPOINT} "
            f"does not have it or cannot be reached: {error}"
        ) from None
    return Found(
        given=model_id,
        place=Origin.HUB,
        files=deployed(files)[0],
        texts=texts,
        revision=shown["sha"],
    )


def listed(s3: Any, bucket: str, prefix: str, uri: str) -> list[dict[str, Any]]:
    """The objects below a prefix. Raises TerminalError."""
    found: list[dict[str, Any]] = []
    try:
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
            found += page.get("Contents", ())
            if len(found) > MAX_FILES:
                raise TerminalError(f"{uri} has more than {MAX_FILES} objects: name a model's own")
    except ClientError as error:
        raise TerminalError(f"{uri} cannot be listed: {error}") from None
    return found


def first_bytes(s3: Any, bucket: str, key: str, count: int) -> bytes:
    """The first bytes of an object."""
    with s3.get_object(Bucket=bucket, Key=key)["Body"] as body:
        read: bytes = body.read(count)
    return read
