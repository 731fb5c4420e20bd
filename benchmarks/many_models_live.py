"""Requests of a trace, sent by several callers, and the hits that policies have on them."""

import http.client
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.many_models_bench import Bench, Row, Setting
from benchmarks.many_models_platform import Endpoint, target_of
from benchmarks.model_policies import NAMES, OURS
from benchmarks.model_trace import ModelKind, ModelTrace, drift, zipf
from benchmarks.multi_model_trace import BOUND, WARM_UP, replay, upper_bound
from benchmarks.peers.model_shelf import ModelShelf
from hostelry.loadtest.tally import percentile

DRIFT_EVERY = 250  # requests, after which a twentieth of the models trade places
NEVER_ASKED_FOR = ModelKind(memory_bytes=1, disk_bytes=1, load_s=0.1, download_s=0.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A request of a trace, in seconds of one clock. `hit` None: the answer does not say it."""

    model: int
    began_s: float
    ended_s: float
    hit: bool | None


def requests_of(setting: Setting, seed: int) -> dict[str, list[int]]:
    """The models of the requests, in order, by the name of the trace."""
    kinds: dict[str, Callable[..., Any]] = {
        "Zipf 0.9": partial(zipf, 0.9),
        "Zipf 0.9, drift": partial(drift, every=DRIFT_EVERY),
    }
    return {
        name: [
            model
            for _, model in make(
                random.Random(f"{seed} {name}"), setting.num_models, setting.num_requests
            )
        ]
        for name, make in kinds.items()
    }


def run_trace(
    bench: Bench, shelf: ModelShelf, numbers: Sequence[int], limit_s: float
) -> tuple[list[Called], BaseException | None]:
    """Send requests in their order, by several callers at once, for at most `limit_s`.

    A failure ends the run, and is returned with the calls that were answered before.
    """
    found: list[Called | None] = [None] * len(numbers)
    positions = iter(range(len(numbers)))
    lock, ends_at_s = threading.Lock(), time.perf_counter() + limit_s
    failures: list[BaseException] = []

    def caller() -> None:
        while not failures and time.perf_counter() < ends_at_s:
            with lock:
                position = next(positions, None)
            if position is None:
                return
            model, began_s = numbers[position], time.perf_counter()
            try:
                _, hit = bench.checked(shelf, target_of(model))
            except (RuntimeError, OSError, http.client.HTTPException) as error:
                failures.append(error)
                return
            found[position] = Called(
                model=model, began_s=began_s, ended_s=time.perf_counter(), hit=hit
            )

    threads = [threading.Thread(target=caller) for _ in range(bench.setting.callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [it for it in found if it is not None], next(iter(failures), None)


def live_calls(
    bench: Bench, endpoint: Endpoint, numbers: Sequence[int]
) -> tuple[list[Called], int]:
    """Send the requests to the endpoint. Returns the calls, and its hits after the warm-up."""
    first = int(WARM_UP * len(numbers))
    called: list[Called] = []
    hits = 0
    for part in (numbers[:first], numbers[first:]):
        answered, failure = run_trace(bench, endpoint, part, float("inf"))
        if failure is not None:
            raise failure
        called += answered
        before, hits = hits, sum(it["hits"] for it in endpoint.account()["models"])
    return called, hits - before


def hit_row(name: str, called: Sequence[Called], hits: int, account: Row) -> Row:
    """The endpoint's `hits`, and every policy's on these requests with the measured models. Pure.

    Requests that wait for a load which another one began are hits of a policy: nothing is loaded
    for them. AWS's metric does not count them.
    """
    trace, capacity = trace_of(name, called, account["models"]), account["memory_bytes"]
    counted = called[int(WARM_UP * len(called)) :]
    load_s = {number: kind.load_s for number, kind in enumerate(trace.kinds)}
    live = hits + num_joined(counted, load_s)
    row: Row = {
        "trace": name,
        "AWS's metric": 100 * hits / len(counted),
        "live": 100 * live / len(counted),
    }
    for policy in NAMES:
        replayed = "ours, replayed" if policy == OURS else policy
        row[replayed] = replay(trace, policy, capacity, None).row()["hit %"]
    row[BOUND] = upper_bound(trace, capacity)["hit %"]
    return row


def num_joined(called: Sequence[Called], load_s: Mapping[int, float]) -> int:
    """Requests that began while an earlier one waited for the load of the same model. Pure."""
    first: dict[int, Called] = {}
    joined = 0
    for request in sorted(called, key=lambda it: it.began_s):
        before = first.get(request.model)
        if before is None or before.ended_s <= request.began_s:
            first[request.model] = request
        elif before.ended_s - before.began_s > load_s[request.model]:
            joined += 1
    return joined


def trace_of(name: str, called: Sequence[Called], models: Sequence[Row]) -> ModelTrace:
    """The requests as they were made, with the instance's measurements of the models. Pure."""
    by_target = {it["target"]: kind_of(it) for it in models}
    num_models = max(it.model for it in called) + 1
    kinds = [by_target.get(target_of(it), NEVER_ASKED_FOR) for it in range(num_models)]
    return ModelTrace(
        name=name,
        kinds=kinds,
        num_regular=num_models,
        at_s=[it.began_s for it in called],
        models=[it.model for it in called],
    )


def kind_of(facts: Row) -> ModelKind:
    """A model as the instance's account describes it."""
    return ModelKind(
        memory_bytes=facts["memory_bytes"],
        disk_bytes=facts["disk_bytes"],
        load_s=facts["load_s"],
        download_s=facts["download_s"],
    )


def first_seconds(called: Sequence[Called]) -> float:
    """The seconds until the last of these requests was answered."""
    return max(it.ended_s for it in called) - called[0].began_s


def speed_row(name: str, most: int, called: Sequence[Called], found: float | None = None) -> Row:
    """A trace's speed as its callers saw it. `found`: hit rate, if the answers do not say it."""
    ordered = sorted(1000 * (it.ended_s - it.began_s) for it in called)
    if found is None:
        found = sum(it.hit is True for it in called) / len(called)
    return {
        "server": name,
        "models, at most": most,
        "requests": len(called),
        "found in memory, %": 100 * found,
        "requests/s": len(called) / first_seconds(called),
        "p50 ms": percentile(ordered, 0.5),
        "p95 ms": percentile(ordered, 0.95),
    }
