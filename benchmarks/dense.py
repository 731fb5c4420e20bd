"""Hundreds of copies on one instance: time until they serve and until they are gone, and its cost.

Declares N inference components of a small echo server (0.25 CPU, 256 MB) on instances of
ml.m5.24xlarge, one after the other as fast as the API takes them, while a client invokes the first
component and another client describes the endpoint. Then deletes all components and the endpoint.

    python -m benchmarks.dense --copies 100 300 --instances 1
    python -m benchmarks.dense --copies 300 --busy 4       with four processes that only compute
"""

import argparse
import contextlib
import math
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from tests.integration.echo_image import ECHO_IMAGE
from tests.integration.platform import Platform

from benchmarks.record import print_table, write_result
from benchmarks.start_platform import cpu_s
from hostelry.base.clock import monotonic_s
from hostelry.base.proc import arguments, processes, sizes
from hostelry.home.heartbeat import connect, line_path
from hostelry_lab.repeated import Repeated

ENDPOINT, VARIANT, MODEL, TYPE = "dense", "AllTraffic", "echo", "ml.m5.24xlarge"
ROLE = "arn:aws:iam::111122223333:role/HostelryExecutionRole"
NEEDS = {"NumberOfCpuCoresRequired": 0.25, "MinMemoryRequiredInMb": 256}
COPIES_HELD = 384  # that fit in the CPUs of an instance. The others wait, each with the reason
PAUSE_S = 0.2
GONE_S = 600.0
BEAT_S = 30.0
Row = dict[str, Any]


def main() -> None:
    """Measure each number of copies in turn, print the table and write it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--copies", type=int, nargs="+", default=[100, 300])
    parser.add_argument("--instances", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--busy", type=int, default=0, help="processes that compute meanwhile")
    parser.add_argument("--limit-s", type=float, default=900.0, help="give up after so long")
    given = parser.parse_args()
    rows = []
    for number in range(given.rounds):
        for copies in given.copies:
            print(f"round {number + 1}: {copies} copies", flush=True)
            with busy(given.busy):
                rows.append(measure(copies, given.instances, given.limit_s))
            print_table("so far", rows)
    write_result("dense", f"{given.instances} instances, {given.busy} busy", 0, {"rounds": rows})


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """Run `count` processes that only compute, each in a session like another user's process.

    Linux's autogroup gives each session a share of the CPUs. One session would get one share.
    """
    spin = [sys.executable, "-c", "while 1: pass"]
    spinning = [subprocess.Popen(spin, start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def measure(copies: int, instances: int, limit_s: float) -> Row:
    """Measure the life of `copies` copies."""
    with (
        tempfile.TemporaryDirectory(prefix="hostelry-dense-", dir="/var/tmp") as folder,
        Platform(made_home(Path(folder))) as platform,
    ):
        platform.may_log_tracebacks = True
        client = platform.boto3("sagemaker")
        make_endpoint(client, instances)
        names = [f"c-{number:04}" for number in range(copies)]
        began_s = monotonic_s()
        describing = Repeated(lambda: client.describe_endpoint(EndpointName=ENDPOINT))
        runtime = platform.boto3("sagemaker-runtime")
        invoking = Repeated(
            lambda: runtime.invoke_endpoint(
                EndpointName=ENDPOINT, InferenceComponentName=names[0], Body=b"x"
            )["Body"].read()
        )
        beating = Repeated(partial(beat, line_path(platform.home.run / "control")))
        declaring = threading.Thread(target=declare, args=(platform.boto3("sagemaker"), names))
        with describing, invoking, beating:
            declaring.start()
            held = min(copies, instances * COPIES_HELD)
            first_s, ready_s, seen = until_ready(client, held, began_s + limit_s, began_s)
            declaring.join()
            row: Row = {
                "copies": copies,
                "first READY, s": first_s,
                "all READY, s": ready_s,
                "states": dict(seen),
                "describe p99, s": describing.at(0.99),
                "describe most, s": describing.at(1.0),
                "describes refused": describing.num_failed,
                "control's loop late p99, ms": beating.at(0.99) * 1000,
                "control's loop late most, ms": beating.at(1.0) * 1000,
                "neighbour refused": invoking.num_failed,
                "neighbour p50, ms": invoking.at(0.5) * 1000,
                "neighbour p99, ms": invoking.at(0.99) * 1000,
                **costs(platform),
            }
            began_s = monotonic_s()
            remove(client, names)
            row["gone, s"] = until_gone(platform, began_s)
        row["restarts of control"] = restarts(platform)
        return row


def made_home(folder: Path) -> Path:
    """A home whose images.toml has the echo server."""
    home = folder / "home"
    home.mkdir(mode=0o700)
    folder.chmod(0o755)
    (home / "images.toml").write_text(ECHO_IMAGE)
    return home


def make_endpoint(client: Any, instances: int) -> None:
    """An endpoint of components, with its instances."""
    client.create_model(
        ModelName=MODEL, ExecutionRoleArn=ROLE, PrimaryContainer={"Image": "echo:1"}
    )
    variant = {
        "VariantName": VARIANT,
        "InstanceType": TYPE,
        "InitialInstanceCount": instances,
        "RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
    }
    client.create_endpoint_config(
        EndpointConfigName="config", ExecutionRoleArn=ROLE, ProductionVariants=[variant]
    )
    client.create_endpoint(EndpointName=ENDPOINT, EndpointConfigName="config")
    while client.describe_endpoint(EndpointName=ENDPOINT)["EndpointStatus"] != "InService":
        time.sleep(PAUSE_S)


def declare(client: Any, names: list[str]) -> None:
    """Create the components. Repeat each call until it is accepted."""
    for name in names:
        create = partial(
            client.create_inference_component,
            InferenceComponentName=name,
            EndpointName=ENDPOINT,
            VariantName=VARIANT,
            Specification={"ModelName": MODEL, "ComputeResourceRequirements": NEEDS},
            RuntimeConfig={"CopyCount": 1},
        )
        again(create)


def again(call: Callable[[], Any]) -> Any:
    """The answer of a call, which is repeated while control is unavailable."""
    while True:
        try:
            return call()
        except (ClientError, BotoCoreError) as error:
            if isinstance(error, ClientError) and http_status(error) < 500:
                raise
            time.sleep(PAUSE_S)


def http_status(error: ClientError) -> int:
    """The HTTP status of a refusal."""
    return int(error.response["ResponseMetadata"]["HTTPStatusCode"])


def states(client: Any) -> Counter[str]:
    """How many components are in each state."""
    pages = client.get_paginator("list_inference_components").paginate(EndpointNameEquals=ENDPOINT)
    found = again(lambda: [it for page in pages for it in page["InferenceComponents"]])
    return Counter(it["InferenceComponentStatus"] for it in found)


def beat(path: Path) -> None:
    """Have the event loop of a process return a heartbeat. Raises OSError if it does not."""
    with connect(path) as line:
        line.settimeout(BEAT_S)
        line.sendall(b"1\n")
        if not line.recv(16):
            raise ConnectionError(f"{path} is closed")


def until_ready(
    client: Any, num_held: int, give_up_at_s: float, began_s: float
) -> tuple[float, float, Counter[str]]:
    """Seconds to the first and last of `num_held` in service (infinite if never), and the end."""
    first_s = math.inf
    while True:
        seen = states(client)
        now_s = monotonic_s()
        if seen["InService"] and first_s == math.inf:
            first_s = now_s - began_s
        is_ready = seen["InService"] == num_held
        if is_ready or now_s > give_up_at_s:
            return first_s, now_s - began_s if is_ready else math.inf, seen
        time.sleep(PAUSE_S)


def remove(client: Any, names: list[str]) -> None:
    """Delete the components and the endpoint."""
    for name in names:
        again(partial(client.delete_inference_component, InferenceComponentName=name))
    while sum(states(client).values()):
        time.sleep(PAUSE_S)
    again(lambda: client.delete_endpoint(EndpointName=ENDPOINT))


def until_gone(platform: Platform, began_s: float) -> float:
    """Seconds until no process of a copy is left."""
    folder = str(platform.home.root)
    while monotonic_s() < began_s + GONE_S:
        if not any(is_copy(it.pid) for it in processes()):
            return monotonic_s() - began_s
        time.sleep(PAUSE_S)
    raise RuntimeError(f"copies below {folder} are left after {GONE_S:g} s")


def is_copy(pid: int) -> bool:
    """Whether the process is an echo server."""
    return any(it.endswith("echo_server.py") for it in arguments(pid))


def costs(platform: Platform) -> Row:
    """CPU seconds of control and of the agents so far, and the memory of a copy."""
    agents = [it.pid for it in processes() if "--instance-id" in arguments(it.pid)]
    copies = [it.pid for it in processes() if is_copy(it.pid)]
    memory = [sizes(f"{pid}/smaps_rollup").get(b"Pss", 0) / 1e6 for pid in copies[:20]]
    return {
        "control CPU, s": cpu_s(platform.pid("control")),
        "agents CPU, s": sum(cpu_s(pid) for pid in agents),
        "a copy, MB": statistics.median(memory) if memory else 0.0,
    }


def restarts(platform: Platform) -> int:
    """How often control was restarted."""
    return platform.log("control").count("Started server process") - 1


if __name__ == "__main__":
    main()
