"""Sample payloads: files of an archive as requests, and archives that are refused."""

import gzip
import io
import tarfile

import pytest
from tests.cases import case, cases

from hostelry.domain.recommendation_job import SamplePayload
from hostelry.jobs.recommendations.sample_requests import (
    MAX_FILES,
    MAX_UNPACKED_BYTES,
    SampleError,
    SampleRequest,
    choose_content_type,
    read_samples,
)

PAYLOAD = SamplePayload(
    uri="s3://b/rows.tar.gz", content_types=("application/json", "text/csv; charset=utf-8")
)


def archive(*members: tuple[str, bytes], kind: bytes = tarfile.REGTYPE) -> bytes:
    """A .tar.gz."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as files:
        for name, body in members:
            member = tarfile.TarInfo(name)
            member.type, member.size, member.linkname = kind, len(body), "/etc/passwd"
            files.addfile(member, io.BytesIO(body))
    return content.getvalue()


def test_each_file_is_a_request_with_the_type_of_its_name() -> None:
    content = archive(
        ("a/row.csv", b"1,2"), ("row.json", b"[1]"), ("row", b"x"), ("a/._row.csv", b"m")
    )
    assert read_samples(content, PAYLOAD) == (
        SampleRequest(b"1,2", "text/csv; charset=utf-8"),
        SampleRequest(b"[1]", "application/json"),
        SampleRequest(b"x", "application/json"),
    )


@cases(
    "name, supported, expected",
    case("the type of the name", "a.CSV", ("application/json", "text/csv"), "text/csv"),
    case("an unsupported type", "a.csv", ("application/json",), "application/json"),
    case("an unknown suffix", "a.rows", ("text/csv", "text/plain"), "text/csv"),
)
def test_the_content_type(name: str, supported: tuple[str, ...], expected: str) -> None:
    assert choose_content_type(name, supported) == expected


@cases(
    "content, expected",
    case("no gzip", b"1.0,2.0\n", "is not gzip"),
    case("nothing", b"", "is not whole"),
    case("gzip of another file", gzip.compress(b"1.0,2.0\n" * 200), "is not a .tar.gz"),
    case("an archive that is cut off", archive(("a", b"x" * 5000))[:-30], "is not whole"),
    case("no files", archive(), "has no file"),
    case("links only", archive(("a", b""), kind=tarfile.SYMTYPE), "has no file"),
    case("too much to unpack", gzip.compress(bytes(MAX_UNPACKED_BYTES + 1)), "the limit"),
    case(
        "too many files",
        archive(*((f"f{number}", b"") for number in range(MAX_FILES + 1))),
        f"more than {MAX_FILES} files",
    ),
)
def test_an_archive_that_is_refused(content: bytes, expected: str) -> None:
    with pytest.raises(SampleError, match=r"s3://b/rows\.tar\.gz") as caught:
        read_samples(content, PAYLOAD)
    assert expected in str(caught.value)


def test_a_member_that_claims_more_than_the_limit_is_refused() -> None:
    header = bytearray(tarfile.TarInfo("big").tobuf())
    header[124:136] = b"77777777777\0"  # 8 GiB in octal
    header[148:156] = b"        "
    header[148:156] = f"{sum(header[:512]):06o}\0 ".encode()
    with pytest.raises(SampleError, match=r"more than|is not a \.tar\.gz"):
        read_samples(gzip.compress(bytes(header) + bytes(1024)), PAYLOAD)
