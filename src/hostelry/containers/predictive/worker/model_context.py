"""The `context` of a model's functions: the part of multi-model-server's that holds here."""

from __future__ import annotations

from typing import Any


class RequestProcessor:
    """The headers of a request and the status of its response."""

    def __init__(self, headers: dict[str, str]) -> None:
        self._headers = headers
        self.status = 200
        self.phrase: str | None = None
        self.response_headers: dict[str, str] = {}

    def get_request_properties(self) -> dict[str, str]:
        """The headers as the client sent them."""
        return self._headers

    def get_request_property(self, key: str) -> str | None:
        """A header by its name, in any case; None without it."""
        found = {name.lower(): it for name, it in self._headers.items()}
        return found.get(key.lower())

    def report_status(self, code: int, reason_phrase: str | None = None) -> None:
        """Set the response's status."""
        self.status, self.phrase = code, reason_phrase

    def add_response_property(self, key: str, value: str) -> None:
        """Set a header of the response."""
        self.response_headers[key] = value


class ModelContext:
    """The context of one model; `begin` starts each request."""

    def __init__(self, model_name: str, model_dir: str, gpu_id: int | None = None) -> None:
        self.model_name = model_name
        self.manifest: dict[str, Any] = {}
        self.metrics = None
        self.system_properties = {"model_dir": model_dir, "gpu_id": gpu_id, "batch_size": 1}
        self.request_processor: list[RequestProcessor] = [RequestProcessor({})]

    def begin(self, headers: dict[str, str]) -> RequestProcessor:
        """A new request with these headers."""
        self.request_processor = [RequestProcessor(headers)]
        return self.request_processor[0]

    def get_request_id(self, idx: int = 0) -> str:
        """The request's id; empty where it has none."""
        return self.request_processor[idx].get_request_property("x-request-id") or ""

    def get_request_header(self, idx: int, key: str) -> str | None:
        """A header of the request; None without it."""
        return self.request_processor[idx].get_request_property(key)

    def get_all_request_header(self, idx: int) -> dict[str, str]:
        """All headers of the request."""
        return self.request_processor[idx].get_request_properties()

    def set_response_content_type(self, idx: int, value: str) -> None:
        """Set the response's content type."""
        self.set_response_header(idx, "Content-Type", value)

    def set_response_header(self, idx: int, key: str, value: str) -> None:
        """Set a header of the response."""
        self.request_processor[idx].add_response_property(key, value)

    def set_response_status(self, code: int = 200, phrase: str = "", idx: int = 0) -> None:
        """Set the response's status."""
        self.request_processor[idx].report_status(code, phrase)

    def set_all_response_status(self, code: int = 200, phrase: str = "") -> None:
        """As `set_response_status`."""
        self.set_response_status(code, phrase)
