"""Forecast against live runs: mixes of sleeping scikit-learn models on a real platform.

Each mix is deployed by the document of one option (in turn dedicated, components, multi-model,
serverless), with the advisor's own policies. The service times are measured with calls in turn.
Then the mix's traffic is sent through the gateway, and the same calls are simulated.

A model sleeps as long as its request asks, with a spread of 30 %, so that the processor of the
machine is not the limit. The platform is compared.
"""

import http.client
import json
import random
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
import numpy as np
import yaml
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as SigningCredentials
from msgspec.structs import replace

from benchmarks.aims import Finding
from benchmarks.forecast import answers as send_plan
from benchmarks.open_load import Answer, Due, Plan
from benchmarks.serverless import SKLEARN, pack_archive
from hostelry.advisor.document import build_document
from hostelry.advisor.live.forecast import RECORDED
from hostelry.advisor.options import HostingOption
from hostelry.advisor.plans import OptionPlan, Standing, get_scaling
from hostelry.advisor.policies import build_policies
from hostelry.advisor.traffic import DrawnCalls, MixTraffic
from hostelry.advisor.trials import run_period
from hostelry.advisor.values import (
    GIB,
    MIB,
    AxisAnchors,
    FitAxis,
    FitMachine,
    FitMix,
    FitModel,
    ModelTraffic,
)
from hostelry.base.runtimes import VARIABLE
from hostelry.cli.control_requests import control_answer
from hostelry.cost.usage import MB_MS_PER_GB_S
from hostelry.domain.shape import Shape
from hostelry.sim.service import ServiceModel

LASTS_S, WAIT_S = 10.0, 60.0
NUM_ALONE, NUM_WARM_UP = 25, 2
BUCKET, JSON = "advisor", "application/json"
PER_GB_S = 2e-5
SPREAD_SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0)
OPTIONS = (
    HostingOption.DEDICATED,
    HostingOption.COMPONENTS,
    HostingOption.MULTI_MODEL,
    HostingOption.SERVERLESS,
)
SMALL = FitMachine(
    type="ml.m5.large", shape=Shape(cpus=2, memory_bytes=8 * GIB), price_per_hour=0.115
)
LARGE = FitMachine(
    type="ml.m5.xlarge", shape=Shape(cpus=4, memory_bytes=16 * GIB), price_per_hour=0.23
)
FIELDS = {"calls_per_s": "throughput", "cost": "cost", "p50_s": "p50", "p99_s": "p99"}
FAILURES = (RuntimeError, AssertionError, OSError, msgspec.DecodeError)
AIMS = {"throughput": 0.05, "cost": 0.10, "p50": 0.15, "p99": 0.25}
ANCHORS = AxisAnchors(unacceptable=0.0, target=1.0)  # nothing is ranked here
CODE = b"""
import time
def model_fn(folder):
    return "ready"
def predict_fn(data, model):
    time.sleep(float(data[0][0]))
    return [1.0]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFigures:
    """Figures of one run, forecast or measured. Times are in seconds."""

    calls_per_s: float
    cost: float
    p50_s: float
    p99_s: float
    failed: float = 0.0


def draw_live_mix(source: random.Random, number: int) -> FitMix:
    """Two to four models that use a tenth to a half of a process each."""
    models = []
    for place in range(source.randint(2, 4)):
        seconds, used = source.uniform(0.03, 0.12), source.uniform(0.1, 0.5)
        name = f"x{number}-{place}"
        models.append(
            FitModel(
                name=name,
                framework="sklearn",
                memory_bytes=256 * MIB,
                service=_build_service([seconds]),
                traffic=ModelTraffic(per_hour=3600 * used / seconds),
                image=SKLEARN,
                artifact=f"s3://{BUCKET}/x{number}/{name}.tar.gz",
            )
        )
    return FitMix(
        name=f"x{number}",
        models=tuple(models),
        machines=(SMALL, LARGE),
        axes=dict.fromkeys(FitAxis, ANCHORS),
        hours=LASTS_S / 3600,
        serverless_price=PER_GB_S,
    )


def build_live_plan(option: HostingOption, mix: FitMix) -> OptionPlan:
    """The plan of an option, which begins warm. Options that share have the larger machine."""
    alone = option in (HostingOption.DEDICATED, HostingOption.SERVERLESS)
    machines = (SMALL if alone else LARGE,) * len(mix.models)
    plan = OptionPlan(option=option, models=mix.models, machines=machines)
    policies = tuple(
        build_policies(get_scaling(option, plan, place)) for place in range(len(mix.models))
    )
    loaded = tuple(range(len(mix.models)))
    return replace(plan, standing=Standing(policies=policies, loaded=loaded))


def forecast(plan: OptionPlan, mix: FitMix, calls: Mapping[str, DrawnCalls]) -> LiveFigures:
    """The simulation of these calls, the mean over the seeds."""
    models = tuple(
        replace(model, traffic=ModelTraffic(trace=RECORDED, trace_model=model.name))
        for model in plan.models
    )
    traffic = MixTraffic(mix, {RECORDED: calls})
    plan = replace(plan, models=models)
    trials = [run_period(plan, mix, traffic, seed) for seed in mix.seeds]
    return LiveFigures(
        calls_per_s=fmean(it.num_answered / max(LASTS_S, it.ended_s) for it in trials),
        cost=mean_known([it.cost for it in trials]),
        p50_s=mean_known([it.p50_s for it in trials]),
        p99_s=mean_known([it.p99_s for it in trials]),
        failed=fmean(1 - it.num_answered / it.num_calls for it in trials),
    )


def mean_known(values: Sequence[float | None]) -> float:
    """The mean of the known values, 0 without any."""
    known = [it for it in values if it is not None]
    return fmean(known) if known else 0.0


class LiveMix:
    """A deployed mix.

    Args:
        platform: a `Platform` of the integration tests.
        plan: its option.
        mix: its models.
    """

    def __init__(self, platform: Any, plan: OptionPlan, mix: FitMix) -> None:
        self._platform = platform
        self._plan = plan
        self._mix = mix
        keys = platform.credentials
        signing = SigningCredentials(keys.access_key_id, keys.secret_access_key)
        self._signer = SigV4Auth(signing, "sagemaker", keys.region)

    def deploy(self, folder: Path) -> None:
        """Apply the option's document, and wait until everything is in service."""
        s3 = self._platform.boto3("s3", s3={"addressing_style": "path"})
        archive = pack_archive({"code/inference.py": CODE})
        for model in self._mix.models:
            key = model.artifact.removeprefix(f"s3://{BUCKET}/")
            s3.put_object(Bucket=BUCKET, Key=key, Body=archive)
        path = folder / f"{self._mix.name}.yaml"
        path.write_text(yaml.safe_dump(build_document(self._plan, self._mix, self._mix.name)))
        self._platform.cli("apply", "--file", str(path))

    def remove(self) -> None:
        """Delete the endpoints, and wait until their copies are gone."""
        client = self._platform.boto3("sagemaker")
        if self._plan.option is HostingOption.COMPONENTS:
            for model in self._mix.models:
                client.delete_inference_component(InferenceComponentName=model.name)
            self._wait(lambda: not client.list_inference_components()["InferenceComponents"])
        for name in self._endpoints:
            client.delete_endpoint(EndpointName=name)
        self._wait(lambda: not client.list_endpoints()["Endpoints"])

    def _wait(self, check: Any) -> None:
        give_up_at_s = time.monotonic() + WAIT_S
        while not check():
            if time.monotonic() > give_up_at_s:
                raise RuntimeError(f"{self._mix.name} was not deleted within {WAIT_S:g} s")
            time.sleep(0.2)

    @property
    def _endpoints(self) -> list[str]:
        alone = self._plan.option in (HostingOption.DEDICATED, HostingOption.SERVERLESS)
        return [it.name for it in self._mix.models] if alone else [self._mix.name]

    def measure_alone(self, source: random.Random) -> tuple[FitModel, ...]:
        """The models with their measured times: calls of each in turn."""
        seeds = [source.random() for _ in self._mix.models]
        with ThreadPoolExecutor(len(seeds)) as pool:
            times = list(pool.map(self._time_alone, self._mix.models, seeds))
        start_s = self._find_start_s()
        return tuple(
            replace(
                model,
                service=replace(_build_service(taken), cold_start_s=start_s, warm_start_s=start_s),
            )
            for model, taken in zip(self._mix.models, times, strict=True)
        )

    def _time_alone(self, model: FitModel, seed: float) -> list[float]:
        source = random.Random(seed)
        line = http.client.HTTPConnection("127.0.0.1", self._platform.port, timeout=60)
        taken = []
        for _ in range(NUM_ALONE + NUM_WARM_UP):
            path, headers, body = self._build_request(model, source)
            began_s = time.perf_counter()
            line.request("POST", path, body, headers)
            answer = line.getresponse()
            content = answer.read()
            taken.append(time.perf_counter() - began_s)
            if answer.status != 200:
                raise RuntimeError(f"{model.name} answered {answer.status}: {content[:200]!r}")
        line.close()
        return taken[NUM_WARM_UP:]

    def _build_request(
        self, model: FitModel, source: random.Random
    ) -> tuple[str, dict[str, str], bytes]:
        sleeps_s = model.service.prefill_s * source.uniform(0.7, 1.3)
        headers = {"Content-Type": JSON}
        endpoint = self._mix.name if len(self._endpoints) == 1 else model.name
        if self._plan.option is HostingOption.COMPONENTS:
            headers["X-Amzn-SageMaker-Inference-Component"] = model.name
        if self._plan.option is HostingOption.MULTI_MODEL:
            headers["X-Amzn-SageMaker-Target-Model"] = f"{model.name}.tar.gz"
        path = f"/endpoints/{endpoint}/invocations"
        body = json.dumps([[sleeps_s]]).encode()
        url = f"http://127.0.0.1:{self._platform.port}{path}"
        request = AWSRequest("POST", url, headers, body)
        self._signer.add_auth(request)
        return path, {name: str(it) for name, it in request.headers.items()}, body

    def send(self, calls: Mapping[str, DrawnCalls], source: random.Random) -> list[Answer]:
        """Send the calls at their times through the gateway."""
        by_name = {it.name: it for it in self._mix.models}
        due = []
        for name, drawn in calls.items():
            for at_s in drawn.at_s.tolist():
                path, headers, body = self._build_request(by_name[name], source)
                given = {"Host": f"127.0.0.1:{self._platform.port}", **headers}
                lines = "".join(f"{key}: {value}\r\n" for key, value in given.items())
                head = f"POST {path} HTTP/1.1\r\n{lines}Content-Length: {len(body)}\r\n\r\n"
                due.append(Due(at_s=at_s, message=head.encode() + body))
        ordered = sorted(due, key=lambda it: it.at_s)
        return send_plan(Plan(port=self._platform.port, requests=ordered))

    def measure(self, answers: Sequence[Answer], used_gb_s: float) -> LiveFigures:
        """The figures of a run."""
        good = [it for it in answers if it.status == 200]
        ends_s = max((it.ended_s for it in good), default=0.0)
        took = np.array([it.ended_s - it.began_s for it in good] or [0.0])
        if self._plan.option is HostingOption.SERVERLESS:
            amount = used_gb_s * PER_GB_S
        else:
            price = self._plan.machine.price_per_hour or 0.0
            amount = self._count_instances() * price * LASTS_S / 3600
        return LiveFigures(
            calls_per_s=len(good) / max(LASTS_S, ends_s),
            cost=amount / max(1, len(good)) * 1000,
            p50_s=float(np.quantile(took, 0.5)),
            p99_s=float(np.quantile(took, 0.99)),
            failed=1 - len(good) / max(1, len(answers)),
        )

    def read_gb_s(self, num_calls: int = 0) -> tuple[float, int]:
        """The GB-seconds and requests of the serverless endpoints, once `num_calls` are counted."""
        if self._plan.option is not HostingOption.SERVERLESS:
            return 0.0, 0
        give_up_at_s = time.monotonic() + WAIT_S
        while True:
            totals = [it["total"] for it in self._ask("/internal/usage")["endpoints"]]
            requests = sum(it["requests"] for it in totals)
            if requests >= num_calls or time.monotonic() > give_up_at_s:
                return sum(it["memory_mb_ms"] for it in totals) / MB_MS_PER_GB_S, requests
            time.sleep(0.3)

    def _state(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._ask("/internal/state")["endpoints"]
        return [it for it in found if it["name"] in self._endpoints]

    def _ask(self, path: str) -> dict[str, Any]:
        return control_answer(self._platform.config, self._platform.credentials, path)

    def _count_instances(self) -> int:
        return sum(len(it["instances"]) for it in self._state())

    def _find_start_s(self) -> float:
        starts = [copy["start_s"] for one in self._state() for copy in one["copies"]]
        return max((it for it in starts if it is not None), default=1.0)


def _build_service(taken: Sequence[float]) -> ServiceModel:
    """The service time of calls that took so long alone."""
    seconds = float(np.median(taken))
    factors = np.quantile(taken, SPREAD_SHARES) / seconds
    return ServiceModel(
        prefill_s=seconds,
        prefill_s_per_token=0.0,
        token_s=0.0,
        max_concurrency=1,
        spread=tuple(zip(SPREAD_SHARES, factors.tolist(), strict=True)),
        origin="measured alone",
    )


def run_live_mix(platform: Any, number: int, source: random.Random, folder: Path) -> dict[str, Any]:
    """Deploy a mix, send its calls, and compare. The row of the result."""
    began_s = time.monotonic()
    mix, option = draw_live_mix(source, number), OPTIONS[number % len(OPTIONS)]
    live = LiveMix(platform, build_live_plan(option, mix), mix)
    live.deploy(folder)
    try:
        measured = replace(mix, models=live.measure_alone(source))
        calls = draw_calls(mix)
        alone = len(mix.models) * (NUM_ALONE + NUM_WARM_UP)
        before, requests = live.read_gb_s(alone)
        answers = live.send(calls, source)
        after, _ = live.read_gb_s(requests + len(answers))
        found = live.measure(answers, after - before)
        foreseen = forecast(build_live_plan(option, measured), measured, calls)
    finally:
        live.remove()
    took_s = time.monotonic() - began_s
    return build_row(mix.name, option.value, len(mix.models), len(answers), foreseen, found) | {
        "took s": round(took_s, 1)
    }


def draw_calls(mix: FitMix) -> dict[str, DrawnCalls]:
    """The calls of the mix's traffic, by model."""
    names = [it.name for it in mix.models]
    (block,) = MixTraffic(mix, {}).day(mix.models, names, mix.seeds[0]).blocks
    return {
        name: DrawnCalls(
            block.at_s[block.model == place],
            block.input_tokens[block.model == place],
            block.output_tokens[block.model == place],
        )
        for place, name in enumerate(names)
    }


def build_row(
    name: str, option: str, models: int, calls: int, foreseen: LiveFigures, found: LiveFigures
) -> dict[str, Any]:
    """The figures of a mix, with the ratio of forecast and measured."""
    row: dict[str, Any] = {"mix": name, "option": option, "models": models, "calls": calls}
    for field, title in FIELDS.items():
        one, other = getattr(foreseen, field), getattr(found, field)
        row[title] = round(one / other, 3) if other else None
        row[f"{title}: forecast"], row[f"{title}: measured"] = one, other
    row["failed: forecast"], row["failed: measured"] = foreseen.failed, found.failed
    return row


def run_live(num: int, total: int, seed: int) -> list[dict[str, Any]]:
    """The rows of the first `num` of `total` mixes on one platform, with progress lines.

    A mix that fails is a row without figures.
    """
    from tests.integration.platform import Platform  # not installed with the package alone
    from tests.integration.served_models import sklearn_runtimes

    environment = {VARIABLE: str(sklearn_runtimes()), "HOSTELRY_CUSTOM_CODE": "trusted"}
    rows = []
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        folder = Path(scratch)
        platform = stack.enter_context(Platform(folder / "home", environment=environment))
        platform.boto3("s3", s3={"addressing_style": "path"}).create_bucket(Bucket=BUCKET)
        for number in range(num):
            source = random.Random(f"{seed} live {number}")
            try:
                row = run_live_mix(platform, number, source, folder)
            except FAILURES as error:
                row = build_failed_row(f"x{number}", OPTIONS[number % len(OPTIONS)].value, error)
            print(describe_row(row, number, total), flush=True)
            rows.append(row)
    return rows


def build_failed_row(name: str, option: str, error: Exception) -> dict[str, Any]:
    """The row of a mix that could not be measured. It is within no aim."""
    row: dict[str, Any] = {"mix": name, "option": option, "models": None, "calls": None}
    return row | dict.fromkeys(FIELDS.values()) | {"took s": None, "problem": str(error)[:500]}


def describe_row(row: Mapping[str, Any], number: int, num: int) -> str:
    """A progress line."""
    if "problem" in row:
        return f"mix {number + 1} of {num}, {row['option']}, failed: {row['problem']}"
    ratios = ", ".join(f"{it} {row[it]}" for it in FIELDS.values())
    return f"mix {number + 1} of {num}, {row['option']}, {row['took s']} s: {ratios}"


def list_live_findings(rows: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """The share of mixes whose forecast is within each aim, and the worst ratio."""
    found = []
    for title, within in AIMS.items():
        known = [it[title] for it in rows if it[title] is not None]
        if not known:
            found.append(Finding(what=f"{title}: within {within:.0%}", value=None, why="no value"))
            continue
        share = sum(abs(it - 1) <= within for it in known) / len(rows)
        worst = max(known, key=lambda it: abs(it - 1))
        what = f"{title}: share of mixes within {within:.0%} of the measured"
        found.append(Finding(what=what, value=share, at_least=1.0))
        found.append(Finding(what=f"{title}: worst forecast / measured", value=worst))
    return found
