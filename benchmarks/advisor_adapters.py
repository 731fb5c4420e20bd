"""Forecast against a live run: 1,000 adapters of one tiny base, asked for by Zipf's law.

The base's copy is measured with adapters: requests of two lengths alone, and several at a
time. Then requests arrive at random at a quarter of its throughput, 20 a second at most: the base
is so small that the load generator takes as much time. The same requests are simulated. Times are
until the first token.
"""

import json
import random
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as SigningCredentials
from msgspec.structs import replace

from benchmarks.adapter_shelf import Popularity, Shelf, make_shelf
from benchmarks.advisor_live import ANCHORS, LASTS_S, LiveFigures, build_row, mean_known
from benchmarks.forecast import answers as send_plan
from benchmarks.live_component import COMPONENT, ENDPOINT, running_component
from benchmarks.models import tiny_model
from benchmarks.open_load import Answer, Due, Plan
from hostelry.advisor.live.forecast import RECORDED
from hostelry.advisor.options import HostingOption
from hostelry.advisor.plans import OptionPlan, Standing
from hostelry.advisor.traffic import DrawnCalls, MixTraffic
from hostelry.advisor.trials import run_period
from hostelry.advisor.values import MIB, FitAxis, FitMachine, FitMix, FitModel, ModelTraffic
from hostelry.fleet.shapes import get_shape
from hostelry.sim.policy_requests import PolicySet
from hostelry.sim.service import Measured, ServiceModel, fit_service

NUM_ADAPTERS, RANKS, EXPONENT = 1000, (4, 8), 1.0
BESIDE, NUM_ALONE, NUM_EACH = (1, 2, 4, 8), 80, 32
APART_S = 0.05
LENGTHS, TOKENS = (8, 48), (4, 24)  # words of prompts, tokens of answers
USED, MOST_PER_S = 0.25, 20.0  # of the throughput. More would measure the load generator
SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 1.0)
PRICE, TYPE = 4.6, "ml.m5.24xlarge"  # the type of `running_component`
PROMPT_TOKENS = re.compile(rb'"prompt_tokens": ?([0-9]{1,9})')


@dataclass(frozen=True, slots=True)
class AdapterRequest:
    """A chat for an adapter, and when it is sent."""

    at_s: float
    adapter: str
    words: int
    tokens: int


class AdapterLoad:
    """Sends chats to the component.

    Args:
        platform: the platform of the component.
        source: of the prompts' words.
    """

    def __init__(self, platform: Any, source: random.Random) -> None:
        self._platform = platform
        self._source = source
        keys = platform.credentials
        signing = SigningCredentials(keys.access_key_id, keys.secret_access_key)
        self._signer = SigV4Auth(signing, "sagemaker", keys.region)

    def send(self, requests: Sequence[AdapterRequest], clients: int = 0) -> list[Answer]:
        """The answers, in the order in which they ended. Raises RuntimeError for a failure."""
        due = [Due(it.at_s, self._message(it)) for it in requests]
        found = send_plan(Plan(port=self._platform.port, requests=due, num_clients=clients))
        failed = [it for it in found if it.status != 200]
        if failed:
            raise RuntimeError(f"an adapter answered {failed[0].status}: {failed[0].body[:300]!r}")
        return found

    def _message(self, request: AdapterRequest) -> bytes:
        words = " ".join(str(self._source.randrange(10, 100)) for _ in range(request.words))
        body = json.dumps(
            {
                "model": request.adapter,
                "messages": [{"role": "user", "content": words}],
                "max_tokens": request.tokens,
                "temperature": 0,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        ).encode()
        path = f"/endpoints/{ENDPOINT}/invocations-response-stream"
        headers = {
            "Content-Type": "application/json",
            "X-Amzn-SageMaker-Inference-Component": COMPONENT,
        }
        url = f"http://127.0.0.1:{self._platform.port}{path}"
        signed = AWSRequest("POST", url, headers, body)
        self._signer.add_auth(signed)
        given = {"Host": f"127.0.0.1:{self._platform.port}", **dict(signed.headers.items())}
        lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        return f"POST {path} HTTP/1.1\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body


class AdapterChoice:
    """Draws adapters, each rank by Zipf's law."""

    def __init__(self, shelf: Shelf, seed: str) -> None:
        self._popularity = Popularity(shelf, EXPONENT)
        self._ranks, self._names = random.Random(f"{seed} r"), random.Random(f"{seed} n")

    def draw(self) -> str:
        """One adapter."""
        return self._popularity.draw(self._ranks, self._names)


def run_adapter_mix(seed: int, scratch: Path) -> dict[str, Any]:
    """Deploy, measure, send and compare. The row of the result."""
    began_s = time.monotonic()
    source = random.Random(f"{seed} adapters")
    model = tiny_model(scratch / "tiny")
    shelf = make_shelf(scratch / "shelf", model, RANKS, NUM_ADAPTERS, seed, files_per_rank=1)
    with running_component(scratch, model, adapters=shelf.folders) as platform:
        load, choice = AdapterLoad(platform, source), AdapterChoice(shelf, str(seed))
        service, most_per_s = measure_service(load, choice)
        requests = draw_requests(source, choice, min(MOST_PER_S, USED * most_per_s))
        answers = load.send(requests)
    found = measure(answers)
    foreseen = forecast(service, requests, find_tokens(answers))
    row = build_row("adapters", "adapters", NUM_ADAPTERS, len(answers), foreseen, found)
    return row | {"took s": round(time.monotonic() - began_s, 1), "capacity/s": most_per_s}


def measure_service(load: AdapterLoad, choice: AdapterChoice) -> tuple[ServiceModel, float]:
    """The measured service with adapters, and the requests a second with most at a time."""
    measured: list[Measured] = []
    most_per_s = 0.0
    for beside in (1, *BESIDE):  # the first time is a warm-up
        lengths = LENGTHS if beside == 1 else (sum(LENGTHS) // 2,)
        # Alone means at intervals: a client's next request would find a process that is awake.
        apart_s = APART_S if beside == 1 else 0.0
        requests = [
            AdapterRequest(
                apart_s * number, choice.draw(), lengths[number % len(lengths)], sum(TOKENS) // 2
            )
            for number in range(NUM_ALONE if beside == 1 else NUM_EACH)
        ]
        answers = load.send(requests, clients=0 if beside == 1 else beside)
        most_per_s = len(answers) / max(it.ended_s for it in answers)
        measured += [
            Measured(
                input_tokens=find_tokens([answer]),
                output_tokens=sum(TOKENS) // 2,
                first_s=answer.first_s - answer.began_s,
                last_s=answer.ended_s - answer.began_s,
                beside=beside,
            )
            for answer in answers
        ]
    known = measured[NUM_ALONE:]
    return add_spread(fit_service(known, "measured"), known), most_per_s


def add_spread(service: ServiceModel, measured: Sequence[Measured]) -> ServiceModel:
    """The service with the spread of first tokens, which are compared, of requests alone."""
    alone = [it for it in measured if it.beside == 1]
    factors = [it.first_s / service.first_work_s(it.input_tokens) for it in alone]
    points = np.maximum.accumulate(np.quantile(factors, SHARES)).tolist()
    return replace(service, spread=tuple(zip(SHARES, points, strict=True)))


def find_tokens(answers: Sequence[Answer]) -> int:
    """The mean prompt tokens that answers report."""
    found = [int(it[1]) for one in answers if (it := PROMPT_TOKENS.search(one.body))]
    if not found:
        raise RuntimeError(f"an answer reports no tokens: {answers[0].body[-300:]!r}")
    return round(sum(found) / len(found))


def draw_requests(
    source: random.Random, choice: AdapterChoice, per_s: float
) -> list[AdapterRequest]:
    """Requests at random instants."""
    found = []
    at_s = source.expovariate(per_s)
    while at_s < LASTS_S:
        words, tokens = source.randint(*LENGTHS), source.randint(*TOKENS)
        found.append(AdapterRequest(at_s, choice.draw(), words, tokens))
        at_s += source.expovariate(per_s)
    return found


def measure(answers: Sequence[Answer]) -> LiveFigures:
    """The figures of the run. Its instance was there for the whole time."""
    first_s = np.array([it.first_s - it.began_s for it in answers])
    return LiveFigures(
        calls_per_s=len(answers) / max(LASTS_S, *(it.ended_s for it in answers)),
        cost=PRICE * LASTS_S / 3600 / len(answers) * 1000,
        p50_s=float(np.quantile(first_s, 0.5)),
        p99_s=float(np.quantile(first_s, 0.99)),
    )


def forecast(
    service: ServiceModel, requests: Sequence[AdapterRequest], mean_tokens: int
) -> LiveFigures:
    """The simulation of these requests on one copy."""
    mean_words = sum(it.words for it in requests) / len(requests)
    mix = build_mix(service, sorted({it.adapter for it in requests}))
    calls = {
        model.name: _draw(
            [it for it in requests if it.adapter == model.name], mean_tokens / mean_words
        )
        for model in mix.models
    }
    machine = mix.machines[0]
    fixed = PolicySet(name="fixed", minimum=1, maximum=1)
    policies = (fixed, *(None for _ in mix.models[1:]))
    plan = OptionPlan(
        option=HostingOption.ADAPTERS,
        models=mix.models,
        machines=(machine,) * len(mix.models),
        standing=Standing(policies=policies),
    )
    traffic = MixTraffic(mix, {RECORDED: calls})
    trials = [run_period(plan, mix, traffic, seed) for seed in mix.seeds]
    return LiveFigures(
        calls_per_s=mean_known([it.num_answered / max(LASTS_S, it.ended_s) for it in trials]),
        cost=mean_known([it.cost for it in trials]),
        p50_s=mean_known([it.first_p50_s for it in trials]),
        p99_s=mean_known([it.first_p99_s for it in trials]),
    )


def _draw(requests: Sequence[AdapterRequest], tokens_per_word: float) -> DrawnCalls:
    return DrawnCalls(
        np.array([it.at_s for it in requests]),
        np.array([round(it.words * tokens_per_word) for it in requests], dtype=np.int64),
        np.array([it.tokens for it in requests], dtype=np.int64),
    )


def build_mix(service: ServiceModel, adapters: Sequence[str]) -> FitMix:
    """The base with its adapters."""
    base = FitModel(name="base", framework="lmi", memory_bytes=512 * MIB, service=service)
    models = [
        replace(
            base,
            name=name,
            memory_bytes=MIB,
            adapter_of="base",
            traffic=ModelTraffic(trace=RECORDED, trace_model=name),
        )
        for name in adapters
    ]
    idle = ModelTraffic(trace=RECORDED, trace_model="base")
    machine = FitMachine(type=TYPE, shape=get_shape(TYPE), price_per_hour=PRICE, most=1)
    return FitMix(
        name="adapters",
        models=(replace(base, traffic=idle), *models),
        machines=(machine,),
        axes=dict.fromkeys(FitAxis, ANCHORS),
        hours=LASTS_S / 3600,
    )
