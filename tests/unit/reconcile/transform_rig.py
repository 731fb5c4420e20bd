"""A town with transform jobs. Tests move its reconcilers step by step."""

from typing import Any

from msgspec.structs import replace
from tests.unit.reconcile.samples import NOW, SCOPE, Town, model

from hostelry.domain.endpoint import Endpoint
from hostelry.domain.status import TRANSFORM_S
from hostelry.domain.transform_job import (
    TransformEnd,
    TransformInput,
    TransformInputKind,
    TransformJob,
    TransformJobStatus,
    TransformOutput,
    TransformSnapshot,
)
from hostelry.reconcile.transform_jobs import TransformJobs
from hostelry.store.protocol import Store

COMPLETED = TransformEnd(scope=SCOPE, name="nightly", status=TransformJobStatus.COMPLETED)


def transform_job(name: str = "nightly", **more: Any) -> TransformJob:
    """A new job with two instances."""
    fields: dict[str, Any] = {
        "scope": SCOPE,
        "name": name,
        "arn": SCOPE.arn("transform-job", name),
        "created_at": NOW,
        "modified_at": NOW,
        "status": TransformJobStatus.IN_PROGRESS,
        "model": model("m"),
        "instance_type": "ml.small",
        "instance_count": 2,
        "input": TransformInput(kind=TransformInputKind.PREFIX, uri="s3://in/csv"),
        "output": TransformOutput(path="s3://out"),
        "deadline_at": NOW + TRANSFORM_S,
        "given": {},
    }
    return TransformJob(**{**fields, **more})


class TransformTown:
    """A town, and control's reconciler of transform jobs."""

    def __init__(self, store: Store | None = None) -> None:
        self.town = Town(store=store)
        self.state = self.town.state
        self.jobs = TransformJobs(self.state, self.town.clock)

    def add(self, *jobs: TransformJob) -> None:
        """Record new jobs, as CreateTransformJob does."""
        for job in jobs or (transform_job(),):
            self.state.transform_jobs.put(job.scope, job.name, job, expect=None)

    def change(self, name: str = "nightly", **fields: Any) -> None:
        """Change a job's record, as an operation does."""
        found = self.state.transform_jobs.get(SCOPE, name)
        assert found is not None
        self.state.transform_jobs.put(
            SCOPE, name, replace(found.value, **fields), expect=found.version
        )

    def turn(self, times: int = 1) -> None:
        """Let both reconcilers and each instance take a step, `times` times."""
        for _ in range(times):
            self.jobs.loop.one_pass()
            self.town.turn()

    @property
    def snapshot(self) -> TransformSnapshot:
        """The jobs to run after the last step."""
        assert self.jobs.loop.snapshot is not None
        return self.jobs.loop.snapshot

    def restart_control(self) -> None:
        """Restart control. Only its records survive."""
        self.town.restart_control()
        self.jobs = TransformJobs(self.state, self.town.clock)

    def job(self, name: str = "nightly") -> TransformJob:
        """The recorded job."""
        found = self.state.transform_jobs.get(SCOPE, name)
        assert found is not None
        return found.value

    def endpoint(self, name: str = "nightly") -> Endpoint | None:
        """The recorded endpoint of a job."""
        found = self.state.endpoints.get(SCOPE, f"transform-job/{name}")
        return None if found is None else found.value
