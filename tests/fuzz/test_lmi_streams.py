"""256 streams at once whose clients leave when they please: nothing of them may stay.

`HOSTELRY_FUZZ_MINUTES=10 pytest tests/fuzz/test_lmi_streams.py -o timeout=0` is the long form.
"""

import asyncio
import json
import os
import socket
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.fuzz.conftest import Cases
from tests.fuzz.test_lmi_server import control
from tests.integration.lmi_rig import Server, byte_model, eventually, is_idle, serving

pytestmark = pytest.mark.integration

AT_ONCE = 256
SHORT_FORM = 1_500
SETTLED = 1_000  # streams after which memory has its size
GROWTH_BYTES = 32 << 20
LIMIT_S = 120.0
RESET = struct.pack("ii", 1, 0)  # SO_LINGER that ends a connection with RST
HEAD = (
    b"POST %b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)
BUSY = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("streams")
    options = {"OPTION_ENABLE_LORA": "true", "OPTION_MAX_MODEL_LEN": "256"}
    with serving(byte_model(root), root / "log", **options) as server:
        yield server


def test_streams_that_are_left_at_any_moment_leave_nothing(server: Server, cases: Cases) -> None:
    engine = server.engine_pid()
    with server.client() as client:
        expected = control(client)
        sizes: list[int] = []
        ends = asyncio.run(stream_all(server, cases(SHORT_FORM), sizes))
        eventually(lambda: is_idle(client), "every page is free")
        assert control(client) == expected
        page = client.get("/metrics").text
    gauges = {
        sample.name: sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name in BUSY
    }
    assert gauges == dict.fromkeys(BUSY, 0.0)
    assert server.engine_pid() == engine
    assert ends["read to its end"] > 100
    assert ends["left"] > 100
    assert sizes[-1] - sizes[0] < GROWTH_BYTES, sizes
    eventually(lambda: num_sockets(server) < 16, "connections are closed")


async def stream_all(server: Server, source: Iterator[Random], sizes: list[int]) -> Counter[str]:
    """The ends of streams. `sizes` gets the memory after every `SETTLED` streams."""
    ends: Counter[str] = Counter()

    async def visitor() -> None:
        for random in source:
            ends[await one_stream(server, random)] += 1
            if ends.total() % SETTLED == 0:
                sizes.append(private_bytes(server))

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(visitor())
    sizes.append(private_bytes(server))
    return ends


async def one_stream(server: Server, random: Random) -> str:
    """Ask for a stream and read it to its end, or leave at some byte of it."""
    path, body, end = asked(random)
    leaves = random.random() < 0.6
    patience = random.choice((0, 1, 200, 900, 4_000)) if leaves else None
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
    raw = json.dumps(body).encode()
    message = HEAD % (path.encode(), len(raw)) + raw
    if leaves and random.random() < 0.1:
        message = message[: random.randrange(len(message))]
    try:
        writer.write(message)
        await writer.drain()
        got = await asyncio.wait_for(read(reader, patience), LIMIT_S)
    finally:
        if leaves and random.random() < 0.5:
            connection: socket.socket = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        writer.close()
    if leaves:
        return "left"
    assert got.startswith(b"HTTP/1.1 200 "), got[:500]
    assert end in got, got[-500:]
    return "read to its end"


async def read(reader: asyncio.StreamReader, most: int | None) -> bytes:
    """Everything that arrives, or about `most` bytes. Empty for an incomplete request."""
    if most is None:
        return await reader.read(-1)
    got = b""
    while len(got) < most:
        try:
            part = await asyncio.wait_for(reader.read(most - len(got)), 2.0)
        except TimeoutError:
            return got
        if not part:
            return got
        got += part
    return got


def asked(random: Random) -> tuple[str, dict[str, Any], bytes]:
    """A route, a body that streams, and the end mark of a complete answer."""
    text = "".join(random.choices("abc def", k=random.randrange(1, 60)))
    tokens = random.randrange(1, 100)
    adapter = random.choice(("", "es", "fr"))
    several: dict[str, Any]
    sampled: dict[str, Any] = {"temperature": random.choice((0.0, 1.0)), "ignore_eos": True}
    model = {"model": adapter or "lmi", "max_tokens": tokens, "stream": True, **sampled}
    match random.randrange(4):
        case 0:
            parameters = {"max_new_tokens": tokens, "do_sample": True, "ignore_eos_token": True}
            body = {"inputs": text, "parameters": parameters, "adapters": adapter, "stream": True}
            return "/invocations", body, b'"generated_text"'
        case 1:
            chat = [{"role": "user", "content": text}]
            return "/v1/chat/completions", {"messages": chat, **model}, b"[DONE]"
        case 2:
            several = {"n": random.randrange(1, 3), "temperature": 1.0}
            return "/v1/completions", {"prompt": text, **model, **several}, b"[DONE]"
        case _:
            several = {"guided_regex": "[a-f]{1,90}", "ignore_eos": False}
            return "/v1/completions", {"prompt": text, **model, **several}, b"[DONE]"


def private_bytes(server: Server) -> int:
    """Memory of the server's and the engine's own."""
    return sum(
        int(line.split()[1]) << 10
        for pid in (server.process.pid, server.engine_pid())
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        if line.startswith(("Private_Dirty:", "Swap:"))
    )


def num_sockets(server: Server) -> int:
    """Open sockets of the server's process."""
    folder = Path(f"/proc/{server.process.pid}/fd")
    return sum(os.readlink(each).startswith("socket:") for each in folder.iterdir())
