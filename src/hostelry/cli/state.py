"""State of a platform for commands: what control and the jobs process report."""

from typing import Any

import msgspec

from hostelry.base.errors import RetryableError
from hostelry.base.json import decode
from hostelry.home.home import Credentials, UpConfig
from hostelry.home.signed_call import call

TIMEOUT_S = 5.0
MAX_BATCHES = 100  # the newest ones, among which those that have not ended are shown


def control_state(config: UpConfig, credentials: Credentials) -> dict[str, Any] | None:
    """The state that control reports; None while it does not answer."""
    return _document(config.control_url, "/internal/state", credentials)


def jobs_trouble(config: UpConfig, credentials: Credentials) -> str | None:
    """Why the jobs process cannot write its file; None where it can, or does not answer."""
    found = _document(config.jobs_url, "/internal/health", credentials) or {}
    return found.get("trouble")


def unfinished_batches(config: UpConfig, credentials: Credentials) -> list[dict[str, Any]]:
    """Batches of OpenAI's API that have not ended; none where the jobs process does not answer."""
    path = f"/internal/jobs?limit={MAX_BATCHES}"
    found = _document(config.jobs_url, path, credentials) or {}
    return [it for it in found.get("batches", ()) if it["ended_at"] is None]


def _document(url: str, path: str, credentials: Credentials) -> dict[str, Any] | None:
    """The JSON object that a process of the platform answers; None if it answers none."""
    key = {"X-Hostelry-Key": credentials.internal_key}
    try:
        answer = call(url, "GET", path, key, timeout_s=TIMEOUT_S)
        return decode(answer.body, dict[str, Any]) if answer.status == 200 else None
    except (RetryableError, msgspec.DecodeError):
        return None
