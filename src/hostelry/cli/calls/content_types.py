"""The content type of a request's body, guessed from its file's name or its first bytes. Pure."""

import json
import mimetypes
from pathlib import PurePath

BY_SUFFIX = {
    ".json": "application/json",
    ".jsonl": "application/jsonlines",
    ".ndjson": "application/jsonlines",
    ".csv": "text/csv",
    ".tsv": "text/tab-separated-values",
    ".txt": "text/plain",
    ".npy": "application/x-npy",
    ".npz": "application/x-npz",
    ".parquet": "application/x-parquet",
    ".libsvm": "text/libsvm",
    ".svm": "text/libsvm",
    ".recordio": "application/x-recordio-protobuf",
    ".wav": "audio/wav",
}
BY_BEGINNING = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"\x93NUMPY", "application/x-npy"),
    (b"PAR1", "application/x-parquet"),
    (b"%PDF-", "application/pdf"),
)
BYTES = "application/octet-stream"
MAX_SNIFFED_BYTES = 16 * 1024 * 1024  # of JSON that is parsed for a guess
TEXT_TYPES = ("text/", "application/json", "application/jsonlines", "application/xml")


def content_type_of(name: str | None, body: bytes) -> str:
    """The content type of `body`, from a file of that name; None: standard input."""
    if name is not None:
        suffix = PurePath(name).suffix.lower()
        known = BY_SUFFIX.get(suffix) or mimetypes.guess_type(f"x{suffix}", strict=True)[0]
        if known is not None:
            return known
    for beginning, kind in BY_BEGINNING:
        if body.startswith(beginning):
            return kind
    return _of_text(body)


def is_text(content_type: str) -> bool:
    """Whether a body of that type is for people to read."""
    kind = content_type.partition(";")[0].strip().lower()
    return kind.startswith(TEXT_TYPES) or kind.endswith(("+json", "+xml"))


def _of_text(body: bytes) -> str:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return BYTES
    if "\0" in text:
        return BYTES
    if text.lstrip()[:1] in ("{", "[") and len(body) <= MAX_SNIFFED_BYTES:
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return "text/plain"
        return "application/json"
    return "text/plain"
