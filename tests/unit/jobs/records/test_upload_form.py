"""An uploaded form, in every split of its bytes."""

import httpx
import pytest
from tests.cases import case, cases

from hostelry.jobs.records.splitting import RecordError
from hostelry.jobs.records.upload_form import MAX_FIELD_BYTES, UploadForm, parse_boundary

CONTENT = b'{"a": 1}\r\n--not\r\n--b\r\n\r\n{"b": 2}\n'


def written(content: bytes, **fields: str) -> tuple[bytes, bytes]:
    """A form as httpx writes it, and its boundary."""
    request = httpx.Request(
        "POST", "http://a", data=fields, files={"file": ("in put.jsonl", content)}
    )
    return request.read(), parse_boundary(request.headers["content-type"])


def read(form: UploadForm, body: bytes, size: int) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(found for piece in pieces for found in form.add_bytes(piece))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 100_000])
@pytest.mark.parametrize("content", [CONTENT, b"", b"\r\n", b"\r\n--"])
def test_a_file_comes_out_as_it_was_sent_however_it_is_cut(size: int, content: bytes) -> None:
    body, boundary = written(content, purpose="batch", more="x\r\ny")
    form = UploadForm(boundary)
    assert read(form, body, size) == content
    form.finish()
    assert form.fields == {"purpose": "batch", "more": "x\r\ny"}
    assert form.filename == "in put.jsonl"


def test_fields_may_come_after_the_file() -> None:
    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    rest = b'\r\n--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--b--\r\nend'
    form = UploadForm(b"b")
    assert read(form, head + b"content" + rest, 5) == b"content"
    form.finish()
    assert form.fields == {"purpose": "batch"}


def part(name: str, content: bytes) -> bytes:
    head = f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'
    return head.encode() + content + b"\r\n"


@cases(
    "body",
    case("nothing", b""),
    case("a form without its last boundary", part("file", b"x")),
    case("a form without a file", part("purpose", b"batch") + b"--b--"),
    case("two files", part("file", b"x") * 2 + b"--b--"),
    case("a part without a name", b"--b\r\nContent-Type: a\r\n\r\nx\r\n--b--"),
    case("another boundary that begins the same", b"--bc\r\n\r\nx\r\n--bc--"),
    case("a head that does not end", b"--b\r\n" + b"a" * 9000),
    case("no boundary", b"a" * 9000),
    case("a field that is too long", part("a", b"x" * (MAX_FIELD_BYTES + 1))),
    case("too many fields", b"".join(part(str(it), b"") for it in range(40))),
)
def test_what_is_no_such_form_is_refused(body: bytes) -> None:
    form = UploadForm(b"b")

    def whole() -> None:
        read(form, body, 1000)
        form.finish()

    with pytest.raises(RecordError):
        whole()


@cases(
    "content_type, boundary",
    case("plain", "multipart/form-data; boundary=abc", b"abc"),
    case("quoted", 'Multipart/Form-Data; charset=x; boundary="a b"', b"a b"),
    case("no boundary", "multipart/form-data", None),
    case("another type", "application/json; boundary=abc", None),
    case("a long boundary", f"multipart/form-data; boundary={'a' * 71}", None),
)
def test_the_boundary(content_type: str, boundary: bytes | None) -> None:
    if boundary is None:
        with pytest.raises(RecordError):
            parse_boundary(content_type)
    else:
        assert parse_boundary(content_type) == boundary
