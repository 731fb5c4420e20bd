"""Simulated forecasts compared with a live platform, and the time to simulate a million requests.

Live: a platform has one component of some copies. Its server works on some requests at a time, for
the time that each request names, and queues the others. Requests come at random at a share of the
copies' capacity, whatever becomes of the requests before them. The forecast replays the same
requests at the same instants, through the same routing and placement. The platform's own time is
measured before the load, by sequential requests without work.

Simulated: 1,000 instances, 100 models with 40 copies each, a million chat requests.

``python -m benchmarks.forecast [--setting smoke|short|full] [--only live|simulated]``
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks.open_load import Answer, Due, Outcome, Plan
from benchmarks.record import print_table, write_result
from benchmarks.routing_live import LiveGateway, signed_call
from hostelry.sim.arrivals import steady
from hostelry.sim.fleet import SimulatedDeployment
from hostelry.sim.policy_requests import PolicySet
from hostelry.sim.replay import Replay, ReplaySetup
from hostelry.sim.scenario import CHAT
from hostelry.sim.service import ServiceModel, default_service
from hostelry.sim.trace import Trace, build_block

SEED = 20261126
ENDPOINT, COMPONENT, VARIANT, PROGRAM = "forecast", "queueing", "main", "queueing:1"
ROLE = "arn:aws:iam::111122223333:role/HostelryExecutionRole"
SERVER = """import os, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
TURN = threading.Semaphore(int(sys.argv[1]))
class Queueing(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    def log_message(self, *_):
        pass
    def do_GET(self):
        self.answer(b"{}")
    def do_POST(self):
        work_s = float(self.rfile.read(int(self.headers["Content-Length"])))
        with TURN:
            time.sleep(work_s)
        self.answer(b"{}")
    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
class Server(ThreadingHTTPServer):
    request_queue_size = 1024
Server(("127.0.0.1", int(os.environ["SAGEMAKER_BIND_TO_PORT"])), Queueing).serve_forever()
"""
RULE = """
[[image]]
pattern = "{image}"
command = {command}
[image.probe]
content_type = "application/json"
body = '0'
"""
READY_S = 120.0
TICK_S = 0.001  # of one token, since the simulator counts work in tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Copies that work on `at_once` requests each, and loads as shares of the copies' capacity.

    `simulated` requests go to `models` models of `copies_each` copies, four on an instance.
    """

    copies: int = 3
    at_once: int = 2
    mean_s: float = 0.1
    sigma: float = 1.0
    shares: tuple[float, ...]
    load_s: float
    simulated: int
    models: int
    copies_each: int


SETTINGS = {
    "smoke": Setting(shares=(), load_s=0, simulated=2_000, models=2, copies_each=4),
    "short": Setting(shares=(0.5, 0.8), load_s=20, simulated=1_000_000, models=100, copies_each=40),
    "full": Setting(
        shares=(0.3, 0.5, 0.7, 0.85, 0.95),
        load_s=120,
        simulated=1_000_000,
        models=100,
        copies_each=40,
    ),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.forecast", description=__doc__)
    parser.add_argument("--setting", choices=SETTINGS, default="short")
    parser.add_argument("--only", choices=("live", "simulated"))
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args(argv)
    setting = SETTINGS[given.setting]
    measured: dict[str, Any] = {"setting": asdict(setting)}
    if given.only != "live":
        measured["simulated"] = [simulate_forecast(setting, given.seed)]
        print_table("Simulated", measured["simulated"])
    if given.only != "simulated" and setting.shares:
        measured["live"] = live(setting, given.seed)
        print_table("Forecast beside a live platform", measured["live"])
    write_result("forecast", given.setting, given.seed, measured)


def simulate_forecast(setting: Setting, seed: int) -> dict[str, Any]:
    """The time that the simulator takes, and its forecast."""
    service, source = default_service(), np.random.default_rng(seed)
    num, copies = setting.simulated, setting.models * setting.copies_each
    work_s = np.mean(CHAT.output.draw(source, 10_000)) * service.token_s
    rate = 0.6 * copies * service.max_concurrency / service.slowdowns()[-1] / float(work_s)
    arrived = steady(source, rate, 1.05 * num / rate, cv=1.09)[:num]
    model = source.integers(0, setting.models, size=len(arrived))
    lengths = CHAT.input.draw(source, len(arrived)), CHAT.output.draw(source, len(arrived))
    trace = Trace(
        name="", blocks=[build_block(arrived, *lengths, model)], lasts_s=float(arrived[-1])
    )
    trace.models = [f"model-{it:03}" for it in range(setting.models)]
    setup = ReplaySetup(
        policies=PolicySet(name="fixed", minimum=setting.copies_each, maximum=setting.copies_each),
        deployment=SimulatedDeployment(
            initial_copies=setting.copies_each, max_instances=2 * copies, start_spread=0.0
        ),
        service=service,
        seed=seed,
    )
    began_s = time.process_time()
    replay = Replay(trace, setup)
    ledger = replay.run()
    took_s = np.array(ledger.took_s)
    return {
        "requests": len(took_s),
        "instances": replay.fleet.peak_instances,
        "copies": copies,
        "simulated s": float(arrived[-1]),
        "cpu s": time.process_time() - began_s,
        "p50 s": float(np.percentile(took_s, 50)),
        "p99 s": float(np.percentile(took_s, 99)),
    }


def live(setting: Setting, seed: int) -> list[dict[str, Any]]:
    """A row for each load: the measured latencies, the forecast ones, and the error."""
    from tests.integration.platform import Platform, until

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        home.mkdir(mode=0o700)
        command = json.dumps([sys.executable, "-c", SERVER, str(setting.at_once)])
        platform = Platform(home)
        platform.home.images.write_text(RULE.format(image=PROGRAM, command=command))
        with platform:
            client = platform.boto3("sagemaker")
            deploy(client, setting.copies)
            until(lambda: is_up(client, setting.copies), "copies serve", READY_S)
            gateway = LiveGateway(credentials=platform.credentials, port=platform.port)
            own_s = time_without_work(gateway)
            for number, share in enumerate(setting.shares):
                rows.append(one_load(gateway, setting, share, own_s, seed + number))
    return rows


def deploy(client: Any, copies: int) -> None:
    """Create an endpoint with the component."""
    client.create_endpoint_config(
        EndpointConfigName="config",
        ExecutionRoleArn=ROLE,
        ProductionVariants=[
            {
                "VariantName": VARIANT,
                "InstanceType": "ml.m5.4xlarge",
                "InitialInstanceCount": 1,
                "RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
            }
        ],
    )
    client.create_endpoint(EndpointName=ENDPOINT, EndpointConfigName="config")
    client.create_inference_component(
        InferenceComponentName=COMPONENT,
        EndpointName=ENDPOINT,
        VariantName=VARIANT,
        Specification={
            "Container": {"Image": PROGRAM},
            "ComputeResourceRequirements": {
                "NumberOfCpuCoresRequired": 1,
                "MinMemoryRequiredInMb": 512,
            },
        },
        RuntimeConfig={"CopyCount": copies},
    )


def is_up(client: Any, copies: int) -> bool:
    """Whether all copies serve."""
    found = client.describe_inference_component(InferenceComponentName=COMPONENT)
    if found["InferenceComponentStatus"] == "Failed":
        raise RuntimeError(found["FailureReason"])
    return bool(found["RuntimeConfig"]["CurrentCopyCount"] == copies)


def time_without_work(gateway: LiveGateway) -> float:
    """The median time of requests that ask for no work, sent one after the other."""
    plan = Plan(port=gateway.port, requests=[due(gateway, 0.0, 0.0)] * 100, num_clients=1)
    return statistics.median(it.ended_s - it.began_s for it in answers(plan))


def one_load(
    gateway: LiveGateway, setting: Setting, share: float, own_s: float, seed: int
) -> dict[str, Any]:
    """Measure and forecast one load."""
    source = np.random.default_rng(seed)
    rate = share * setting.copies * setting.at_once / setting.mean_s
    arrived = steady(source, rate, setting.load_s, cv=1.0)
    middle = np.log(setting.mean_s) - setting.sigma**2 / 2
    work_s = np.exp(source.normal(middle, setting.sigma, len(arrived))).clip(TICK_S, 20.0)
    calls = [due(gateway, *it) for it in zip(arrived.tolist(), work_s.tolist(), strict=True)]
    lived = answers(Plan(port=gateway.port, requests=calls))
    failed = [it for it in lived if it.status != 200]
    if failed:
        raise RuntimeError(f"{len(failed)} requests failed, the first with {failed[0].body!r}")
    seen_s = np.array([it.ended_s - it.began_s for it in lived])
    foreseen_s = forecast(setting, arrived, work_s, seed) + own_s
    row: dict[str, Any] = {"share": share, "requests": len(lived), "own ms": 1e3 * own_s}
    for name, live_value, expected in (
        ("p50 s", np.percentile(seen_s, 50), np.percentile(foreseen_s, 50)),
        ("p99 s", np.percentile(seen_s, 99), np.percentile(foreseen_s, 99)),
        ("in flight", seen_s.sum() / setting.load_s, foreseen_s.sum() / setting.load_s),
    ):
        row[name], row[f"{name} forecast"] = float(live_value), float(expected)
        row[f"{name} error %"] = 100.0 * float(expected / live_value - 1.0)
    return row


def forecast(setting: Setting, arrived: Any, work_s: Any, seed: int) -> Any:
    """Seconds that each request takes in the simulation."""
    ticks = np.maximum(1, np.rint(work_s / TICK_S)).astype(np.int64)
    trace = Trace(
        name="live",
        blocks=[build_block(arrived, np.zeros(len(arrived), np.int64), ticks)],
        lasts_s=setting.load_s,
    )
    setup = ReplaySetup(
        policies=PolicySet(name="fixed", minimum=setting.copies, maximum=setting.copies),
        deployment=SimulatedDeployment(initial_copies=setting.copies),
        service=ServiceModel(
            prefill_s_per_token=0.0, token_s=TICK_S, max_concurrency=setting.at_once
        ),
        seed=seed,
    )
    return np.array(Replay(trace, setup).run().took_s)


def due(gateway: LiveGateway, at_s: float, work_s: float) -> Due:
    """A signed request for `work_s` seconds of work, at its time."""
    headers = {"X-Amzn-SageMaker-Inference-Component": COMPONENT}
    return Due(at_s, signed_call(gateway, ENDPOINT, headers, f"{work_s:.6f}".encode()))


def answers(plan: Plan) -> list[Answer]:
    """The answers to a plan, which a separate process sends."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.open_load"],
        input=msgspec.json.encode(plan),
        stdout=subprocess.PIPE,
        check=True,
    )
    return msgspec.json.decode(done.stdout, type=Outcome).answers


if __name__ == "__main__":
    main()
