"""Counts and times of the server's requests since its start, bounded in size."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from hostelry.base.clock import Clock, MonotonicClock
from hostelry.containers.lmi.response.generated import GeneratedSequence, Piece
from hostelry.containers.lmi.response.generation import RunningSequence
from hostelry.engine.request import FinishReason
from hostelry.graph.step_report import StepReport

# The bounds that vLLM's dashboards know, and smaller bounds for small models.
FIRST_TOKEN_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40,
    80, 160, 640, 2560,
)  # fmt: skip
TOKEN_S = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5,
    7.5, 10, 20, 40, 80,
)  # fmt: skip
REQUEST_S = (
    0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480,
    960, 1920, 7680,
)  # fmt: skip
TOKENS = tuple(digit * 10**power for power in range(6) for digit in (1, 2, 5))
SEQUENCES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)

MAX_ADAPTERS = 1000  # adapters with separate counts. All others share OTHERS.
OTHERS = "(others)"
FINISHED = {
    FinishReason.LENGTH: "length",
    FinishReason.EOS: "stop",
    FinishReason.STOP: "stop",
    FinishReason.REPETITION: "repetition",
    FinishReason.ABORT: "abort",
    FinishReason.DEADLINE: "abort",
    FinishReason.REFUSED: "error",
    FinishReason.ERROR: "error",
}


class BucketCounts:
    """Counts of values up to each of `bounds`, ascending, and their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def buckets(self) -> list[tuple[str, float]]:
        """Each bound as text and the number of values up to it. The last bound is +Inf."""
        found: list[tuple[str, float]] = []
        below = 0
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            below += count
            text = "+Inf" if bound == float("inf") else str(float(bound))
            found.append((text, float(below)))
        return found


class AdapterCounts(msgspec.Struct):
    """Counts of one adapter's sequences. `waiting` sequences have no token yet."""

    requests: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    waiting: int = 0
    running: int = 0


class Measurements(msgspec.Struct):
    """Counts and distributions of every sequence of every request.

    `finished` counts by vLLM's names of reasons, `refused` requests by status.
    """

    clock: Clock = msgspec.field(default_factory=MonotonicClock)
    first_token_s: BucketCounts = msgspec.field(default_factory=lambda: BucketCounts(FIRST_TOKEN_S))
    between_tokens_s: BucketCounts = msgspec.field(default_factory=lambda: BucketCounts(TOKEN_S))
    mean_token_s: BucketCounts = msgspec.field(default_factory=lambda: BucketCounts(TOKEN_S))
    whole_s: BucketCounts = msgspec.field(default_factory=lambda: BucketCounts(REQUEST_S))
    queued_s: BucketCounts = msgspec.field(default_factory=lambda: BucketCounts(REQUEST_S))
    computed_s: BucketCounts = msgspec.field(default_factory=lambda: BucketCounts(REQUEST_S))
    prefill_s: BucketCounts = msgspec.field(default_factory=lambda: BucketCounts(REQUEST_S))
    decode_s: BucketCounts = msgspec.field(default_factory=lambda: BucketCounts(REQUEST_S))
    prompt_lengths: BucketCounts = msgspec.field(default_factory=lambda: BucketCounts(TOKENS))
    generated_lengths: BucketCounts = msgspec.field(default_factory=lambda: BucketCounts(TOKENS))
    most_tokens: BucketCounts = msgspec.field(default_factory=lambda: BucketCounts(TOKENS))
    sequences: BucketCounts = msgspec.field(default_factory=lambda: BucketCounts(SEQUENCES))
    prompt_tokens: int = 0
    generated_tokens: int = 0
    finished: Counter[str] = msgspec.field(default_factory=Counter)
    refused: Counter[int] = msgspec.field(default_factory=Counter)
    adapters: dict[str, AdapterCounts] = msgspec.field(default_factory=dict)

    @contextmanager
    def running(
        self, sequences: Sequence[RunningSequence], arrived_at: float
    ) -> Iterator["RequestMeasure"]:
        """Measure a request of `sequences` that came at `arrived_at` of this clock."""
        measure = RequestMeasure(self, sequences, arrived_at)
        try:
            yield measure
        except Exception:
            measure.end("error")
            raise
        finally:
            measure.end("abort")

    def adapter(self, name: str) -> AdapterCounts:
        """The counts of an adapter."""
        found = self.adapters.get(name)
        if found is None:
            kept = name if len(self.adapters) < MAX_ADAPTERS else OTHERS
            found = self.adapters.setdefault(kept, AdapterCounts())
        return found

    def forget_adapters(self, registered: Collection[str]) -> None:
        """Drop the counts of adapters that are gone and have no request in flight."""
        gone = [
            name
            for name, counts in self.adapters.items()
            if name not in registered and name != OTHERS and not counts.running + counts.waiting
        ]
        for name in gone:
            del self.adapters[name]


class SequenceMeasure(msgspec.Struct):
    """Instants and counts of one sequence."""

    sequence: GeneratedSequence
    adapter: AdapterCounts | None
    first_at: float | None = None
    last_at: float = 0.0
    num_tokens: int = 0


class RequestMeasure:
    """Measures one request, from the arrival of its body to its last token."""

    def __init__(
        self, total: Measurements, sequences: Sequence[RunningSequence], arrived_at: float
    ) -> None:
        self._total = total
        self._arrived_at = arrived_at
        self._open: dict[int, SequenceMeasure] = {}
        self._shown: SequenceMeasure | None = None  # the first sequence
        total.sequences.add(len(sequences))
        for each in sequences:
            name = each.request.adapter
            counts = None if name is None else total.adapter(name)
            opened = self._open[each.index] = SequenceMeasure(each.generated, counts)
            self._shown = self._shown or opened
            total.most_tokens.add(each.request.sampling.max_new_tokens)
            if counts is not None:
                counts.requests += 1
                counts.waiting += 1

    def take(self, pieces: Sequence[tuple[RunningSequence, Piece]]) -> None:
        """Count one step's tokens, which are here now."""
        total, now = self._total, self._total.clock.now()
        for running, piece in pieces:
            measure = self._open.get(running.index)
            if measure is None:
                continue
            if piece.token_id is not None:
                total.generated_tokens += 1
                measure.num_tokens += 1
                if measure.first_at is None:
                    self._first(measure, now)
                else:
                    total.between_tokens_s.add(now - measure.last_at)
                measure.last_at = now
            if piece.finish_reason is not None:
                self._end(running.index, FINISHED[piece.finish_reason])

    def phases(self) -> tuple[StepReport, ...]:
        """Queue, prefill and decode of the request's first sequence, as far as they are over."""
        shown = self._shown
        if shown is None or shown.first_at is None or shown.sequence.queued_s is None:
            return ()
        queued_s, first_s = shown.sequence.queued_s, shown.first_at - self._arrived_at
        spans = [("queue", 0.0, queued_s), ("prefill", queued_s, max(queued_s, first_s))]
        if shown.last_at > shown.first_at:
            spans.append(("decode", first_s, shown.last_at - self._arrived_at))
        return tuple(
            StepReport(
                name=name,
                kind="engine",
                under="",
                at_ms=round(1000 * begin_s, 3),
                ms=round(1000 * (end_s - begin_s), 3),
                end="ok",
            )
            for name, begin_s, end_s in spans
        )

    def end(self, reason: str) -> None:
        """Count the sequences that have not ended as ended for `reason`."""
        for index in list(self._open):
            self._end(index, reason)

    def _first(self, measure: SequenceMeasure, now: float) -> None:
        total, sequence = self._total, measure.sequence
        prompt_tokens = 0 if sequence.shares_prompt else sequence.num_prompt_tokens
        measure.first_at = now
        total.first_token_s.add(now - self._arrived_at)
        total.prompt_tokens += prompt_tokens
        if measure.adapter is not None:
            measure.adapter.waiting -= 1
            measure.adapter.running += 1
            measure.adapter.prompt_tokens += prompt_tokens

    def _end(self, index: int, reason: str) -> None:
        measure, total = self._open.pop(index), self._total
        total.finished[reason] += 1
        counts = measure.adapter
        if counts is not None:
            counts.generated_tokens += measure.num_tokens
            counts.running -= measure.first_at is not None
            counts.waiting -= measure.first_at is None
        if measure.first_at is None:
            if reason == "length":  # its prompt was scored, and no token asked for
                total.prompt_tokens += measure.sequence.num_prompt_tokens
            return
        decode_s = measure.last_at - measure.first_at
        total.whole_s.add(measure.last_at - self._arrived_at)
        total.decode_s.add(decode_s)
        total.prompt_lengths.add(measure.sequence.num_prompt_tokens)
        total.generated_lengths.add(measure.num_tokens)
        if measure.num_tokens > 1:
            total.mean_token_s.add(decode_s / (measure.num_tokens - 1))
        queued_s = measure.sequence.queued_s
        if queued_s is not None:
            computing_at = self._arrived_at + queued_s
            total.queued_s.add(queued_s)
            total.prefill_s.add(max(0.0, measure.first_at - computing_at))
            total.computed_s.add(max(0.0, measure.last_at - computing_at))
