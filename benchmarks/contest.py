"""Engines under the same load in turns: one computes while the others are paused."""

import random
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.peers.contestant import Ask, Contestant, Outcome
from hostelry.loadtest.tally import percentile

FIRST_TOKEN, LAST_TOKEN = 1000, 40000  # of random prompts: plain words
WAKE_TOKENS, WARM_TOKENS = 4, 8
QUIET_CPUS = (
    0.1  # other processes' use of the processors, up to which a batch counts as undisturbed
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One shape of load. Its requests take the `adapters` in turn."""

    name: str
    adapters: tuple[str | None, ...]
    prompt_tokens: int
    new_tokens: int
    temperature: float = 0.0

    @property
    def is_prefill(self) -> bool:
        """Whether the case measures reading of prompts, not writing of tokens."""
        return self.new_tokens == 1


@dataclass(slots=True)
class Samples:
    """What one contestant did in one case."""

    per_s: list[float] = field(default_factory=list)  # one value for each batch
    streamed_per_s: list[float] = field(default_factory=list)
    first_token_s: list[float] = field(default_factory=list)  # one value for each request
    between_s: list[float] = field(default_factory=list)  # one value for each pair of parts
    per_cpu_s: list[float] = field(default_factory=list)  # one value for each batch
    others_cpus: list[float] = field(default_factory=list)  # one value for each batch

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
    """Rounds over all cases and contestants. All contestants of a round get the same prompts."""

    def __init__(
        self,
        cases: Sequence[Case],
        seed: int,
        vocabulary: range | None = None,
        max_attempts: int = 1,
        streams: bool = True,
    ) -> None:
        self.results: Results = defaultdict(Samples)
        self.texts: dict[tuple[str, str], list[str]] = {}  # of the warm-up
        self._cases = cases
        self._seed = seed
        self._vocabulary = vocabulary or range(FIRST_TOKEN, LAST_TOKEN)
        self._max_attempts = max_attempts
        self._streams = streams

    def warm_up(self, contestant: Contestant, *, base_only: bool = False) -> None:
        """Run each case once, cut short and uncounted. `base_only` skips cases with adapters."""
        for case in self._cases:
            if base_only and any(case.adapters):
                continue
            asks = self._asks(case, "warm-up")
            short = [replace(ask, max_tokens=min(ask.max_tokens, WARM_TOKENS)) for ask in asks]
            answers = contestant.run(short).answers
            self.texts[case.name, contestant.name] = [answer.text for answer in answers]
        contestant.pause()

    def run_round(self, number: int, contestants: Sequence[Contestant]) -> None:
        """Run every contestant in turn, in reverse order every other round."""
        for contestant in contestants if number % 2 == 0 else reversed(contestants):
            self._wake(contestant)
            for case in self._cases:
                self._measure(number, case, contestant)
                contestant.measure_memory()
            contestant.pause()

    def _measure(self, number: int, case: Case, contestant: Contestant) -> None:
        outcome = self._quietest(number, case, contestant, streamed=False)
        samples = self.results[case.name, contestant.name]
        per_request = case.prompt_tokens if case.is_prefill else case.new_tokens
        num_tokens = len(case.adapters) * per_request
        samples.per_s.append(num_tokens / outcome.wall_s)
        samples.per_cpu_s.append(num_tokens / outcome.cpu_s if outcome.cpu_s else 0.0)
        samples.others_cpus.append(outcome.others_cpus)
        done = f"{samples.per_s[-1]:.1f} tokens/s, {samples.per_cpu_s[-1]:.1f} a processor second"
        print(f"{contestant.name}, {case.name}: {done}", flush=True)
        if outcome.answers[0].arrivals_s:
            samples.take_times(outcome)
        elif self._streams and not case.is_prefill:
            streamed = self._quietest(number, case, contestant, streamed=True)
            samples.streamed_per_s.append(streamed.tokens_per_s)
            samples.take_times(streamed)

    def _quietest(
        self, number: int, case: Case, contestant: Contestant, *, streamed: bool
    ) -> Outcome:
        """The attempt with the least interference from others. A quiet attempt is the last one.

        Each attempt has different prompts, so that none finds the work of another in a cache.
        """
        attempts: list[Outcome] = []
        while len(attempts) < self._max_attempts:
            occasion = f"round {number}, attempt {len(attempts)}, streamed {streamed}"
            attempts.append(contestant.run(self._asks(case, occasion), streamed=streamed))
            if attempts[-1].others_cpus <= QUIET_CPUS:
                break
        return min(attempts, key=lambda each: each.others_cpus)

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
                temperature=case.temperature,
            )
            for adapter in case.adapters
        ]


def speed_rows(results: Results) -> Iterator[dict[str, Any]]:
    """Speeds in new tokens, or in prompt tokens if the case reads prompts."""
    for (case, contestant), samples in results.items():
        yield {
            "case": case,
            "engine": contestant,
            "tokens/s": statistics.median(samples.per_s),
            "lowest": min(samples.per_s),
            "highest": max(samples.per_s),
            "rounds": len(samples.per_s),
            "tokens/cpu s": statistics.median(samples.per_cpu_s),
            "others' cpus": statistics.median(samples.others_cpus),
        }


def latency_rows(results: Results) -> Iterator[dict[str, Any]]:
    """Times to a request's first token and between tokens, over all rounds."""
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
    """The median speed, or None if it was not measured."""
    samples = results.get((case, contestant))
    return statistics.median(samples.per_s) if samples and samples.per_s else None
