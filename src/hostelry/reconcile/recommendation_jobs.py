"""Recommendations jobs: the endpoints of their steps come up, and end with them."""

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from hostelry.base.clock import Clock
from hostelry.domain.copy import Copy
from hostelry.domain.endpoint import Endpoint
from hostelry.domain.hidden_endpoint import HiddenKind
from hostelry.domain.recommendation_job import (
    BenchmarkEnd,
    BenchmarkMetrics,
    BenchmarkSnapshot,
    BenchmarkStep,
    RecommendationJob,
    RecommendationStatus,
)
from hostelry.domain.shape import Shape
from hostelry.recommendations.results import UsagePoint, measure_cpus, measure_memory_bytes
from hostelry.reconcile.job_loop import JobKey, JobLoop, get_version
from hostelry.reconcile.plan.endpoint_state import NOTHING_KNOWN, InstanceFacts
from hostelry.reconcile.plan.hidden_endpoint import HiddenFleet, any_serves, find_problem
from hostelry.reconcile.plan.recommendation import (
    BenchmarkFleet,
    describe_changes,
    finish_step,
    list_tasks,
    plan_hidden_endpoints,
    plan_recommendation_job,
)
from hostelry.reconcile.record import list_hidden_jobs
from hostelry.store.records import State, Versioned, on_endpoint

MAX_POINTS = 1_000  # reports of usage that are kept for a step
Note = Callable[[RecommendationJob, Iterable[str]], None]


class RecommendationJobs:
    """The recommendations jobs of one kind in one control process, driven by `loop`.

    Args:
        facts: returns the facts about the instances' agents.
        get_shape: returns the declared resources of an instance type.
        note: writes lines to the log stream of a job.
        kind: RECOMMENDATION, or AI_RECOMMENDATION.

    Reports of usage are kept in memory while a step is measured: after a restart of control the
    utilization of that step may be unknown.
    """

    def __init__(
        self,
        state: State,
        clock: Clock,
        facts: Callable[[], Mapping[str, InstanceFacts]],
        get_shape: Callable[[str], Shape],
        note: Note = lambda *_: None,
        kind: HiddenKind = HiddenKind.RECOMMENDATION,
    ) -> None:
        is_ai = kind is HiddenKind.AI_RECOMMENDATION
        self._records = state.ai_recommendation_jobs if is_ai else state.recommendation_jobs
        self.loop: JobLoop[RecommendationJob, BenchmarkSnapshot] = JobLoop(
            "AI recommendation jobs" if is_ai else "recommendations jobs",
            self._records,
            clock,
            self._drive,
            self._build_snapshot,
            partial(list_hidden_jobs, state, kind),
        )
        self._state = state
        self._clock = clock
        self._facts = facts
        self._get_shape = get_shape
        self._note = note
        self._usage: dict[tuple[JobKey, int], deque[UsagePoint]] = defaultdict(
            lambda: deque(maxlen=MAX_POINTS)
        )

    def _build_snapshot(self, jobs: Sequence[RecommendationJob]) -> BenchmarkSnapshot:
        """The loads to be sent. Forgets the usage of steps that are not measured any more."""
        tasks = [task for job in jobs for task in list_tasks(job)]
        measured = {((it.scope, it.job_name), it.number) for it in tasks}
        for key in [it for it in self._usage if it not in measured]:
            del self._usage[key]
        ordered = tuple(sorted(tasks, key=lambda it: (it.scope.region, it.job_name, it.number)))
        return BenchmarkSnapshot(version=get_version(ordered), tasks=ordered)

    def _drive(self, stored: Versioned[RecommendationJob], now: float) -> RecommendationJob:
        state, job = self._state, stored.value
        with state.writing:
            found = {it.number: self._find_endpoint(job, it) for it in job.steps}
            fleet = self._build_fleet(job, found)
            after = plan_recommendation_job(job, fleet, now)
            if after != job:
                self._records.put(job.scope, job.name, after, expect=stored.version)
            versions = {it.value.name: it.version for it in found.values() if it is not None}
            generation = state.store.revision() + 1
            for wanted in list(plan_hidden_endpoints(after, fleet, generation, now)):
                expect = versions.get(wanted.name)
                state.endpoints.put(job.scope, wanted.name, wanted, expect=expect)
        self._note(after, describe_changes(job, after))
        return after

    def _find_endpoint(
        self, job: RecommendationJob, step: BenchmarkStep
    ) -> Versioned[Endpoint] | None:
        if step.status is RecommendationStatus.PENDING and step.endpoint_name is None:
            return None
        return self._state.endpoints.get(job.scope, job.measured_endpoint(step))

    def _build_fleet(
        self, job: RecommendationJob, found: Mapping[int, Versioned[Endpoint] | None]
    ) -> BenchmarkFleet:
        fleets = {}
        for step in job.steps:
            stored = found[step.number]
            if stored is not None:
                fleets[step.number] = self._look_at(job, step, stored.value)
        return BenchmarkFleet(
            fleets=fleets, has_model=self._has_model(job), asked_at=self.loop.asked_at
        )

    def _has_model(self, job: RecommendationJob) -> bool:
        """Whether the job's model still exists. An AI recommendation job has its own model."""
        model = job.model
        present = model and self._state.models.get(job.scope, model.name)
        is_same = bool(model and present and present.value.created_at == model.created_at)
        return is_same or job.search is not None

    def _look_at(
        self, job: RecommendationJob, step: BenchmarkStep, endpoint: Endpoint
    ) -> HiddenFleet:
        """What there is of a step's endpoint. Its copies' usage is kept."""
        model = endpoint.active.variants[0].model
        if model is None or step.status is not RecommendationStatus.IN_PROGRESS:
            return HiddenFleet(endpoint=endpoint, asked_at=self.loop.asked_at)
        copies = on_endpoint(self._state.copies, job.scope, endpoint.name).values()
        if step.endpoint_name is None and step.served_at is not None:
            self._keep_usage(job, step, copies)
        return HiddenFleet(
            endpoint=endpoint,
            serves=any_serves(model, copies),
            problem=find_problem(copies),
            asked_at=self.loop.asked_at,
        )

    def _keep_usage(
        self, job: RecommendationJob, step: BenchmarkStep, copies: Collection[Copy]
    ) -> None:
        facts = self._facts()
        ids = {it.spec.id for it in copies}
        hosts = {it.instance_id for it in copies}
        reports = [facts.get(it, NOTHING_KNOWN).observation for it in hosts]
        statuses = [it for seen in reports if seen is not None for it in seen.copies]
        measured = [it for it in statuses if it.id in ids and it.cpu_at]
        if not measured:
            return
        point = UsagePoint(
            at=self._clock.now(),
            cpu_s=sum(it.cpu_s for it in measured),
            cpu_at=max(it.cpu_at for it in measured),
            memory_bytes=sum(it.memory_bytes for it in measured),
        )
        points = self._usage[(job.scope, job.name), step.number]
        if not points or points[-1].cpu_at != point.cpu_at:
            points.append(point)

    def finish(self, end: BenchmarkEnd) -> bool:
        """Record durably how a step ended. False without such a job. A repeat changes nothing."""
        with self._state.writing:
            found = self._records.get(end.scope, end.job_name)
            if found is None:
                return False
            job, now = found.value, self._clock.now()
            after = finish_step(job, end, self._measure(job, end), now)
            if after != job:
                self._records.put(job.scope, job.name, after, expect=found.version)
        self._note(after, describe_changes(job, after))
        return True

    def _measure(self, job: RecommendationJob, end: BenchmarkEnd) -> BenchmarkMetrics | None:
        """The measures of a step that succeeded."""
        step = next((it for it in job.steps if it.number == end.number), None)
        if end.best is None or step is None:
            return None
        metrics = BenchmarkMetrics(
            invocations_per_minute=end.best.invocations_per_minute,
            latency_ms=end.best.latency_ms,
            llm=end.best.llm,
        )
        if step.instance_type is None:
            return metrics
        points = tuple(self._usage.get(((job.scope, job.name), step.number), ()))
        cpus, memory_bytes = measure_cpus(points, end.best), measure_memory_bytes(points, end.best)
        whole_bytes = self._get_shape(step.instance_type).memory_bytes
        is_setup = step.begun_at is not None and step.served_at is not None
        return replace(
            metrics,
            cpu_percent=None if cpus is None else 100 * cpus,
            memory_percent=None if memory_bytes is None else 100 * memory_bytes / whole_bytes,
            setup_s=(step.served_at or 0.0) - (step.begun_at or 0.0) if is_setup else None,
        )
