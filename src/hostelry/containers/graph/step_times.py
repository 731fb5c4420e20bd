"""The steps of a graph's calls: a record of each call, and counts and times of all calls."""

from collections import deque
from enum import Enum

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import generate_latest

from hostelry.base.clock import Clock
from hostelry.graph.progress import ReadyStep
from hostelry.graph.step_report import StepReport, add_owners, encode_steps, find_owners
from hostelry.graph.steps import GraphPlan

UNDER_WAY = "under way"
HIT = "hit"
WINDOW_S = 60.0
MAX_KEPT = 4096  # times of one step, the newest
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


class _StepNote(msgspec.Struct):
    """A step, or one item of a step. Without `ended_at` it still runs."""

    name: str
    is_item: bool
    began_at: float
    ended_at: float | None = None
    end: str = UNDER_WAY
    bytes_in: int = 0
    bytes_out: int = 0
    request_id: str = ""


class StepRecord:
    """The steps of one call. `began_at` is the call's beginning, by the clock of all instants."""

    def __init__(self, plan: GraphPlan, began_at: float) -> None:
        self._plan = plan
        self._began_at = began_at
        self._notes: dict[str, _StepNote] = {}

    def note_begin(self, ready: ReadyStep, at: float) -> None:
        """Note the beginning of a step."""
        self._notes[ready.key] = _StepNote(ready.name, ready.item is not None, at)

    def note_request(self, key: str, num_bytes: int) -> None:
        """Note the size of the body of a step's request."""
        self._notes[key].bytes_in = num_bytes

    def note_answer(self, key: str, num_bytes: int, request_id: str) -> None:
        """Note the gateway's answer to a step's request."""
        note = self._notes[key]
        note.bytes_out, note.request_id = num_bytes, request_id

    def note_end(self, ready: ReadyStep, at: float, end: str) -> None:
        """Note the end of a step."""
        note = self._notes[ready.key]
        note.ended_at, note.end = at, end

    def header(self, now: float) -> str:
        """The header's value at `now`: at the end of the call or the beginning of its stream."""
        above = find_owners(self._plan)
        rows = []
        for key, note in self._notes.items():
            step = self._plan.steps[note.name]
            until = now if note.ended_at is None else note.ended_at
            rows.append(
                StepReport(
                    name=key,
                    kind="call" if note.is_item else step.kind,
                    under=note.name if note.is_item else above.get(key, ""),
                    at_ms=round((note.began_at - self._began_at) * 1000, 3),
                    ms=round((until - note.began_at) * 1000, 3),
                    end=note.end,
                    bytes_in=note.bytes_in,
                    bytes_out=note.bytes_out,
                    request_id=note.request_id,
                )
            )
        return encode_steps(add_owners(rows, self._plan))


class StepEnd(Enum):
    """The end of a step: with a value, without a value by its rule, or a failure of the call."""

    OK = "ok"
    DROPPED = "dropped"
    DEFAULT = "default"
    FAILED = "failed"


class _Timed(msgspec.Struct, frozen=True):
    at: float
    step_s: float
    end: StepEnd


class StepTimes:
    """Counts and times of steps and of whole calls."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._recent: dict[str, deque[_Timed]] = {}
        self._of_step: dict[tuple[str, StepEnd], tuple[Histogram, Counter]] = {}  # cached
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

    def count_answer(self, status: int, whole_s: float) -> None:
        """Count an answer."""
        self._requests.labels(status=str(status)).inc()
        self._request_s.observe(max(0.0, whole_s))
        self._note("", whole_s, StepEnd.OK if status < 400 else StepEnd.FAILED)

    def count_end(self, step: str, step_s: float, end: StepEnd) -> None:
        """Count the end of a step."""
        found = self._of_step.get((step, end))
        if found is None:
            found = self._step_s.labels(step=step), self._ends.labels(step=step, end=end.value)
            self._of_step[step, end] = found
        found[0].observe(max(0.0, step_s))
        found[1].inc()
        self._note(step, step_s, end)

    def last_minute(self) -> dict[str, dict[str, float]]:
        """Counts of ends and times in ms per step. The empty name is the whole calls."""
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
