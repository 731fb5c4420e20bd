"""Reports on data capture to control, of gateway workers and of the process that uploads."""

from dataclasses import dataclass

from hostelry.domain.load import LoadKey


@dataclass(slots=True, kw_only=True)
class CaptureCounts:
    """Captured requests of a variant since the last report.

    `captured` requests of `captured_bytes` were written to disk and are to be uploaded; `dropped`
    were not, or not kept, for `drop_cause`. `upload_cause` is why uploads fail now, empty where
    they do not, None where there was none.
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
        """Add what was counted after this."""
        self.captured += later.captured
        self.captured_bytes += later.captured_bytes
        self.dropped += later.dropped
        self.objects += later.objects
        self.upload_failures += later.upload_failures
        self.drop_cause = later.drop_cause or self.drop_cause
        self.uploaded_at = later.uploaded_at or self.uploaded_at
        if later.upload_cause is not None:
            self.upload_cause = later.upload_cause


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantCapture:
    """The counts of one variant."""

    key: LoadKey
    counts: CaptureCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureReport:
    """Body of POST /internal/capture; the same `sequence` again is the same report.

    `started_at` distinguishes a restarted `reporter`.
    """

    reporter: str
    started_at: float
    sequence: int
    at: float
    variants: tuple[VariantCapture, ...]
