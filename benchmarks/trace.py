"""Requests with arrival times: made from a seed, run against an engine, and summarized."""

import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hostelry.engine.engine import Engine
from hostelry.engine.request import FinishReason, Request, SamplingParams
from hostelry.loadtest.tally import percentile

GOAL_S = 6.0  # the time to a first token for which a caller would still wait


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A request that comes `at_s` seconds after the start, even if the engine is busy then."""

    at_s: float
    prompt: tuple[int, ...]
    max_tokens: int
    adapter: str | None = None
    tenant: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The outcome of an arrival. Instants are as in `Arrival`, or None if they never came."""

    at_s: float
    tenant: str | None
    adapter: str | None
    num_tokens: int
    first_token_at_s: float | None
    ended_at_s: float | None
    error: str | None

    @property
    def first_token_s(self) -> float:
        """Time to the first token, or infinity without one."""
        return math.inf if self.first_token_at_s is None else self.first_token_at_s - self.at_s

    @property
    def whole_s(self) -> float:
        """Time to the last token, or infinity if the request failed or did not end."""
        if self.ended_at_s is None or self.error is not None:
            return math.inf
        return self.ended_at_s - self.at_s


class _Progress:
    """A request under way."""

    def __init__(self, arrival: Arrival) -> None:
        self.arrival = arrival
        self.num_tokens = 0
        self.first_token_at_s: float | None = None
        self.ended_at_s: float | None = None
        self.error: str | None = None

    def take(self, now_s: float) -> None:
        """Count a token."""
        self.num_tokens += 1
        if self.first_token_at_s is None:
            self.first_token_at_s = now_s

    def served(self) -> Served:
        """The outcome."""
        arrival = self.arrival
        return Served(
            at_s=arrival.at_s,
            tenant=arrival.tenant,
            adapter=arrival.adapter,
            num_tokens=self.num_tokens,
            first_token_at_s=self.first_token_at_s,
            ended_at_s=self.ended_at_s,
            error=self.error,
        )


def run_trace(
    engine: Engine, arrivals: Sequence[Arrival], give_up_after_s: float
) -> tuple[list[Served], float]:
    """The outcomes of `arrivals` (in order of time), and the seconds that the run took.

    Times count from when a request was due, not from when the loop reached it.
    """
    progress = [_Progress(arrival) for arrival in arrivals]
    due = iter(range(len(arrivals)))
    upcoming = next(due, None)
    start_s = time.perf_counter()
    now_s = 0.0
    while (upcoming is not None or engine.has_work) and now_s < give_up_after_s:
        while upcoming is not None and arrivals[upcoming].at_s <= now_s:
            _add(engine, upcoming, progress[upcoming], now_s)
            upcoming = next(due, None)
        if engine.has_work:
            _step(engine, progress, start_s)
        elif upcoming is not None:
            time.sleep(min(0.01, max(0.0, arrivals[upcoming].at_s - now_s)))
        now_s = time.perf_counter() - start_s
    return [each.served() for each in progress], now_s


def _add(engine: Engine, number: int, progress: _Progress, now_s: float) -> None:
    arrival = progress.arrival
    request = Request(
        id=str(number),
        prompt_token_ids=arrival.prompt,
        sampling=SamplingParams(max_new_tokens=arrival.max_tokens, ignore_eos=True),
        adapter=arrival.adapter,
        tenant=arrival.tenant,
    )
    try:
        engine.add(request)
    except Exception as error:  # noqa: BLE001 - a refusal (quota, full queue) is an outcome here
        progress.error = f"{type(error).__name__}: {error}"
        progress.ended_at_s = now_s


def _step(engine: Engine, progress: Sequence[_Progress], start_s: float) -> None:
    outputs = engine.step()
    now_s = time.perf_counter() - start_s
    for output in outputs:
        each = progress[int(output.request_id)]
        if output.token_id is not None:
            each.take(now_s)
        if output.finish_reason is not None:
            each.ended_at_s = now_s
            if output.finish_reason is not FinishReason.LENGTH:
                each.error = output.error or output.finish_reason.value


def gamma_arrival_times(
    source: random.Random, per_s: float, cv: float, duration_s: float
) -> Iterator[float]:
    """Instants whose gaps are gamma distributed with coefficient of variation `cv`."""
    shape = 1 / cv**2
    at_s = source.gammavariate(shape, 1 / (per_s * shape))
    while at_s < duration_s:
        yield at_s
        at_s += source.gammavariate(shape, 1 / (per_s * shape))


def random_prompt(source: random.Random, num_tokens: int, vocabulary: range) -> tuple[int, ...]:
    """Token ids that have nothing in common with another prompt's."""
    return tuple(source.choice(vocabulary) for _ in range(num_tokens))


def summary(served: Sequence[Served], took_s: float) -> dict[str, Any]:
    """Throughput and latencies. Requests that failed or did not end have infinite latencies."""
    first = sorted(each.first_token_s for each in served)
    whole = sorted(each.whole_s for each in served)
    finished = [each for each in served if each.whole_s < math.inf]
    return {
        "requests": len(served),
        "failed": len(served) - len(finished),
        "requests/s": len(finished) / took_s if took_s else 0.0,
        "tokens/s": sum(each.num_tokens for each in served) / took_s if took_s else 0.0,
        "first p50 s": percentile(first, 0.50),
        "first p99 s": percentile(first, 0.99),
        "whole p50 s": percentile(whole, 0.50),
        "whole p99 s": percentile(whole, 0.99),
        f"first within {GOAL_S:g} s": (
            sum(each <= GOAL_S for each in first) / len(first) if first else 0.0
        ),
    }
