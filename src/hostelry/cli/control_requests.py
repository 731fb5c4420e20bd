"""Requests of commands to processes of the platform: control, the gateway and jobs."""

import contextlib
import socket
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.json import decode
from hostelry.home.home import Credentials, UpConfig

if TYPE_CHECKING:
    import httpx


from hostelry.base.errors import RetryableError
from hostelry.base.guards import INTERNAL_KEY_HEADER
from hostelry.home.signed_call import call

TIMEOUT_S = 30.0
RETRY_S, CONNECT_S = 0.2, 1.0
LOOK_TIMEOUT_S = 5.0
MAX_BATCHES = 100  # the newest batches. Of these, commands show the unfinished ones


class SilentProcessError(TerminalError):
    """A process of the platform does not answer."""


def control_answer(
    config: UpConfig,
    credentials: Credentials,
    path: str,
    query: Mapping[str, str] | None = None,
    *,
    knows: str = "",
) -> dict[str, Any]:
    """The answer to a GET. Raises TerminalError if control refuses or does not answer.

    `knows` names the data that only control has, for the error text.
    """
    response = send(config, credentials, "GET", path, knows=knows, params=dict(query or {}))
    if path.startswith("/internal/") and response.status_code in (403, 404):
        # A control without this route takes the request for an AWS call and reports no caller.
        raise TerminalError(
            f"control at {config.control_url} is of another version than this command and has no "
            f"{path}: restart it with `hostelry down` and `hostelry up`"
        )
    if response.status_code != 200:
        raise TerminalError(f"control refused: {response.text}")
    return document(response)


def require_endpoint(config: UpConfig, credentials: Credentials, name: str, what: str) -> None:
    """Raise TerminalError about an unknown `what` if control has no endpoint of that name."""
    with contextlib.suppress(SilentProcessError):
        known = control_answer(config, credentials, "/internal/names").get("endpoints", ())
        if name not in known:
            there = ", ".join(known) or "none"
            raise TerminalError(
                f"no {what} of {name} is known, and there is no such endpoint. There are: {there}"
            )


def send(
    config: UpConfig,
    credentials: Credentials,
    method: str,
    path: str,
    *,
    knows: str = "",
    headers: Mapping[str, str] | None = None,
    process: str = "control",
    **request: Any,
) -> "httpx.Response":
    """The response, of any status, of `process`: "control", "jobs", "gateway" or "console".

    While the gateway runs, a restarting process is waited for. Raises TerminalError if the process
    does not answer.
    """
    import httpx  # imported here, because it takes a third of the time of completing a name

    from hostelry.dataplane.control_calls import CONTROL_BACK_S

    urls = {
        "control": config.control_url,
        "jobs": config.jobs_url,
        "gateway": config.gateway_url,
        "console": config.console_address,
    }
    url, give_up_at_s = urls[process], monotonic_s() + CONTROL_BACK_S
    while True:
        try:
            return httpx.request(
                method,
                f"{url}{path}",
                headers={"X-Hostelry-Key": credentials.internal_key, **(headers or {})},
                timeout=TIMEOUT_S,
                trust_env=False,
                verify=False,  # plain HTTP on loopback. Reading certificates takes 30 ms of CPU
                **request,
            )
        except httpx.HTTPError as error:
            # Without a connection no byte was sent, so the request may be sent again.
            is_refused = isinstance(error, httpx.ConnectError) and process != "gateway"
            if not is_refused or monotonic_s() > give_up_at_s or not _gateway_runs(config):
                known = f", and only it knows {knows}" if knows else ""
                raise SilentProcessError(
                    f"{process} does not answer at {url}{known}: "
                    f"start it with `hostelry up`, or see `hostelry logs {process}`"
                ) from None
            time.sleep(RETRY_S)


def _gateway_runs(config: UpConfig) -> bool:
    """True if the gateway listens. Then the supervisor is up and restarts other processes."""
    try:
        socket.create_connection((config.host, config.gateway_port), CONNECT_S).close()
    except OSError:
        return False
    return True


def document(response: "httpx.Response") -> dict[str, Any]:
    """The JSON object of a response. Raises TerminalError if the response is not a JSON object."""
    try:
        found: dict[str, Any] = decode(response.content or b"{}", dict[str, Any])
    except msgspec.DecodeError as error:
        raise TerminalError(f"the answer cannot be read: {error}") from None
    return found


def control_state(config: UpConfig, credentials: Credentials) -> dict[str, Any] | None:
    """The state that control reports. None while it does not answer."""
    return _document(config.control_url, "/internal/state", credentials)


def jobs_trouble(config: UpConfig, credentials: Credentials) -> str | None:
    """Why the jobs process cannot write its database. None if it can, or does not answer."""
    found = _document(config.jobs_url, "/internal/health", credentials) or {}
    return found.get("trouble")


def unfinished_batches(config: UpConfig, credentials: Credentials) -> list[dict[str, Any]]:
    """Batches of OpenAI's API that have not ended. Empty if the jobs process does not answer."""
    path = f"/internal/jobs?limit={MAX_BATCHES}"
    found = _document(config.jobs_url, path, credentials) or {}
    return [it for it in found.get("batches", ()) if it["ended_at"] is None]


def _document(url: str, path: str, credentials: Credentials) -> dict[str, Any] | None:
    """The JSON answer of a platform process. None if the process does not answer."""
    key = {"X-Hostelry-Key": credentials.internal_key}
    try:
        answer = call(url, "GET", path, key, timeout_s=LOOK_TIMEOUT_S)
        return decode(answer.body, dict[str, Any]) if answer.status == 200 else None
    except (RetryableError, msgspec.DecodeError):
        return None


def ask_agent(address: str, path: str, key: str) -> dict[str, Any] | str:
    """The agent's answer to a call with `key`. A text gives the reason for a missing answer."""
    import httpx  # imported here, because completing a name does not need it

    from hostelry.base.peer_http import peer_get

    try:
        headers = {INTERNAL_KEY_HEADER: key}
        answer = peer_get(address, path, headers=headers, timeout=TIMEOUT_S)
        if answer.status_code == 200:
            return decode(answer.content, dict[str, Any])
    except (httpx.HTTPError, msgspec.DecodeError) as error:
        return f"its agent does not answer: {error}"
    return f"its agent answers {answer.status_code}: {answer.text[:200]}"
