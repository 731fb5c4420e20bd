"""Costs of temporary keys at the gateway, and of the S3 proxy in front of the store.

Each pair is measured in turns in one run, and compared within a round: invocations of the echo
model signed with the account's keys and with temporary ones, objects at the store's port and at the
S3 port, and objects with and without encryption under a KMS key (SSE-KMS).

``python -m benchmarks.keys_and_objects [--rounds N] [--seconds S]``
"""

import argparse
import dataclasses
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from msgspec.structs import replace

from benchmarks.gateway_load import run_load, signed_request
from benchmarks.load import Load
from benchmarks.record import print_table, write_result
from benchmarks.stack import Stack, running_stack
from hostelry.aws.temporary_keys import Session, TemporaryKeys, TokenSeal

SEED = 20261123
NUM_DISTINCT_REQUESTS = 64
PAYLOAD_BYTES = 1024
KEY_LIFE_S = 3600
BUCKET = "measured"
SMALL_BYTES, LARGE_BYTES = 4096, 64 << 20
KMS = {"ServerSideEncryption": "aws:kms"}
Row = dict[str, Any]
Times = dict[str, list[float]]


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=8, help="[default: %(default)s]")
    parser.add_argument("--seconds", type=float, default=2.0, help="a load [default: %(default)s]")
    given = parser.parse_args()
    keys = measure_keys(given.rounds, given.seconds)
    print_table("temporary keys / the account's keys", keys)
    objects = measure_objects(given.rounds)
    print_table("objects, time / time at the store's own port", objects)
    measured = {"keys": keys, "objects": objects}
    write_result("keys_and_objects", f"{given.rounds} rounds", SEED, measured)


def measure_keys(rounds: int, duration_s: float) -> list[Row]:
    """Requests a second and latency with temporary keys, as ratios to the account's keys."""
    rows = []
    with running_stack() as stack:
        loads = {"account": requests(stack), "temporary": requests(stack, temporary_keys(stack))}
        for connections in (1, 32):
            ratios: dict[str, list[float]] = {
                "gateway's CPU a request": [],
                "requests a second": [],
                "p50": [],
                "p99": [],
            }
            for number in range(rounds):
                found, cpu_s = {}, {}
                for name in sorted(loads, reverse=number % 2 == 1):
                    before_s = stack.gateway_cpu_s
                    found[name] = run_load(load(stack, loads[name], connections, duration_s))
                    cpu_s[name] = (stack.gateway_cpu_s - before_s) / found[name].total
                account, temporary = found["account"], found["temporary"]
                if account.errors or temporary.errors:
                    raise RuntimeError(f"requests failed: {found}")
                ratios["gateway's CPU a request"].append(cpu_s["temporary"] / cpu_s["account"])
                ratios["requests a second"].append(temporary.per_s / account.per_s)
                ratios["p50"].append(temporary.p50_ms / account.p50_ms)
                ratios["p99"].append(temporary.p99_ms / account.p99_ms)
            medians = {name: statistics.median(values) for name, values in ratios.items()}
            rows.append({"connections": connections, **medians})
    return rows


def load(stack: Stack, sent: list[bytes], connections: int, duration_s: float) -> Load:
    """A closed loop of `sent` at the gateway."""
    return Load(
        port=stack.gateway_port,
        requests=sent,
        num_connections=connections,
        duration_s=duration_s,
    )


def requests(stack: Stack, keys: TemporaryKeys | None = None) -> list[bytes]:
    """Signed invocations with different bodies. Without `keys`, the account's keys sign them."""
    headers = {}
    if keys is not None:
        headers["X-Amz-Security-Token"] = keys.session_token
        signing = replace(
            stack.credentials,
            access_key_id=keys.access_key_id,
            secret_access_key=keys.secret_access_key,
        )
        stack = dataclasses.replace(stack, credentials=signing)
    bodies = (os.urandom(PAYLOAD_BYTES) for _ in range(NUM_DISTINCT_REQUESTS))
    return [signed_request(stack, "invocations", body, headers) for body in bodies]


def temporary_keys(stack: Stack) -> TemporaryKeys:
    """Temporary keys as GetSessionToken issues them."""
    session = Session(
        access_key_id="ASIAMEASURED00000000",
        account_id=stack.credentials.account_id,
        expires_at=int(time.time()) + KEY_LIFE_S,
    )
    return TokenSeal(stack.credentials.internal_key).issue(session)


def measure_objects(rounds: int) -> list[Row]:
    """Times of put and read through the S3 port, as ratios to the store's port."""
    from tests.integration.platform import Platform, command_line  # not in the package

    with (
        tempfile.TemporaryDirectory() as folder,
        Platform(Path(folder) / "home") as platform,
    ):
        own_port = int(command_line(platform.pid("s3door")).split("--target")[1].split()[0])
        front = client(platform, f"http://127.0.0.1:{platform.s3_port}")
        store = client(platform, f"http://127.0.0.1:{own_port}")
        front.create_bucket(Bucket=BUCKET)
        return [
            row(f"{size} bytes", times(store, front, os.urandom(size), many, rounds))
            for size, many in ((SMALL_BYTES, 100), (LARGE_BYTES, 1))
        ]


def client(platform: Any, url: str) -> Any:
    """An S3 client of the platform's account at `url`. It tries once, so that failures show."""
    keys = platform.credentials
    return boto3.client(
        "s3",
        endpoint_url=url,
        region_name=keys.region,
        aws_access_key_id=keys.access_key_id,
        aws_secret_access_key=keys.secret_access_key,
        config=Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}),
    )


def times(store: Any, front: Any, body: bytes, many: int, rounds: int) -> Times:
    """Seconds of each way by its name, with a value for each round after the first."""
    cases: Mapping[str, tuple[Any, Mapping[str, str]]] = {
        "store": (store, {}),
        "proxy": (front, {}),
        "proxy, SSE-KMS": (front, KMS),
    }
    found: Times = {f"{name} {verb}": [] for name in cases for verb in ("put", "get")}
    for number in range(rounds + 1):
        for name in sorted(cases, reverse=number % 2 == 1):
            s3, sealed = cases[name]
            puts = seconds(lambda s3=s3, more=sealed: put(s3, body, more), many)
            gets = seconds(lambda s3=s3: get(s3, len(body)), many)
            if number:
                found[f"{name} put"].append(puts)
                found[f"{name} get"].append(gets)
    return found


def put(s3: Any, body: bytes, more: Mapping[str, str]) -> None:
    s3.put_object(Bucket=BUCKET, Key="object", Body=body, **more)


def get(s3: Any, size: int) -> None:
    found = s3.get_object(Bucket=BUCKET, Key="object")["Body"].read()
    if len(found) != size:
        raise RuntimeError(f"{len(found)} of {size} bytes were read")


def seconds(call: Callable[[], None], many: int) -> float:
    began_s = time.perf_counter()
    for _ in range(many):
        call()
    return time.perf_counter() - began_s


def row(name: str, found: Times) -> Row:
    """Medians over rounds of the ratio within each round."""
    return {
        "object": name,
        **{
            way: statistics.median(
                mine / base
                for mine, base in zip(values, found[f"store {way.split()[-1]}"], strict=True)
            )
            for way, values in found.items()
            if not way.startswith("store")
        },
    }


if __name__ == "__main__":
    main()
