"""A town with inference recommendations jobs. Tests move its reconcilers step by step."""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace
from tests.unit.recommendations.jobs import JOB, MODEL
from tests.unit.reconcile.samples import SCOPE, Town, get_shape

from hostelry.domain.endpoint import Endpoint
from hostelry.domain.hidden_endpoint import HiddenKind
from hostelry.domain.recommendation_job import (
    BenchmarkEnd,
    BenchmarkLoad,
    BenchmarkSnapshot,
    BenchmarkStep,
    RecommendationJob,
    RecommendationStatus,
)
from hostelry.domain.status import STOP_S
from hostelry.reconcile.recommendation_jobs import RecommendationJobs
from hostelry.store.protocol import Store

LOAD = BenchmarkLoad(
    began_at=0.0, ended_at=10.0, invocations_per_minute=600.0, latency_ms=9.5, num_users=2
)


def end_of(number: int, reason: str | None = None) -> BenchmarkEnd:
    """The runner's report of a step."""
    best = LOAD if reason is None else None
    return BenchmarkEnd(
        scope=SCOPE, job_name="sizes", number=number, load_began_at=1.0, load_ended_at=2.0,
        best=best, reason=reason,
    )  # fmt: skip


class RecommendationTown:
    """A town, and control's reconciler of recommendations jobs. `lines` are its log."""

    def __init__(
        self, store: Store | None = None, kind: HiddenKind = HiddenKind.RECOMMENDATION
    ) -> None:
        self.town = Town(store=store)
        self.state = self.town.state
        self.kind = kind
        is_ai = kind is HiddenKind.AI_RECOMMENDATION
        self.records = (
            self.state.ai_recommendation_jobs if is_ai else self.state.recommendation_jobs
        )
        self.lines: list[str] = []
        self.jobs = self._new_jobs()
        self.state.models.put(SCOPE, MODEL.name, MODEL, expect=None)

    def _new_jobs(self) -> RecommendationJobs:
        def note(job: RecommendationJob, lines: Iterable[str]) -> None:
            self.lines += lines

        town = self.town
        return RecommendationJobs(self.state, town.clock, town.facts, get_shape, note, self.kind)

    def add(self, **fields: Any) -> None:
        """Record a new job, as CreateInferenceRecommendationsJob does."""
        job = replace(JOB, **fields)
        self.records.put(job.scope, job.name, job, expect=None)

    def stop(self) -> None:
        """Stop the job, as the operation does."""
        found = self.records.get(SCOPE, "sizes")
        assert found is not None
        stopping = replace(
            found.value,
            status=RecommendationStatus.STOPPING,
            deadline_at=self.town.clock.now() + STOP_S,
        )
        self.records.put(SCOPE, "sizes", stopping, expect=found.version)

    def turn(self, times: int = 1) -> None:
        """Let both reconcilers and each instance take a step, `times` times."""
        for _ in range(times):
            self.jobs.loop.one_pass()
            self.town.turn()

    @property
    def snapshot(self) -> BenchmarkSnapshot:
        """The loads to send after the last step."""
        assert self.jobs.loop.snapshot is not None
        return self.jobs.loop.snapshot

    @property
    def running(self) -> list[int]:
        """The steps whose load is to be sent."""
        return [it.number for it in self.snapshot.tasks]

    def restart_control(self) -> None:
        """Restart control. Only its records survive."""
        self.town.restart_control()
        self.jobs = self._new_jobs()

    def job(self) -> RecommendationJob:
        """The recorded job."""
        found = self.records.get(SCOPE, "sizes")
        assert found is not None
        return found.value

    def step(self, number: int) -> BenchmarkStep:
        """A recorded step."""
        return self.job().steps[number - 1]

    def endpoints(self) -> list[Endpoint]:
        """The recorded endpoints."""
        return [it.value for it in self.state.endpoints.list()]
