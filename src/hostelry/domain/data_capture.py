"""DataCaptureConfig of a real-time endpoint: the part of its requests that is stored, and where."""

from dataclasses import dataclass
from enum import Enum


class CaptureEncoding(Enum):
    """How a captured body is written in its record."""

    CSV = "CSV"
    JSON = "JSON"
    BASE64 = "BASE64"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataCapture:
    """Settings of the capture; `uri` is an s3:// address without a slash at its end.

    `percent` of the requests are captured. Bodies of a content type in `csv_types` or `json_types`
    (lower case, without parameters) are stored as text, all others in base64.
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

    def encoding_of(self, content_type: str | None) -> CaptureEncoding:
        """The encoding of bodies of that content type, whose parameters do not count."""
        bare = (content_type or "").partition(";")[0].strip().lower()
        if bare in self.csv_types:
            return CaptureEncoding.CSV
        return CaptureEncoding.JSON if bare in self.json_types else CaptureEncoding.BASE64
