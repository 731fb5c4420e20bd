"""Adapters from S3 and out of untrusted archives."""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError
from tests.cases import case, cases
from tests.unit.base.tars import Member, tar, targz

from hostelry.containers.lmi.adapters.s3_fetcher import S3Fetcher, parse_s3_uri, unpack_adapter
from hostelry.engine.lora.errors import AdapterError

CONFIG = Member(name="adapter_config.json", body=b"{}")
WEIGHTS = Member(name="adapter_model.safetensors", body=b"weights")


def under(folder: str, member: Member) -> Member:
    return Member(name=f"{folder}/{member.name}", body=member.body)


class Bucket:
    """Objects by key, as boto3's client gives them."""

    def __init__(self, **objects: bytes) -> None:
        self.objects = objects
        self.failure: Exception | None = None

    def get_object(self, *, Bucket: str, Key: str) -> Any:
        if self.failure is not None:
            raise self.failure
        if Key not in self.objects:
            raise ClientError({"Error": {"Code": "NoSuchKey", "Message": "none"}}, "GetObject")
        return {"Body": io.BytesIO(self.objects[Key])}


@pytest.mark.parametrize("beside", ["", "checkpoint-500"], ids=["alone", "beside a checkpoint"])
@pytest.mark.parametrize("folder", ["", "one", "./one/two"])
def test_an_adapter_is_found_anywhere_in_its_archive(
    folder: str, beside: str, tmp_path: Path
) -> None:
    archive, into = tmp_path / "a", tmp_path / "into"
    into.mkdir()
    members = [CONFIG, WEIGHTS]
    if beside:
        members += [under(beside, Member(name=it.name, body=b"older")) for it in members]
    members = [under(folder, it) if folder else it for it in members]
    archive.write_bytes(targz([*members, Member(name="README.md", body=b"read me")]))
    unpack_adapter(archive, into, max_bytes=10_000)
    assert {it.name: it.read_bytes() for it in into.iterdir()} == {
        "adapter_config.json": b"{}",
        "adapter_model.safetensors": b"weights",
    }


@cases(
    "packed, message",
    case("no archive", lambda: b"no archive", "no .tar.gz"),
    case("a header that is cut off", lambda: b"\x1f\x8b\x08", "cut off"),
    case("nothing", lambda: b"", "no .tar.gz"),
    case("code", lambda: targz([CONFIG, Member(name="model.py", body=b"x")]), "holds model.py"),
    case("cut off", lambda: targz([CONFIG])[:-20], "cut off|one adapter"),
    case("no adapter", lambda: targz([Member(name="x")]), "one adapter"),
    case("two of them", lambda: targz([CONFIG, under("b", CONFIG)]), "files of one"),
    case("checkpoints alone",
        lambda: targz([under("checkpoint-1", CONFIG), under("checkpoint-2", CONFIG)]),
        "files of one: checkpoint-1, checkpoint-2"),
    case("a file twice", lambda: targz([CONFIG, CONFIG]), "twice"),
    case("a name that leads out", lambda: targz([under("..", CONFIG)]), "leaves"),
    case("an absolute name", lambda: targz([under("/etc", CONFIG)]), "absolute"),
    case("a symbolic link",
        lambda: targz([Member(name="adapter_config.json", kind=b"2", link="/etc/passwd")]),
        "is a symbolic link"),
    case("a hard link",
        lambda: targz([Member(name="adapter_config.json", kind=b"1", link="/etc/passwd")]),
        "is a hard link"),
    case("a named pipe", lambda: targz([Member(name="fifo", kind=b"6")]), "is a named pipe"),
    case("more than may be unpacked",
        lambda: targz([CONFIG, Member(name="big", body=b"x" * 20_000)]), "10000 are allowed"),
    case("more in all than may be unpacked",
        lambda: targz([CONFIG, *(Member(name=it, body=b"x" * 6_000) for it in "ab")]),
        "more than 10000 bytes"),
    case("a tar that is not compressed", lambda: tar([CONFIG]), "no .tar.gz"),
    case("an endless header", lambda: targz([Member(name="h", kind=tarfile.XHDTYPE, size=1 << 40)]),
        "an extended header of"),
)  # fmt: skip
def test_archives_that_are_refused_write_nothing_outside(
    packed: Callable[[], bytes], message: str, tmp_path: Path
) -> None:
    archive, into = tmp_path / "a", tmp_path / "inner" / "into"
    into.mkdir(parents=True)
    archive.write_bytes(packed())
    with pytest.raises(AdapterError, match=message):
        unpack_adapter(archive, into, max_bytes=10_000)
    assert sorted(it.name for it in tmp_path.iterdir()) == ["a", "inner"]
    assert [it.name for it in into.parent.iterdir()] == ["into"]


@pytest.mark.parametrize("uri", ["s3://b/p", "s3://b/p/", "s3://b/p.tar.gz", "s3://b/p.tgz"])
def test_a_prefix_or_an_archive_is_fetched(uri: str, tmp_path: Path) -> None:
    packed = targz([CONFIG, WEIGHTS])
    bucket = Bucket(
        **{
            "p/adapter_config.json": b"{}",
            "p/adapter_model.safetensors": b"weights",
            "p/other": b"not ours",
            "p.tar.gz": packed,
            "p.tgz": packed,
        }
    )
    S3Fetcher(bucket).fetch(uri, tmp_path)
    names = sorted(it.name for it in tmp_path.iterdir())
    assert names == ["adapter_config.json", "adapter_model.safetensors"]


@cases(
    "uri, failure, message",
    case("no object", "s3://b/none", None, "there is none of adapter_config.json"),
    case("no archive", "s3://b/none.tgz", None, "NoSuchKey"),
    case("more than may be taken", "s3://b/big", None, "more than the 3 bytes"),
    case("not allowed", "s3://b/x", ClientError({"Error": {"Code": "AccessDenied"}}, "GetObject"),
        "S3 does not give s3://b/x: AccessDenied"),
    case("it hangs", "s3://b/x", ReadTimeoutError(endpoint_url="http://s3"), "Read timeout"),
    case("no bucket", "s3:///x", None, "is not of the form"),
)  # fmt: skip
def test_what_s3_does_not_give(
    uri: str, failure: Exception | None, message: str, tmp_path: Path
) -> None:
    bucket = Bucket(**{"big/adapter_config.json": b"12345", "big/adapter_model.bin": b"12345"})
    bucket.failure = failure
    with pytest.raises(AdapterError, match=message):
        S3Fetcher(bucket, max_bytes=8).fetch(uri, tmp_path)


def test_uris_of_s3() -> None:
    assert parse_s3_uri("s3://b/a%20b/c") == ("b", "a%20b/c")
    assert parse_s3_uri("s3://b") == ("b", "")
