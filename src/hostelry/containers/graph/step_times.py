"""Times of steps: of the last minute for `hostelry explain --graph`, and all for Prometheus."""

from collections import deque
from dataclasses import dataclass
from enum import Enum

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import generate_latest

from hostelry.base.clock import Clock

WINDOW_S = 60.0
MAX_KEPT = 4096  # of one step; of more the newest
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


class StepEnd(Enum):
    """How a step ended: with a value, by its rule without one, or with the whole call."""

    OK = "ok"
    DROPPED = "dropped"
    DEFAULT = "default"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class _Timed:
    at: float
    step_s: float
    end: StepEnd


class StepTimes:
    """Notes each end of a step; also the server's own requests."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._recent: dict[str, deque[_Timed]] = {}
        self._of_step: dict[tuple[str, StepEnd], tuple[Histogram, Counter]] = {}  # found once
        self._registry = CollectorRegistry(auto_describe=False)
        self._requests = Counter(
            "hostelry_model_requests", "Answered requests.", ["status"], registry=self._registry
        )
        self._request_s = Histogram(
            "hostelry_model_request_seconds",
            "From arrival to the answer.",
            buckets=SECONDS,
            registry=self._registry,
        )
        self._step_s = Histogram(
            "hostelry_graph_step_seconds",
            "From a step's begin to its end.",
            ["step"],
            buckets=SECONDS,
            registry=self._registry,
        )
        self._ends = Counter(
            "hostelry_graph_step_ends", "Ends of steps.", ["step", "end"], registry=self._registry
        )

    def answered(self, status: int, whole_s: float) -> None:
        """Count an answer."""
        self._requests.labels(status=str(status)).inc()
        self._request_s.observe(max(0.0, whole_s))
        self._note("", whole_s, StepEnd.OK if status < 400 else StepEnd.FAILED)

    def ended(self, step: str, step_s: float, end: StepEnd) -> None:
        """Count the end of a step."""
        found = self._of_step.get((step, end))
        if found is None:
            found = self._step_s.labels(step=step), self._ends.labels(step=step, end=end.value)
            self._of_step[step, end] = found
        found[0].observe(max(0.0, step_s))
        found[1].inc()
        self._note(step, step_s, end)

    def last_minute(self) -> dict[str, dict[str, float]]:
        """Of each step, and under the empty name of whole calls: counts of ends, times in ms."""
        since = self._clock.now() - WINDOW_S
        found: dict[str, dict[str, float]] = {}
        for step, kept in self._recent.items():
            while kept and kept[0].at < since:
                kept.popleft()
            if kept:
                times = sorted(it.step_s * 1000 for it in kept)
                ends = {end.value: float(sum(it.end is end for it in kept)) for end in StepEnd}
                found[step] = {
                    "count": float(len(kept)),
                    **ends,
                    "mean_ms": round(sum(times) / len(times), 3),
                    "p50_ms": round(times[len(times) // 2], 3),
                    "p99_ms": round(times[min(len(times) - 1, len(times) * 99 // 100)], 3),
                }
        return found

    def page(self) -> bytes:
        """The page in Prometheus' text format."""
        return generate_latest(self._registry)

    def _note(self, step: str, step_s: float, end: StepEnd) -> None:
        kept = self._recent.setdefault(step, deque(maxlen=MAX_KEPT))
        kept.append(_Timed(self._clock.now(), step_s, end))
