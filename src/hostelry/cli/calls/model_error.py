"""Errors of the runtime API in the container's words. Pure."""

import json
from typing import TYPE_CHECKING, Any

from hostelry.cli.calls.answer_reader import error_text
from hostelry.cli.printable import printable

if TYPE_CHECKING:
    from botocore.exceptions import ClientError


def model_error_text(error: "ClientError") -> str:
    """The container's text of a ModelError, else the refusal's own."""
    response: dict[str, Any] = dict(error.response)
    original = response.get("OriginalMessage")
    if not original:
        found = response.get("Error", {})
        return " ".join(printable(str(found.get("Message") or error)).split())
    status = response.get("OriginalStatusCode")
    head = f"the model answered {status}" if status else "the model gave no answer"
    return f"{head}: {container_text(str(original))}"


def container_text(original: str) -> str:
    """The message within a container's JSON, or its whole text."""
    try:
        body = json.loads(original)
    except (ValueError, RecursionError):
        body = None
    return error_text(body) if isinstance(body, dict) else printable(original).strip()
