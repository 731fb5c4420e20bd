"""What the door costs: an echo model server called directly and through the door, in one run.

Signatures are verified. The claim: p50 +0.3 ms at one connection, +1 ms a streamed chunk at 256
streams, and 8,000 requests a second at 32 connections, on two cores.

``python -m benchmarks.gateway_overhead [--setting tiny|short|full]``
"""

import argparse
import random
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import msgspec
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as SigningCredentials

from benchmarks.load import Load, Measured
from benchmarks.record import print_table, write_result
from benchmarks.stack import ENDPOINT_NAME, Stack, running_stack

SEED = 20261121
NUM_DISTINCT_REQUESTS = 64
CONTENT_TYPE = "application/octet-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How long and how much to measure."""

    duration_s: float
    connections: tuple[int, ...]
    payload_bytes: tuple[int, ...]
    num_streams: int
    chunks_per_s: float = 20.0


SETTINGS = {
    "tiny": Setting(duration_s=0.3, connections=(2,), payload_bytes=(1024,), num_streams=4),
    "short": Setting(
        duration_s=3.0, connections=(1, 32, 256), payload_bytes=(1024, 1 << 20), num_streams=256
    ),
    "full": Setting(
        duration_s=15.0, connections=(1, 32, 256), payload_bytes=(1024, 1 << 20), num_streams=256
    ),
}


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--setting", choices=SETTINGS, default="short")
    parser.add_argument("--seed", type=int, default=SEED)
    arguments = parser.parse_args()
    setting, seed = SETTINGS[arguments.setting], arguments.seed
    with running_stack() as stack:
        invocations = measure_invocations(stack, setting, random.Random(seed))
        streams = measure_streams(stack, setting)
    print_table("Invocations, direct and through the door (signatures verified)", invocations)
    print_table(f"{setting.num_streams} token streams: a chunk's age on arrival", streams)
    measured = {"invocations": invocations, "streams": streams}
    write_result("gateway_overhead", arguments.setting, seed, measured)


def measure_invocations(
    stack: Stack, setting: Setting, source: random.Random
) -> list[dict[str, Any]]:
    """A row for each payload and number of connections."""
    rows: list[dict[str, Any]] = []
    for payload_bytes in setting.payload_bytes:
        bodies = [source.randbytes(payload_bytes) for _ in range(num_bodies(payload_bytes))]
        direct = [direct_request(body, {}) for body in bodies]
        signed = [signed_request(stack, "invocations", body, {}) for body in bodies]
        rows += [
            {"payload": f"{payload_bytes // 1024} KB"}
            | compare(stack, setting, (direct, signed), num_connections)
            for num_connections in setting.connections
        ]
    return rows


def measure_streams(stack: Stack, setting: Setting) -> list[dict[str, Any]]:
    """One row: many streams at once, each chunk stamped where it is sent."""
    interval_ms = round(1000 / setting.chunks_per_s)
    told = {"X-Amzn-SageMaker-Custom-Attributes": f"chunks=1000000;interval_ms={interval_ms}"}
    direct = [direct_request(b"{}", told)]
    signed = [signed_request(stack, "invocations-response-stream", b"{}", told)]
    row = compare(stack, setting, (direct, signed), setting.num_streams, streams=True)
    return [{"chunks/s each": setting.chunks_per_s} | row]


def compare(
    stack: Stack,
    setting: Setting,
    loads: tuple[list[bytes], list[bytes]],
    num_connections: int,
    streams: bool = False,
) -> dict[str, Any]:
    """The same load, direct and through the door, and what the door adds."""
    to_copy, to_door = loads
    direct = run_load(stack.echo_port, to_copy, num_connections, setting, streams)
    before_s = stack.gateway_cpu_s
    door = run_load(stack.door_port, to_door, num_connections, setting, streams)
    cpu_s = stack.gateway_cpu_s - before_s
    return {
        "connections": num_connections,
        "direct/s": round(direct.per_s),
        "door/s": round(door.per_s),
        "ratio": door.per_s / direct.per_s if direct.per_s else 0.0,
        "direct p50 ms": direct.p50_ms,
        "door p50 ms": door.p50_ms,
        "+p50 ms": door.p50_ms - direct.p50_ms,
        "direct p99 ms": direct.p99_ms,
        "door p99 ms": door.p99_ms,
        "+p99 ms": door.p99_ms - direct.p99_ms,
        "door cpu us each": cpu_s / door.total * 1e6 if door.total else 0.0,
        "errors": direct.errors + door.errors,
    }


def run_load(
    port: int, requests: list[bytes], num_connections: int, setting: Setting, streams: bool
) -> Measured:
    """Measure in a process of its own, so that making load does not slow what is measured."""
    load = Load(
        port=port,
        requests=requests,
        num_connections=num_connections,
        duration_s=setting.duration_s,
        warm_up_s=min(0.5, setting.duration_s),
        streams=streams,
    )
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.load"],
        input=msgspec.json.encode(load),
        stdout=subprocess.PIPE,
        check=True,
    )
    return msgspec.json.decode(done.stdout, type=Measured)


def num_bodies(payload_bytes: int) -> int:
    """How many different requests to make of a payload, so that they stay under 16 MB together."""
    return max(1, min(NUM_DISTINCT_REQUESTS, (16 << 20) // payload_bytes))


def direct_request(body: bytes, headers: dict[str, str]) -> bytes:
    """An invocation as the door would send it to a copy."""
    given = {"Host": "localhost", "Content-Type": CONTENT_TYPE, **headers}
    return message("/invocations", given, body)


def signed_request(stack: Stack, action: str, body: bytes, headers: dict[str, str]) -> bytes:
    """An invocation as botocore would send it to the door."""
    path = f"/endpoints/{ENDPOINT_NAME}/{action}"
    url = f"http://127.0.0.1:{stack.door_port}{path}"
    request = AWSRequest("POST", url, {"Content-Type": CONTENT_TYPE, **headers}, body)
    keys = stack.credentials
    signer = SigningCredentials(keys.access_key_id, keys.secret_access_key)
    SigV4Auth(signer, "sagemaker", keys.region).add_auth(request)
    given = {"Host": f"127.0.0.1:{stack.door_port}", **dict(request.headers.items())}
    return message(path, given, body)


def message(path: str, headers: dict[str, str], body: bytes) -> bytes:
    """A whole HTTP request."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"POST {path} HTTP/1.1\r\n{lines}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


if __name__ == "__main__":
    main()
