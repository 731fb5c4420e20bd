"""A question to an instance's agent, whose answer is JSON."""

from typing import Any

import httpx
import msgspec

from hostelry.base.json import decode
from hostelry.base.key_guard import INTERNAL_KEY_HEADER
from hostelry.cli.control_requests import TIMEOUT_S
from hostelry.server.home import Credentials


def ask_agent(url: str, credentials: Credentials) -> dict[str, Any] | str:
    """The agent's answer; a text that says why there is none."""
    try:
        answer = httpx.get(
            url,
            headers={INTERNAL_KEY_HEADER: credentials.internal_key},
            timeout=TIMEOUT_S,
            trust_env=False,
            verify=False,  # plain HTTP on loopback
        )
        if answer.status_code == 200:
            return decode(answer.content, dict[str, Any])
    except (httpx.HTTPError, msgspec.DecodeError) as error:
        return f"its agent does not answer: {error}"
    return f"its agent answers {answer.status_code}: {answer.text[:200]}"
