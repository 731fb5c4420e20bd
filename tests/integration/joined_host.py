"""A further host of a platform on the same machine. Its home joins by a token when it starts."""

import json
import os
import signal
from typing import Any

import httpx
from tests.integration.platform import Platform

from hostelry.base.ports import free_port
from hostelry.home.home import Home, load_config, load_credentials
from hostelry.home.run_file import live_run_files


class JoinedHost(Platform):
    """`hostelry ROLE --join ... --detach` with `flags`. `role` is gateway or control.

    It joins with the host name `name`, by default its role.
    """

    def __init__(
        self, first: Platform, role: str, *flags: str, address: str = "127.0.0.1", name: str = ""
    ) -> None:
        super().__init__(first.home.root.parent / f"further-{name or role}")
        self.name = name or role
        cluster = ("--cluster-host", address, "--cluster-port", str(free_port()))
        own = ("--host", address, "--port", str(self.port)) if role == "gateway" else ()
        self._first, self._role, self._flags = first, role, (*cluster, *own, *flags)

    def start(self) -> None:
        """Print a token on the first host, and join with it."""
        printed = json.loads(self._first.cli("join-token", "--role", self._role, "--json").stdout)
        token = ("--join", printed["url"], "--token", printed["token"])
        self.cli(self._role, "--detach", *token, *self._flags, "--host-name", self.name)

    def clean_up(self) -> list[str]:
        """Stop the host. A control leaves the instances, because they belong to the platform."""
        if self._role == "control":
            self.cli("down")
            return []
        return super().clean_up()


def kill_host(platform: Platform, *spared: str) -> None:
    """Kill the host's processes except `spared`, and first the supervisor."""
    order = {"watcher": 0, "up": 1}
    for file in sorted(live_run_files(platform.home), key=lambda it: order.get(it.name, 2)):
        if file.name not in spared:
            os.kill(file.pid, signal.SIGKILL)


def health_of(home: Home) -> dict[str, Any]:
    """The health of a host's control. Empty without an answer."""
    key = {"X-Hostelry-Key": load_credentials(home).internal_key}
    try:
        answer = httpx.get(f"{load_config(home).control_url}/internal/health", headers=key)
    except httpx.TransportError:
        return {}
    found: dict[str, Any] = answer.json()
    return found
