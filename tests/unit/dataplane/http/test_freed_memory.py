"""The memory of large bodies is kept for the next request, and returned if none arrives."""

import asyncio
import os
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hostelry.base.clock import ManualClock
from hostelry.base.http import HttpResponse
from hostelry.dataplane.http.exchange import Exchange
from hostelry.dataplane.http.reader import HttpLimits
from hostelry.dataplane.http.server import RETURN_AFTER_SWEEPS, HttpServer
from hostelry.home.ports import bind

BODY = bytes(1024 * 1024)
REQUEST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY
PAGES = len(BODY) // resource.getpagesize()
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")

few_faults = pytest.mark.skipif(
    not HUGE_PAGES.exists() or "[always]" in HUGE_PAGES.read_text(),
    reason="a fault may bring in more than a page",
)


async def echo(exchange: Exchange) -> None:
    exchange.respond(HttpResponse(200, {}, exchange.request.body))


def ask(client: socket.socket, num_requests: int) -> None:
    """Send requests one after the other and read their answers into one buffer."""
    answer = memoryview(bytearray(2 * len(BODY)))
    for _ in range(num_requests):
        client.sendall(REQUEST)
        got = client.recv_into(answer)
        end = bytes(answer[:got]).index(b"\r\n\r\n") + 4 + len(BODY)
        while got < end:
            got += client.recv_into(answer[got:])


def faults(pid: int) -> int:
    """Pages that the process has faulted in without reading a disk (proc(5))."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat[stat.rindex(")") :].split()[8])


@few_faults
def test_a_large_body_takes_the_memory_of_the_last_one() -> None:
    command = [sys.executable, "-m", "benchmarks.echo_model"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            port = int(server.stdout.readline().split()[1])
            with socket.create_connection(("127.0.0.1", port)) as client:
                ask(client, 20)
                before = faults(server.pid)
                ask(client, 20)
                assert faults(server.pid) - before < 20 * PAGES / 4
        finally:
            server.kill()


async def ask_after_idle_sweeps() -> None:
    """A request after the server returned its freed memory. Its pages are faulted in again."""
    refusal = HttpResponse(400, {}, b"")
    limits, clock = HttpLimits(), ManualClock()
    server = HttpServer(echo, lambda _: refusal, limits, clock, admit=lambda _: True)
    listening = bind("127.0.0.1", 0)
    await server.start(listening)
    try:
        with socket.create_connection(listening.getsockname()) as client:
            await asyncio.to_thread(ask, client, 20)
            before = faults(os.getpid())
            sweeping = asyncio.create_task(server.sweep_forever())
            for _ in range(2 * RETURN_AFTER_SWEEPS):
                await asyncio.sleep(0)
            sweeping.cancel()
            await asyncio.to_thread(ask, client, 1)
            assert faults(os.getpid()) - before >= PAGES / 2
    finally:
        await server.stop(0.0)


@few_faults
def test_memory_is_returned_when_no_request_comes() -> None:
    # In its own process, since memory that earlier tests freed may serve the body.
    here = ask_after_idle_sweeps
    program = f"import uvloop; from {here.__module__} import {here.__name__} as case; "
    program += "import asyncio; uvloop.run(asyncio.wait_for(case(), 60))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
