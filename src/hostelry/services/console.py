"""The console's process: ``python -m hostelry.services.console --home DIR``.

It serves the web console behind the gateway, at a lower priority than what serves clients. Killed
or hung it takes nothing else with it, and while no browser looks it asks no process anything.
"""

import argparse
import asyncio
import contextlib
import gc
import socket
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import msgspec
import uvloop
from botocore import xform_name
from botocore.exceptions import BotoCoreError, ClientError

from hostelry.base import tls
from hostelry.base.asgi_server import asgi_server, listening
from hostelry.base.clock import SystemClock, monotonic_s
from hostelry.base.concurrency import stop_event
from hostelry.base.errors import TerminalError
from hostelry.base.guards import INTERNAL_KEY_HEADER
from hostelry.base.logging import configure_logging
from hostelry.cluster.control_access import control_mounts
from hostelry.console.app import ConsoleDeps, console_app
from hostelry.console.live import LiveTopics
from hostelry.console.platform import PlatformError
from hostelry.console.playground_calls import PlaygroundCalls
from hostelry.console.session_file import SessionFile
from hostelry.console.view_table import VIEWS
from hostelry.dataplane.control_calls import CONTROL_BACK_S
from hostelry.home.aws_client import aws_client
from hostelry.home.heartbeat import SupervisorLines, answer_heartbeats, wait_for_client
from hostelry.home.home import (
    Credentials,
    Home,
    UpConfig,
    load_config,
    load_credentials,
    log_format,
)
from hostelry.home.platform_processes import process_uptimes
from hostelry.services.console_cost import ask_costs
from hostelry.services.console_models import GatewayModels
from hostelry.services.priority import lower_priority

NICENESS = 5
NUM_THREADS = 8  # for calls of public APIs, and for files
ASK_TIMEOUT_S = 20.0
RETRY_S = 0.2


class NotTakenError(PlatformError):
    """The process took no byte of the request: the connection failed."""


class PlatformLine:
    """The running platform: internal routes over HTTP, public APIs over botocore.

    The process `home` is answered here, from the files of the home: they list the platform's
    processes, and have the prices.
    """

    def __init__(self, home: Home, config: UpConfig, credentials: Credentials) -> None:
        self._home = home
        self._config = config
        self._credentials = credentials
        self._urls = {
            "control": config.control_url,
            "gateway": config.gateway_url,
            "jobs": config.jobs_url,
        }
        self._http = httpx.AsyncClient(
            headers={INTERNAL_KEY_HEADER: credentials.internal_key},
            timeout=ASK_TIMEOUT_S,
            trust_env=False,
            verify=False,  # plain HTTP on loopback
            mounts=control_mounts(home, config, credentials),
        )
        self._clients: dict[str, Any] = {}

    async def ask(
        self, process: str, path: str, query: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """The JSON object at an internal route. Raises PlatformError."""
        if (process, path) == ("home", "/processes"):
            uptimes_s = await asyncio.to_thread(process_uptimes, self._home, self._config)
            return {"uptimes_s": uptimes_s}
        if (process, path) == ("home", "/costs"):
            return await ask_costs(self.ask, self._home.prices, SystemClock().now())
        return await self._send(process, "GET", path, params=dict(query or {}))

    async def post(self, process: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The JSON object that an internal route answers. Raises PlatformError.

        Waits for a process that restarts.
        """
        content = msgspec.json.encode(body)
        headers, give_up_at_s = {"Content-Type": "application/json"}, monotonic_s() + CONTROL_BACK_S
        while True:
            try:
                return await self._send(process, "POST", path, content=content, headers=headers)
            except NotTakenError:
                if monotonic_s() > give_up_at_s:
                    raise
            await asyncio.sleep(RETRY_S)

    async def call(
        self, service: str, operation: str, parameters: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The result of an operation, without its metadata. Raises PlatformError."""
        return await asyncio.to_thread(self._call, service, operation, parameters)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _send(self, process: str, method: str, path: str, **rest: Any) -> dict[str, Any]:
        url = f"{self._urls[process]}{path}"
        try:
            answer = await self._http.request(method, url, **rest)
            value = msgspec.json.decode(answer.content) if answer.content else {}
        except (httpx.HTTPError, msgspec.DecodeError) as error:
            cause = str(error) or type(error).__name__
            kind = NotTakenError if isinstance(error, httpx.ConnectError) else PlatformError
            raise kind(f"{process} does not answer: {cause}") from None
        if answer.is_error or not isinstance(value, dict):
            message = value.get("message", value.get("error")) if isinstance(value, dict) else None
            raise PlatformError(
                str(message or f"{process} answered {answer.status_code} to {path}")
            )
        return value

    def _call(self, service: str, operation: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        client = self._clients.get(service)
        if client is None:
            client = aws_client(service, self._config, self._credentials)
            client = self._clients.setdefault(service, client)
        try:
            result: dict[str, Any] = getattr(client, xform_name(operation))(**parameters)
        except ClientError as error:
            raise PlatformError(error.response["Error"]["Message"]) from None
        except BotoCoreError as error:
            raise PlatformError(str(error)) from None
        return {name: it for name, it in result.items() if name != "ResponseMetadata"}


async def serve(home: Home, listener: socket.socket, lines: SupervisorLines | None) -> None:
    """Serve until SIGTERM or SIGINT."""
    config, credentials = load_config(home), load_credentials(home)
    tls.use(home.tls)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(NUM_THREADS, "console"))
    clock, line, stopping = SystemClock(), PlatformLine(home, config, credentials), stop_event()
    models = GatewayModels(config, credentials)
    app = console_app(
        ConsoleDeps(
            port=line,
            topics=LiveTopics(VIEWS, line, clock, monotonic_s),
            sessions=SessionFile(home.console_sessions, clock.now),
            clock=clock,
            internal_key=credentials.internal_key,
            reading_key=credentials.openai_api_key,
            acting_key=credentials.secret_access_key,
            playground=PlaygroundCalls(line, models),
        )
    )
    server = asgi_server(app)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    heartbeats = asyncio.create_task(answer_heartbeats(lines=lines))
    waiting = asyncio.create_task(stopping.wait())
    await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
    server.end()
    await serving
    for task in (heartbeats, waiting):
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    await line.close()
    await models.close()


def config_with_console(home: Home) -> UpConfig:
    """The platform's configuration. Raises TerminalError if the platform has no console."""
    config = load_config(home)
    if not config.has_console:
        raise TerminalError("this platform was started with --no-console")
    return config


def main() -> None:
    """Parse the arguments and run. Ends with code 1 and a line on standard error if it cannot."""
    parser = argparse.ArgumentParser(
        prog="python -m hostelry.services.console", description=__doc__
    )
    parser.add_argument("--home", type=Path, required=True, help="the home folder")
    home = Home(parser.parse_args().home)
    try:
        with listening(config_with_console(home).console_port) as listener:
            lines = wait_for_client(listener)
            configure_logging("console", log_format=log_format(home))
            lower_priority(NICENESS)
            uvloop.run(serve(home, listener, lines))
    except (TerminalError, OSError) as error:
        sys.exit(f"the console cannot run: {error}")
    finally:
        gc.freeze()  # else the exit looks at all of it again


if __name__ == "__main__":
    main()
