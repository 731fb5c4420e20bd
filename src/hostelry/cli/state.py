"""State of a platform for commands: what control and the jobs process report."""

from typing import Any

import msgspec

from hostelry.base.json import decode
from hostelry.server.home import Credentials, UpConfig

TIMEOUT_S = 5.0
MAX_BATCHES = 100  # the newest ones, among which those that have not ended are shown


def control_state(config: UpConfig, credentials: Credentials) -> dict[str, Any] | None:
    """The state that control reports; None while it does not answer."""
    return _document(f"{config.control_url}/internal/state", credentials)


def jobs_trouble(config: UpConfig, credentials: Credentials) -> str | None:
    """Why the jobs process cannot write its file; None where it can, or does not answer."""
    found = _document(f"{config.jobs_url}/internal/health", credentials) or {}
    return found.get("trouble")


def unfinished_batches(config: UpConfig, credentials: Credentials) -> list[dict[str, Any]]:
    """Batches of OpenAI's API that have not ended; none where the jobs process does not answer."""
    found = _document(f"{config.jobs_url}/internal/jobs?limit={MAX_BATCHES}", credentials) or {}
    return [it for it in found.get("batches", ()) if it["ended_at"] is None]


def _document(url: str, credentials: Credentials) -> dict[str, Any] | None:
    """The JSON object at `url`; None where there is none."""
    import httpx  # a third of the time that completing a name takes

    try:
        answer = httpx.get(
            url,
            headers={"X-Hostelry-Key": credentials.internal_key},
            timeout=TIMEOUT_S,
            trust_env=False,
            verify=False,  # plain HTTP on loopback; reading certificates takes 30 ms of CPU
        )
        answer.raise_for_status()
        found: dict[str, Any] = decode(answer.content, dict[str, Any])
    except (httpx.HTTPError, msgspec.DecodeError):
        return None
    return found
