"""Cost of the audit trail for a control call: microseconds of the record's parts, and of the whole.

A record is built from the facts of a call (`describe`), chained and written (`record`). The second
table has the calls of several threads at a time, and the time of a flush.

``python -m benchmarks.audit [--calls N] [--rounds N]``
"""

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.postgres_rig import postgres_database

from benchmarks.record import print_table, write_result
from hostelry.audit.chain import derive_key
from hostelry.audit.file_writer import TrailFiles
from hostelry.audit.record import build_call_event
from hostelry.audit.rows import TrailMarks, TrailRows
from hostelry.audit.trail import AuditTrail, TrailWriter
from hostelry.base.clock import SystemClock
from hostelry.control.call_recorder import CallRecorder, NotedCall, describe_call
from hostelry.domain.scope import Scope
from hostelry.store.database import Database, open_database
from hostelry.store.sqlite import SqliteFile

OWNER = ("111122223333", "us-east-1")
THREADS = 4
CALLS: Mapping[str, tuple[str, str, Mapping[str, Any], Mapping[str, Any]]] = {
    "DescribeEndpoint": ("sagemaker", "DescribeEndpoint", {"EndpointName": "chat"}, {}),
    "CreateModel": (
        "sagemaker",
        "CreateModel",
        {
            "ModelName": "chat-7",
            "ExecutionRoleArn": "arn:aws:iam::111122223333:role/HostelryExecutionRole",
            "PrimaryContainer": {
                "Image": "djl-lmi:1",
                "ModelDataUrl": "s3://models/chat/7/",
                "Environment": {"HF_TOKEN": "hf_secret", "OPTION_MAX_ROLLING_BATCH_SIZE": "64"},
            },
            "Tags": [{"Key": "team", "Value": "search"}],
        },
        {"ModelArn": "arn:aws:sagemaker:us-east-1:111122223333:model/chat-7"},
    ),
}


def note(name: str) -> NotedCall:
    """A call as control notes it."""
    service, operation, params, result = CALLS[name]
    return NotedCall(
        scope=Scope(*OWNER),
        at=time.time(),
        request_id="1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed",
        access_key_id="AKIAEXAMPLE",
        address="10.1.2.3",
        user_agent="Boto3/1.40.0 md/Botocore#1.40.0 ua/2.1 os/linux",
        service=service,
        operation=operation,
        params=params,
        result=result,
    )


def measure_us(act: Callable[[], object], calls: int) -> float:
    """Median microseconds of a call of `act`."""
    taken = []
    for _ in range(calls):
        began = time.perf_counter_ns()
        act()
        taken.append(time.perf_counter_ns() - began)
    return statistics.median(taken) / 1000


def measure_together_us(act: Callable[[], object], calls: int) -> float:
    """Microseconds per call while several threads call."""

    def repeat() -> None:
        for _ in range(calls):
            act()

    threads = [threading.Thread(target=repeat) for _ in range(THREADS)]
    began = time.perf_counter_ns()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (time.perf_counter_ns() - began) / 1000 / calls / THREADS


def open_trail(writer: TrailWriter, database: Database, key: bytes) -> AuditTrail:
    """A trail that has begun."""
    trail = AuditTrail(writer, TrailMarks(database, key), key, OWNER, SystemClock())
    trail.start()
    return trail


def measure_trail(trail: AuditTrail, calls: int) -> dict[str, float]:
    """Microseconds of each measurement."""
    recorder = CallRecorder(trail)
    found = {}
    for name in CALLS:
        noted = note(name)
        found[f"{name}: describe"] = measure_us(
            lambda noted=noted: build_call_event(describe_call(noted, None)),  # type: ignore[misc]
            calls,
        )
        found[f"{name}: describe and record"] = measure_us(
            lambda noted=noted: recorder.record(noted, None),  # type: ignore[misc]
            calls,
        )
        found[f"{name}: {THREADS} threads"] = measure_together_us(
            lambda noted=noted: recorder.record(noted, None),  # type: ignore[misc]
            calls // THREADS,
        )
    return found


def main() -> None:
    """Measure, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    key = derive_key("k" * 32)
    results: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder, postgres_database() as url:
        state = SqliteFile(Path(folder) / "state.db")
        shared = open_database(url)
        files = open_trail(TrailFiles(Path(folder) / "audit", key), state, key)
        rows = open_trail(TrailRows(shared, key), shared, key)
        for _ in range(arguments.rounds):
            for name, trail, calls in (
                ("files", files, arguments.calls),
                ("postgresql", rows, max(arguments.calls // 10, 40)),
            ):
                for what, value in measure_trail(trail, calls).items():
                    results.setdefault(what, {}).setdefault(name, []).append(value)
        for trail in (files, rows):
            trail.close()
        state.close()
        shared.close()
    measured = [
        {
            "call": what,
            **{f"{it}_us": round(statistics.median(found[it]), 1) for it in found},
        }
        for what, found in results.items()
    ]
    print_table("A call's record, microseconds", measured)
    write_result("audit", f"{arguments.rounds} rounds", 0, {"calls": measured})


if __name__ == "__main__":
    main()
