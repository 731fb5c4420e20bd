"""The live half of `scale_out`: a real platform, a small model on CPU, a real step of load.

The copies are processes of a random Llama of some million weights. Requests are not streamed, but
answered whole. t0 is when this program begins to send four times as many requests, and the act's
receipt has t1 and t2.
"""

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from msgspec.structs import replace
from tests.integration.platform import CLI, Platform

from benchmarks.live_component import COMPONENT, ENDPOINT, running_component
from benchmarks.scale_out_replay import HIGH_RESOLUTION, OURS, PREDEFINED
from hostelry.base.clock import monotonic_s
from hostelry.scaling.decide.responsive.options import ResponsiveOptions
from hostelry.sim.arrivals import modulate_arrivals
from hostelry.sim.fleet import SimulatedDeployment
from hostelry.sim.outcome import ReplayOutcome, replay_trace
from hostelry.sim.policy_file import build_policy_set
from hostelry.sim.replay import ReplaySetup
from hostelry.sim.service import ServiceModel
from hostelry.sim.trace import FloatArray, Trace, build_block

RATE, FACTOR, CV = 3.0, 4.0, 0.5
TARGET = 3.0  # requests in flight: a third of it before the step, more than it after
COPIES, MAX_COPIES = 1, 3
NEW_TOKENS = 300
# Before the step and after it. The responsive policy does not act in its first minute.
SPANS_S = {HIGH_RESOLUTION: (30.0, 42.0), OURS: (66.0, 20.0)}
FEW_TOKENS = 8
STARTS = 3
START_WITHIN_S = 20.0
MODEL = {
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "vocab_size": 259,
}
DIMENSION = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": f"inference-component/{COMPONENT}",
    "ScalableDimension": "sagemaker:inference-component:DesiredCopyCount",
}
TRACKING = {
    "PredefinedMetricSpecification": {
        "PredefinedMetricType": f"{PREDEFINED}ConcurrentRequestsPerCopyHighResolution"
    },
    "TargetValue": TARGET,
    "ScaleInCooldown": 180,
    "ScaleOutCooldown": 180,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request: its second of the load, and its duration in seconds (-1: it failed)."""

    sent_s: float
    took_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    """A live run: its requests, when it began (wall time), and the first act after the step."""

    calls: Sequence[Call]
    began_at: float
    receipt: Mapping[str, Any] | None


def measure_live(seed: int) -> dict[str, Any]:
    """A row for each policy, with the measured values and the forecast of a replay."""
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        model = small_model(Path(scratch) / "model")
        for number, name in enumerate((HIGH_RESOLUTION, OURS)):
            folder = Path(scratch) / str(number)
            folder.mkdir()
            arrivals = step_arrivals(name, seed + number)
            lived = live_run(folder, model, name, arrivals)
            rows.append(live_row(name, lived, arrivals, seed))
        folder = Path(scratch) / "starts"
        folder.mkdir()
        starts_s = warm_starts_s(folder, model)
    return {"live": rows, "starts": [start_row(starts_s)]}


def start_row(starts_s: Sequence[float]) -> dict[str, Any]:
    """Seconds from the decision to the first answer, if the machine has time for the new copy."""
    return {
        "what": "t1->t2 of a warm copy under light load",
        "p50 s": median(starts_s) if starts_s else float("nan"),
        "max s": max(starts_s, default=float("nan")),
        "acts": len(starts_s),
    }


def warm_starts_s(folder: Path, model: Path) -> list[float]:
    """Raise MinCapacity by one repeatedly while short requests come. Returns t1 -> t2 of each."""
    with running_component(folder, model, cpus=1.0, copies=COPIES) as platform:
        autoscaling = platform.boto3("application-autoscaling")
        runtime = platform.boto3("sagemaker-runtime")
        for number in range(1, STARTS + 1):
            bounds = {"MinCapacity": COPIES + number - 1, "MaxCapacity": COPIES + STARTS}
            autoscaling.register_scalable_target(**DIMENSION, **bounds)
            bounds["MinCapacity"] += 1
            autoscaling.register_scalable_target(**DIMENSION, **bounds)
            until_s = monotonic_s() + START_WITHIN_S
            while len(receipts_started(platform)) < number and monotonic_s() < until_s:
                for _ in range(40):
                    ask(runtime, FEW_TOKENS)
                    time.sleep(0.03)
        return [it["start_s"] for it in receipts_started(platform)]


def receipts_started(platform: Platform) -> list[Mapping[str, Any]]:
    """Receipts of acts whose new capacity has answered."""
    return [it for it in receipts(platform) if it.get("start_s") is not None]


def small_model(folder: Path) -> Path:
    """A random Llama whose token takes some milliseconds, with a tokenizer of bytes."""
    from tests.models import tiny_llama
    from tests.unit.containers.lmi.tiny import write_tokenizer

    tiny_llama(folder, **MODEL)
    write_tokenizer(folder)
    return folder


def step_arrivals(name: str, seed: int) -> FloatArray:
    """When requests are sent: at one rate for a while, then at four times that rate."""
    before_s, after_s = SPANS_S[name]
    edges_s = np.array([0.0, before_s, before_s + after_s])
    source = np.random.default_rng(seed)
    return modulate_arrivals(source, edges_s, np.array([RATE, RATE * FACTOR]), CV)


def live_run(folder: Path, model: Path, name: str, arrivals: FloatArray) -> Lived:
    """Send the load to a new platform, scaled by the policy of that name."""
    with running_component(folder, model, cpus=1.0, copies=COPIES) as platform:
        scaled_by(platform, name)
        began_at = time.time()
        calls = send_calls(platform, arrivals)
        step_at = began_at + SPANS_S[name][0]
        return Lived(calls=calls, began_at=began_at, receipt=first_receipt(platform, step_at))


def scaled_by(platform: Platform, name: str) -> None:
    """Register the component as a scalable target, and create the policy."""
    autoscaling = platform.boto3("application-autoscaling")
    bounds = {"MinCapacity": COPIES, "MaxCapacity": MAX_COPIES}
    autoscaling.register_scalable_target(**DIMENSION, **bounds)
    if name == OURS:
        arguments = ("scaling", "responsive", ENDPOINT, "--target", f"{TARGET:g}")
        command(platform, *arguments)
        return
    autoscaling.put_scaling_policy(
        **DIMENSION,
        PolicyName="concurrency",
        PolicyType="TargetTrackingScaling",
        TargetTrackingScalingPolicyConfiguration=TRACKING,
    )


def command(platform: Platform, *arguments: str) -> str:
    """The output of a `hostelry` command for the platform's home."""
    done = subprocess.run(
        [*CLI, *arguments, "--home", str(platform.home.root)],
        env=platform.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"hostelry {' '.join(arguments)}: {done.stderr}")
    return done.stdout


def ask(runtime: Any, num_tokens: int) -> None:
    """Send one request, and read its whole answer."""
    parameters = {"max_new_tokens": num_tokens, "do_sample": False, "ignore_eos_token": True}
    answer = runtime.invoke_endpoint(
        EndpointName=ENDPOINT,
        InferenceComponentName=COMPONENT,
        ContentType="application/json",
        Body=json.dumps({"inputs": "hello", "parameters": parameters}),
    )
    answer["Body"].read()


def send_calls(platform: Platform, arrivals: FloatArray) -> list[Call]:
    """Send each request at its time, whatever the outcome of earlier ones."""
    runtime = platform.boto3("sagemaker-runtime", max_pool_connections=256)

    def call(at_s: float) -> Call:
        began_s = monotonic_s()
        try:
            ask(runtime, NEW_TOKENS)
        except Exception:  # noqa: BLE001 - whatever went wrong, the request was not answered
            return Call(sent_s=at_s, took_s=-1.0)
        return Call(sent_s=at_s, took_s=monotonic_s() - began_s)

    with senders() as pool:
        began_s = monotonic_s()
        pending = []
        for at_s in arrivals.tolist():
            time.sleep(max(0.0, began_s + at_s - monotonic_s()))
            pending.append(pool.submit(call, at_s))
        return [it.result() for it in pending]


@contextmanager
def senders() -> Iterator[ThreadPoolExecutor]:
    """A thread for every request that may be under way."""
    with ThreadPoolExecutor(256) as pool:
        yield pool


def first_receipt(platform: Platform, step_at: float) -> Mapping[str, Any] | None:
    """The receipt of the first act of scaling out after the step, or None without one."""
    found = receipts(platform)
    later = [it for it in found if instant(it["t1"]) >= step_at]
    return min(later, key=lambda it: instant(it["t1"]), default=None)


def receipts(platform: Platform) -> list[Mapping[str, Any]]:
    """The receipts of all acts of scaling out, the newest first."""
    activities = json.loads(command(platform, "scaling", "activities", "--json"))
    return [
        act["receipt"]
        for target in activities["targets"]
        for act in target["activities"]
        if act["receipt"] and act["to"] > act["from"]
    ]


def instant(at: float | str) -> float:
    """Seconds since the epoch of an instant in a receipt."""
    return float(at) if isinstance(at, float | int) else parse_instant(at)


def parse_instant(text: str) -> float:
    """Seconds since the epoch of an ISO 8601 time."""
    return datetime.fromisoformat(text).timestamp()


def live_row(name: str, lived: Lived, arrivals: FloatArray, seed: int) -> dict[str, Any]:
    """The measured values and the forecast ones."""
    receipt = lived.receipt or {}
    before_s = SPANS_S[name][0]
    step_at = lived.began_at + before_s
    decided_at, answered_at = (
        instant(receipt[name]) if receipt.get(name) is not None else None for name in ("t1", "t2")
    )
    seen_s = None if decided_at is None else decided_at - step_at
    forecast = forecast_of(name, lived, arrivals, seed)
    step_s = step_at - int(lived.began_at)
    acts = [it.decided_s for it in forecast.acts if it.is_out and it.decided_s > step_s]
    foreseen_s = acts[0] - step_s if acts else None
    known = seen_s is not None and foreseen_s is not None
    started = decided_at is not None and answered_at is not None
    return {
        "policy": name,
        "t0->t1 s": or_nan(seen_s),
        "forecast s": or_nan(foreseen_s),
        "error s": or_nan(foreseen_s - seen_s if known else None),  # type: ignore[operator]
        "t1->t2 s": or_nan(answered_at - decided_at if started else None),  # type: ignore[operator]
        "requests": len(lived.calls),
        "failed": sum(it.took_s < 0 for it in lived.calls),
        "p50 before s": typical(lived.calls, before_s),
    }


def or_nan(value: float | None) -> float:
    """The value, or NaN if it was not measured."""
    return float("nan") if value is None else value


def typical(calls: Sequence[Call], before_s: float) -> float:
    """The median time of requests sent before a moment."""
    return median([it.took_s for it in calls if 5.0 <= it.sent_s < before_s and it.took_s > 0])


def forecast_of(name: str, lived: Lived, arrivals: FloatArray, seed: int) -> ReplayOutcome:
    """Replay the load that was sent, with requests as long as they were before the step.

    The replay begins at the same wall time, so that metrics have the same periods.
    """
    before_s, after_s = SPANS_S[name]
    service_s = typical(lived.calls, before_s)
    num = len(arrivals)
    tokens = np.full(num, NEW_TOKENS, dtype=np.int64)
    second = float(int(lived.began_at))
    trace = Trace(
        name="live",
        blocks=[build_block(arrivals + (lived.began_at - second), np.zeros(num, np.int64), tokens)],
        begins_at=second,
        lasts_s=before_s + after_s + 1.0,
    )
    service = ServiceModel(
        prefill_s_per_token=0.0,
        token_s=service_s / NEW_TOKENS,
        max_concurrency=32,
        warm_start_s=1.3,
        cold_start_s=1.3,
        origin="the median of the live run before its step",
    )
    policies = build_policy_set(
        {
            "MinCapacity": COPIES,
            "MaxCapacity": MAX_COPIES,
            "PolicyName": "concurrency",
            "TargetTrackingScalingPolicyConfiguration": TRACKING,
        },
        name,
    )
    if name == OURS:
        responsive = ResponsiveOptions(target=TARGET)
        policies = replace(policies, policies=(), responsive=responsive)
    deployment = SimulatedDeployment(initial_copies=COPIES)
    return replay_trace(
        trace, ReplaySetup(policies=policies, deployment=deployment, service=service, seed=seed)
    )
