"""Content types of binary tensors: SageMaker's for Triton, and Triton's own headers. Pure.

The body is JSON, then the tensors' bytes; how long the JSON is says the content type's parameter,
and to Triton itself a header. Source: Triton's binary tensor data extension, and its SageMaker
endpoint.
"""

from collections.abc import Mapping

from hostelry.base.errors import HostelryError

BINARY = "application/vnd.sagemaker-triton.binary+json;json-header-size="
JSON = "application/json"
LENGTH = "Inference-Header-Content-Length"


class ContentTypeError(HostelryError):
    """The content type does not say how long the JSON is."""


def request_headers(content_type: str, num_bytes: int) -> dict[str, str]:
    """The headers for Triton of a body of `num_bytes`. Raises ContentTypeError."""
    kind, _, size = content_type.replace(" ", "").partition("=")
    if not BINARY.startswith(kind.lower() + "=") or not kind:
        return {"Content-Type": JSON}
    if not size.isascii() or not size.isdigit() or len(size) > 12 or int(size) > num_bytes:
        raise ContentTypeError(
            f"json-header-size is {size[:40]!r}; it must be a number from 0 to the body's "
            f"{num_bytes} bytes"
        )
    return {"Content-Type": "application/octet-stream", LENGTH: str(int(size))}


def content_type_of(headers: Mapping[str, str]) -> str:
    """The content type of an answer, by Triton's headers in small letters."""
    size = headers.get(LENGTH.lower())
    return JSON if size is None else f"{BINARY}{size}"
