"""A file uploaded as multipart/form-data, read piece by piece. PURE.

Source: RFC 7578, and RFC 2046, 5.1.
"""

import re
from collections.abc import Iterator

from hostelry.jobs.records.splitting import RecordError

MAX_BOUNDARY_CHARS = 70
MAX_HEAD_BYTES = 8 * 1024
MAX_FIELD_BYTES = 4 * 1024
MAX_FIELDS = 32
_BOUNDARY = re.compile(r'\bboundary=(?:"([^"]+)"|([^;,\s]+))', re.IGNORECASE)
_PARAMETER = re.compile(r'(?:^|[;\s])(name|filename)="((?:[^"\\]|\\.)*)"', re.IGNORECASE)


def parse_boundary(content_type: str) -> bytes:
    """Parse the boundary in a Content-Type. Raises RecordError."""
    found = _BOUNDARY.search(content_type)
    text = "" if found is None else found.group(1) or found.group(2)
    if not content_type.lower().startswith("multipart/form-data"):
        raise RecordError(f"The body must be multipart/form-data, not {content_type:.100}.")
    if not 0 < len(text) <= MAX_BOUNDARY_CHARS:
        raise RecordError("The Content-Type must name a boundary of 1 to 70 characters.")
    return text.encode("latin-1", "replace")


class UploadForm:
    """A form with fields and a file, `file`. Takes the body in pieces, and yields the file's bytes.

    Methods raise RecordError if the form is invalid.
    """

    def __init__(self, boundary: bytes) -> None:
        self.fields: dict[str, str] = {}
        self.filename: str | None = None
        self._mark = b"\r\n--" + boundary
        self._rest = b"\r\n"  # the first boundary has no line before it
        self._name: str | None = None  # name of the current part. None between parts
        self._field = b""
        self._is_over = False

    def add_bytes(self, data: bytes) -> Iterator[bytes]:
        """Yield the bytes of the file in `data`."""
        if self._is_over:
            return
        self._rest += data
        while not self._is_over:
            if self._name is None:
                if not self._open_part():
                    return
                continue
            end = self._rest.find(self._mark)
            # Bytes that may be the beginning of a boundary are kept.
            known = end if end >= 0 else max(0, len(self._rest) - len(self._mark))
            piece, self._rest = self._rest[:known], self._rest[known:]
            if piece:
                yield from self._content(piece)
            if end < 0:
                return
            self._close_part()

    def finish(self) -> None:
        """Raise RecordError if the form, or its file, is incomplete."""
        if not self._is_over:
            raise RecordError("The form ends before its last boundary.")
        if self.filename is None:
            raise RecordError("The form has no part `file` with a filename.")

    def _open_part(self) -> bool:
        """Read a boundary and the head of the next part. False if more bytes are needed."""
        begin = self._rest.find(self._mark)
        after = begin + len(self._mark)
        if begin >= 0 and self._rest[after : after + 2] == b"--":
            self._is_over = True
            return True
        end = self._rest.find(b"\r\n\r\n", after) if begin >= 0 else -1
        if end < 0:
            if len(self._rest) > MAX_HEAD_BYTES:
                raise RecordError(f"A part's head is longer than {MAX_HEAD_BYTES} bytes.")
            return False
        head, self._rest = self._rest[after:end], self._rest[end + 4 :]
        if not head.startswith(b"\r\n"):
            raise RecordError("A boundary does not end its line.")
        self._begin_part(head.decode("utf-8", "replace"))
        return True

    def _begin_part(self, head: str) -> None:
        disposition = next(
            (it for it in head.split("\r\n") if it.lower().startswith("content-disposition:")), ""
        )
        found = {name.lower(): value for name, value in _PARAMETER.findall(disposition)}
        name = found.get("name")
        if name is None:
            raise RecordError("A part has no name in its Content-Disposition.")
        if name == "file":
            if self.filename is not None:
                raise RecordError("The form has more than one part `file`.")
            self.filename = found.get("filename", "file").replace('\\"', '"')[:256]
        elif len(self.fields) >= MAX_FIELDS:
            raise RecordError(f"The form has more than {MAX_FIELDS} fields.")
        self._name, self._field = name, b""

    def _content(self, piece: bytes) -> Iterator[bytes]:
        if self._name == "file":
            yield piece
            return
        self._field += piece
        if len(self._field) > MAX_FIELD_BYTES:
            raise RecordError(f"Field {self._name!r:.50} is longer than {MAX_FIELD_BYTES} bytes.")

    def _close_part(self) -> None:
        if self._name is not None and self._name != "file":
            self.fields[self._name] = self._field.decode("utf-8", "replace")
        self._name = None
