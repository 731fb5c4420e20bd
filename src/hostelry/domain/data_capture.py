"""Data capture of an endpoint: its configuration, and reports of it to control."""

from enum import Enum

import msgspec

from hostelry.domain.load import LoadKey


class CaptureEncoding(Enum):
    """How a captured body is stored in its record."""

    CSV = "CSV"
    JSON = "JSON"
    BASE64 = "BASE64"


class DataCapture(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the capture. `uri` is an s3:// address without a trailing slash.

    `percent` of the requests are captured. Bodies of a content type in `csv_types` or `json_types`
    (lower case, without parameters) are stored as text, other bodies in base64.
    """

    percent: int
    uri: str
    is_enabled: bool = True
    takes_input: bool = True
    takes_output: bool = True
    kms_key_id: str | None = None
    csv_types: tuple[str, ...] = ()
    json_types: tuple[str, ...] = ()

    @property
    def takes_any(self) -> bool:
        """Whether any request can be captured."""
        return self.is_enabled and self.percent > 0

    def get_encoding(self, content_type: str | None) -> CaptureEncoding:
        """The encoding for bodies of a content type, whose parameters are ignored."""
        bare = (content_type or "").partition(";")[0].strip().lower()
        if bare in self.csv_types:
            return CaptureEncoding.CSV
        return CaptureEncoding.JSON if bare in self.json_types else CaptureEncoding.BASE64


class CaptureCounts(msgspec.Struct, kw_only=True):
    """Captured requests of a variant since the last report.

    `captured` requests of `captured_bytes` were written to disk for upload. `dropped` requests were
    not written or not kept, because of `drop_cause`. `upload_cause` is why uploads fail now. It is
    empty if they succeed, and None if no upload was tried.
    """

    captured: int = 0
    captured_bytes: int = 0
    dropped: int = 0
    drop_cause: str | None = None
    objects: int = 0
    upload_failures: int = 0
    upload_cause: str | None = None
    uploaded_at: float | None = None

    def add(self, later: "CaptureCounts") -> None:
        """Add later counts."""
        self.captured += later.captured
        self.captured_bytes += later.captured_bytes
        self.dropped += later.dropped
        self.objects += later.objects
        self.upload_failures += later.upload_failures
        self.drop_cause = later.drop_cause or self.drop_cause
        self.uploaded_at = later.uploaded_at or self.uploaded_at
        if later.upload_cause is not None:
            self.upload_cause = later.upload_cause


class VariantCapture(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of one variant."""

    key: LoadKey
    counts: CaptureCounts


class CaptureReport(msgspec.Struct, frozen=True, kw_only=True):
    """Body of POST /internal/capture. A repeated report has the same `sequence`.

    `started_at` distinguishes a `reporter` from its earlier processes.
    """

    reporter: str
    started_at: float
    sequence: int
    at: float
    variants: tuple[VariantCapture, ...]
