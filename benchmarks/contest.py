"""Engines under the same load in turns: one computes, the others are paused, rounds alternate."""

import random
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.load import percentile
from benchmarks.peers.contestant import Ask, Contestant, Outcome

FIRST_TOKEN, LAST_TOKEN = 1000, 40000  # of random prompts: plain words
WAKE_TOKENS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One shape of load; `adapters` are those of its requests, taken in turn."""

    name: str
    adapters: tuple[str | None, ...]
    prompt_tokens: int
    new_tokens: int

    @property
    def is_prefill(self) -> bool:
        """Whether reading the prompts, not writing, is what is measured."""
        return self.new_tokens == 1


@dataclass(slots=True)
class Samples:
    """What one contestant did in one case."""

    per_s: list[float] = field(default_factory=list)  # a batch each
    streamed_per_s: list[float] = field(default_factory=list)
    first_token_s: list[float] = field(default_factory=list)  # a request each
    between_s: list[float] = field(default_factory=list)  # a pair of parts each

    def take_times(self, outcome: Outcome) -> None:
        """Add the latencies of a batch whose parts were timed."""
        for answer in outcome.answers:
            if answer.arrivals_s:
                self.first_token_s.append(answer.arrivals_s[0])
            self.between_s += [
                after - before
                for before, after in zip(answer.arrivals_s, answer.arrivals_s[1:], strict=False)
            ]


Results = dict[tuple[str, str], Samples]  # (case, contestant)


class Contest:
    """Rounds over all cases and contestants; prompts differ between rounds, not contestants."""

    def __init__(self, cases: Sequence[Case], seed: int, vocabulary: range | None = None) -> None:
        self.results: Results = defaultdict(Samples)
        self.texts: dict[tuple[str, str], list[str]] = {}  # of the first round
        self._cases = cases
        self._seed = seed
        self._vocabulary = vocabulary or range(FIRST_TOKEN, LAST_TOKEN)

    def warm_up(self, contestant: Contestant, *, base_only: bool = False) -> None:
        """Each case once, cut short and uncounted; `base_only` for one that has no adapters."""
        for case in self._cases:
            if base_only and any(case.adapters):
                continue
            asks = self._asks(case, "warm-up")
            contestant.run([replace(ask, max_tokens=min(ask.max_tokens, 8)) for ask in asks])
        contestant.pause()

    def run_round(self, number: int, contestants: Sequence[Contestant]) -> None:
        """Every contestant in turn, the order turned around every other round."""
        for contestant in contestants if number % 2 == 0 else reversed(contestants):
            self._wake(contestant)
            for case in self._cases:
                self._measure(number, case, contestant)
                contestant.measure_memory()
            contestant.pause()

    def _measure(self, number: int, case: Case, contestant: Contestant) -> None:
        samples = self.results[case.name, contestant.name]
        asks = self._asks(case, f"round {number}")
        outcome = contestant.run(asks)
        num_read = sum(len(ask.prompt) for ask in asks)
        samples.per_s.append(num_read / outcome.wall_s if case.is_prefill else outcome.tokens_per_s)
        if number == 0:
            texts = [answer.text for answer in outcome.answers]
            self.texts[case.name, contestant.name] = texts
        if outcome.answers[0].arrivals_s:
            samples.take_times(outcome)
        elif not case.is_prefill:
            streamed = contestant.run(self._asks(case, f"round {number} streamed"), streamed=True)
            samples.streamed_per_s.append(streamed.tokens_per_s)
            samples.take_times(streamed)

    def _wake(self, contestant: Contestant) -> None:
        """Bring a paused contestant's weights back into the caches, uncounted."""
        source = random.Random(self._seed)
        prompt = tuple(source.choice(self._vocabulary) for _ in range(WAKE_TOKENS))
        contestant.run([Ask(prompt=prompt, adapter=None, max_tokens=WAKE_TOKENS)] * 2)

    def _asks(self, case: Case, occasion: str) -> list[Ask]:
        source = random.Random(f"{self._seed} {case.name} {occasion}")
        return [
            Ask(
                prompt=tuple(source.choice(self._vocabulary) for _ in range(case.prompt_tokens)),
                adapter=adapter,
                max_tokens=case.new_tokens,
            )
            for adapter in case.adapters
        ]


def speed_rows(results: Results) -> Iterator[dict[str, Any]]:
    """Speeds: of new tokens, or of prompt tokens where the case reads prompts."""
    for (case, contestant), samples in results.items():
        yield {
            "case": case,
            "engine": contestant,
            "tokens/s": statistics.median(samples.per_s),
            "lowest": min(samples.per_s),
            "highest": max(samples.per_s),
            "rounds": len(samples.per_s),
        }


def latency_rows(results: Results) -> Iterator[dict[str, Any]]:
    """Times to a request's first token and between tokens, of all rounds together."""
    for (case, contestant), samples in results.items():
        if not samples.between_s:
            continue
        first, between = sorted(samples.first_token_s), sorted(samples.between_s)
        yield {
            "case": case,
            "engine": contestant,
            "first p50 ms": percentile(first, 0.50) * 1000,
            "first p99 ms": percentile(first, 0.99) * 1000,
            "between p50 ms": percentile(between, 0.50) * 1000,
            "between p99 ms": percentile(between, 0.99) * 1000,
            "streamed tokens/s": (
                statistics.median(samples.streamed_per_s) if samples.streamed_per_s else "-"
            ),
        }


def speed(results: Results, case: str, contestant: str) -> float | None:
    """The median speed; None where it was not measured."""
    samples = results.get((case, contestant))
    return statistics.median(samples.per_s) if samples and samples.per_s else None
