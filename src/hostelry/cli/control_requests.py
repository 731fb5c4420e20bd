"""Requests of commands to the platform's own processes: control, the gateway, that for jobs."""

import contextlib
import socket
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.json import decode
from hostelry.dataplane.control_calls import CONTROL_BACK_S
from hostelry.home.home import Credentials, UpConfig

if TYPE_CHECKING:
    import httpx

TIMEOUT_S = 30.0
RETRY_S, CONNECT_S = 0.2, 1.0


class SilentProcessError(TerminalError):
    """A process of the platform gives no answer."""


def control_answer(
    config: UpConfig,
    credentials: Credentials,
    path: str,
    query: Mapping[str, str] | None = None,
    *,
    knows: str = "",
) -> dict[str, Any]:
    """The answer to a GET; raises TerminalError where there is none, or a refusal.

    `knows` is what only control knows, for the error.
    """
    response = send(config, credentials, "GET", path, knows=knows, params=dict(query or {}))
    if path.startswith("/internal/") and response.status_code in (403, 404):
        # A control without this route takes the request for an AWS call that has no caller.
        raise TerminalError(
            f"control at {config.control_url} is of another version than this command and has no "
            f"{path}: restart it with `hostelry down` and `hostelry up`"
        )
    if response.status_code != 200:
        raise TerminalError(f"control refused: {response.text}")
    return document(response)


def require_endpoint(config: UpConfig, credentials: Credentials, name: str, what: str) -> None:
    """Raise TerminalError, that no `what` is known, if control knows no endpoint of that name."""
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
    """The response of `process`, "control", "jobs", "gateway" or "console", of any status.

    A process that restarts is waited for, while the gateway runs. Raises TerminalError if it does
    not answer.
    """
    import httpx  # a third of the time that completing a name takes

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
                verify=False,  # plain HTTP on loopback; reading certificates takes 30 ms of CPU
                **request,
            )
        except httpx.HTTPError as error:
            # Without a connection no byte was taken: the request may be sent again.
            is_refused = isinstance(error, httpx.ConnectError) and process != "gateway"
            if not is_refused or monotonic_s() > give_up_at_s or not _gateway_runs(config):
                known = f", and only it knows {knows}" if knows else ""
                raise SilentProcessError(
                    f"{process} does not answer at {url}{known}: "
                    f"start it with `hostelry up`, or see `hostelry logs {process}`"
                ) from None
            time.sleep(RETRY_S)


def _gateway_runs(config: UpConfig) -> bool:
    """Whether the gateway listens. Then the platform is up, and restarts what has ended."""
    try:
        socket.create_connection((config.host, config.gateway_port), CONNECT_S).close()
    except OSError:
        return False
    return True


def document(response: "httpx.Response") -> dict[str, Any]:
    """The JSON object of a response; raises TerminalError where it is none."""
    try:
        found: dict[str, Any] = decode(response.content or b"{}", dict[str, Any])
    except msgspec.DecodeError as error:
        raise TerminalError(f"the answer cannot be read: {error}") from None
    return found
