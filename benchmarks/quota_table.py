"""Overshoot of quotas: 4 gateway workers and 64 callers against one limit, also through kills.

Each row starts gateway workers on an empty home, without control: the quota is in their file. The
callers send signed calls to an echo model as fast as they are answered. With a kill, a worker dies
by SIGKILL in the middle, and starts again as `hostelry up` would start it. A call that the killed
worker had admitted may have no answer, so `admitted` is read from the workers' table, too.

``python -m benchmarks.quota_table [--setting smoke|short|full]``
"""

import argparse
import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import msgspec

from benchmarks.gateway_load import signed_request
from benchmarks.record import print_table, write_result
from benchmarks.stack import (
    COMPONENTS_ENDPOINT,
    Stack,
    components_endpoint,
    running_echo,
    stopped_after,
    wait_for_gateway,
)
from hostelry.base.clock import SystemClock, monotonic_s
from hostelry.base.files import write_whole
from hostelry.base.ports import free_port
from hostelry.dataplane.shared.quota_table import READER, QuotaTable, clear_worker
from hostelry.domain.quota import LIMITS, CallPrices, Quota
from hostelry.domain.route_delta import build_snapshot
from hostelry.home.home import Home, UpConfig, new_credentials, save_config, save_credentials
from hostelry.home.ports import bind
from hostelry.home.quota_files import get_quota_files
from hostelry.processes.gateway_workers import shared_listener
from hostelry.processes.supervisor import ServiceSpec
from hostelry.quotas.matching import build_document

NUM_WORKERS, NUM_CALLERS = 4, 64
COMPONENT = "component-00000"
# The echo model answers with the body, which so reports its numbers of tokens.
BODY = b'{"max_tokens": 10, "usage": {"prompt_tokens": 15, "completion_tokens": 10}}'
PER_CALL = {
    "requests_per_minute": 1,
    "prompt_tokens_per_minute": 15,
    "generated_tokens_per_minute": 10,
    "concurrency": 1,
    "tokens_per_day": 25,
}
PAUSE_S = 0.1


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One row: a limit, and the number of workers that are killed in the middle."""

    limit: str
    value: int
    kills: int = 0


TRIALS = (
    Trial(limit="requests_per_minute", value=500),
    Trial(limit="requests_per_minute", value=500, kills=1),
    Trial(limit="concurrency", value=8),
    Trial(limit="concurrency", value=8, kills=1),
    Trial(limit="prompt_tokens_per_minute", value=6000),
    Trial(limit="generated_tokens_per_minute", value=6000),
    Trial(limit="tokens_per_day", value=12_500),
    Trial(limit="tokens_per_day", value=12_500, kills=NUM_WORKERS),
)
SETTINGS = {"smoke": (TRIALS[1:3], 2.0), "short": (TRIALS, 4.0), "full": (TRIALS, 10.0)}


class Workers:
    """The workers of a gateway, which are started again after a kill."""

    def __init__(self, home: Home, config: UpConfig, services: list[ServiceSpec]) -> None:
        self._home = home
        self._config = config
        self._services = services
        self._ends = contextlib.ExitStack()
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        for number in range(len(services)):
            self._start(number)

    def kill(self, number: int) -> None:
        """Kill a worker, and start its successor as the supervisor does."""
        process = self._running[number]
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        clear_worker(get_quota_files(self._home).windows, number, self._config.gateway_workers)
        self._start(number)

    @property
    def first(self) -> subprocess.Popen[bytes]:
        """The first worker."""
        return self._running[0]

    def close(self) -> None:
        """End all workers."""
        self._ends.close()

    def _start(self, number: int) -> None:
        command = self._services[number].command()
        process = subprocess.Popen(
            command.argv, env=command.env, pass_fds=command.pass_fds, stderr=subprocess.DEVNULL
        )
        self._running[number] = process
        self._ends.enter_context(stopped_after(process))


class Gateway(msgspec.Struct, frozen=True, kw_only=True):
    """A running gateway with one quota, before an echo model."""

    stack: Stack
    workers: Workers
    home: Home
    num_workers: int = NUM_WORKERS

    def read_use(self, limit: str) -> tuple[int, int]:
        """The use of the quota in the workers' table, and the calls that it refused."""
        files = get_quota_files(self.home)
        table = QuotaTable(files.windows, files.days, (READER, self.num_workers), monotonic_s)
        uses = list(table.list_uses(SystemClock().now()))
        table.close()
        measure = LIMITS.index(limit)
        return sum(it.used[measure] for it in uses), sum(sum(it.refused) for it in uses)


@contextlib.contextmanager
def running_gateway(trial: Trial) -> Iterator[Gateway]:
    """Start an echo model and the workers, which read routes and the quota from their files."""
    with contextlib.ExitStack() as ends:
        folder = ends.enter_context(tempfile.TemporaryDirectory())
        echo = ends.enter_context(running_echo())
        home = Home(Path(folder) / "home")
        home.make()
        credentials = new_credentials("111122223333", "us-west-2")
        save_credentials(home, credentials)
        config = UpConfig(
            gateway_port=free_port(),
            control_port=free_port(),
            gateway_workers=NUM_WORKERS,
            mirror_process=False,
        )
        save_config(home, config)
        address = f"http://127.0.0.1:{echo.port}"
        endpoint = components_endpoint(credentials, address, 1)
        component = msgspec.structs.replace(endpoint.components[0], serves_llm=True)
        routes = build_snapshot((msgspec.structs.replace(endpoint, components=(component,)),))
        write_whole(home.routes, msgspec.json.encode(routes))
        limits: dict[str, Any] = {trial.limit: trial.value}
        quota = Quota(id="q", name="q", account=credentials.account_id, created_at=0.0, **limits)
        write_whole(
            get_quota_files(home).document,
            msgspec.json.encode(build_document([quota], CallPrices())),
        )
        listening = bind(config.host, config.gateway_port)
        listener = ends.enter_context(shared_listener(home, config, listening))
        workers = Workers(home, config, listener.list_workers(home, os.environ))
        ends.callback(workers.close)
        wait_for_gateway(config.gateway_url, workers.first, listener.why_not_ready)
        stack = Stack(
            credentials=credentials,
            gateway_port=config.gateway_port,
            echo_port=echo.port,
            echo_pid=echo.pid,
            gateway_pids=(),
        )
        yield Gateway(stack=stack, workers=workers, home=home)


class Callers:
    """Callers in closed loops. A connection that is lost is opened again.

    `took_s` has the time of each answer.
    """

    def __init__(
        self, port: int, message: bytes, pause_s: float = 0.0, num_callers: int = NUM_CALLERS
    ) -> None:
        self.statuses: dict[int, int] = {}
        self.took_s: list[float] = []
        self.num_lost = 0
        self._num_callers = num_callers
        self._port = port
        self._message = message
        self._pause_s = pause_s

    async def send_calls(self, duration_s: float) -> None:
        """Send calls for `duration_s`, by all callers at once."""
        until_s = monotonic_s() + duration_s
        await asyncio.gather(*[self._call(until_s) for _ in range(self._num_callers)])

    async def _call(self, until_s: float) -> None:
        while monotonic_s() < until_s:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            except OSError:
                await asyncio.sleep(0.02)
                continue
            try:
                while monotonic_s() < until_s:
                    began_s = monotonic_s()
                    writer.write(self._message)
                    status = await read_answer(reader)
                    self.took_s.append(monotonic_s() - began_s)
                    self.statuses[status] = self.statuses.get(status, 0) + 1
                    await asyncio.sleep(self._pause_s)
            except (OSError, EOFError):
                self.num_lost += 1
            finally:
                writer.close()


async def read_answer(reader: asyncio.StreamReader) -> int:
    """Read one whole answer, and return its status. Raises EOFError if it breaks off."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
    await reader.readexactly(length)
    return int(head.split(b" ", 2)[1])


def measure(trial: Trial, duration_s: float) -> dict[str, Any]:
    """Run one trial."""
    with running_gateway(trial) as gateway:
        stack = gateway.stack
        is_concurrency = trial.limit == "concurrency"
        headers = {
            "Content-Type": "application/json",
            "X-Amzn-SageMaker-Inference-Component": COMPONENT,
        }
        if is_concurrency:
            headers["X-Amzn-SageMaker-Custom-Attributes"] = "sleep_ms=20"
        message = signed_request(stack, "invocations", BODY, headers, COMPONENTS_ENDPOINT)
        callers = Callers(stack.gateway_port, message, PAUSE_S if trial.kills else 0.0)

        async def drive() -> None:
            calling = asyncio.create_task(callers.send_calls(duration_s))
            await asyncio.sleep(duration_s / 8)
            for number in range(trial.kills):
                await asyncio.to_thread(gateway.workers.kill, number)
            await calling

        asyncio.run(drive())
        used, refused = gateway.read_use(trial.limit)
        if is_concurrency:
            address = f"http://127.0.0.1:{stack.echo_port}/most-asleep"
            with urlopen(address, timeout=5) as answer:
                used = int(answer.read())
    num_answered = callers.statuses.get(200, 0)
    over = max(used, 0 if is_concurrency else num_answered * PER_CALL[trial.limit]) - trial.value
    return {
        "limit": trial.limit,
        "value": trial.value,
        "kills": trial.kills,
        "calls": sum(callers.statuses.values()) + callers.num_lost,
        "answered": num_answered,
        "refused": callers.statuses.get(429, 0),
        "others": sum(it for status, it in callers.statuses.items() if status not in (200, 429)),
        "cut off": callers.num_lost,
        "most at once" if is_concurrency else "used": used,
        "in table refused": refused,
        "overshoot": over,
        "overshoot %": round(max(0, over) / trial.value * 100, 2),
    }


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quota_table", description=__doc__)
    parser.add_argument("--setting", choices=SETTINGS, default="short")
    setting = parser.parse_args().setting
    trials, duration_s = SETTINGS[setting]
    rows = []
    for trial in trials:
        found = measure(trial, duration_s)
        found["used"] = found.pop("most at once", found.get("used"))
        rows.append(found)
    title = f"Quotas: {NUM_WORKERS} workers, {NUM_CALLERS} callers, {duration_s:g} s"
    print_table(title, rows)
    write_result("quota_table", setting, 0, {"rows": rows})


if __name__ == "__main__":
    main()
