"""A question to an instance's agent, whose answer is JSON."""

from typing import Any

import httpx
import msgspec

from hostelry.base.json import decode
from hostelry.base.key_guard import INTERNAL_KEY_HEADER
from hostelry.base.peer_http import peer_get
from hostelry.cli.control_requests import TIMEOUT_S


def ask_agent(address: str, path: str, key: str) -> dict[str, Any] | str:
    """The answer of the agent at `address`, called with `key`; a text if there is no answer."""
    try:
        headers = {INTERNAL_KEY_HEADER: key}
        answer = peer_get(address, path, headers=headers, timeout=TIMEOUT_S)
        if answer.status_code == 200:
            return decode(answer.content, dict[str, Any])
    except (httpx.HTTPError, msgspec.DecodeError) as error:
        return f"its agent does not answer: {error}"
    return f"its agent answers {answer.status_code}: {answer.text[:200]}"
