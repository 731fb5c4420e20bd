"""Requests and a batch that outlive twenty kills: each answered exactly once."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from random import Random
from threading import Event

from hostelry.base.clock import monotonic_s
from hostelry_lab.context import DrillContext
from hostelry_lab.jobs.deployment import JobsDeployment
from hostelry_lab.jobs.findings import (
    NotificationFindings,
    read_answers,
    read_notifications,
    read_records,
    request_facts,
    stray_notifications,
    write_files,
)
from hostelry_lab.jobs.jobs_ledger import JobsLedger, count_records, count_requests
from hostelry_lab.jobs.kills import KillRun, Victims, killed_kinds
from hostelry_lab.jobs.plan import (
    PlannedFile,
    planned_files,
    planned_kills,
    planned_requests,
)
from hostelry_lab.jobs.progress import JobsProgress
from hostelry_lab.jobs.submissions import DrillSubmissions
from hostelry_lab.outcome import DrillOutcome

NAME = "jobs"
TARGET = "each request and record answered once, failures only where the model refuses"
UNANSWERED_SHARE, MIN_UNANSWERED = 0.1, 50  # of the requests may wait at once
STUCK_S = 180.0  # without any progress
NOTIFIED_S = 60.0  # without any new notification
POLL_S = 0.2


def jobs(context: DrillContext) -> DrillOutcome:
    """Submit requests and a batch, kill processes meanwhile, and count the outcome of each."""
    with JobsDeployment(context.platform).deploy() as deployment:
        ledger = JobsDrill(context, deployment).run()
    return DrillOutcome(
        drill=NAME,
        target=TARGET,
        lost=tuple(ledger.lost()),
        missed=tuple(ledger.broken()),
        kept=f"{ledger.requests.answered} requests answered, {ledger.records.answered} records",
        jobs=ledger,
    )


@dataclass(slots=True)
class WorkTimes:
    """Instants of the drill's work."""

    began_at: float
    requests_over_at: float | None = None
    records_over_at: float | None = None


class JobsDrill:
    """One run of the drill on its deployment."""

    def __init__(self, context: DrillContext, deployment: JobsDeployment) -> None:
        self._context = context
        self._deployment = deployment
        self._sizes = context.jobs_sizes
        self._requests = planned_requests(self._sizes)
        self._files = planned_files(self._sizes)
        self._stuck: list[str] = []
        num_requests = len(self._requests)
        most = max(MIN_UNANSWERED, int(UNANSWERED_SHARE * num_requests))
        self._submissions = DrillSubmissions(
            deployment,
            self._requests,
            lambda acknowledged: acknowledged - self._progress.ended < most,
        )
        self._progress = JobsProgress(
            context.platform,
            deployment.name,
            num_requests,
            lambda: self._submissions.num_acknowledged,
        )

    def run(self) -> JobsLedger:
        """Do the work under kills, then count."""
        context, deployment, sizes = self._context, self._deployment, self._sizes
        context.progress(
            f"{NAME}: seed {sizes.seed}, {sizes.num_requests} requests, {sizes.num_records}"
            f" records in {len(self._files)} files, {sizes.num_kills} kills"
        )
        write_files(deployment, self._files)
        kills = KillRun(
            planned_kills(sizes, killed_kinds(context.platform)),
            Victims(context.platform, deployment, self._progress),
            self._progress,
            Random(f"{sizes.seed} victims"),
            context.progress,
        )
        times = WorkTimes(monotonic_s())
        with ExitStack() as work:
            deployment.start_job()
            work.enter_context(self._progress.watching())
            work.enter_context(self._submissions.running(context.num_threads))
            work.enter_context(kills.running())
            self._wait("the work", lambda: self._is_over(kills), self._work_changed_at)
        times.requests_over_at = self._progress.requests_over_at
        times.records_over_at = self._progress.job_over_at
        return self._count(kills, times)

    def _is_over(self, kills: KillRun) -> bool:
        return self._submissions.is_over and self._progress.is_over and kills.is_over

    def _work_changed_at(self) -> float:
        return self._progress.changed_at

    def _wait(
        self, what: str, is_over: Callable[[], bool], changed_at: Callable[[], float]
    ) -> None:
        """Wait until it is over. Work that makes no more progress is a broken promise."""
        while not is_over():
            if monotonic_s() - changed_at() > STUCK_S:
                self._stuck.append(
                    f"{what} made no progress for {STUCK_S:g} s: {self._progress.ended} of"
                    f" {len(self._requests)} requests had ended, the batch was at"
                    f" {self._progress.job}"
                )
                return
            Event().wait(POLL_S)

    def _notifications(self) -> NotificationFindings:
        """All notifications, once each ended request has one, or no more come."""
        found, changed_at = read_notifications(self._deployment), monotonic_s()
        while found.total() < self._progress.ended and monotonic_s() - changed_at < NOTIFIED_S:
            Event().wait(1.0)
            again = read_notifications(self._deployment)
            changed_at = changed_at if again.messages == found.messages else monotonic_s()
            found = again
        return found

    def _count(self, kills: KillRun, times: WorkTimes) -> JobsLedger:
        deployment, tries = self._deployment, self._submissions.tries
        self._context.progress(f"{NAME}: reading the notifications and every output")
        notes = self._notifications()
        objects = read_answers(deployment, tries)
        records, stray_outputs = read_records(deployment, self._files)
        job = self._progress.job or {"status": "none", "failure_reason": None}
        over_at = monotonic_s()
        return JobsLedger(
            sizes=self._sizes,
            num_files=len(self._files),
            requests=count_requests(request_facts(tries, objects, notes)),
            records=count_records(self._files, records),
            refusals=dict(self._submissions.refusals),
            messages=notes.messages,
            repeats=notes.repeats,
            strays=objects.strays + stray_outputs + stray_notifications(tries, notes),
            job_end=f"{job['status']}: {job['failure_reason']}",
            job_as_due=is_end_due(self._files, str(job["status"]), job["failure_reason"] or ""),
            kills=kills.reports(),
            requests_s=(times.requests_over_at or over_at) - times.began_at,
            records_s=(times.records_over_at or over_at) - times.began_at,
            stuck=tuple(self._stuck),
        )


def is_end_due(files: Sequence[PlannedFile], status: str, reason: str) -> bool:
    """Whether a batch of these files must end so: Failed, with the number of files that must fail.

    The reason names one of them, and has the model's own words.
    """
    refused = [it for it in files if it.refused is not None]
    if not refused:
        return status == "Completed"
    count = f"ClientError: {len(refused)} of {len(files)} objects failed."
    named = any(it.refusal.decode() in reason and f"/{it.name}:" in reason for it in refused)
    return status == "Failed" and reason.startswith(count) and named
